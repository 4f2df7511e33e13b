"""The verdicts on a Gateway and on a ListenerSet as a whole."""

from collections.abc import Sequence

from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.gateways import Gateway
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.translate.addresses import doors
from tunnelgw.translate.certificates import client_certificate
from tunnelgw.translate.classes import left_out
from tunnelgw.translate.gateways import SHARED, GatewaySetup, gateway_setup
from tunnelgw.translate.listeners import Report, own_reports, reports
from tunnelgw.translate.listenertls import is_insecure
from tunnelgw.translate.queries import View
from tunnelgw.translate.slots import gateway_of, is_let_in, owners
from tunnelgw.translate.verdicts import (
    BEFORE,
    GatewayVerdict,
    ListenerSetVerdict,
    ObjectId,
    OrphanVerdict,
    false,
    true,
)

ACCEPTED, PROGRAMMED = ConditionType.ACCEPTED, ConditionType.PROGRAMMED


def gateway_verdict(view: View, key: Key) -> GatewayVerdict | OrphanVerdict | None:
    """A query. None: not ours to judge. Attached routes are counted by `pipeline`."""
    gateway, setup = view.get(Kind.GATEWAY, key), view.ask(gateway_setup, key)
    if not isinstance(gateway, Gateway):
        return None
    if setup is None:
        return _without_class(view, gateway)
    gateway_doors, own = view.ask(doors, key), view.ask(own_reports, ObjectId(Kind.GATEWAY, key))
    findings = [view.ask(gateway_accepted, key), *view.ask(gateway_programmed, key)]
    findings.append(_resolved_refs(view, key, setup, own))
    if is_insecure(gateway):
        message = "AllowInsecureFallback admits clients whose certificate is missing or not valid"
        findings.append(true(ConditionType.INSECURE_FRONTEND_VALIDATION_MODE, Reason.CONFIGURATION_CHANGED, message))
    if setup.data_plane != SHARED:
        findings += left_out(setup.proxy)
    _, *sets = view.ask(owners, key)
    verdicts = [view.ask(set_verdict, owner.key) for owner in sets]
    return GatewayVerdict(
        tuple(findings),
        setup.data_plane,
        tunnel=gateway_doors.tunnel,
        addresses=gateway_doors.shown,
        listeners=tuple(report.verdict for report in own),
        attached_listener_sets=sum(1 for verdict in verdicts if verdict and verdict.findings[0].status is Status.TRUE),
        bound=gateway_doors.bound,
    )


def _without_class(view: View, gateway: Gateway) -> OrphanVerdict | None:
    lack = _lack_of_class(view, gateway)
    waiting = (Finding(type_, Status.UNKNOWN, Reason.PENDING, lack) for type_ in (ACCEPTED, PROGRAMMED))
    return OrphanVerdict(gateway.key, tuple(waiting)) if lack else None


def _lack_of_class(view: View, gateway: Gateway) -> str:
    """Why the Gateway has no class; empty: it has one."""
    name = gateway.spec.gateway_class_name
    is_there = view.get(Kind.GATEWAY_CLASS, Key("", name)) is not None
    return "" if is_there else f"GatewayClass {name} does not exist, or cannot be read"


def gateway_accepted(view: View, key: Key) -> Finding:
    """A query about a Gateway of ours: its Accepted condition."""
    setup = view.ask(gateway_setup, key)
    if setup is not None and setup.problem:
        return false(ACCEPTED, Reason.INVALID_PARAMETERS, setup.problem)
    for finding in view.ask(doors, key).findings:
        if finding.type is ACCEPTED:
            return finding
    own = view.ask(own_reports, ObjectId(Kind.GATEWAY, key))
    return _of_listeners(own, [report for report in own if not report.is_accepted])


def gateway_programmed(view: View, key: Key) -> tuple[Finding, ...]:
    """A query about a Gateway of ours: what prevents `Programmed`; empty: nothing, so it depends on the proxies."""
    if view.ask(gateway_accepted, key).status is not Status.TRUE:
        return (false(PROGRAMMED, Reason.INVALID, "the Gateway is not accepted"),)
    for finding in view.ask(doors, key).findings:
        if finding.type is PROGRAMMED:
            return (finding,)
    all_reports = view.ask(reports, key)
    if all_reports and not any(report.is_sound for report in all_reports):
        return (false(PROGRAMMED, Reason.INVALID, "no listener can be served"),)
    return ()


