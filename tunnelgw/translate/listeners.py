"""The results for listeners: their conditions, their entries in the document, and what routes can attach to."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from proxy import document
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.gateways import NamespacesFrom, RouteGroupKind
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.translate.addresses import doors
from tunnelgw.translate.contest import NO_LOSS, Loss, holder, is_accepted, losses
from tunnelgw.translate.drafts import Draft, Obstacle, Socket, drafts, own_drafts, route_namespaces
from tunnelgw.translate.gateways import GatewaySetup, gateway_setup
from tunnelgw.translate.hostnames import rivals
from tunnelgw.translate.names import created_at, short
from tunnelgw.translate.queries import View
from tunnelgw.translate.slots import gateway_of, is_let_in, owners
from tunnelgw.translate.tunnelports import OtherPort, Wall, told_ports, tunnel_ports, walls
from tunnelgw.translate.verdicts import ListenerVerdict, ObjectId, false, true

_NOT_ACCEPTED = "the Gateway is not accepted"


class Report(Part, frozen=True):
    verdict: ListenerVerdict
    is_accepted: bool
    is_sound: bool
    """Whether it is accepted, and no bad reference keeps it from being served."""
    documents: tuple[document.Listener, ...] = ()
    """Its entries in the document: one for each address that it is bound to, or one if only the tunnel leads to it, and
    possibly one for the tunnel's other port. Empty: it is not served."""


class Entrance(Part, frozen=True):
    """What routes need to know about a listener. If anything else in it changes, routes are not evaluated again."""

    name: str
    port: int
    hostname: str
    kinds: tuple[RouteGroupKind, ...]
    namespaces: NamespacesFrom
    id: str
    """Unique among all listeners."""
    documents: tuple[str, ...]
    """The names of its entries in the document."""
    is_on_tunnel: bool


class Parent(Part, frozen=True):
    """A Gateway or ListenerSet that routes refer to."""

    gateway: Key
    setup: GatewaySetup
    entrances: tuple[Entrance, ...] = ()
    refusal: str = ""
    """Why routes cannot attach: the Gateway of this ListenerSet does not admit it. Empty: they can."""


def parent(view: View, owner: ObjectId) -> Parent | None:
    """A query. None: it does not exist, or does not lead to a Gateway of ours."""
    key = gateway_of(view, owner)
    setup = view.ask(gateway_setup, key) if key else None
    if key is None or setup is None:
        return None
    if owner.kind is Kind.LISTENER_SET and not view.ask(is_let_in, owner.key):
        return Parent(key, setup, refusal=f"Gateway {key} does not allow listeners of {owner}")
    own = zip(view.ask(own_drafts, owner), view.ask(own_reports, owner), strict=True)
    return Parent(key, setup, tuple(_entrance(draft, report) for draft, report in own))


def reports(view: View, key: Key) -> tuple[Report, ...]:
    """A query about a Gateway of ours: its listeners and those of its ListenerSets, in their order."""
    return tuple(report for owner in view.ask(owners, key) for report in view.ask(own_reports, owner))


def own_reports(view: View, owner: ObjectId) -> tuple[Report, ...]:
    """A query about a Gateway of ours, or a ListenerSet that such a Gateway admits: its own listeners."""
    key = gateway_of(view, owner)
    setup = view.ask(gateway_setup, key) if key else None
    if key is None or setup is None:  # not ours any more, but the query that asks is still to be evaluated again
        return ()
    lost, own = view.ask(losses, key), view.ask(own_drafts, owner)
    overlaps = view.ask(overlapping, key) if any(_may_overlap(draft) for draft in own) else {}
    shut = view.ask(why_sets_are_shut, key) if owner.kind is Kind.LISTENER_SET else _shut(view, key)
    told = view.ask(told_ports, key)
    return tuple(
        _with_other_port(
            _report(key, setup, draft, lost.get(draft.name, NO_LOSS), overlaps.get(draft.name, ()), shut),
            told.get(draft.name),
        )
        for draft in own
    )


