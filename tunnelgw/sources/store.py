"""The one store that sources fill and the reconciler reads: level, not events.

    watch threads:  store.replace(kind, items) after a list, then upsert, delete, reject; set_absent where not installed
    reconciler:     if store.wait(deadline_s) and (change := store.take_settled()): ...

Nothing can be taken before every kind was listed once or is known to be absent. Secrets and ConfigMaps are kept with
their data only while an object names them (see `references`). One that is named only after it was listed is *unread*,
and the source fetches it, even if no list or watch has shown it yet. Until the source has tried, nothing is taken, for
a limited time (see `unread`). After that, an object that names something unread counts with what it said `before`, so
that what it named then is served on, until everything that it names now is read or known to be missing.

Nothing is taken either while a kind is *behind*: its watch is broken, and objects that refer to that kind would be
judged by incomplete data. This wait is limited to `patience_s` as well, and there is none if no kind has fallen behind
or recovered for that long. After that, a class or Gateway that names a configuration of such a kind, which is not here,
counts with what it said `before` as well.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.gateways import Gateway, holding
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.references import WITH_DATA, Mindful, can_be, named, outside, parameters, references, stub, unseen
from tunnelgw.sources.scope import Part, SecretScope
from tunnelgw.sources.tables import Tables
from tunnelgw.sources.unread import Unread

PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why an object is kept out, in words for its author."""

    reason: str
    generation: int = 0
    """Of the object, where it has one: the same mistake in another is told of again."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the store holds now, and what has changed since the last one."""

    snapshot: Snapshot
    changed: frozenset[Entry]
    """For translation: objects and buckets that are not what they were."""
    touched: frozenset[Entry]
    """For the statuses: objects of which the status or the resource version alone is another."""
    unreadable: Mapping[Entry, Unreadable]
    """All that are kept out now."""
    are_all_named: bool
    """False: the source has met something of which it cannot even tell the name."""


