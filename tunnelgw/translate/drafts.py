"""Judges each listener of a Gateway by itself: protocol, kinds of routes, TLS, and the doors that lead to it.

Conflicts with other Gateways of the same proxy are resolved later (`contest`), conditions after that (`listeners`).
"""

from proxy import document
from tunnelgw.model.conditions import ConditionType, Finding, Reason
from tunnelgw.model.gateways import GatewaySpec, Listener, NamespacesFrom, RouteGroupKind
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.translate import selectors
from tunnelgw.translate.addresses import Doors, doors
from tunnelgw.translate.listenertls import TlsDraft, tls_draft
from tunnelgw.translate.names import listener_name
from tunnelgw.translate.pools import plain_address
from tunnelgw.translate.queries import View
from tunnelgw.translate.slots import PROTOCOLS, Slot, gateway_of, gateway_spec, owners, slots
from tunnelgw.translate.verdicts import ObjectId, false, true

ROUTE_KINDS = (Kind.HTTP_ROUTE, Kind.GRPC_ROUTE)

Socket = tuple[str, int]
"""Address and port to bind; an empty address stands for all addresses of the host."""


class Obstacle(Part, frozen=True):
    """Why a door of the Gateway does not lead to the listener."""

    reason: Reason
    message: str


class Draft(Part, frozen=True):
    name: str
    """The listener's name in the document."""
    slot: Slot
    accepted: Finding
    resolved: Finding
    kinds: tuple[RouteGroupKind, ...] = ()
    blocked: str = ""
    """Why nothing is served although the listener may be accepted; empty: it is served."""
    tls: document.ListenerTLS | None = None
    certificate_names: tuple[str, ...] = ()
    sockets: tuple[Socket, ...] = ()
    is_on_tunnel: bool = False
    obstacles: tuple[Obstacle, ...] = ()
    is_walled: bool = False
    """Refused, but it keeps its hosts from other listeners: no route leads there."""

    @property
    def owner(self) -> ObjectId:
        """A Gateway or ListenerSet."""
        return self.slot.owner

    @property
    def listener(self) -> Listener:
        return self.slot.listener

    @property
    def is_served(self) -> bool:
        return bool(self.sockets or self.is_on_tunnel)


class _Ways(Part, frozen=True):
    sockets: tuple[Socket, ...]
    is_on_tunnel: bool
    obstacles: tuple[Obstacle, ...]


def drafts(view: View, key: Key) -> tuple[Draft, ...]:
    """A query about a Gateway of ours: its listeners and those of its ListenerSets, in their order."""
    return tuple(draft for owner in view.ask(owners, key) for draft in view.ask(own_drafts, owner))


def own_drafts(view: View, owner: ObjectId) -> tuple[Draft, ...]:
    """A query about a Gateway of ours, or a ListenerSet that such a Gateway admits: its own listeners."""
    key = gateway_of(view, owner)
    gateway = view.ask(gateway_spec, key) if key else None
    if key is None or gateway is None:
        return ()
    gateway_doors = view.ask(doors, key)
    return tuple(_draft(view, key, gateway, slot, gateway_doors) for slot in slots(view, owner))


def supported_kinds(listener: Listener) -> tuple[tuple[RouteGroupKind, ...], tuple[str, ...]]:
    """The kinds of routes that may attach, and the listed kinds that cannot be served."""
    if listener.protocol not in PROTOCOLS:
        return (), ()
    known = tuple(RouteGroupKind(kind, GATEWAY_API) for kind in ROUTE_KINDS)
    listed = tuple(dict.fromkeys((entry.group, entry.kind) for entry in listener.allowed_routes.kinds))
    if not listed:
        return known, ()
    good = tuple(entry for entry in known if (entry.group, entry.kind) in listed)
    bad = tuple(f"{group}/{kind}" for group, kind in listed if RouteGroupKind(kind, group) not in known)
    return good, bad


def _draft(view: View, key: Key, gateway: GatewaySpec, slot: Slot, gateway_doors: Doors) -> Draft:
    listener = slot.listener
    name = listener_name(key, slot.owner, listener.name)
    tls = tls_draft(view, key, gateway, slot.owner, listener) if listener.protocol == "HTTPS" else TlsDraft()
    kinds, bad_kinds = supported_kinds(listener)
    resolved = tls.unresolved or _resolved(bad_kinds)
    refusal = _refusal(listener) or tls.accepted
    ways = _ways(listener, gateway_doors, tls)
    if refusal is None and ways.obstacles and not (ways.sockets or ways.is_on_tunnel):
        first = ways.obstacles[0]
        message = "; ".join(obstacle.message for obstacle in ways.obstacles)
        refusal = false(ConditionType.ACCEPTED, first.reason, message)
    accepted = refusal or true(ConditionType.ACCEPTED, Reason.ACCEPTED)
    is_walled = bool(listener.filters.requests) and listener.protocol in PROTOCOLS
    if slot.conflict or ((refusal or tls.blocked) and not is_walled):
        return Draft(name, slot, accepted, resolved, kinds, tls.blocked)
    return Draft(
        name,
        slot,
        accepted,
        resolved,
        kinds,
        tls.blocked,
        tls=_document_tls(tls) if ways.sockets else None,
        certificate_names=tuple(name for pair in tls.pairs for name in pair.names),
        sockets=ways.sockets,
        is_on_tunnel=ways.is_on_tunnel,
        obstacles=ways.obstacles,
        is_walled=is_walled,
    )


