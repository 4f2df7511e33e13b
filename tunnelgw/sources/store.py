"""Holds the current objects: a source's threads fill it, the reconciler takes snapshots. It stores no events.

    watch threads:  store.replace(kind, items) after a list, then upsert, delete, reject; set_absent if not installed
    reconciler:     if store.wait(deadline_s) and (change := store.take_settled()): ...

It is the door for threads. Behind it, each built on those before: what is held (`tables`), when it can be taken
(`settling`), which data is kept (`nameddata`), and whose new spec has to wait (`previousspecs`).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from tunnelgw.model.core import ConfigMap, Secret
from tunnelgw.model.gateways import Gateway, holding
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.nameddata import NamedData
from tunnelgw.sources.previousspecs import PreviousSpecs
from tunnelgw.sources.references import WithPreviousSpec
from tunnelgw.sources.scope import Part, SecretScope
from tunnelgw.sources.settling import Settling
from tunnelgw.sources.tables import Tables, Unreadable
from tunnelgw.sources.unread import Unread

PATIENCE_S = 5.0


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kinds`: those that the source lists. `home`: the controller's namespace.

        `secret_namespaces`: where Secrets are read, in addition to `home`. Empty: everywhere.
        """
        self._turn = threading.Condition()
        self._clock = clock
        self._scope = SecretScope(secret_namespaces, home)
        self._tables = Tables()
        self._unread = Unread(patience_s, clock)
        self._settling = Settling(kinds, self._scope, self._tables, self._unread, patience_s, clock)
        self._data = NamedData(home, self._scope, self._tables, self._unread, self._settling)
        self._previous_specs = PreviousSpecs(home, self._tables, self._unread, self._settling, self._data)
        self._given: dict[Key, _Given] = {}
        """The addresses that the last turn gave to each Gateway."""
        self._are_all_named = True
        self._is_woken = False

    @property
    def secret_namespaces(self) -> frozenset[str]:
        """Namespaces whose Secrets are listed and watched one by one. Empty: Secrets are listed like other kinds."""
        return self._scope.namespaces

    def tell_nameless(self, *, are_all_named: bool) -> None:
        """See `Change.are_all_named`."""
        with self._edit():
            if self._are_all_named != are_all_named:
                self._are_all_named = are_all_named
                self._settling.change()

    def upsert(self, kind: Kind, item: Object) -> None:
        with self._edit():
            self._put(kind, item)

    def delete(self, kind: Kind, key: Key) -> None:
        with self._edit():
            self._remove(kind, key)

    def reject(self, kind: Kind, key: Key, problem: Unreadable) -> None:
        """The object cannot be read: it is left out of snapshots, and its last readable version is dropped."""
        with self._edit():
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
        with self._edit():
            self._scope.permit(namespace)
            known = {key for key in self._tables.keys(kind) if not namespace or key.namespace == namespace}
            for key in known - {item.key for item in items} - rejected.keys():
                self._remove(kind, key)
            for item in items:
                self._put(kind, item)
            for key, problem in rejected.items():
                self._reject(kind, key, problem)
            self._settling.set_listed((kind, namespace))

    def set_absent(self, kind: Kind, *, may_come: bool = True) -> None:
        """The kind is not served: it has no objects, and nothing waits for it.

        Once its definition is there, it is expected to be served soon, and is behind until then. `may_come` False: it
        was not, or it is served in other versions only.
        """
        with self._edit():
            for key in self._tables.keys(kind):
                self._remove(kind, key)
            self._settling.set_absent(kind, may_come=may_come)

    def set_behind(self, kind: Kind, namespace: str = "", *, is_behind: bool) -> None:
        """Whether the watch of a kind, or of its objects in one namespace, is broken."""
        with self._edit():
            self._settling.set_behind((kind, namespace), is_behind=is_behind)

    def set_forbidden(self, namespace: str) -> None:
        """We have no permission to read the Secrets there. Until a list of them succeeds, nothing waits for them.

        Does nothing if they have been listed before.
        """
        with self._edit():
            part = (Kind.SECRET, namespace)
            if part in self._settling.unlisted:
                self._data.forbid(namespace)
                self._settling.set_listed(part)

    def can_have_roles(self, namespace: str) -> bool:
        """Whether Roles can be created in the namespace: False if it is known not to exist, or is being deleted."""
        with self._turn:
            is_there = self._tables.is_there(Entry(Kind.NAMESPACE, Key("", namespace)))
            return is_there or not self._settling.are_listed((Kind.NAMESPACE,))

    def trim(self, kind: Kind, item: Object) -> Object:
        """The object as it will be kept, so that a long list does not hold the data of all Secrets at once."""
        with self._turn:
            return self._data.trim(kind, item)

    def wait_listed(self, kinds: Iterable[Kind], timeout_s: float) -> bool:
        """Wait until each of these kinds has been listed or is absent; False after `timeout_s`."""
        awaited = frozenset(kinds)
        with self._turn:
            return self._turn.wait_for(lambda: self._settling.are_listed(awaited), timeout_s)

    @property
    def unlisted(self) -> frozenset[Kind]:
        """Kinds that have been neither listed nor found absent. While there are any, nothing can be taken."""
        with self._turn:
            return frozenset(kind for kind, _ in self._settling.unlisted)

    def is_listed(self, part: Part) -> bool:
        """Whether the objects of a kind, or those of it in one namespace, have been listed or found absent."""
        with self._turn:
            return part not in self._settling.unlisted

    def wait(self, deadline_s: float) -> bool:
        """Wait until there is something to take, `wake` is called, or the monotonic clock reaches `deadline_s`.

        Returns whether there is something to take.
        """
        with self._turn:
            remaining_s = max(0.0, deadline_s - self._clock())
            self._turn.wait_for(lambda: self._settling.can_take() or self._is_woken, remaining_s)
            self._is_woken = False
            return self._settling.can_take()

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
        with self._edit():
            item = self._tables.get(Entry(Kind.GATEWAY, gateway.key))
            if isinstance(item, Gateway) and item.metadata.uid == gateway.metadata.uid:
                self._given[item.key] = _Given(item.metadata.uid, addresses)
                self._put(Kind.GATEWAY, item)

    def take_settled(self) -> Change | None:
        """None: there is nothing to take, or a new reference since `wait` has returned makes us wait again."""
        with self._turn:
            return self.take() if self._settling.can_take() else None

    def take(self) -> Change:
        """The current state, even if a change should wait."""
        with self._turn:
            self._previous_specs.clear()
            self._settling.take()
            snapshot, edits = self._tables.take()
            return Change(snapshot, edits.changed, edits.touched, dict(self._tables.unreadable), self._are_all_named)

    def counts(self) -> dict[tuple[Kind, bool], int]:
        """How many objects there are, by kind and whether they can be read."""
        with self._turn:
            unreadable = Counter(entry.table for entry in self._tables.unreadable)
            placeholders = self._data.count_placeholders()
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
        with self._edit():
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
        with self._edit():
            if self._unread.awaits_answer(entry):
                self._unread.give_up(entry)

    @contextmanager
    def _edit(self) -> Iterator[None]:
        """What a source tells at once. Whoever waits looks again after it."""
        with self._turn:
            yield
            # An object with a previous spec may name what is now known to be missing, so that it can have its new one.
            if self._tables.is_edited or (self._previous_specs and self._settling.has_moved):
                self._settling.change()
            self._turn.notify_all()

    def _put(self, kind: Kind, item: Object, *, is_whole: bool = False) -> None:
        entry = Entry(kind, item.key)
        old = self._tables.get(entry)
        if isinstance(item, Secret | ConfigMap):
            item = self._data.kept(entry, item, is_whole=is_whole)
        elif isinstance(item, Gateway):
            given = self._given.get(item.key)
            item = holding(item, given.addresses if given is not None and given.uid == item.metadata.uid else ())
        if isinstance(item, WithPreviousSpec):
            item = self._previous_specs.kept(entry, old, item)
        if self._tables.put(kind, item):
            self._follow(entry, old, item)

    def _remove(self, kind: Kind, key: Key) -> None:
        entry = Entry(kind, key)
        old = self._tables.get(entry)
        if kind is Kind.GATEWAY:
            self._given.pop(key, None)
        self._data.drop(entry)
        self._previous_specs.drop(entry)
        if self._tables.remove(kind, key):
            self._follow(entry, old, None)

    def _reject(self, kind: Kind, key: Key, problem: Unreadable) -> None:
        if self._tables.unreadable.get(Entry(kind, key)) != problem:
            self._remove(kind, key)
            self._tables.leave_out(kind, key, problem)

    def _follow(self, entry: Entry, old: Object | None, new: Object | None) -> None:
        """`new` has replaced `old`."""
        self._data.follow(old, new)
        self._settling.follow(entry)