def set_verdict(view: View, key: Key) -> ListenerSetVerdict | OrphanVerdict | None:
    """A query. None: its Gateway is not ours."""
    owner = ObjectId(Kind.LISTENER_SET, key)
    gateway = gateway_of(view, owner)
    if gateway is None:
        return None
    parent, setup = view.get(Kind.GATEWAY, gateway), view.ask(gateway_setup, gateway)
    if not isinstance(parent, Gateway):
        return OrphanVerdict(gateway, _without_parent(f"Gateway {gateway} does not exist, or cannot be read"))
    if setup is None:
        lack = _lack_of_class(view, parent)
        return OrphanVerdict(gateway, _without_parent(f"Gateway {gateway} is not served: {lack}")) if lack else None
    tunnel = view.ask(doors, gateway).tunnel
    if not view.ask(is_let_in, key):
        message = f"allowedListeners of Gateway {gateway} does not admit namespace {key.namespace}"
        findings = tuple(false(type_, Reason.NOT_ALLOWED, message) for type_ in (ACCEPTED, PROGRAMMED))
        return ListenerSetVerdict(gateway, setup.data_plane, findings, tunnel=tunnel)
    own = view.ask(own_reports, owner)
    findings = _set_findings(view, gateway, own)
    return ListenerSetVerdict(gateway, setup.data_plane, findings, tuple(report.verdict for report in own), tunnel)


def _set_findings(view: View, gateway: Key, own: Sequence[Report]) -> tuple[Finding, ...]:
    parent = view.ask(gateway_accepted, gateway)
    if parent.status is not Status.TRUE:
        return _without_parent(f"Gateway {gateway} is not accepted: {parent.message}")
    accepted = _of_listeners(own, [report for report in own if not report.is_sound])
    if accepted.status is not Status.TRUE:
        programmed = false(PROGRAMMED, Reason.LISTENERS_NOT_VALID, accepted.message)
        if any(report.is_accepted and _is_permitted(report) for report in own):
            # It only waits for a certificate. If the set were not accepted, external-dns would remove its names.
            accepted = true(ACCEPTED, Reason.LISTENERS_NOT_VALID, accepted.message)
        return accepted, programmed
    for finding in view.ask(gateway_programmed, gateway):
        message = f"Gateway {gateway} is not programmed: {finding.message}"
        return accepted, false(PROGRAMMED, Reason.PARENT_NOT_PROGRAMMED, message)
    return (accepted,)


def _without_parent(message: str) -> tuple[Finding, ...]:
    return (
        false(ACCEPTED, Reason.PARENT_NOT_ACCEPTED, message),
        false(PROGRAMMED, Reason.PARENT_NOT_PROGRAMMED, message),
    )


def _is_permitted(report: Report) -> bool:
    return all(finding.reason is not Reason.REF_NOT_PERMITTED for finding in report.verdict.findings)


def _of_listeners(own: Sequence[Report], bad: Sequence[Report]) -> Finding:
    if not bad:
        return true(ACCEPTED, Reason.ACCEPTED)
    names = ", ".join(report.verdict.name for report in bad)
    if len(bad) == len(own):
        return false(ACCEPTED, Reason.LISTENERS_NOT_VALID, f"no listener can be served: see {names}")
    return true(ACCEPTED, Reason.LISTENERS_NOT_VALID, f"some listeners are not valid: see {names}")


def _resolved_refs(view: View, key: Key, setup: GatewaySetup, own: Sequence[Report]) -> Finding:
    if setup.unread:
        message = f"infrastructure.parametersRef: {setup.unread}{BEFORE}"
        return false(ConditionType.RESOLVED_REFS, Reason.INVALID_PARAMETERS, message)
    if unresolved := view.ask(client_certificate, key).unresolved:
        return unresolved
    bad = [
        (report.verdict.name, finding.message)
        for report in own
        for finding in report.verdict.findings
        if finding.type is ConditionType.RESOLVED_REFS and finding.status is not Status.TRUE
    ]
    if bad:
        name, why = bad[0]  # dashboards show conditions of the Gateway only
        message = f"{name}: {why}; see listeners {', '.join(each for each, _ in bad)}"  # the end may be cut off
        return false(ConditionType.RESOLVED_REFS, Reason.LISTENERS_NOT_RESOLVED, message)
    return true(ConditionType.RESOLVED_REFS, Reason.RESOLVED_REFS)
