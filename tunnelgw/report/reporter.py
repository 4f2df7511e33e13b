"""Decides which statuses have to be written now, and what they say about deliveries.

    what a turn changed + receipts -> objects that need a new status -> (held back until the status is true and a rush
    of edits is over) -> the status queue

Only the reconciler's thread calls this module.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from tunnelgw.deliver.receipts import Receipt
from tunnelgw.deliver.targets import Plane
from tunnelgw.metrics import Metrics
from tunnelgw.model.conditions import ConditionType
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.refs import GATEWAY_API, ParentRef
from tunnelgw.model.routes import GrpcRoute, HttpRoute
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.report.deliveries import (
    Answers,
    Outcomes,
    Way,
    conflicts,
    delivered,
    is_silent,
    unbound,
    with_conflicts,
    with_left,
    without_plane,
)
from tunnelgw.report.events import WarningEvents, has_lasted
from tunnelgw.report.firstwords import FirstWords
from tunnelgw.report.holdback import HoldBack
from tunnelgw.report.rush import Rush
from tunnelgw.sources.store import Unreadable
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


class Situation(NamedTuple):
    """The state at the end of a turn of the reconciler."""

    snapshot: Snapshot
    translation: Translation
    planes: Mapping[str, Plane]
    planes_by_tunnel: Mapping[str, set[str]]
    tunnels: Collection[str]
    """Ids of the tunnels whose ingress documents are ours to keep."""
    unreadable: Collection[Key] = ()
    """Gateways that cannot be read, but whose own proxies still serve: the statuses of their routes, ListenerSets and
    policies keep what they say about them."""
    left_by: Callable[[Gateway], Collection[str]] = lambda _gateway: ()
    """Ids of tunnels that nothing names any more, but that may still have the Gateway's hostnames."""


class UpdateQueue(Protocol):
    """Writes statuses; for each object only the newest update counts."""

    @property
    def depth(self) -> int:
        """How many updates are waiting."""

    def want(self, updates: Mapping[ObjectId, StatusUpdate | None]) -> None:
        """Add or replace updates; None: the object is gone."""

    def forget(self) -> None:
        """Drop all updates."""


