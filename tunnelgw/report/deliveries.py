"""What statuses say about deliveries: the receipts of a data plane's proxies and of its tunnel, in words. Pure."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from proxy.document import Listener
from tunnelgw.deliver.receipts import Receipt, RemarkKind
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.provider.ingress import EVERYTHING
from tunnelgw.translate.verdicts import ObjectId, ParentVerdict, RouteVerdict, TunnelHost

_PLACE = re.compile(r"listeners\[([0-9]{1,6})\]")
_MAX_ERRORS = 5


class Way(NamedTuple):
    """How requests reach a Gateway: its status depends on deliveries to both ends."""

    plane: str
    """Id of its data plane."""
    tunnel: str
    """Id of the tunnel that leads there; empty: none does."""


class Answers(NamedTuple):
    """What both ends of a way have answered so far."""

    proxies: Sequence[Receipt]
    expected: int
    """How many proxies the data plane has."""
    tunnel: Receipt | None
    has_tunnel: bool = False
    """Whether a receipt of the tunnel is expected, too."""
    misled: str = ""
    """Why the proxies open another tunnel; empty: nothing says that they do."""


class Outcomes(Protocol):
    """The results of all deliveries, as known to `tunnelgw.deliver.dispatch.Dispatch`."""

    def answers(self) -> Callable[[str, int], bool]:
        """A function that tells whether a plane's proxies have answered, as of now, about its document of a turn."""

    def held_planes(self) -> Collection[str]:
        """Data planes with at least one proxy that holds the newest document."""

    def proxy_receipts(self, plane: str) -> Sequence[Receipt]: ...

    def tunnel_receipts(self) -> Mapping[str, Receipt]:
        """By id of the tunnel."""

    def listeners(self, plane: str, digest: str | None = None) -> Sequence[Listener]:
        """The listeners of the document with this digest; without `digest`, of the newest document."""


def delivered(answers: Answers) -> Finding:
    """The condition `tunnelgw.dev/Delivered` of a Gateway."""
    proxies, expected, tunnel, has_tunnel, misled = answers
    if not expected:
        return _failed("no proxy is known for this data plane: see --proxy-endpoints and --proxy-service")
    errors = [f"proxy {receipt.target}: {failure}" for receipt in proxies if (failure := receipt.failure)]
    if tunnel is not None and tunnel.error:
        errors.append(f"{tunnel.target}: {tunnel.error}")
    if errors:
        errors = [*filter(None, [misled]), *errors]
        more = f"; and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
        return _failed("; ".join(errors[:_MAX_ERRORS]) + more)
    starting = [f"proxy {receipt.target}: {receipt.error}" for receipt in proxies if receipt.is_starting]
    if awaited := expected - len(proxies) + len(starting):
        why = f" ({'; '.join(starting[:_MAX_ERRORS])})" if starting else ""
        return _pending(f"{awaited} of {expected} proxies have not answered yet{why}")
    if has_tunnel and tunnel is None:
        return _pending("the provider has not got the hostnames yet")
    held = f"held by {expected} {'proxy' if expected == 1 else 'proxies'}" + (f" and {tunnel.target}" if tunnel else "")
    contested = [remark.message for remark in tunnel.remarks if remark.kind is RemarkKind.CONFLICT] if tunnel else []
    reasons = [*filter(None, [misled]), *contested]
    if reasons:  # first what holds the hostnames, or the others of them: see `targets.told_tunnels`
        return _failed(f"{held}, but {'; '.join(reasons[:_MAX_ERRORS])}")
    return Finding(ConditionType.DELIVERED, Status.TRUE, Reason.DELIVERED, held)


def with_left(finding: Finding, left: Collection[str]) -> Finding:
    """The same condition, whose message first names tunnels that nothing names any more, but that may still have the
    Gateway's hostnames: if the controller ends before it has emptied them, the next one reads this (see
    `targets.told_tunnels`). `left`: their ids."""
    if not left:
        return finding
    named = f"tunnel{'s' if len(left) > 1 else ''} {', '.join(sorted(left))}"
    return msgspec.structs.replace(finding, message=f"hostnames may still be in {named}; {finding.message}")


