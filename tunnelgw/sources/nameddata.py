"""Secrets and ConfigMaps, which are kept with their data only while an object names them (see `references`).

If one is named after it was listed, its data is missing here; if no list or watch has shown it, it may still exist.
Both are unread, and the source fetches them (see `unread`).
"""

from collections import Counter

import msgspec

from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.sources.references import WITH_DATA, can_be, outside, references, stub, unseen
from tunnelgw.sources.scope import SecretScope
from tunnelgw.sources.settling import Settling
from tunnelgw.sources.tables import Tables
from tunnelgw.sources.unread import Unread


class NamedData:
    """For use by one thread at a time."""

    def __init__(self, home: str, scope: SecretScope, tables: Tables, unread: Unread, settling: Settling) -> None:
        """`home`: the controller's namespace."""
        self._home = home
        self._scope = scope
        self._tables = tables
        self._unread = unread
        self._settling = settling
        self._named: Counter[Entry] = Counter()
        """How many objects name each Secret and ConfigMap."""
        self._placeholders: set[Entry] = set()
        """Named objects for which the tables have a stand-in. `references.unseen`: no list or watch has shown them;
        `references.outside`: Secrets in namespaces that we do not or may not read."""

    def count_placeholders(self) -> Counter[Kind]:
        return Counter(Kind(entry.table) for entry in self._placeholders)

    def trim(self, kind: Kind, item: Object) -> Object:
        """The object as it will be kept, if it is put while the same objects name it."""
        return item if kind not in WITH_DATA or self._named[Entry(kind, item.key)] else stub(item)

    def kept(self, entry: Entry, item: Secret | ConfigMap, *, is_whole: bool) -> Object:
        """The object as it is to be put: with its data if an object names it, otherwise as a stub.

        If the data is missing, it may have been trimmed before the object was named, so the object is unread. Only then
        does a named object have `data` None; one that has no data gets an empty mapping. `is_whole`: not trimmed.
        """
        self._placeholders.discard(entry)
        if not self._named[entry]:
            return stub(item)
        if item.data is None and not is_whole:
            self._unread.add(entry)
            return item
        self._unread.found(entry)
        return msgspec.structs.replace(item, data={}) if item.data is None else item

    def drop(self, entry: Entry) -> None:
        """The object is gone."""
        self._unread.drop(entry)
        self._placeholders.discard(entry)

    def follow(self, old: Object | None, new: Object | None) -> None:
        """`new` has replaced `old`, and may name other objects."""
        before = references(old, self._home) if old else frozenset()
        after = references(new, self._home) if new else frozenset()
        for entry in after - before:
            self._named[entry] += 1
            if self._is_stub(entry):
                self._unread.add(entry)
            elif self._scope.is_outside(entry):
                self._put_placeholder(entry, outside(entry))
            elif self._may_be_there(entry):
                self._put_placeholder(entry, unseen(entry))
                self._unread.add(entry)
        for entry in before - after:
            self._named[entry] -= 1
            if not self._named[entry]:
                self._forget(entry)

    def forbid(self, namespace: str) -> None:
        """We may not read the Secrets there now."""
        self._scope.forbid(namespace)
        for entry in [*self._named]:
            if self._scope.is_outside(entry) and self._tables.is_unknown(entry):
                self._put_placeholder(entry, outside(entry))

    def _forget(self, entry: Entry) -> None:
        """No object names it any more."""
        del self._named[entry]
        self._unread.drop(entry)
        if entry in self._placeholders:
            self._placeholders.remove(entry)
            self._tables.remove(Kind(entry.table), entry.key)
        elif (item := self._tables.get(entry)) is not None:
            self._tables.put(Kind(entry.table), stub(item))

    def _is_stub(self, entry: Entry) -> bool:
        """Whether the object is known to exist, but without its data."""
        item = self._tables.get(entry)
        return isinstance(item, Secret | ConfigMap) and item.data is None and entry not in self._placeholders

    def _put_placeholder(self, entry: Entry, item: Object) -> None:
        self._placeholders.add(entry)
        self._tables.put(Kind(entry.table), item)

    def _may_be_there(self, entry: Entry) -> bool:
        """Whether an unknown object may exist all the same, created after its kind was listed."""
        is_listed = self._settling.are_listed((Kind(entry.table),))
        return self._tables.is_unknown(entry) and is_listed and can_be(entry)
