"""All listeners of a Gateway, its ListenerSets' included, in the order of their precedence, and their conflicts.

Listeners of one port need one protocol and different hostnames. Of the Gateway's own listeners all that conflict are
refused, for nobody could tell which one is meant. ListenerSets come after them, the oldest first: a listener of theirs
is refused when one before it has its place. Refused listeners of the Gateway keep their place, those of sets have none.
"""

from collections import defaultdict

from tunnelgw.model.conditions import Reason
from tunnelgw.model.gateways import Gateway, Listener, ListenerSet
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.snapshot import Index
from tunnelgw.translate import selectors
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import ObjectId

_ONE_FAMILY = ({"HTTPS", "TLS"},)
"""Protocols that may share a port: the server name of the client tells their listeners apart."""


class Slot(Part, frozen=True):
    owner: ObjectId
    listener: Listener
    conflict: Reason | None = None
    rival: str = ""
    """The listener that it conflicts with, for people."""


def slots(view: View, key: Key) -> tuple[Slot, ...]:
    """A query about a Gateway."""
    gateway = view.get(Kind.GATEWAY, key)
    if not isinstance(gateway, Gateway):
        return ()
    own = [Slot(ObjectId(Kind.GATEWAY, key), listener) for listener in gateway.spec.listeners]
    placed: dict[tuple[bool, int], list[Slot]] = defaultdict(list)
    for slot in own:
        placed[_place(slot.listener)].append(slot)
    result = [_judged(slot, [rival for rival in placed[_place(slot.listener)] if rival is not slot]) for slot in own]
    for item in view.ask(allowed_sets, key):
        for listener in item.spec.listeners:
            rivals = placed[_place(listener)]
            slot = _judged(Slot(ObjectId(Kind.LISTENER_SET, item.key), listener), rivals)
            if slot.conflict is None:
                rivals.append(slot)
            result.append(slot)
    return tuple(result)


def allowed_sets(view: View, key: Key) -> tuple[ListenerSet, ...]:
    """A query: the ListenerSets that may attach to a Gateway, the oldest first."""
    gateway = view.get(Kind.GATEWAY, key)
    if not isinstance(gateway, Gateway):
        return ()
    allowed = gateway.spec.allowed_listeners.namespaces
    return tuple(
        item
        for item in view.bucket(Index.LISTENER_SETS_BY_GATEWAY, key)
        if isinstance(item, ListenerSet) and selectors.admits(view, allowed, key.namespace, item.metadata.namespace)
    )


def _place(listener: Listener) -> tuple[bool, int]:
    """UDP and TCP have ports of their own."""
    return listener.protocol == "UDP", listener.port


def _judged(slot: Slot, rivals: list[Slot]) -> Slot:
    for reason, is_rival in ((Reason.PROTOCOL_CONFLICT, _differs), (Reason.HOSTNAME_CONFLICT, _equals)):
        for rival in rivals:
            if is_rival(slot.listener, rival.listener):
                whose = "" if rival.owner == slot.owner else f" of {rival.owner}"
                return Slot(slot.owner, slot.listener, reason, f"listener {rival.listener.name}{whose}")
    return slot


def _differs(first: Listener, second: Listener) -> bool:
    return first.protocol != second.protocol and {first.protocol, second.protocol} not in _ONE_FAMILY


def _equals(first: Listener, second: Listener) -> bool:
    return first.hostname == second.hostname
