"""A bounded dictionary for caches on the hot path: two generations instead of a clock on every hit.

Readers look into `young` directly, one C call. On a miss they ask `revive`, which moves an entry of the older
generation back. When the young generation is full, it becomes the old one and the old one is dropped: what is in use
survives, what an attacker floods in is gone after two generations.
"""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `max_entries` and `max_bytes` (as stated by whoever adds) in both generations together."""

    __slots__ = ("_bytes", "_half_bytes", "_half_entries", "old", "young")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._half_entries = max_entries // 2
        self._half_bytes = max_bytes // 2
        self._bytes = 0
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
