"""The result for a route: findings for each of its parents, and its parts of the documents of data planes."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from proxy import document
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import GATEWAY_API, ParentRef
from tunnelgw.model.routes import GrpcRoute, HttpRoute, Route
from tunnelgw.translate import hostnames
from tunnelgw.translate.attach import Attachment, Refusal, attach
from tunnelgw.translate.backends import BackendId
from tunnelgw.translate.listeners import Entrance, Parent, parent
from tunnelgw.translate.names import created_at, short
from tunnelgw.translate.queries import View
from tunnelgw.translate.rules import RouteContent, RouteId, route_content
from tunnelgw.translate.slots import ListenerId
from tunnelgw.translate.verdicts import ObjectId, ParentVerdict, RouteVerdict, TunnelHost, false, true


class PlanePart(Part, frozen=True):
    """A route in the document of a data plane."""

    data_plane: str
    routes: tuple[document.Route, ...]
    """Several if the route's rules differ between listeners."""
    backends: tuple[BackendId, ...]


class RouteParts(Part, frozen=True):
    verdict: RouteVerdict
    planes: tuple[PlanePart, ...] = ()
    attached: tuple[ListenerId, ...] = ()
    """Listeners that count the route among their attached routes."""

    @property
    def hosts(self) -> tuple[TunnelHost, ...]:
        return tuple(dict.fromkeys(host for each in self.verdict.parents for host in each.hosts))


class _Bond(NamedTuple):
    parent: Parent
    content: RouteContent
    attachment: Attachment


def route_parts(view: View, id_: ObjectId) -> RouteParts:
    """A query about an HTTPRoute or GRPCRoute."""
    route = view.get(id_.kind, id_.key)
    if not isinstance(route, HttpRoute | GrpcRoute):
        return RouteParts(RouteVerdict(()))
    verdicts: list[ParentVerdict] = []
    attached: dict[ListenerId, None] = {}
    bonds: dict[str, _Bond] = {}
    for ref in route.spec.parent_refs:
        owner = _owner(ref, id_.key.namespace)
        found = view.ask(parent, owner) if owner else None
        if owner is None or found is None:
            continue
        content = view.ask(route_content, RouteId(id_.kind, id_.key, found.gateway))
        outcome = attach(view, id_, route, ref, owner, found)
        findings = _findings(outcome, content)
        own = () if isinstance(outcome, Refusal) else tuple(_Bond(found, content, attachment) for attachment in outcome)
        verdicts.append(ParentVerdict(ref, findings, _hosts(filter(_is_served, own))))
        for bond in own:
            bonds[bond.attachment.entrance.id] = bond
            if findings[0].status is Status.TRUE:
                attached[ListenerId(owner, bond.attachment.entrance.name)] = None
    served = [*filter(_is_served, bonds.values())]
    return RouteParts(RouteVerdict(tuple(verdicts)), _planes(route, id_, served), tuple(attached))


def _is_served(bond: _Bond) -> bool:
    return bool(bond.attachment.entrance.documents and bond.content.rules)


def _owner(ref: ParentRef, namespace: str) -> ObjectId | None:
    if ref.group != GATEWAY_API or ref.kind not in (Kind.GATEWAY, Kind.LISTENER_SET):
        return None
    return ObjectId(Kind(ref.kind), Key(ref.namespace or namespace, ref.name))


def _findings(outcome: tuple[Attachment, ...] | Refusal, content: RouteContent) -> tuple[Finding, ...]:
    """Accepted comes first. Parents that refuse the route get the route's ResolvedRefs too."""
    others = tuple(finding for finding in content.findings if finding.type is not ConditionType.ACCEPTED)
    if isinstance(outcome, Refusal):
        return (false(ConditionType.ACCEPTED, outcome.reason, outcome.message), *others)
    for finding in content.findings:
        if finding.type is ConditionType.ACCEPTED:
            return (finding, *others)
    return (true(ConditionType.ACCEPTED, Reason.ACCEPTED), *others)


def _planes(route: Route, id_: ObjectId, bonds: list[_Bond]) -> tuple[PlanePart, ...]:
    planes = dict.fromkeys(bond.parent.setup.data_plane for bond in bonds)
    return tuple(
        _plane(plane, route, id_, [bond for bond in bonds if bond.parent.setup.data_plane == plane]) for plane in planes
    )


class _Group(NamedTuple):
    """Listeners for which the route has the same rules."""

    content: RouteContent
    entrances: list[Entrance]


def _plane(plane: str, route: Route, id_: ObjectId, bonds: list[_Bond]) -> PlanePart:
    groups: list[_Group] = []
    for _, content, attachment in bonds:
        for group in groups:
            if group.content.rules == content.rules:
                group.entrances.append(attachment.entrance)
                break
        else:
            groups.append(_Group(content, [attachment.entrance]))
    routes = tuple(_document_route(route, id_, place, group) for place, group in enumerate(groups))
    backends = dict.fromkeys(name for group in groups for name in group.content.backends)
    return PlanePart(plane, routes, tuple(backends))


def _document_route(route: Route, id_: ObjectId, place: int, group: _Group) -> document.Route:
    listeners = tuple(name for entrance in group.entrances for name in entrance.documents)
    # Routes of equal age are ranked by name, and `#` sorts before every character of an object's name.
    name = str(id_.key) if place == 0 else f"{id_.key}#{listeners[0]}"
    return document.Route(
        name=short(name),
        kind="grpc" if id_.kind is Kind.GRPC_ROUTE else "http",
        created_at=created_at(route.metadata.creation_timestamp),
        hostnames=tuple(filter(partial(_has_listener, group.entrances), dict.fromkeys(route.spec.hostnames))),
        listeners=listeners,
        rules=group.content.rules,
    )


def _has_listener(entrances: Iterable[Entrance], hostname: str) -> bool:
    """Whether some listener has hosts of this hostname; hostnames without one are left out. The others are not narrowed
    down to those hosts, since routes are ranked by their hostnames as written."""
    return any(hostnames.intersection(entrance.hostname, hostname) is not None for entrance in entrances)


def _hosts(bonds: Iterable[_Bond]) -> tuple[TunnelHost, ...]:
    return tuple(
        dict.fromkeys(
            TunnelHost(bond.parent.setup.tunnel, hostname)
            for bond in bonds
            if bond.attachment.entrance.is_on_tunnel
            for hostname in bond.attachment.hostnames
        )
    )
