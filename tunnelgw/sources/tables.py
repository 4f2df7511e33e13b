"""Objects by kind and key, with their indexes, and which ones are left out; records what edits change. For use by one
thread at a time.

Snapshots share what has not changed: a dictionary is copied only if it was edited since the last snapshot, and buckets
are kept sorted. So an edit costs a search in its buckets, and a snapshot a shallow copy of each edited dictionary.
"""

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Index, Snapshot, index_entries


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why an object is left out of snapshots, in words for its author."""

    reason: str
    generation: int = 0
    """`metadata.generation`, if known: the same mistake in a later generation is reported again."""


class Edits(NamedTuple):
    """What has changed between two snapshots."""

    changed: frozenset[Entry]
    """Objects that were added or removed, or that changed in what translation reads; and the buckets that hold them."""
    touched: frozenset[Entry]
    """Objects of which only the status or the resource version has changed."""


class Tables:
    def __init__(self) -> None:
        self.is_edited = False
        """Whether anything has changed since the last `take`."""
        self.unreadable: dict[Entry, Unreadable] = {}
        """What is left out. An object that is here has no last readable version in the tables."""
        self._objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in Kind}
        self._buckets: dict[Index, dict[Key, list[Object]]] = {index: {} for index in Index}
        self._changed: set[Entry] = set()
        self._touched: set[Entry] = set()
        self._stale_kinds: set[Kind] = set()
        self._stale_buckets: dict[Index, set[Key]] = {index: set() for index in Index}
        self._taken_objects: dict[Kind, Mapping[Key, Object]] = {kind: {} for kind in Kind}
        self._taken_buckets: dict[Index, Mapping[Key, tuple[Object, ...]]] = {index: {} for index in Index}

    def get(self, entry: Entry) -> Object | None:
        return self._objects[Kind(entry.table)].get(entry.key)

    def is_there(self, entry: Entry) -> bool:
        """Whether the object exists, can be read, and is not being deleted."""
        found = self.get(entry)
        return found is not None and not found.metadata.deletion_timestamp

    def is_unknown(self, entry: Entry) -> bool:
        """Whether there is no such object, not even one that cannot be read."""
        return self.get(entry) is None and entry not in self.unreadable

    def keys(self, kind: Kind) -> set[Key]:
        """Including those of unreadable objects."""
        return {*self._objects[kind], *(entry.key for entry in self.unreadable if entry.table is kind)}

    def count(self, kind: Kind) -> int:
        """How many objects can be read."""
        return len(self._objects[kind])

    def put(self, kind: Kind, item: Object) -> bool:
        """Returns False if exactly this object was already here."""
        key = item.key
        old = self._objects[kind].get(key)
        if old == item:
            return False
        self.is_edited = True
        self.unreadable.pop(Entry(kind, key), None)
        if old is not None:
            self._unfile(old)
        self._objects[kind][key] = item
        self._stale_kinds.add(kind)
        self._file(item)
        if old is not None and _is_same_to_translation(old, item):
            self._touched.add(Entry(kind, key))
        else:
            self._note(kind, old, item)
        return True

    def remove(self, kind: Kind, key: Key) -> bool:
        """Returns False if there was none, not even one that cannot be read."""
        was_unreadable = self.unreadable.pop(Entry(kind, key), None) is not None
        old = self._objects[kind].pop(key, None)
        if old is not None:
            self._stale_kinds.add(kind)
            self._unfile(old)
            self._note(kind, old)
        elif not was_unreadable:
            return False
        self.is_edited = True
        return True

    def leave_out(self, kind: Kind, key: Key, problem: Unreadable) -> None:
        """The object cannot be read; `remove` it first."""
        self.unreadable[Entry(kind, key)] = problem
        self.is_edited = True

    def take(self) -> tuple[Snapshot, Edits]:
        """All objects now, and what changed since the last call."""
        for kind in self._stale_kinds:
            self._taken_objects[kind] = dict(self._objects[kind])
        for index, keys in self._stale_buckets.items():
            if keys:
                self._taken_buckets[index] = self._with_buckets(index, keys)
        edits = Edits(frozenset(self._changed), frozenset(self._touched - self._changed))
        snapshot = Snapshot(dict(self._taken_objects), dict(self._taken_buckets))
        self.is_edited = False
        self._stale_kinds, self._changed, self._touched = set(), set(), set()
        self._stale_buckets = {index: set() for index in Index}
        return snapshot, edits

    def _with_buckets(self, index: Index, keys: Iterable[Key]) -> Mapping[Key, tuple[Object, ...]]:
        buckets = dict(self._taken_buckets[index])
        for key in keys:
            if members := self._buckets[index].get(key):
                buckets[key] = tuple(members)
            else:
                buckets.pop(key, None)
        return buckets

    def _note(self, kind: Kind, *items: Object | None) -> None:
        for item in items:
            if item is not None:
                self._changed.add(Entry(kind, item.key))
                self._changed.update(Entry(index, key) for index, key in index_entries(item))

    def _file(self, item: Object) -> None:
        for index, key in index_entries(item):
            bisect.insort(self._buckets[index].setdefault(key, []), item, key=_age)
            self._stale_buckets[index].add(key)

    def _unfile(self, item: Object) -> None:
        for index, key in index_entries(item):
            members = self._buckets[index][key]
            place = bisect.bisect_left(members, _age(item), key=_age)
            while members[place] is not item:  # another kind's object may have the same age and name
                place += 1
            del members[place]
            if not members:
                del self._buckets[index][key]
            self._stale_buckets[index].add(key)


def _is_same_to_translation(old: Object, new: Object) -> bool:
    """Whether the objects differ only in an undecoded status and the resource version."""
    metadata = msgspec.structs.replace(new.metadata, resource_version=old.metadata.resource_version)
    status = getattr(old, "status", None)
    if isinstance(status, msgspec.Raw):
        return bool(old == msgspec.structs.replace(new, metadata=metadata, status=status))
    return bool(old == msgspec.structs.replace(new, metadata=metadata))


def _age(item: Object) -> tuple[str, str]:
    return item.age
