"""Detects that many objects are being written at this time, as by `kubectl apply` of a folder or a GitOps sync. Pure.

Each status is one more write for an API server that is busy with such edits. Statuses that were written at once would
delay the remaining edits, and would have to be written again after the next one. So they wait for the end of a rush,
but not for long: people and tools wait for them too.
"""

from typing import Final

BURST: Final = 20
"""How many objects may change at once without being a rush."""
RATE: Final = 20.0
"""How many objects per second may change continuously without being a rush."""
QUIET_S: Final = 0.3
"""A rush ends when nothing has changed for this long."""
MAX_S: Final = 3.0
"""Statuses wait no longer than this, however long the rush lasts; the next rush begins only after a quiet time."""


class Rush:
    """Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._level = 0.0
        """The level of a leaky bucket: objects that have changed, less `RATE` per second."""
        self._newest_s = 0.0
        self._since_s: float | None = None
        """When the rush began. Kept until the first change after a quiet period; None: no rush since then."""

    def note(self, objects: int, now_s: float) -> None:
        """Count `objects` that were changed by others, not by us."""
        if not objects:
            return
        if now_s - self._newest_s >= QUIET_S:
            self._since_s = None
            self._level = min(self._level, BURST)  # otherwise, after thousands, single edits would be rushes for long
        self._level = max(0.0, self._level - (now_s - self._newest_s) * RATE) + objects
        self._newest_s = now_s
        if self._since_s is None and self._level > BURST:
            self._since_s = now_s

    def over_s(self, now_s: float) -> float:
        """The time from which statuses need not wait any more; at or before `now_s`: there is no rush."""
        if self._since_s is None:
            return now_s
        return min(self._newest_s + QUIET_S, self._since_s + MAX_S)