class Store:
    def __init__(
        self,
        kinds: Iterable[Kind] = Kind,
        home: str = "",
        patience_s: float = PATIENCE_S,
        secret_namespaces: Collection[str] = (),
    ) -> None:
        """`kinds`: those that a source lists. `home`: the controller's namespace.

        `secret_namespaces`: where Secrets are read, beside `home`. Empty: everywhere.
        """
        self._turn = threading.Condition()
        self._tables = Tables()
        self._home = home
        self._scope = SecretScope(secret_namespaces, home)
        self._unlisted = {part for kind in kinds for part in self._scope.parts(kind)}
        self._named: Counter[Entry] = Counter()
        """How many objects name each Secret and ConfigMap."""
        self._unread = Unread(patience_s)
        self._outside: set[Entry] = set()
        """Secrets that are named and not read: in their place the tables have one that says so."""
        self._unseen: set[Entry] = set()
        """Those of them that no list or watch has shown: in their place the tables have something that is `unseen`."""
        self._mindful: set[Entry] = set()
        """Objects that have what they said before."""
        self._patience_s = patience_s
        self._behind: set[Part] = set()
        self._behind_until_s = 0.0
        """From then on nothing waits for these: unless one more goes or comes back, they stay as they are."""
        self._dirty_since_s = 0.0
        self._has_given = False
        self._given: dict[Key, tuple[str, ...]] = {}
        """Addresses by Gateway."""
        self._unreadable: dict[Entry, Unreadable] = {}
        self._are_all_named = True
        self._is_dirty = False
        self._is_called = False

    @property
    def secret_namespaces(self) -> frozenset[str]:
        """Of these each is listed and followed by itself. Empty: Secrets are like all other kinds."""
        return self._scope.namespaces

    def tell_nameless(self, *, are_all_named: bool) -> None:
        """Whether the source can tell the names of all that it cannot read."""
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
        """An object that cannot be read is kept out, whatever it was before."""
        with self._turn:
            self._reject(kind, key, problem)

    def replace(
        self,
        kind: Kind,
        items: Sequence[Object],
        rejected: Mapping[Key, Unreadable] | None = None,
        namespace: str = "",
    ) -> None:
        """All objects of a kind, or those in one namespace, as a list gave them: others are gone."""
        rejected = rejected or {}
        with self._turn:
            self._scope.open(namespace)
            known = {key for key in self._keys(kind) if not namespace or key.namespace == namespace}
            for key in known - {item.key for item in items} - rejected.keys():
                self._remove(kind, key)
            for item in items:
                self._put(kind, item)
            for key, problem in rejected.items():
                self._reject(kind, key, problem)
            self._listed((kind, namespace))

    def set_absent(self, kind: Kind) -> None:
        """The kind is not installed: it has no objects, and nothing waits for it."""
        with self._turn:
            for key in self._keys(kind):
                self._remove(kind, key)
            self._listed((kind, ""))

    def set_behind(self, kind: Kind, namespace: str = "", *, is_behind: bool) -> None:
        """Whether the source has lost the thread of a kind: other changes may refer to what is new there."""
        with self._turn:
            part = (kind, namespace)
            if is_behind == (part in self._behind):
                return
            self._behind_until_s = time.monotonic() + self._patience_s
            (self._behind.add if is_behind else self._behind.remove)(part)
            if self._mindful:  # what some of them name may be known to be missing now
                self._mark()
            self._turn.notify_all()

    def close(self, namespace: str) -> None:
        """The Secrets there may not be read, and were not so far: until they are listed, nothing waits for them."""
        with self._turn:
            part = (Kind.SECRET, namespace)
            if part not in self._unlisted:
                return
            self._scope.close(namespace)
            for entry in [*self._named]:
                if self._scope.is_outside(entry) and self._is_unknown(entry):
                    self._keep_out(entry)
            self._listed(part)

    def can_have_roles(self, namespace: str) -> bool:
        """False where all namespaces are known, and it is not among them, or ends: then nothing can be made in it."""
        with self._turn:
            found = self._tables.get(Entry(Kind.NAMESPACE, Key("", namespace)))
            is_there = found is not None and not found.metadata.deletion_timestamp
            return is_there or not self._are_listed((Kind.NAMESPACE,))

    def trim(self, kind: Kind, item: Object) -> Object:
        """The object as it will be kept, so that a long list need not hold the data of all Secrets at once."""
        if kind not in WITH_DATA:
            return item
        with self._turn:
            return item if self._named[Entry(kind, item.key)] else stub(item)

    def wait_listed(self, kinds: Iterable[Kind], timeout_s: float) -> bool:
        """Until each of these was listed or is absent; False after `timeout_s`."""
        awaited = frozenset(kinds)
        with self._turn:
            return self._turn.wait_for(lambda: self._are_listed(awaited), timeout_s)

    @property
    def unlisted(self) -> frozenset[Kind]:
        """Kinds that are still awaited. Empty: there is something to reconcile."""
        with self._turn:
            return frozenset(kind for kind, _ in self._unlisted)

    def wait(self, deadline_s: float) -> bool:
        """Until there is something to take, somebody calls, or it is `deadline_s` (monotonic clock).

        True: there is something to take.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._can_take() or self._is_called, max(0.0, deadline_s - time.monotonic()))
            self._is_called = False
            return self._can_take()

    def call(self) -> None:
        """End a wait: there is something to do besides what the store holds."""
        with self._turn:
            self._is_called = True
            self._turn.notify_all()

    def give(self, gateway: Key, addresses: tuple[str, ...]) -> None:
        """What the last turn gave to a Gateway is its own from now on, even before its status shows it.

        Otherwise it would lose it to another one when an older Gateway goes meanwhile.
        """
        with self._turn:
            item = self._tables.get(Entry(Kind.GATEWAY, gateway))
            if isinstance(item, Gateway):
                self._given[gateway] = addresses
                self._put(Kind.GATEWAY, item)

    def take_settled(self) -> Change | None:
        """None when there is nothing to take, or no longer: a reference may have come since `wait` said so."""
        with self._turn:
            return self.take() if self._can_take() else None

    def take(self) -> Change:
        """Whatever is there, settled or not."""
        with self._turn:
            self._forget_before()
            self._is_dirty = False
            self._has_given = True
            snapshot, edits = self._tables.take()
            return Change(snapshot, edits.changed, edits.touched, dict(self._unreadable), self._are_all_named)

    def counts(self) -> dict[tuple[Kind, bool], int]:
        """Objects by kind and whether they can be read."""
        with self._turn:
            unreadable = Counter(entry.room for entry in self._unreadable)
            stand_ins = Counter(entry.room for entry in (*self._unseen, *self._outside))
            readable = {(kind, True): self._tables.count(kind) - stand_ins[kind] for kind in Kind}
            return readable | {(kind, False): unreadable[kind] for kind in Kind}

    def wait_unread(self, timeout_s: float) -> tuple[Entry, ...]:
        """Objects that are named but held without their data, as soon as there is one that was not tried yet.

        One thread calls it, and only then `fill` or `give_up` for each.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._unread.has_untried, timeout_s)
            return self._unread.ask()

    def fill(self, entry: Entry, item: Object | None) -> None:
        """What the source found for an unread entry, None for nothing. Left alone if a watch was quicker."""
        with self._turn:
            if self._unread.awaits_answer(entry):
                if item is None:
                    self._remove(Kind(entry.room), entry.key)
                else:
                    self._put(Kind(entry.room), item, is_whole=True)

    def give_up(self, entry: Entry) -> None:
        """It could not be fetched now: nothing waits for it any longer, but it stays unread."""
        with self._turn:
            if self._unread.awaits_answer(entry):
                self._unread.give_up(entry, time.monotonic())
                self._turn.notify_all()

    def _can_take(self) -> bool:
        if not self._is_dirty or self._unlisted:
            return False
        now_s = time.monotonic()
        if not self._has_given:
            return not self._unread.holds_up_first(now_s)
        behind_until_s = min(self._behind_until_s, self._dirty_since_s + self._patience_s)
        if self._behind and now_s < behind_until_s:
            return False
        return not self._unread.holds_up(self._dirty_since_s, now_s)

    def _listed(self, part: Part) -> None:
        if part in self._unlisted:
            self._unlisted.discard(part)
            if not self._unlisted:
                self._unread.note_all_listed(time.monotonic())
            self._mark()

    def _are_listed(self, kinds: Iterable[Kind]) -> bool:
        return self._unlisted.isdisjoint(part for kind in kinds for part in self._scope.parts(kind))

    def _keys(self, kind: Kind) -> set[Key]:
        """Of all objects, also of those that are kept out."""
        return {*self._tables.keys(kind), *(entry.key for entry in self._unreadable if entry.room is kind)}

    def _put(self, kind: Kind, item: Object, *, is_whole: bool = False) -> None:
        entry = Entry(kind, item.key)
        old = self._tables.get(entry)
        if self._unreadable.pop(entry, None):
            self._mark()
        if isinstance(item, Secret | ConfigMap):
            item = self._kept(entry, item, is_whole=is_whole)
        elif isinstance(item, Gateway):
            item = holding(item, self._given.get(item.key, ()))
        if isinstance(item, Mindful):
            item = self._minding(entry, old, item)
        if self._tables.put(kind, item):
            self._mark()
            self._name(old, item)

    def _remove(self, kind: Kind, key: Key) -> None:
        entry = Entry(kind, key)
        if kind is Kind.GATEWAY:
            self._given.pop(key, None)
        self._unread.drop(entry, time.monotonic())  # its end is a change, which wakes whoever waits
        self._unseen.discard(entry)
        self._outside.discard(entry)
        self._mindful.discard(entry)
        old = self._tables.get(entry)
        if self._tables.remove(kind, key) | (self._unreadable.pop(entry, None) is not None):
            self._mark()
            self._name(old, None)

    def _reject(self, kind: Kind, key: Key, problem: Unreadable) -> None:
        entry = Entry(kind, key)
        if self._unreadable.get(entry) != problem:
            self._remove(kind, key)
            self._unreadable[entry] = problem
            self._mark()

    def _kept(self, entry: Entry, item: Secret | ConfigMap, *, is_whole: bool) -> Object:
        """With its data if an object names it. Without data it may have been trimmed before it was named.

        One that is kept has `data` None only while it is unread, and none in it where there really is none.
        """
        self._unseen.discard(entry)
        self._outside.discard(entry)
        if not self._named[entry]:
            return stub(item)
        if item.data is None and not is_whole:
            self._unread.add(entry, time.monotonic())
            return item
        if self._unread.found(entry, time.monotonic()):
            self._turn.notify_all()
        return msgspec.structs.replace(item, data={}) if item.data is None else item

    def _name(self, old: Object | None, new: Object | None) -> None:
        """Count references anew, after `new` has taken the place of `old`."""
        before = references(old, self._home) if old else frozenset()
        after = references(new, self._home) if new else frozenset()
        for entry in after - before:
            self._named[entry] += 1
            if self._is_stub(entry):
                self._unread.add(entry, time.monotonic())
            elif self._scope.is_outside(entry):
                self._keep_out(entry)
            elif self._may_be_there(entry):
                self._unseen.add(entry)
                self._tables.put(Kind(entry.room), unseen(entry))
                self._unread.add(entry, time.monotonic())
        for entry in before - after:
            self._named[entry] -= 1
            if not self._named[entry]:
                self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        """Nobody names it any more."""
        del self._named[entry]
        self._unread.drop(entry, time.monotonic())
        item = self._tables.get(entry)
        if entry in self._unseen or entry in self._outside:
            self._unseen.discard(entry)
            self._outside.discard(entry)
            self._tables.remove(Kind(entry.room), entry.key)
        elif item is not None:
            self._tables.put(Kind(entry.room), stub(item))

    def _is_stub(self, entry: Entry) -> bool:
        """Whether it is there, but its data was left out, or has not come yet."""
        item = self._tables.get(entry)
        return isinstance(item, Secret | ConfigMap) and item.data is None and entry not in self._unseen

    def _keep_out(self, entry: Entry) -> None:
        self._outside.add(entry)
        self._tables.put(Kind.SECRET, outside(entry))

    def _may_be_there(self, entry: Entry) -> bool:
        """Although nothing is known of it: it may have been made since it was listed."""
        return self._is_unknown(entry) and self._are_listed((Kind(entry.room),)) and can_be(entry)

    def _is_unknown(self, entry: Entry) -> bool:
        return self._tables.get(entry) is None and entry not in self._unreadable

    def _minding(self, entry: Entry, old: Object | None, item: Mindful) -> Mindful:
        """With what it said before, if it says something else now."""
        before = None
        if isinstance(old, Mindful):
            before = old.before if old.spec == item.spec or self._names_unread(old) else old.spec
        (self._mindful.discard if before is None else self._mindful.add)(entry)
        return msgspec.structs.replace(item, before=before)

    def _forget_before(self) -> None:
        """Of all that name nothing unread any more; and of a Gateway whose configuration is known, what it named before
        that one, though it may still name an unread Secret.
        """
        for entry in [*self._mindful]:
            item = self._tables.get(entry)
            if not isinstance(item, Mindful):
                continue
            new: Mindful = item
            if not self._names_unread(item):
                self._mindful.discard(entry)
                new = msgspec.structs.replace(item, before=None)
            elif isinstance(item, Gateway) and item.before and not self._has_unread_parameters(item):
                before = msgspec.structs.replace(item.before, infrastructure=item.spec.infrastructure)
                new = msgspec.structs.replace(item, before=before)
            if self._tables.put(Kind(entry.room), new):
                self._name(item, new)

    def _names_unread(self, item: Mindful) -> bool:
        return self._has_unread_parameters(item) or not self._unread.is_disjoint(named(item, self._home))

    def _has_unread_parameters(self, item: Mindful) -> bool:
        config = parameters(item)
        return config is not None and (config.room, "") in self._behind and self._is_unknown(config)

    def _mark(self) -> None:
        if not self._is_dirty:
            self._dirty_since_s = time.monotonic()
        self._is_dirty = True
        self._turn.notify_all()
