"""Which values of which record sets a store serves, looked up by those few that ask (pure)."""

from collections.abc import Sequence
from functools import cached_property

from dnswebhook.model import Record


class Served:
    """Of one listing. Any thread may ask."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    def values(self, name: str, record_type: str) -> frozenset[str]:
        return frozenset(self._values.get((name, record_type), ()))

    @cached_property
    def _values(self) -> dict[tuple[str, str], list[str]]:
        values: dict[tuple[str, str], list[str]] = {}
        for record in self.records:
            if record.is_enabled:
                values.setdefault((record.name, record.type), []).append(record.value)
        return values


NOTHING_SERVED = Served(())
