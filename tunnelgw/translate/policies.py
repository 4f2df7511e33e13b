"""The verdict on each BackendTLSPolicy, for each Gateway with routes that use the policy's targets.

A policy can have several targets, but its status has one Accepted condition per Gateway. It is True if the policy is in
force for at least one target that the Gateway uses; its message names the targets for which the policy is not in force.
"""

import msgspec

from tunnelgw.model.conditions import NOT_EVERYWHERE, ConditionType, Finding, Reason
from tunnelgw.model.core import Service
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.policies import BackendTlsPolicy
from tunnelgw.model.refs import CORE, GATEWAY_API
from tunnelgw.model.routes import HttpRoute
from tunnelgw.model.snapshot import Index
from tunnelgw.translate.backendtls import policy_of_target, policy_tls, targets_of
from tunnelgw.translate.endpoints import ServicePortName
from tunnelgw.translate.grants import ReferenceFrom, ReferenceTo, is_permitted
from tunnelgw.translate.listeners import parent
from tunnelgw.translate.queries import View
from tunnelgw.translate.routes import route_parts
from tunnelgw.translate.verdicts import ObjectId, false, true


class AncestorVerdict(msgspec.Struct, frozen=True, gc=False):
    gateway: Key
    findings: tuple[Finding, ...]
    """Accepted and ResolvedRefs."""


class PolicyVerdict(msgspec.Struct, frozen=True, gc=False):
    ancestors: tuple[AncestorVerdict, ...] = ()
    """Sorted by key; a status has room for sixteen."""


def policy_verdict(view: View, key: Key) -> PolicyVerdict:
    """A query."""
    policy = view.get(Kind.BACKEND_TLS_POLICY, key)
    if not isinstance(policy, BackendTlsPolicy):
        return PolicyVerdict()
    users: dict[Key, list[ServicePortName]] = {}
    for target in dict.fromkeys(targets_of(policy)):
        for gateway in view.ask(gateways_of_service, target.service):
            users.setdefault(gateway, []).append(target)
    return PolicyVerdict(
        tuple(AncestorVerdict(gateway, _findings(view, key, users[gateway])) for gateway in sorted(users))
    )


def gateways_of_service(view: View, service: Key) -> tuple[Key, ...]:
    """A query: our Gateways, sorted, with routes that may send requests to this Service, mirror requests to it, or have
    it authorize them."""
    found: set[Key] = set()
    for route in view.bucket(Index.ROUTES_BY_SERVICE, service):
        kind = Kind.HTTP_ROUTE if isinstance(route, HttpRoute) else Kind.GRPC_ROUTE
        referrer = ReferenceFrom(GATEWAY_API, kind, route.metadata.namespace)
        if is_permitted(view, referrer, ReferenceTo(CORE, Kind.SERVICE, service.namespace, service.name)):
            attached = view.ask(route_parts, ObjectId(kind, route.key)).attached
            owners = {listener.owner for listener in attached}
            found |= {owner.gateway for owner in (view.ask(parent, owner) for owner in owners) if owner}
    return tuple(sorted(found))


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
    message = f"{NOT_EVERYWHERE}{told}" if told else ""
    return (true(ConditionType.ACCEPTED, Reason.ACCEPTED, message), *content.findings)


def _obstacle(view: View, policy: Key, target: ServicePortName) -> Finding | None:
    """Why the policy is not in force for a target."""
    service = view.get(Kind.SERVICE, target.service)
    spelled = f"Service {target.service}" + (f", port {target.port}" if target.port else "")
    if not _has_port(service, target.port):
        return false(ConditionType.ACCEPTED, Reason.TARGET_NOT_FOUND, f"{spelled} does not exist")
    winner = policy_of_target(view, target)
    if winner != policy:
        return false(
            ConditionType.ACCEPTED,
            Reason.CONFLICTED,
            f"{spelled} is also a target of BackendTLSPolicy {winner}, which takes precedence",
        )
    return None


def _has_port(service: Object | None, name: str) -> bool:
    if not isinstance(service, Service):
        return False
    return not name or any(port.name == name for port in service.spec.ports or ())
