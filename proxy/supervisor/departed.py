"""Metric series that no worker counts any more: kept for a while, so that their last values are scraped."""

from collections.abc import Sequence
from typing import Final

from proxy.supervisor.totals import Series, Totals

LINGER_S: Final = 600.0


class Departed:
    """Pure: times are passed in."""

    def __init__(self) -> None:
        self._since_s: dict[Series, float] = {}

    def forget(self, totals: Sequence[Totals], now_s: float) -> None:
        """Remove series that no worker has counted for LINGER_S from the totals of all slots. All at once: removing
        only part of a counter would look like a counter reset."""
        kept = set[Series]().union(*(each.kept for each in totals))
        gone = kept.difference(*(each.counted for each in totals))
        self._since_s = {series: self._since_s.get(series, now_s) for series in gone}
        due = {series for series, since_s in self._since_s.items() if now_s >= since_s + LINGER_S}
        for each in totals:
            each.forget(due)
