"""What statuses say about deliveries, and which of them must say something else than before.

Only the reconciler's thread calls this module.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tunnelgw.deliver.receipts import Receipt
from tunnelgw.model.conditions import ConditionType
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.refs import GATEWAY_API, ParentRef
from tunnelgw.model.routes import GrpcRoute, HttpRoute
from tunnelgw.model.snapshot import Entry
from tunnelgw.report.deliveries import (
    Answers,
    Outcomes,
    Way,
    conflicts,
    delivered,
    unbound,
    with_conflicts,
    with_left,
    without_plane,
)
from tunnelgw.report.situation import Situation
from tunnelgw.status.compose import StatusUpdate
from tunnelgw.status.entries import with_namespace
from tunnelgw.status.objects import Delivery
from tunnelgw.translate.pipeline import Translation
from tunnelgw.translate.verdicts import (
    GatewayVerdict,
    ListenerSetVerdict,
    ObjectId,
    OrphanVerdict,
    RouteVerdict,
    TunnelHost,
)

_DELIVERED = ConditionType.DELIVERED.value.encode()
_WITHOUT_PLANE = Delivery(False, without_plane())


class News(NamedTuple):
    """What has changed since the last turn."""

    ids: set[ObjectId]
    """Objects whose statuses must say something else about deliveries."""
    conflicts: Mapping[ObjectId, str]
    """Routes whose hostnames now have somebody else's rules at the provider, or other ones, with the message."""
    answers: Mapping[Way, Answers]
    """Those of all ways that exist now."""