def gateway_documents(view: View, key: Key) -> tuple[document.Listener, ...]:
    """A query about a Gateway of ours: its part of the document's listeners."""
    served = tuple(_certified([part for report in view.ask(reports, key) for part in report.documents]))
    on_tunnel = {part.name: part for part in served if part.tunnel}
    if not on_tunnel:
        return served
    protocols = {part.visible_port: part.protocol for part in on_tunnel.values()}
    ports, holders = view.ask(tunnel_ports, key).served, partial(holder, view, key)
    found = walls(key, view.ask(drafts, key), ports, on_tunnel, holders)
    return (*served, *(_wall(key, wall, protocols) for wall in found))


def _certified(parts: Sequence[document.Listener]) -> Iterator[document.Listener]:
    """The listeners, changed so that each HTTPS listener with a socket has a certificate.

    Only walled ones (`Draft.is_walled`) may lack one. They get the certificate of another listener on the socket, to
    which their hosts would go otherwise; if there is none, they need no socket.
    """
    lent = {(part.address, part.port): part.tls for part in parts if part.tls}
    for part in parts:
        if part.protocol != "HTTPS" or part.tls or not part.port:
            yield part
        elif tls := lent.get((part.address, part.port)):
            yield msgspec.structs.replace(part, tls=tls)
        elif part.tunnel:
            yield msgspec.structs.replace(part, address="", port=document.UNSET)


def _wall(key: Key, wall: Wall, protocols: Mapping[int, Literal["HTTP", "HTTPS"]]) -> document.Listener:
    """The wall as a document's listener. It has no `created_at`, so every other Gateway that wants its host takes
    precedence.

    `protocols`: the protocol of the Gateway's listeners on the tunnel, by port.
    """
    return document.Listener(
        name=wall.name,
        gateway=str(key),
        public_port=wall.port,
        protocol=protocols.get(wall.port, "HTTPS" if wall.port == 443 else "HTTP"),
        hostname=wall.hostname or document.UNSET,
        tunnel=True,
    )


def _shut(view: View, key: Key) -> str:
    """Why no listener of a Gateway of ours can be reached; empty: some may be."""
    setup, gateway_doors = view.ask(gateway_setup, key), view.ask(doors, key)
    if setup is None or setup.problem or any(each.type is ConditionType.ACCEPTED for each in gateway_doors.findings):
        return _NOT_ACCEPTED
    return "" if gateway_doors.tunnel or gateway_doors.bound else "the Gateway has no address"


def why_sets_are_shut(view: View, key: Key) -> str:
    """A query: the same for the listeners of its ListenerSets, which wait until the Gateway is accepted."""
    own = view.ask(own_reports, ObjectId(Kind.GATEWAY, key))
    if own and not any(each.is_accepted for each in own):
        return _NOT_ACCEPTED
    return _shut(view, key)


def _report(key: Key, setup: GatewaySetup, draft: Draft, loss: Loss, overlap: tuple[Finding, ...], shut: str) -> Report:
    accepted = draft.accepted
    if loss.is_fatal(draft) and not draft.is_walled:
        accepted = false(ConditionType.ACCEPTED, Reason.PORT_UNAVAILABLE, _message(loss.obstacles))
    deprived = loss.obstacles + draft.obstacles if loss.is_in_vain(draft) else ()
    findings = [*_main_findings(draft, accepted, shut, deprived)]
    if is_good := is_accepted(draft, loss):
        findings += [*overlap, *(() if deprived else _unreachable(draft.obstacles + loss.obstacles))]
    listener = draft.listener
    verdict = ListenerVerdict(listener.name, tuple(findings), draft.kinds)
    documents = () if shut or loss.is_fatal(draft) else _documents(key, setup, draft, loss.rest(draft))
    return Report(verdict, is_good, is_good and not draft.blocked, documents)


def _main_findings(draft: Draft, accepted: Finding, shut: str, deprived: tuple[Obstacle, ...]) -> tuple[Finding, ...]:
    """`deprived`: why it gets no requests at all; empty: it gets some."""
    conflict = draft.slot.conflict
    if conflict is not None:
        message = f"port {draft.listener.port} is also wanted by {draft.slot.rival}"
        return (
            false(ConditionType.ACCEPTED, conflict, message),
            false(ConditionType.PROGRAMMED, conflict, message),
            draft.resolved,
            true(ConditionType.CONFLICTED, conflict, message),
        )
    no_conflict = false(ConditionType.CONFLICTED, Reason.NO_CONFLICTS)
    if accepted.status is not Status.TRUE or draft.blocked:
        why = draft.blocked or "the listener is not accepted"
        return accepted, false(ConditionType.PROGRAMMED, Reason.INVALID, why), draft.resolved, no_conflict
    if shut:
        return accepted, false(ConditionType.PROGRAMMED, Reason.PENDING, shut), draft.resolved, no_conflict
    if deprived:
        programmed = false(ConditionType.PROGRAMMED, deprived[0].reason, _message(deprived))
        return accepted, programmed, draft.resolved, no_conflict
    return accepted, draft.resolved, no_conflict


