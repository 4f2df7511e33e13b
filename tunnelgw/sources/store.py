"""Holds the current objects: a source's threads fill it, the reconciler takes snapshots. It stores no events.

    watch threads:  store.replace(kind, items) after a list, then upsert, delete, reject; set_absent if not installed
    reconciler:     if store.wait(deadline_s) and (change := store.take_settled()): ...

Nothing can be taken before every kind has been listed or is known to be absent. After that, two things delay a change:

*Unread objects.* Secrets and ConfigMaps are kept with their data only while an object names them (see `references`). If
one is named after it was listed, its data is missing here; if no list or watch has shown it, it may still exist. Both
are unread, and the source fetches them. Until it has tried, nothing is taken, for a limited time (see `unread`). Then
an object that names something unread is translated with its previous spec, so what it named then is still served,
until everything that it names now has been read or is known to be missing.

*Kinds that are behind.* If the watch of a kind is broken, objects that refer to that kind would be judged by incomplete
data. Nothing is taken for a limited time (see `behind`). Then a GatewayClass or Gateway is translated with its previous
spec, too, if it names a configuration of such a kind that is not in the store. A kind that was absent is behind as soon
as its definition has come (see `absent`): the kinds of a bundle are served, and found, one after the other.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.gateways import Gateway, holding
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.absent import AbsentKinds
from tunnelgw.sources.behind import Behind
from tunnelgw.sources.references import (
    WITH_DATA,
    WithPreviousSpec,
    can_be,
    named,
    outside,
    parameters,
    references,
    stub,
    unseen,
)
from tunnelgw.sources.scope import Part, SecretScope
from tunnelgw.sources.tables import Tables
from tunnelgw.sources.unread import Unread

PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why an object is left out of snapshots, in words for its author."""

    reason: str
    generation: int = 0
    """`metadata.generation`, if known: the same mistake in a later generation is reported again."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the store holds now, and how it differs from the last `Change` taken."""

    snapshot: Snapshot
    changed: frozenset[Entry]
    """Objects and index buckets that translation has to look at again."""
    touched: frozenset[Entry]
    """Objects of which only the status or the resource version has changed: only their statuses have to be compared."""
    unreadable: Mapping[Entry, Unreadable]
    """All objects that are left out now."""
    are_all_named: bool
    """Whether `unreadable` is complete; False if the source has found something without even a readable name."""


class _Given(NamedTuple):
    uid: str
    """Of the Gateway: one that was created again under its name did not get them."""
    addresses: tuple[str, ...]


