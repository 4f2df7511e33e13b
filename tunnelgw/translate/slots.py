"""All listeners of a Gateway, including those of its ListenerSets, in order of precedence, and their conflicts.

Listeners on one port need the same protocol and different hostnames. If listeners of the Gateway itself conflict, all
of them are refused, since it is unclear which one is meant. ListenerSets come after them, the oldest first: a listener
of a set is refused if it conflicts with one before it. Refused listeners of the Gateway count as rivals, refused ones
of sets do not. Listeners whose protocol is not served never count: requests to the port can only be meant for the
others.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tunnelgw.model.conditions import Reason
from tunnelgw.model.gateways import Gateway, GatewaySpec, Listener, ListenerSet
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.model.snapshot import Index
from tunnelgw.translate import selectors
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import ObjectId

PROTOCOLS = ("HTTP", "HTTPS")
"""Protocols that are served."""
_ONE_FAMILY = ({"HTTPS", "TLS"},)
"""Protocols that may share a port: the server name (SNI) that the client sends tells their listeners apart."""


class ListenerId(NamedTuple):
    owner: ObjectId
    """A Gateway or ListenerSet."""
    name: str


class Slot(Part, frozen=True):
    owner: ObjectId
    listener: Listener
    conflict: Reason | None = None
    rival: str = ""
    """The listener that it conflicts with, for messages."""


def conflicts(view: View, key: Key) -> Mapping[ListenerId, Slot]:
    """A query: the refused listeners of a Gateway and of its ListenerSets."""
    gateway = view.ask(gateway_spec, key)
    if gateway is None:
        return {}
    own = [Slot(ObjectId(Kind.GATEWAY, key), listener) for listener in gateway.listeners]
    served = [slot for slot in own if _is_served(slot)]
    found: list[Slot] = []
    for slot in served:
        others = [rival for rival in served if rival is not slot and _place(rival.listener) == _place(slot.listener)]
        found.append(_judged(slot, others, others))
    placed: dict[tuple[bool, int], _Placed] = defaultdict(lambda: _Placed({}, {}))
    for slot in served:
        placed[_place(slot.listener)].add(slot)
    for item in _sets(view, key):
        for listener in item.spec.listeners:
            before = placed[_place(listener)]
            namesake = before.by_hostname.get(listener.hostname)
            slot = Slot(ObjectId(Kind.LISTENER_SET, item.key), listener)
            slot = _judged(slot, before.by_protocol.values(), [namesake] if namesake else [])
            if slot.conflict is None and _is_served(slot):
                before.add(slot)
            found.append(slot)
    return {ListenerId(slot.owner, slot.listener.name): slot for slot in found if slot.conflict}


def slots(view: View, owner: ObjectId) -> tuple[Slot, ...]:
    """The listeners of a Gateway, or of a ListenerSet that its Gateway admits."""
    key = gateway_of(view, owner)
    refused = view.ask(conflicts, key) if key else {}
    return tuple(
        refused.get(ListenerId(owner, listener.name)) or Slot(owner, listener) for listener in _listeners(view, owner)
    )


def _listeners(view: View, owner: ObjectId) -> tuple[Listener, ...]:
    if owner.kind is Kind.GATEWAY:
        gateway = view.ask(gateway_spec, owner.key)
        return gateway.listeners if gateway else ()
    found = view.get(Kind.LISTENER_SET, owner.key)
    return found.spec.listeners if isinstance(found, ListenerSet) and view.ask(is_let_in, owner.key) else ()


class _Placed(NamedTuple):
    """The listeners on one port: the first one of each protocol and of each hostname, in their order."""

    by_protocol: dict[str, Slot]
    by_hostname: dict[str, Slot]

    def add(self, slot: Slot) -> None:
        self.by_protocol.setdefault(slot.listener.protocol, slot)
        self.by_hostname.setdefault(slot.listener.hostname, slot)


def owners(view: View, key: Key) -> tuple[ObjectId, ...]:
    """A query: a Gateway, and the ListenerSets that may attach to it, in order of precedence."""
    return ObjectId(Kind.GATEWAY, key), *(ObjectId(Kind.LISTENER_SET, item.key) for item in _sets(view, key))


def _sets(view: View, key: Key) -> Iterator[ListenerSet]:
    """The ListenerSets that may attach to a Gateway, the oldest first."""
    for item in view.bucket(Index.LISTENER_SETS_BY_GATEWAY, key):
        if isinstance(item, ListenerSet) and view.ask(is_let_in, item.key):
            yield item


def is_let_in(view: View, key: Key) -> bool:
    """A query: whether a ListenerSet's Gateway lets it attach."""
    owner = gateway_of(view, ObjectId(Kind.LISTENER_SET, key))
    gateway = view.ask(gateway_spec, owner) if owner else None
    if owner is None or gateway is None:
        return False
    return selectors.admits(view, gateway.allowed_listeners.namespaces, owner.namespace, key.namespace)


def gateway_of(view: View, owner: ObjectId) -> Key | None:
    """A Gateway itself; for a ListenerSet, the Gateway that it names, whether that exists or not."""
    if owner.kind is Kind.GATEWAY:
        return owner.key
    found = view.get(Kind.LISTENER_SET, owner.key)
    if not isinstance(found, ListenerSet):
        return None
    ref = found.spec.parent_ref
    if (ref.group, ref.kind) != (GATEWAY_API, Kind.GATEWAY):
        return None
    return Key(ref.namespace or owner.key.namespace, ref.name)


def gateway_spec(view: View, key: Key) -> GatewaySpec | None:
    """A query, so that listeners are not evaluated again when only the Gateway's status has changed."""
    gateway = view.get(Kind.GATEWAY, key)
    return gateway.spec if isinstance(gateway, Gateway) else None


def _is_served(slot: Slot) -> bool:
    return slot.listener.protocol in PROTOCOLS


def _place(listener: Listener) -> tuple[bool, int]:
    """What listeners must share in order to conflict: UDP and TCP have separate ports."""
    return listener.protocol == "UDP", listener.port


def _judged(slot: Slot, of_protocols: Iterable[Slot], of_hostname: Iterable[Slot]) -> Slot:
    """The slot, refused if one of `of_protocols` has a conflicting protocol, or one of `of_hostname` its hostname."""
    for reason, rivals, is_rival in (
        (Reason.PROTOCOL_CONFLICT, of_protocols, _differs),
        (Reason.HOSTNAME_CONFLICT, of_hostname, _equals),
    ):
        for rival in rivals:
            if is_rival(slot.listener, rival.listener):
                whose = "" if rival.owner == slot.owner else f" of {rival.owner}"
                return Slot(slot.owner, slot.listener, reason, f"listener {rival.listener.name}{whose}")
    return slot


def _differs(first: Listener, second: Listener) -> bool:
    return first.protocol != second.protocol and {first.protocol, second.protocol} not in _ONE_FAMILY


def _equals(first: Listener, second: Listener) -> bool:
    return first.hostname == second.hostname