def overlapping(view: View, key: Key) -> Mapping[str, tuple[Finding, ...]]:
    """A query about a Gateway of ours: OverlappingTLSConfig conditions, by the listener's name in the document.

    HTTPS listeners get one if they share hosts, or names in their certificates, with another listener on the same port:
    a client may reuse one connection for hosts of both, and is answered 421.
    """
    by_port: dict[int, list[Draft]] = {}
    for draft in view.ask(drafts, key):
        if _may_overlap(draft):
            by_port.setdefault(draft.listener.port, []).append(draft)
    found: dict[str, tuple[Finding, ...]] = {}
    for group in by_port.values():
        by_certificate = rivals([draft.certificate_names for draft in group])
        by_hostname = rivals([(draft.listener.hostname,) for draft in group])
        for draft, of_host, of_certificate in zip(group, by_hostname, by_certificate, strict=True):
            if of_host is not None:
                message = f"listener {group[of_host].listener.name} also has hosts of this listener"
                reason = Reason.OVERLAPPING_HOSTNAMES
            elif of_certificate is not None:
                name = group[of_certificate].listener.name
                message = f"a certificate of listener {name} is also valid for names of this listener"
                reason = Reason.OVERLAPPING_CERTIFICATES
            else:
                continue
            found[draft.name] = (true(ConditionType.OVERLAPPING_TLS_CONFIG, reason, message),)
    return found


def _may_overlap(draft: Draft) -> bool:
    return draft.slot.conflict is None and draft.listener.protocol == "HTTPS"


def _unreachable(obstacles: tuple[Obstacle, ...]) -> tuple[Finding, ...]:
    if not obstacles:
        return ()
    return (true(ConditionType.PARTLY_UNREACHABLE, obstacles[0].reason, _message(obstacles)),)


def _message(obstacles: tuple[Obstacle, ...]) -> str:
    return "; ".join(obstacle.message for obstacle in obstacles)


def _documents(
    key: Key, setup: GatewaySetup, draft: Draft, sockets: tuple[Socket, ...]
) -> tuple[document.Listener, ...]:
    listener = draft.listener
    common = document.Listener(
        name=draft.name,
        gateway=str(key),
        created_at=created_at(setup.age.created_at),
        public_port=listener.port,
        protocol="HTTPS" if listener.protocol == "HTTPS" else "HTTP",
        hostname=listener.hostname or document.UNSET,
        tunnel=draft.is_on_tunnel,
    )
    if not sockets:
        return (common,) if draft.is_on_tunnel else ()
    return tuple(
        msgspec.structs.replace(
            common,
            name=draft.name if place == 0 else short(f"{draft.name}@{address}"),
            address=address,
            port=port,
            tls=draft.tls or document.UNSET,
            tunnel=draft.is_on_tunnel and place == 0,
        )
        for place, (address, port) in enumerate(sockets)
    )


def _with_other_port(report: Report, other: OtherPort | None) -> Report:
    """The report with an entry for the tunnel's other port, if the document needs one (`TunnelPorts.told`)."""
    if other is None or not report.documents:
        return report
    first = report.documents[0]
    further = msgspec.structs.replace(
        first,
        name=short(f"{first.name}@{other.port}"),
        address="",
        port=document.UNSET,
        public_port=other.port,
        protocol=other.protocol,
        tls=document.UNSET,
    )
    return msgspec.structs.replace(report, documents=(*report.documents, further))


def _entrance(draft: Draft, report: Report) -> Entrance:
    listener = draft.listener
    names = () if draft.is_walled else tuple(part.name for part in report.documents)
    allowed = route_namespaces(listener)
    return Entrance(
        listener.name, listener.port, listener.hostname, draft.kinds, allowed, draft.name, names, draft.is_on_tunnel
    )
