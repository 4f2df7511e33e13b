"""Which values of which record sets a store serves; indexed only on demand, which is rare (pure)."""

from collections.abc import Iterable, Sequence
from functools import cached_property

from dnswebhook.model import Record


class Served:
    """What one listing serves. Any thread may call."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    def among(self, name: str, record_type: str, values: Iterable[str]) -> frozenset[str]:
        """Those of `values` that are served."""
        return frozenset(self._values.get((name, record_type), ())).intersection(values)

    @cached_property
    def _values(self) -> dict[tuple[str, str], list[str]]:
        values: dict[tuple[str, str], list[str]] = {}
        for record in self.records:
            if record.is_enabled:
                values.setdefault((record.name, record.type), []).append(record.value)
        return values


class _Unlisted(Served):
    """Before the first listing, anything may be served: external-dns would delete what is assumed not to be."""

    def among(self, name: str, record_type: str, values: Iterable[str]) -> frozenset[str]:  # noqa: ARG002
        return frozenset(values)


UNLISTED = _Unlisted(())
