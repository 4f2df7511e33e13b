"""A bounded dictionary for caches on the hot path: two generations instead of a clock on every hit.

Readers look into `young` directly, one C call. On a miss they call `revive`, which moves an entry back from the old
generation. When the young generation is full, it becomes the old one and the old one is dropped: what is in use
survives, what an attacker floods in is gone after two generations.

Keys that come only once had better not be added at all: `met_before` recognises those that come for the second time. It
keeps a trace of each key in a table of fixed size, where newer traces overwrite older ones.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_TRACES = 1 << 15


class Recent(Generic[K, V]):
    """At most `max_entries` and `max_bytes` (by the sizes given to `add`) in both generations together."""

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
            # Emptied and not replaced, since readers hold a reference to the dictionary.
            self.old = self.young.copy()
            self.young.clear()
            self._bytes = 0
        self.young[key] = value
        self._bytes += size_bytes

    def met_before(self, keys: Iterable[K]) -> list[K]:
        """The keys that were asked about before or are in the old generation, and one in 256 of the others."""
        traces, old = self._traces, self.old
        met = []
        for key in keys:
            # Reduced at once to a one-digit integer of Python, which makes all else cheaper.
            trace = hash(key) & 0x7FFFFF
            place, mark = trace % _TRACES, trace >> 15
            if traces[place] == mark or key in old:
                met.append(key)
            else:
                traces[place] = mark
        return met