class StatusUpdates:
    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._deliveries: dict[Way, Delivery] = {}
        """As of the last turn."""
        self._unheld: set[Way] = set()
        """Ways about which a status was written while no proxy held the newest document."""
        self._unbound: dict[ObjectId, Mapping[str, str]] = {}
        """Why a proxy cannot bind ports: by Gateway or ListenerSet, then by the name of the listener."""
        self._conflicts: dict[TunnelHost, str] = {}
        """What `deliveries.conflicts` found."""
        self._contested: dict[ObjectId, str] = {}
        """Routes whose hostnames have somebody else's rules at the provider, with the message for the status."""
        self._unheard: frozenset[str] = frozenset()
        """Tunnels that have not reported yet which hostnames have such rules."""
        self._left: set[ObjectId] = set()
        """Routes whose earlier message about such rules stays until one of these tunnels reports."""
        self._naming_left: dict[ObjectId, Collection[str]] = {}
        """Gateways whose statuses name tunnels that may still have their hostnames, with the ids of these."""

    def forget(self) -> None:
        """Another controller leads, and says what it knows."""
        self._unheard, self._left = frozenset(), set()
        self._naming_left = {}

    def news(self, situation: Situation, *, has_changed: bool) -> News:
        """`has_changed`: objects have changed in this turn, not only receipts."""
        # Read once: what a proxy answers between two reads would be missing in the status that its answer releases.
        proxies = {plane: self._outcomes.proxy_receipts(plane) for plane in situation.planes}
        ids = self._news_of_listeners(proxies)
        held = self._outcomes.held_planes()
        answers = _by_way(situation, proxies, self._outcomes.tunnel_receipts())
        deliveries = {
            way: Delivery(way.plane in held, delivered(each)) if way.plane in proxies else _WITHOUT_PLANE
            for way, each in answers.items()
        }
        ids |= self._news_of_deliveries(situation, deliveries)
        # Read once: a tunnel that reports between two reads would seem to have reported no conflict.
        tunnels = self._outcomes.tunnel_receipts()
        contested = self._news_of_conflicts(situation.translation, tunnels, has_changed=has_changed)
        ids |= contested | self._no_longer_left(situation, tunnels) | self._news_of_left_tunnels(situation)
        return News(ids, {id_: self._contested[id_] for id_ in contested if id_ in self._contested}, answers)

    def _news_of_listeners(self, proxies: Mapping[str, Iterable[Receipt]]) -> set[ObjectId]:
        """Gateways and ListenerSets with listeners whose ports can no longer be bound, can be again, or cannot for
        another reason. `proxies`: receipts by data plane."""
        before, self._unbound = self._unbound, self._unbound_listeners(proxies)
        return {id_ for id_ in {*before, *self._unbound} if before.get(id_) != self._unbound.get(id_)}

    def _news_of_deliveries(self, situation: Situation, deliveries: dict[Way, Delivery]) -> set[ObjectId]:
        """Gateways and ListenerSets whose ways have other deliveries than before. `deliveries`: of all ways."""
        different = {way for way, delivery in deliveries.items() if self._is_news(way, delivery)}
        # Those that have gone: a Gateway whose configuration was deleted may have no other verdict than before.
        different |= self._deliveries.keys() - deliveries.keys()
        self._deliveries = deliveries
        self._unheld -= different
        found = set()
        for kind in (Kind.GATEWAY, Kind.LISTENER_SET) if different else ():
            for key in situation.snapshot.all(kind):
                if way_of(situation, id_ := ObjectId(kind, key)) in different:
                    found.add(id_)
        return found

    def _is_news(self, way: Way, delivery: Delivery) -> bool:
        """Whether statuses must say something else than before.

        It does not count that no proxy holds the newest document any more: that is briefly so after each edit.
        """
        before = self._deliveries.get(way)
        return before is None or before.finding != delivery.finding or (delivery.is_held and way in self._unheld)

    def _news_of_conflicts(
        self, translation: Translation, tunnels: Mapping[str, Receipt], *, has_changed: bool
    ) -> set[ObjectId]:
        """Routes whose hostnames began or ceased to conflict with somebody else's rule at the provider."""
        found = conflicts(tunnels)
        if found == self._conflicts and not (found and has_changed):
            return set()
        self._conflicts = found
        contested = {}
        for id_ in translation.routes if found else ():
            if messages := [found[host] for host in translation.route_hosts(id_) if host in found]:
                contested[id_] = "; ".join(messages)
        before, self._contested = self._contested, contested
        return {id_ for id_ in {*before, *contested} if before.get(id_) != contested.get(id_)}

    def _no_longer_left(self, situation: Situation, tunnels: Mapping[str, Receipt]) -> set[ObjectId]:
        """Routes whose earlier message may not have to stay any longer, since a tunnel has reported."""
        unheard = frozenset(id_ for id_ in situation.tunnels if id_ not in tunnels or not tunnels[id_].held)
        has_news, self._unheard = not self._unheard <= unheard, unheard
        if not has_news:
            return set()
        left, self._left = self._left, set()
        return left

    def _news_of_left_tunnels(self, situation: Situation) -> set[ObjectId]:
        """Gateways whose statuses name tunnels that have been emptied since."""
        found = set()
        for id_, named in self._naming_left.items():
            gateway = situation.snapshot.read(Entry(id_.kind, id_.key))
            if not isinstance(gateway, Gateway) or situation.left_by(gateway) != named:
                found.add(id_)
        for id_ in found:
            del self._naming_left[id_]
        return found

    def _unbound_listeners(self, proxies: Mapping[str, Iterable[Receipt]]) -> dict[ObjectId, Mapping[str, str]]:
        """`proxies`: receipts by data plane."""
        found: dict[ObjectId, Mapping[str, str]] = {}
        for plane, receipts in proxies.items():
            for receipt in receipts:
                # Remarks refer to listeners by their index in the document that the proxy holds.
                held = self._outcomes.listeners(plane, receipt.held)
                told = unbound(held, receipt, self._outcomes.listeners(plane))
                for owner, reasons in told.items():
                    found[owner] = {**found.get(owner, {}), **reasons}
        return found

    def update(self, situation: Situation, id_: ObjectId) -> StatusUpdate | None:
        """What the object's status is to say; None: the object does not exist any more."""
        item = situation.snapshot.read(Entry(id_.kind, id_.key))
        if not isinstance(item, Object):
            return None
        verdict = situation.translation.verdict(id_)
        if isinstance(verdict, OrphanVerdict) and verdict.gateway in situation.unknown:
            return StatusUpdate(item, None, left_alone=_left_alone(situation, item))
        if isinstance(verdict, RouteVerdict) and id_ in self._contested:
            verdict = with_conflicts(verdict, self._conflicts)
        if isinstance(item, HttpRoute | GrpcRoute) and self._unheard and _DELIVERED in bytes(item.status):
            self._left.add(id_)
            return StatusUpdate(item, verdict, left_alone=_left_alone(situation, item), unheard=self._unheard)
        if not isinstance(verdict, GatewayVerdict | ListenerSetVerdict):
            return StatusUpdate(item, verdict, left_alone=_left_alone(situation, item))
        delivery = self._deliveries.get(way := _way(verdict), _WITHOUT_PLANE)
        if not delivery.is_held:
            self._unheld.add(way)
        if isinstance(item, Gateway):
            delivery = self._with_left(id_, situation.left_by(item), delivery)
        return StatusUpdate(item, verdict, msgspec.structs.replace(delivery, unbound=self._unbound.get(id_, {})))

    def _with_left(self, id_: ObjectId, left: Collection[str], delivery: Delivery) -> Delivery:
        self._naming_left.pop(id_, None)
        if not left or delivery.finding is None:
            return delivery
        self._naming_left[id_] = left
        return msgspec.structs.replace(delivery, finding=with_left(delivery.finding, left))


