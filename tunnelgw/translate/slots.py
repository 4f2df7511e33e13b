"""All listeners of a Gateway, its ListenerSets' included, in the order of their precedence, and their conflicts.

Listeners of one port need one protocol and different hostnames. Of the Gateway's own listeners all that conflict are
refused, for nobody could tell which one is meant. ListenerSets come after them, the oldest first: a listener of theirs
is refused when one before it has its place. Refused listeners of the Gateway keep their place, those of sets have none;
nor has anybody's whose protocol is not served, since requests to the port can only be meant for the others.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tunnelgw.model.conditions import Reason
from tunnelgw.model.gateways import Gateway, Listener, ListenerSet
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.snapshot import Index
from tunnelgw.translate import selectors
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import ObjectId

PROTOCOLS = ("HTTP", "HTTPS")
"""Those that are served."""
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
    served = [slot for slot in own if _is_served(slot)]
    result = []
    for slot in own:
        others = [rival for rival in served if rival is not slot and _place(rival.listener) == _place(slot.listener)]
        result.append(_judged(slot, others, others) if _is_served(slot) else slot)
    placed: dict[tuple[bool, int], _Placed] = defaultdict(lambda: _Placed({}, {}))
    for slot in served:
        placed[_place(slot.listener)].add(slot)
    for item in view.ask(allowed_sets, key):
        for listener in item.spec.listeners:
            before = placed[_place(listener)]
            namesake = before.by_hostname.get(listener.hostname)
            slot = Slot(ObjectId(Kind.LISTENER_SET, item.key), listener)
            slot = _judged(slot, before.by_protocol.values(), [namesake] if namesake else [])
            if slot.conflict is None and _is_served(slot):
                before.add(slot)
            result.append(slot)
    return tuple(result)


class _Placed(NamedTuple):
    """The listeners of one port: the first of each protocol and of each hostname, in their order."""

    by_protocol: dict[str, Slot]
    by_hostname: dict[str, Slot]

    def add(self, slot: Slot) -> None:
        self.by_protocol.setdefault(slot.listener.protocol, slot)
        self.by_hostname.setdefault(slot.listener.hostname, slot)


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


def _is_served(slot: Slot) -> bool:
    return slot.listener.protocol in PROTOCOLS


def _place(listener: Listener) -> tuple[bool, int]:
    """UDP and TCP have ports of their own."""
    return listener.protocol == "UDP", listener.port


def _judged(slot: Slot, of_protocols: Iterable[Slot], of_hostname: Iterable[Slot]) -> Slot:
    """Among which the first one with another protocol is, and the first one with its hostname."""
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
