"""What is to be said of each BackendTLSPolicy, to each Gateway whose routes use its targets.

A policy can have several targets, and a status has one Accepted per Gateway: it is True where the policy is in force
for at least one target that the Gateway uses, and its message names the targets where it is not.
"""

from collections.abc import Iterable

import msgspec

from tunnelgw.model import refs
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.core import Service
from tunnelgw.model.gateways import Gateway, GatewayClass, ListenerSet
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.policies import BackendTlsPolicy
from tunnelgw.model.refs import CORE, GATEWAY_API, ParentRef
from tunnelgw.model.routes import GrpcRoute, HttpRoute, Route
from tunnelgw.model.snapshot import Index
from tunnelgw.translate.backendtls import policy_of_target, policy_tls, targets_of
from tunnelgw.translate.endpoints import ServicePortName
from tunnelgw.translate.grants import ReferenceFrom, ReferenceTo, is_permitted
from tunnelgw.translate.queries import View

MAX_ANCESTORS = 16
"""Of a policy's status, those of other controllers included."""


class AncestorVerdict(msgspec.Struct, frozen=True):
    gateway: Key
    findings: tuple[Finding, ...]
    """Accepted and ResolvedRefs."""


class PolicyVerdict(msgspec.Struct, frozen=True):
    ancestors: tuple[AncestorVerdict, ...] = ()
    """In the order of their keys, at most MAX_ANCESTORS."""
    left_out: int = 0
    """Gateways that the policy affects, and for which its status has no place."""


def policy_verdict(view: View, key: Key) -> PolicyVerdict:
    """A query."""
    policy = view.get(Kind.BACKEND_TLS_POLICY, key)
    if not isinstance(policy, BackendTlsPolicy):
        return PolicyVerdict()
    users: dict[Key, list[ServicePortName]] = {}
    for target in dict.fromkeys(targets_of(policy)):
        for gateway in view.ask(gateways_of_service, target.service):
            users.setdefault(gateway, []).append(target)
    verdicts = [AncestorVerdict(gateway, _findings(view, key, users[gateway])) for gateway in sorted(users)]
    return PolicyVerdict(tuple(verdicts[:MAX_ANCESTORS]), max(0, len(verdicts) - MAX_ANCESTORS))


def gateways_of_service(view: View, service: Key) -> tuple[Key, ...]:
    """A query: our Gateways that have routes that may forward or copy requests to this Service, sorted."""
    found: set[Key] = set()
    for route in view.bucket(Index.ROUTES_BY_SERVICE, service):
        if isinstance(route, HttpRoute | GrpcRoute) and _may_use(view, route, service):
            found.update(_gateways(view, route))
    return tuple(sorted(found))


def _may_use(view: View, route: Route, service: Key) -> bool:
    kind = Kind.HTTP_ROUTE if isinstance(route, HttpRoute) else Kind.GRPC_ROUTE
    referrer = ReferenceFrom(GATEWAY_API, kind, route.metadata.namespace)
    return is_permitted(view, referrer, ReferenceTo(CORE, Kind.SERVICE, service.namespace, service.name))


def _gateways(view: View, route: Route) -> Iterable[Key]:
    for ref in route.spec.parent_refs:
        gateway = _gateway(view, ref, route.metadata.namespace)
        if gateway and view.ask(_is_ours, gateway):
            yield gateway


def _gateway(view: View, ref: ParentRef, namespace: str) -> Key | None:
    """A ListenerSet's routes are those of its Gateway."""
    parent = Key(ref.namespace or namespace, ref.name)
    match ref.group, ref.kind:
        case (refs.GATEWAY_API, Kind.GATEWAY):
            return parent
        case (refs.GATEWAY_API, Kind.LISTENER_SET):
            listener_set = view.get(Kind.LISTENER_SET, parent)
            if isinstance(listener_set, ListenerSet):
                above = listener_set.spec.parent_ref
                return Key(above.namespace or parent.namespace, above.name)
    return None


def _is_ours(view: View, key: Key) -> bool:
    """A query: whether this Gateway exists, and its class is one of ours."""
    gateway = view.get(Kind.GATEWAY, key)
    if not isinstance(gateway, Gateway):
        return False
    gateway_class = view.get(Kind.GATEWAY_CLASS, Key("", gateway.spec.gateway_class_name))
    return isinstance(gateway_class, GatewayClass) and gateway_class.spec.controller_name == view.controller_name


def _findings(view: View, policy: Key, targets: list[ServicePortName]) -> tuple[Finding, ...]:
    content = view.ask(policy_tls, policy)
    obstacles = [obstacle for target in targets if (obstacle := _obstacle(view, policy, target))]
    told = "; ".join(obstacle.message for obstacle in obstacles)
    if len(obstacles) == len(targets):
        accepted = msgspec.structs.replace(obstacles[0], message=told)
        references = [finding for finding in content.findings if finding.type is ConditionType.RESOLVED_REFS]
        return (accepted, *references)
    if content.tls is None:
        return content.findings
    message = f"not in force everywhere: {told}" if told else ""
    return (Finding(ConditionType.ACCEPTED, Status.TRUE, Reason.ACCEPTED, message), *content.findings)


def _obstacle(view: View, policy: Key, target: ServicePortName) -> Finding | None:
    """Why the policy is not in force for a target."""
    service = view.get(Kind.SERVICE, target.service)
    spelled = f"Service {target.service}" + (f", port {target.port}" if target.port else "")
    if not _has_port(service, target.port):
        return _refused(Reason.TARGET_NOT_FOUND, f"{spelled} does not exist")
    winner = view.ask(policy_of_target, target)
    if winner != policy:
        return _refused(Reason.CONFLICTED, f"{spelled} is a target of BackendTLSPolicy {winner} too, which comes first")
    return None


def _has_port(service: Object | None, name: str) -> bool:
    if not isinstance(service, Service):
        return False
    return not name or any(port.name == name for port in service.spec.ports or ())


def _refused(reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.ACCEPTED, Status.FALSE, reason, message)