def way_of(situation: Situation, id_: ObjectId) -> Way | None:
    """The way to a Gateway or ListenerSet of ours; None: it is something else."""
    verdict = situation.translation.verdict(id_) if id_.kind in (Kind.GATEWAY, Kind.LISTENER_SET) else None
    return _way(verdict) if isinstance(verdict, GatewayVerdict | ListenerSetVerdict) else None


def _by_way(
    situation: Situation, proxies: Mapping[str, Sequence[Receipt]], tunnels: Mapping[str, Receipt]
) -> dict[Way, Answers]:
    """`proxies`: receipts by data plane; `tunnels`: by id."""
    ways = {Way(plane, tunnel) for tunnel, planes in situation.planes_by_tunnel.items() for plane in planes}
    ways |= {Way(plane, "") for plane in situation.planes}
    return {
        way: Answers(
            proxies.get(way.plane, ()),
            expected=len(situation.planes[way.plane].endpoints) if way.plane in situation.planes else 0,
            tunnel=tunnels.get(way.tunnel),
            has_tunnel=way.tunnel in situation.tunnels,
            misled=situation.planes[way.plane].misled if way.tunnel and way.plane in situation.planes else "",
        )
        for way in ways
    }


def _left_alone(situation: Situation, item: Object) -> frozenset[ParentRef]:
    """Parents or ancestors whose entries in the object's status stay: see `Situation.unknown`."""
    if not situation.unknown:
        return frozenset()
    if not isinstance(item, HttpRoute | GrpcRoute):
        return frozenset(ParentRef(key.name, namespace=key.namespace) for key in situation.unknown)
    full = (with_namespace(ref, item.metadata.namespace) for ref in item.spec.parent_refs)
    return frozenset(ref for ref in full if _gateway_of(situation, ref) in situation.unknown)


def _gateway_of(situation: Situation, ref: ParentRef) -> Key | None:
    """The Gateway to which a parentRef leads. For a ListenerSet: None, unless its Gateway is unknown too."""
    key = Key(ref.namespace, ref.name)
    if ref.group == GATEWAY_API and ref.kind == Kind.LISTENER_SET:
        verdict = situation.translation.verdict(ObjectId(Kind.LISTENER_SET, key))
        return verdict.gateway if isinstance(verdict, OrphanVerdict) else None
    return key if (ref.group, ref.kind) == (GATEWAY_API, Kind.GATEWAY) else None


def _way(verdict: GatewayVerdict | ListenerSetVerdict) -> Way:
    return Way(verdict.data_plane, verdict.tunnel)
