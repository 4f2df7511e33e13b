"""Composes the whole status of an object from what was decided about it. Pure.

StatusUpdate (object, verdict, delivery) -> the bytes to write, or None if the stored status already says the same; and
the entries for which there was no room
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tunnelgw.model.gateways import Gateway, GatewayClass, ListenerSet
from tunnelgw.model.meta import Object
from tunnelgw.model.policies import BackendTlsPolicy
from tunnelgw.model.refs import ParentRef
from tunnelgw.model.routes import GrpcRoute, HttpRoute
from tunnelgw.status.entries import Entry, Writer
from tunnelgw.status.objects import (
    Delivery,
    Patch,
    class_status,
    gateway_status,
    left_status,
    listener_set_status,
    orphan_status,
    policy_status,
    route_status,
)
from tunnelgw.translate.pipeline import AnyVerdict
from tunnelgw.translate.policies import PolicyVerdict
from tunnelgw.translate.verdicts import ClassVerdict, GatewayVerdict, ListenerSetVerdict, OrphanVerdict, RouteVerdict


class StatusUpdate(msgspec.Struct, frozen=True):
    """What the status of an object has to say."""

    item: Object
    """As in the snapshot, and so with the stored status."""
    verdict: AnyVerdict | None
    """None: the object is not ours to judge, and what we once wrote about it is to be removed."""
    delivery: Delivery = Delivery(False)
    left_alone: frozenset[ParentRef] = frozenset()
    """Parents or ancestors about which nothing is known now: what we wrote about them stays."""
    unheard: frozenset[str] = frozenset()
    """Tunnels that have not reported yet which hostnames others have there: what we wrote about that stays."""


class Author(msgspec.Struct, frozen=True):
    controller_name: str
    features: tuple[str, ...]
    """Names of the features of Gateway API that are served, in alphabetical order."""


class Composed(NamedTuple):
    status: bytes | None
    """The whole status as JSON; None: the stored one already says the same."""
    left_out: tuple[ParentRef, ...] = ()
    """Parents or ancestors without an entry, since the list is full."""


def compose(update: StatusUpdate, author: Author, now: str) -> Composed:
    """`now`: RFC 3339 to the second. Raises Outdated."""
    patch, left_out = _patch(update, author, now)
    if patch is None:
        return Composed(None, left_out)
    stored = msgspec.json.decode(_stored(update.item), type=dict[str, msgspec.Raw])
    return Composed(msgspec.json.encode({**stored, **patch}), left_out)


def _patch(update: StatusUpdate, author: Author, now: str) -> tuple[Patch | None, tuple[ParentRef, ...]]:
    item, verdict = update.item, update.verdict
    writer = Writer(author.controller_name, item.metadata.namespace, item.metadata.generation, now)
    match item, verdict:
        case GatewayClass(), ClassVerdict():
            return class_status(item.status, verdict, author.features, writer), ()
        case Gateway(), GatewayVerdict():
            return gateway_status(item.status, verdict, update.delivery, writer), ()
        case ListenerSet(), ListenerSetVerdict():
            return listener_set_status(item.status, verdict, update.delivery, writer), ()
        case ((Gateway() | ListenerSet()), OrphanVerdict()):
            return orphan_status(item, verdict, writer), ()
        case ((Gateway() | ListenerSet()), None) if not update.left_alone:
            return left_status(item.status, writer), ()
        case ((HttpRoute() | GrpcRoute()), (RouteVerdict() | None)):
            return route_status(item.status, verdict or RouteVerdict(()), writer, update.left_alone, update.unheard)
        case BackendTlsPolicy(), (PolicyVerdict() | None):
            return policy_status(item.status, _ancestors(verdict), writer, update.left_alone)
    return None, ()  # the stored conditions stay: they carry no author's name, so they may be another controller's


def _ancestors(verdict: PolicyVerdict | None) -> Sequence[Entry]:
    return [
        Entry(ParentRef(ancestor.gateway.name, namespace=ancestor.gateway.namespace), ancestor.findings)
        for ancestor in (verdict.ancestors if verdict else ())
    ]


def _stored(item: Object) -> msgspec.Raw:
    match item:
        case GatewayClass() | Gateway() | ListenerSet() | HttpRoute() | GrpcRoute() | BackendTlsPolicy():
            return item.status
    raise TypeError(f"{type(item).__name__} has no status of ours")