class Reporter:
    def __init__(self, outcomes: Outcomes, status_queue: UpdateQueue, events: WarningEvents, metrics: Metrics) -> None:
        self._outcomes = outcomes
        self._status_queue = status_queue
        self._events = events
        self._metrics = metrics
        self._owed = HoldBack()
        self._first = FirstWords()
        self._rush = Rush()
        self._rush_over_s = math.inf
        """When the rush ends that held statuses back in the last turn; inf: there was none."""
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
        self._receipts: dict[str, Receipt] = {}
        """By target, as of the last turn."""

    def owe(self, ids: Iterable[ObjectId], turn: int, planes: frozenset[str]) -> None:
        """Record that these objects may need a new status. `planes`: data planes whose documents changed in `turn`."""
        self._owed.add(ids, turn, planes, time.monotonic())

    def expect_more(self, objects: int) -> None:
        """Record that others have edited this many objects with a status, which may be the beginning of a rush."""
        self._rush.note(objects, time.monotonic())

    def wait_until_s(self, latest_s: float) -> float:
        """When to call `report` again at the latest, on the monotonic clock; not after `latest_s`."""
        return min(latest_s, self._rush_over_s) if self._owed or self._first else latest_s

    def record_unreadable(self, found: Mapping[Entry, Unreadable]) -> None:
        """`found`: all objects that are left out of snapshots now."""
        self._events.unreadable(found)

    def forget(self) -> None:
        """Another controller leads: drop all statuses that are still to be written, and the metrics of deliveries."""
        self._owed, self._first = HoldBack(), FirstWords()
        self._unheard, self._left = frozenset(), set()
        self._naming_left = {}
        self._status_queue.forget()
        self._metrics.pending_statuses.set(0)
        for target in self._receipts:
            self._metrics.forget_target(target)
        self._receipts = {}

    def report(self, situation: Situation, turn: int, *, has_changed: bool) -> None:
        """Queue the statuses that are due. `has_changed`: objects have changed in this turn, not only receipts."""
        # Taken first: an answer that comes later must not release a status that does not reflect it.
        has_answered = self._outcomes.answers()
        self._record_failures(situation, self._count_receipts(situation))
        self.owe(self._news_of_deliveries(situation), turn, frozenset())
        # Read once: a tunnel that reports between two reads would seem to have reported no conflict.
        tunnels = self._outcomes.tunnel_receipts()
        contested = self._news_of_conflicts(situation.translation, tunnels, has_changed=has_changed)
        self._record_conflicts(situation.snapshot, contested)
        self.owe({*contested, *self._no_longer_left(situation, tunnels)}, turn, frozenset())
        self.owe(self._news_of_left_tunnels(situation), turn, frozenset())
        now_s = time.monotonic()
        over_s = self._rush.over_s(now_s)
        self._rush_over_s = over_s if over_s > now_s else math.inf
        if over_s <= now_s:
            released = {id_: self._way_of(situation, id_) for id_ in self._owed.release(has_answered, now_s)}
            ripe = self._first.ripe(released, self._owed, now_s)
            self._status_queue.want({id_: self._update(situation, id_) for id_ in ripe})
        self._metrics.pending_statuses.set(self._status_queue.depth + len(self._owed) + len(self._first))

    def _way_of(self, situation: Situation, id_: ObjectId) -> Way | None:
        """None: not a Gateway or ListenerSet of ours."""
        verdict = situation.translation.verdict(id_) if id_.kind in (Kind.GATEWAY, Kind.LISTENER_SET) else None
        return _way(verdict) if isinstance(verdict, GatewayVerdict | ListenerSetVerdict) else None

    # -- what receipts say -------------------------------------------------------------------------------------------

    def _news_of_deliveries(self, situation: Situation) -> set[ObjectId]:
        """Gateways and ListenerSets whose statuses must now say something else about deliveries."""
        # Read once: what a proxy answers between two reads would be missing in the status that its answer releases.
        proxies = {plane: self._outcomes.proxy_receipts(plane) for plane in situation.planes}
        unbound_now = self._unbound_listeners(proxies)
        found = {id_ for id_ in {*unbound_now, *self._unbound} if unbound_now.get(id_) != self._unbound.get(id_)}
        self._unbound = unbound_now
        held = self._outcomes.held_planes()
        answers = _by_way(situation, proxies, self._outcomes.tunnel_receipts())
        deliveries = {
            way: Delivery(way.plane in held, delivered(each)) if way.plane in proxies else _WITHOUT_PLANE
            for way, each in answers.items()
        }
        self._first.listen(answers.keys(), lambda way: is_silent(answers[way]))
        different = {way for way, delivery in deliveries.items() if self._is_news(way, delivery)}
        # Those that have gone: a Gateway whose configuration was deleted may have no other verdict than before.
        different |= self._deliveries.keys() - deliveries.keys()
        self._deliveries = deliveries
        self._unheld -= different
        for kind in (Kind.GATEWAY, Kind.LISTENER_SET) if different else ():
            for key in situation.snapshot.all(kind):
                verdict = situation.translation.verdict(id_ := ObjectId(kind, key))
                if isinstance(verdict, GatewayVerdict | ListenerSetVerdict) and _way(verdict) in different:
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

    def _count_receipts(self, situation: Situation) -> list[Receipt]:
        """Update the metrics of deliveries. Returns the receipts that have changed."""
        found = [receipt for plane in situation.planes for receipt in self._outcomes.proxy_receipts(plane)]
        receipts = {receipt.target: receipt for receipt in (*found, *self._outcomes.tunnel_receipts().values())}
        for target in self._receipts.keys() - receipts.keys():
            self._metrics.forget_target(target)
        for target in receipts.keys() - self._receipts.keys():
            self._metrics.begin_target(target)
        news = [receipt for target, receipt in receipts.items() if receipt != self._receipts.get(target)]
        for receipt in news:
            if not receipt.is_starting:
                outcome = "held" if receipt.is_current else "refused" if receipt.is_refusal else "failed"
                self._metrics.deliveries.labels(receipt.target, outcome).inc()
            self._metrics.delivered.labels(receipt.target).set(receipt.is_current)
            if receipt.is_current:
                self._metrics.delivered_at.labels(receipt.target).set_to_current_time()
        self._receipts = receipts
        return news

    # -- what people must see ----------------------------------------------------------------------------------------

    def _record_failures(self, situation: Situation, news: Iterable[Receipt]) -> None:
        lasting = {receipt.target: receipt for receipt in news if has_lasted(receipt)}
        tunnels = self._outcomes.tunnel_receipts()
        for key, gateway in situation.snapshot.all(Kind.GATEWAY).items() if lasting else ():
            verdict = situation.translation.verdict(ObjectId(Kind.GATEWAY, key))
            if isinstance(verdict, GatewayVerdict):
                tunnel = tunnels.get(verdict.tunnel)
                behind = [*self._outcomes.proxy_receipts(verdict.data_plane), *([tunnel] if tunnel else [])]
                # From `lasting`, not from `behind`: a newer receipt may report success.
                self._events.failures(gateway, [lasting[each.target] for each in behind if each.target in lasting])

    def _record_conflicts(self, snapshot: Snapshot, ids: Iterable[ObjectId]) -> None:
        for id_ in ids:
            route = snapshot.read(Entry(id_.kind, id_.key))
            if isinstance(route, Object) and id_ in self._contested:
                self._events.conflict(id_.kind, route, self._contested[id_])

    # -- what is said ------------------------------------------------------------------------------------------------

    def _update(self, situation: Situation, id_: ObjectId) -> StatusUpdate | None:
        """None: the object does not exist any more."""
        item = situation.snapshot.read(Entry(id_.kind, id_.key))
        if not isinstance(item, Object):
            return None
        verdict = situation.translation.verdict(id_)
        if isinstance(verdict, OrphanVerdict) and verdict.gateway in situation.unreadable:
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
    """Parents or ancestors whose entries in the object's status stay: see `Situation.unreadable`."""
    if not situation.unreadable:
        return frozenset()
    if not isinstance(item, HttpRoute | GrpcRoute):
        return frozenset(ParentRef(key.name, namespace=key.namespace) for key in situation.unreadable)
    full = (with_namespace(ref, item.metadata.namespace) for ref in item.spec.parent_refs)
    return frozenset(ref for ref in full if _gateway_of(situation, ref) in situation.unreadable)


def _gateway_of(situation: Situation, ref: ParentRef) -> Key | None:
    """The Gateway to which a parentRef leads. For a ListenerSet: None, unless its Gateway is unknown too."""
    key = Key(ref.namespace, ref.name)
    if ref.group == GATEWAY_API and ref.kind == Kind.LISTENER_SET:
        verdict = situation.translation.verdict(ObjectId(Kind.LISTENER_SET, key))
        return verdict.gateway if isinstance(verdict, OrphanVerdict) else None
    return key if (ref.group, ref.kind) == (GATEWAY_API, Kind.GATEWAY) else None


def _way(verdict: GatewayVerdict | ListenerSetVerdict) -> Way:
    return Way(verdict.data_plane, verdict.tunnel)