class Store:
    def __init__(
        self,
        kinds: Iterable[Kind] = Kind,
        home: str = "",
        patience_s: float = PATIENCE_S,
        secret_namespaces: Collection[str] = (),
    ) -> None:
        """`kinds`: those that the source lists. `home`: the controller's namespace.

        `secret_namespaces`: where Secrets are read, in addition to `home`. Empty: everywhere.
        """
        self._turn = threading.Condition()
        self._tables = Tables()
        self._home = home
        self._scope = SecretScope(secret_namespaces, home)
        self._unlisted = {part for kind in kinds for part in self._scope.parts(kind)}
        self._absent = AbsentKinds(self._is_there)
        self._named: Counter[Entry] = Counter()
        """How many objects name each Secret and ConfigMap."""
        self._unread = Unread(patience_s)
        self._behind = Behind(patience_s)
        self._placeholders: set[Entry] = set()
        """Named objects for which the tables have a stand-in. `references.unseen`: no list or watch has shown them;
        `references.outside`: Secrets in namespaces that we do not or may not read."""
        self._with_previous_spec: set[Entry] = set()
        """Objects in the tables whose `previous_spec` is set."""
        self._dirty_since_s: float | None = None
        """When the oldest change since the last snapshot came; None: nothing has changed."""
        self._was_taken = False
        """Whether a snapshot was taken already."""
        self._given: dict[Key, _Given] = {}
        """The addresses that the last turn gave to each Gateway."""
        self._unreadable: dict[Entry, Unreadable] = {}
        self._are_all_named = True
        self._is_woken = False

    @property
    def secret_namespaces(self) -> frozenset[str]:
        """Namespaces whose Secrets are listed and watched one by one. Empty: Secrets are listed like other kinds."""
        return self._scope.namespaces

    def tell_nameless(self, *, are_all_named: bool) -> None:
        """See `Change.are_all_named`."""
        with self._turn:
            if self._are_all_named != are_all_named:
                self._are_all_named = are_all_named
                self._mark()

    def upsert(self, kind: Kind, item: Object) -> None:
        with self._turn:
            self._put(kind, item)

    def delete(self, kind: Kind, key: Key) -> None:
        with self._turn:
            self._remove(kind, key)

    def reject(self, kind: Kind, key: Key, problem: Unreadable) -> None:
        """The object cannot be read: it is left out of snapshots, and its last readable version is dropped."""
        with self._turn:
            self._reject(kind, key, problem)

    def replace(
        self,
        kind: Kind,
        items: Collection[Object],
        rejected: Mapping[Key, Unreadable] | None = None,
        namespace: str = "",
    ) -> None:
        """The result of a list: all objects of the kind, or of those in one namespace. Others are removed."""
        rejected = rejected or {}
        with self._turn:
            if self._absent.drop(kind):
                self._note_behind((kind, ""), is_behind=False)
            self._scope.permit(namespace)
            known = {key for key in self._keys(kind) if not namespace or key.namespace == namespace}
            for key in known - {item.key for item in items} - rejected.keys():
                self._remove(kind, key)
            for item in items:
                self._put(kind, item)
            for key, problem in rejected.items():
                self._reject(kind, key, problem)
            self._listed((kind, namespace))

    def set_absent(self, kind: Kind, *, may_come: bool = True) -> None:
        """The kind is not served: it has no objects, and nothing waits for it.

        Once its definition is there, it is expected to be served soon, and is behind until then. `may_come` False: it
        was not, or it is served in other versions only.
        """
        with self._turn:
            for key in self._keys(kind):
                self._remove(kind, key)
            self._absent.add(kind, may_come=may_come)
            self._expect(kind)
            self._listed((kind, ""))

    def set_behind(self, kind: Kind, namespace: str = "", *, is_behind: bool) -> None:
        """Whether the watch of a kind, or of its objects in one namespace, is broken."""
        with self._turn:
            self._note_behind((kind, namespace), is_behind=is_behind)

    def set_forbidden(self, namespace: str) -> None:
        """We have no permission to read the Secrets there. Until a list of them succeeds, nothing waits for them.

        Does nothing if they have been listed before.
        """
        with self._turn:
            part = (Kind.SECRET, namespace)
            if part not in self._unlisted:
                return
            self._scope.forbid(namespace)
            for entry in [*self._named]:
                if self._scope.is_outside(entry) and self._is_unknown(entry):
                    self._put_placeholder(entry, outside(entry))
            self._listed(part)

    def can_have_roles(self, namespace: str) -> bool:
        """Whether Roles can be created in the namespace: False if it is known not to exist, or is being deleted."""
        with self._turn:
            is_there = self._is_there(Entry(Kind.NAMESPACE, Key("", namespace)))
            return is_there or not self._are_listed((Kind.NAMESPACE,))

    def trim(self, kind: Kind, item: Object) -> Object:
        """The object as it will be kept, so that a long list does not hold the data of all Secrets at once."""
        if kind not in WITH_DATA:
            return item
        with self._turn:
            return item if self._named[Entry(kind, item.key)] else stub(item)

    def wait_listed(self, kinds: Iterable[Kind], timeout_s: float) -> bool:
        """Wait until each of these kinds has been listed or is absent; False after `timeout_s`."""
        awaited = frozenset(kinds)
        with self._turn:
            return self._turn.wait_for(lambda: self._are_listed(awaited), timeout_s)

    @property
    def unlisted(self) -> frozenset[Kind]:
        """Kinds that have been neither listed nor found absent. While there are any, nothing can be taken."""
        with self._turn:
            return frozenset(kind for kind, _ in self._unlisted)

    def is_listed(self, part: Part) -> bool:
        """Whether the objects of a kind, or those of it in one namespace, have been listed or found absent."""
        with self._turn:
            return part not in self._unlisted

    def wait(self, deadline_s: float) -> bool:
        """Wait until there is something to take, `wake` is called, or the monotonic clock reaches `deadline_s`.

        Returns whether there is something to take.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._can_take() or self._is_woken, max(0.0, deadline_s - time.monotonic()))
            self._is_woken = False
            return self._can_take()

    def wake(self) -> None:
        """End the current `wait`, or the next one: there is work that is not about objects, such as a new receipt."""
        with self._turn:
            self._is_woken = True
            self._turn.notify_all()

    def give(self, gateway: Object, addresses: tuple[str, ...]) -> None:
        """Record the addresses that the last turn gave to a Gateway, before its status shows them.

        Otherwise another Gateway could get them if an older Gateway is deleted in the meantime. `gateway`: as the turn
        saw it; if it was created again since, the new one gets nothing.
        """
        with self._turn:
            item = self._tables.get(Entry(Kind.GATEWAY, gateway.key))
            if isinstance(item, Gateway) and item.metadata.uid == gateway.metadata.uid:
                self._given[item.key] = _Given(item.metadata.uid, addresses)
                self._put(Kind.GATEWAY, item)

    def take_settled(self) -> Change | None:
        """None: there is nothing to take, or a new reference since `wait` has returned makes us wait again."""
        with self._turn:
            return self.take() if self._can_take() else None

    def take(self) -> Change:
        """The current state, even if a change should wait."""
        with self._turn:
            self._clear_previous_specs()
            self._dirty_since_s = None
            self._was_taken = True
            snapshot, edits = self._tables.take()
            return Change(snapshot, edits.changed, edits.touched, dict(self._unreadable), self._are_all_named)

    def counts(self) -> dict[tuple[Kind, bool], int]:
        """How many objects there are, by kind and whether they can be read."""
        with self._turn:
            unreadable = Counter(entry.table for entry in self._unreadable)
            placeholders = Counter(entry.table for entry in self._placeholders)
            readable = {(kind, True): self._tables.count(kind) - placeholders[kind] for kind in Kind}
            return readable | {(kind, False): unreadable[kind] for kind in Kind}

    def wait_unread(self, timeout_s: float) -> tuple[Entry, ...]:
        """Wait until there is an unread object that was not tried yet, and return all unread objects.

        To be called by one thread only, which then calls `fill` or `give_up` for each of them.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._unread.has_untried, timeout_s)
            return self._unread.ask()

    def fill(self, entry: Entry, found: Object | Unreadable | None) -> None:
        """The source has fetched an unread object; None: it does not exist. Ignored if a watch was quicker."""
        with self._turn:
            if not self._unread.awaits_answer(entry):
                return
            if found is None:
                self._remove(Kind(entry.table), entry.key)
            elif isinstance(found, Unreadable):
                self._reject(Kind(entry.table), entry.key, found)
            else:
                self._put(Kind(entry.table), found, is_whole=True)

    def give_up(self, entry: Entry) -> None:
        """The object could not be fetched now. It stays unread, but nothing waits for it any longer."""
        with self._turn:
            if self._unread.awaits_answer(entry):
                self._unread.give_up(entry, time.monotonic())
                self._turn.notify_all()

    def _can_take(self) -> bool:
        since_s, now_s = self._dirty_since_s, time.monotonic()
        if since_s is None or self._unlisted:
            return False
        if not self._was_taken:
            return not self._unread.holds_up_first(now_s)
        return not (self._behind.holds_up(since_s, now_s) or self._unread.holds_up(since_s, now_s))

    def _note_behind(self, part: Part, *, is_behind: bool) -> None:
        if is_behind == (part in self._behind):
            return
        (self._behind.add if is_behind else self._behind.drop)(part, time.monotonic())
        if self._with_previous_spec:  # what they name may now be known to be missing, so that it can be cleared
            self._mark()
        self._turn.notify_all()

    def _is_there(self, entry: Entry) -> bool:
        """Whether the object exists, and is not being deleted."""
        found = self._tables.get(entry)
        return found is not None and not found.metadata.deletion_timestamp

    def _expect(self, kind: Kind) -> None:
        """The kind is absent: it is behind if it can be expected to be served soon."""
        self._note_behind((kind, ""), is_behind=self._absent.is_expected(kind))

    def _note_definition(self, entry: Entry) -> None:
        """The object, which may be a definition, has come, changed or gone."""
        if (kind := self._absent.follow(entry)) is not None:
            self._expect(kind)

    def _listed(self, part: Part) -> None:
        if part in self._unlisted:
            self._unlisted.discard(part)
            if not self._unlisted:
                self._unread.note_all_listed(time.monotonic())
            self._mark()

    def _are_listed(self, kinds: Iterable[Kind]) -> bool:
        return self._unlisted.isdisjoint(part for kind in kinds for part in self._scope.parts(kind))

    def _keys(self, kind: Kind) -> set[Key]:
        """The keys of all objects of a kind, including unreadable ones."""
        return {*self._tables.keys(kind), *(entry.key for entry in self._unreadable if entry.table is kind)}

    def _put(self, kind: Kind, item: Object, *, is_whole: bool = False) -> None:
        entry = Entry(kind, item.key)
        old = self._tables.get(entry)
        if self._unreadable.pop(entry, None):
            self._mark()
        if isinstance(item, Secret | ConfigMap):
            item = self._kept(entry, item, is_whole=is_whole)
        elif isinstance(item, Gateway):
            given = self._given.get(item.key)
            item = holding(item, given.addresses if given is not None and given.uid == item.metadata.uid else ())
        if isinstance(item, WithPreviousSpec):
            item = self._with_spec_of(old, entry, item)
        if self._tables.put(kind, item):
            self._mark()
            self._name(old, item)
            self._note_definition(entry)

    def _remove(self, kind: Kind, key: Key) -> None:
        entry = Entry(kind, key)
        if kind is Kind.GATEWAY:
            self._given.pop(key, None)
        self._unread.drop(entry, time.monotonic())  # its end is a change, which wakes whoever waits
        self._placeholders.discard(entry)
        self._with_previous_spec.discard(entry)
        old = self._tables.get(entry)
        if self._tables.remove(kind, key) | (self._unreadable.pop(entry, None) is not None):
            self._mark()
            self._name(old, None)
            self._note_definition(entry)

    def _reject(self, kind: Kind, key: Key, problem: Unreadable) -> None:
        entry = Entry(kind, key)
        if self._unreadable.get(entry) != problem:
            self._remove(kind, key)
            self._unreadable[entry] = problem
            self._mark()

    def _kept(self, entry: Entry, item: Secret | ConfigMap, *, is_whole: bool) -> Object:
        """The object as it is stored: with its data if an object names it, otherwise as a stub.

        If the data is missing, it may have been trimmed before the object was named, so the object is unread. Only then
        does a named object have `data` None; one that has no data gets an empty mapping. `is_whole`: not trimmed.
        """
        self._placeholders.discard(entry)
        if not self._named[entry]:
            return stub(item)
        if item.data is None and not is_whole:
            self._unread.add(entry, time.monotonic())
            return item
        if self._unread.found(entry, time.monotonic()):
            self._turn.notify_all()
        return msgspec.structs.replace(item, data={}) if item.data is None else item

    def _name(self, old: Object | None, new: Object | None) -> None:
        """Update `_named` and what depends on it, after `new` has replaced `old`."""
        before = references(old, self._home) if old else frozenset()
        after = references(new, self._home) if new else frozenset()
        for entry in after - before:
            self._named[entry] += 1
            if self._is_stub(entry):
                self._unread.add(entry, time.monotonic())
            elif self._scope.is_outside(entry):
                self._put_placeholder(entry, outside(entry))
            elif self._may_be_there(entry):
                self._put_placeholder(entry, unseen(entry))
                self._unread.add(entry, time.monotonic())
        for entry in before - after:
            self._named[entry] -= 1
            if not self._named[entry]:
                self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        """No object names it any more."""
        del self._named[entry]
        self._unread.drop(entry, time.monotonic())
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
        return self._is_unknown(entry) and self._are_listed((Kind(entry.table),)) and can_be(entry)

    def _is_unknown(self, entry: Entry) -> bool:
        return self._tables.get(entry) is None and entry not in self._unreadable

    def _with_spec_of(self, old: Object | None, entry: Entry, item: WithPreviousSpec) -> WithPreviousSpec:
        """The object with the spec of `old` as `previous_spec`, if its spec has changed."""
        previous = None
        if isinstance(old, WithPreviousSpec):
            previous = old.previous_spec if old.spec == item.spec or self._names_unread(old) else old.spec
        (self._with_previous_spec.discard if previous is None else self._with_previous_spec.add)(entry)
        return msgspec.structs.replace(item, previous_spec=previous)

    def _clear_previous_specs(self) -> None:
        """Clear `previous_spec` of all objects that name nothing unread any more.

        A Gateway that still names an unread Secret, but whose configuration is known, is translated with that
        configuration, and otherwise with its previous spec.
        """
        for entry in [*self._with_previous_spec]:
            item = self._tables.get(entry)
            if not isinstance(item, WithPreviousSpec):
                continue
            new: WithPreviousSpec = item
            if not self._names_unread(item):
                self._with_previous_spec.discard(entry)
                new = msgspec.structs.replace(item, previous_spec=None)
            elif isinstance(item, Gateway) and item.previous_spec and not self._has_unread_parameters(item):
                previous = msgspec.structs.replace(item.previous_spec, infrastructure=item.spec.infrastructure)
                new = msgspec.structs.replace(item, previous_spec=previous)
            if self._tables.put(Kind(entry.table), new):
                self._name(item, new)

    def _names_unread(self, item: WithPreviousSpec) -> bool:
        return self._has_unread_parameters(item) or not self._unread.is_disjoint(named(item, self._home))

    def _has_unread_parameters(self, item: WithPreviousSpec) -> bool:
        config = parameters(item)
        return config is not None and (config.table, "") in self._behind and self._is_unknown(config)

    def _mark(self) -> None:
        if self._dirty_since_s is None:
            self._dirty_since_s = time.monotonic()
        self._turn.notify_all()
