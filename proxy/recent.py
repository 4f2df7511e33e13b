"""A bounded dictionary for caches on the hot path: two generations instead of a clock on every hit.

Readers look into `young` directly, one C call. On a miss they ask `revive`, which moves an entry of the older
generation back. When the young generation is full, it becomes the old one and the old one is dropped: what is in use
survives, what an attacker floods in is gone after two generations.

What comes once and never again is better not entered at all: `met_before` knows what comes for the second time. A
trace of each key lies in a table of fixed size, where younger ones overwrite older ones.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_TRACES = 1 << 15


class Recent(Generic[K, V]):
    """At most `max_entries` and `max_bytes` (as stated by whoever adds) in both generations together."""

    __slots__ = ("_bytes", "_half_bytes", "_half_entries", "_traces", "old", "young")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._half_entries = max_entries // 2
        self._half_bytes = max_bytes // 2
        self._bytes = 0
        self._traces = bytearray(_TRACES)
        self.young: dict[K, V] = {}
        self.old: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def revive(self, key: K, size_bytes: int) -> V | None:
        value = self.old.pop(key, None)
        if value is not None:
            self.add(key, value, size_bytes)
        return value

    def add(self, key: K, value: V, size_bytes: int) -> None:
        if len(self.young) >= self._half_entries or self._bytes + size_bytes > self._half_bytes:
            # The dictionary is kept, emptied: readers hold a reference to it.
            self.old = self.young.copy()
            self.young.clear()
            self._bytes = 0
        self.young[key] = value
        self._bytes += size_bytes

    def met_before(self, keys: Iterable[K]) -> list[K]:
        """Those that were asked about before, or are of the older generation; one of 256 others passes for that."""
        traces, old = self._traces, self.old
        met = []
        for key in keys:
            # At once down to a number of one digit, with which all else is cheaper.
            trace = hash(key) & 0x7FFFFF
            place, mark = trace % _TRACES, trace >> 15
            if traces[place] == mark or key in old:
                met.append(key)
            else:
                traces[place] = mark
        return met