def route_namespaces(listener: Listener) -> NamespacesFrom:
    """The namespaces whose routes may attach."""
    namespaces = listener.allowed_routes.namespaces
    return namespaces if namespaces.from_ else NamespacesFrom("Same")


def _refusal(listener: Listener) -> Finding | None:
    if listener.protocol not in PROTOCOLS:
        message = f"protocol {listener.protocol} is not supported, want {' or '.join(PROTOCOLS)}"
        return false(ConditionType.ACCEPTED, Reason.UNSUPPORTED_PROTOCOL, message)
    if problem := selectors.problem_of(route_namespaces(listener)):
        message = f"allowedRoutes.namespaces: {problem}; no route can attach"
        return false(ConditionType.ACCEPTED, Reason.UNSUPPORTED_VALUE, message)
    if filters := listener.filters.requests:
        types = ", ".join(dict.fromkeys(entry.type for entry in filters))
        message = f"filters.requests: {types} is not supported here, so no request may pass; use filters of routes"
        return false(ConditionType.ACCEPTED, Reason.UNSUPPORTED_VALUE, message)
    return None


def _resolved(bad_kinds: tuple[str, ...]) -> Finding:
    if not bad_kinds:
        return true(ConditionType.RESOLVED_REFS, Reason.RESOLVED_REFS)
    message = f"allowedRoutes.kinds: {', '.join(bad_kinds)} cannot be served, want {' or '.join(ROUTE_KINDS)}"
    return false(ConditionType.RESOLVED_REFS, Reason.INVALID_ROUTE_KINDS, message)


def _ways(listener: Listener, gateway_doors: Doors, tls: TlsDraft) -> _Ways:
    obstacles: list[Obstacle] = []
    on_tunnel = _tunnel_obstacle(listener, tls) if gateway_doors.tunnel else None
    if on_tunnel:
        obstacles.append(on_tunnel)
    direct = _direct_obstacle(listener, gateway_doors, tls) if gateway_doors.bound else None
    if direct:
        obstacles.append(direct)
    sockets: tuple[Socket, ...] = ()
    if direct is None:
        port = (gateway_doors.ports or {}).get(listener.port, listener.port)
        # Each address needs one spelling, or two Gateways could get the same socket.
        sockets = tuple(dict.fromkeys((plain_address(address), port) for address in gateway_doors.bound))
    return _Ways(sockets, bool(gateway_doors.tunnel) and on_tunnel is None, tuple(obstacles))


def _tunnel_obstacle(listener: Listener, tls: TlsDraft) -> Obstacle | None:
    if listener.port not in document.TUNNEL_PORTS:
        message = f"port {listener.port} cannot be reached through the tunnel, which has ports 80 and 443"
        return Obstacle(Reason.PORT_UNAVAILABLE, message)
    if tls.authorities:
        message = "not served through the tunnel: its edge ends TLS, so certificates of clients cannot be checked"
        return Obstacle(Reason.UNSUPPORTED_VALUE, message)
    return None


def _direct_obstacle(listener: Listener, gateway_doors: Doors, tls: TlsDraft) -> Obstacle | None:
    if gateway_doors.ports is not None and listener.port not in gateway_doors.ports:
        message = f"the Service in front of the proxy has no TCP port {listener.port} with a port number as targetPort"
        return Obstacle(Reason.PORT_UNAVAILABLE, message)
    if listener.protocol == "HTTPS" and not (tls.pairs or tls.blocked):
        message = "not served on direct addresses: tls.certificateRefs is missing"
        return Obstacle(Reason.UNSUPPORTED_VALUE, message)
    return None


def _document_tls(tls: TlsDraft) -> document.ListenerTLS | None:
    if not tls.pairs:
        return None
    certificates = tuple(pair.certificate for pair in tls.pairs)
    if not tls.authorities:
        return document.ListenerTLS(certificates)
    is_insecure = tls.mode == "AllowInsecureFallback"
    validation = document.ClientValidation(
        tls.authorities, "AllowInsecureFallback" if is_insecure else "AllowValidOnly"
    )
    return document.ListenerTLS(certificates, validation)