def without_plane() -> Finding:
    """The same condition where the Gateway's own configuration, and so its data plane, is missing or cannot be read."""
    return _failed("it is not known where its proxies are: see the condition Accepted")


def is_silent(answers: Answers) -> bool:
    """Whether a receipt that `delivered` needs is still missing, and none of the others reports a failure."""
    proxies, expected, tunnel, has_tunnel, _ = answers
    failures = not expected or any(receipt.failure for receipt in proxies) or bool(tunnel and tunnel.error)
    return not failures and (len(proxies) < expected or (has_tunnel and tunnel is None))


def unbound(
    listeners: Sequence[Listener], proxy: Receipt, newest: Sequence[Listener]
) -> dict[ObjectId, Mapping[str, str]]:
    """Why a proxy cannot bind ports, by Gateway or ListenerSet and the name of its listener.

    `listeners`: those of the document that the proxy holds. The proxy has one remark about all listeners that share a
    socket. Listeners that are no longer on that socket in the `newest` document are left out.
    """
    told = [remark for remark in proxy.remarks if remark.kind is RemarkKind.PORT]
    sharing: dict[object, list[Listener]] = {}
    for listener in listeners if told else ():
        sharing.setdefault(_socket(listener), []).append(listener)
    wanted = {(each.name, _socket(each)) for each in newest} if told else set()
    found: dict[ObjectId, Mapping[str, str]] = {}
    for remark in told:
        place = _PLACE.match(remark.subject)
        if place is None or int(place[1]) >= len(listeners):
            continue
        for listener in sharing[_socket(listeners[int(place[1])])]:
            named = _owner(listener.name)
            if named is not None and (listener.name, _socket(listener)) in wanted:
                owner, name = named
                found[owner] = {**found.get(owner, {}), name: f"proxy {proxy.target}: {remark.message}"}
    return found


def _socket(listener: Listener) -> object:
    """The address and port that it is bound to, or if it has no port, its name: such a listener shares no socket."""
    return (listener.address, listener.port) if listener.port else listener.name


def conflicts(tunnels: Mapping[str, Receipt]) -> dict[TunnelHost, str]:
    """Hostnames for which ingress documents have somebody else's rules, and what to do. `tunnels`: receipts by id."""
    return {
        TunnelHost(tunnel, "" if remark.subject == EVERYTHING else remark.subject): remark.message
        for tunnel, receipt in tunnels.items()
        for remark in receipt.remarks
        if remark.kind is RemarkKind.CONFLICT
    }


def with_conflicts(verdict: RouteVerdict, told: Mapping[TunnelHost, str]) -> RouteVerdict:
    """The verdict with a finding for each parent reached through a hostname in `told`, the result of `conflicts`."""
    return RouteVerdict(tuple(_with_conflicts(parent, told) for parent in verdict.parents))


def _with_conflicts(parent: ParentVerdict, told: Mapping[TunnelHost, str]) -> ParentVerdict:
    messages = [told[host] for host in parent.hosts if host in told]
    if not messages:
        return parent
    finding = Finding(ConditionType.DELIVERED, Status.FALSE, Reason.HOSTNAME_CONFLICT, "; ".join(messages))
    return msgspec.structs.replace(parent, findings=(*parent.findings, finding))


def _owner(listener: str) -> tuple[ObjectId, str] | None:
    """The Gateway or ListenerSet to which a document's listener belongs, and the listener's name there.

    Names are made by `names.listener_name`; for further addresses, `@` and the address follow.
    """
    match listener.partition("@")[0].split("/"):
        case [namespace, gateway, name]:
            return ObjectId(Kind.GATEWAY, Key(namespace, gateway)), name
        case [_, _, namespace, listener_set, name]:
            return ObjectId(Kind.LISTENER_SET, Key(namespace, listener_set)), name
    return None


def _pending(message: str) -> Finding:
    return Finding(ConditionType.DELIVERED, Status.UNKNOWN, Reason.PENDING, message)


def _failed(message: str) -> Finding:
    return Finding(ConditionType.DELIVERED, Status.FALSE, Reason.DELIVERY_FAILED, message)
