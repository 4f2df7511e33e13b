"""What translation decided about each object: findings, which become a status with time, generation and receipts.

`Accepted` and `ResolvedRefs` are final. `Programmed` is a finding only if something prevents it; otherwise it depends
on delivery receipts. Conditions that report something abnormal when true are findings only if they are true.
"""

from typing import NamedTuple, TypeAlias

from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.gateways import GatewayAddress, RouteGroupKind
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import ParentRef

MAX_MESSAGE = 2048
"""Limit in characters, for people to read; the API server accepts 32,768."""
NOT_READ = "could not be read yet"
"""Said about an object whose content the API server has refused so far, or has not answered for."""
OUTSIDE = "is in a namespace whose Secrets the controller does not read (see --secret-namespaces)"
BEFORE = "; until then what was named before is used"


class ObjectId(NamedTuple):
    """An object of any kind."""

    kind: Kind
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class ClassVerdict(Part, frozen=True):
    findings: tuple[Finding, ...]


class ListenerVerdict(Part, frozen=True):
    """About a listener of a Gateway or a ListenerSet."""

    name: str
    findings: tuple[Finding, ...]
    supported_kinds: tuple[RouteGroupKind, ...] = ()
    attached_routes: int = 0


class GatewayVerdict(Part, frozen=True):
    findings: tuple[Finding, ...]
    data_plane: str
    """The data plane whose receipts decide whether the Gateway is programmed."""
    tunnel: str = ""
    """Id of the tunnel that leads to the Gateway; empty: none does."""
    addresses: tuple[GatewayAddress, ...] = ()
    listeners: tuple[ListenerVerdict, ...] = ()
    attached_listener_sets: int = 0
    bound: tuple[str, ...] = ()
    """Addresses on which its listeners are bound, whether or not `addresses` shows them."""


class ListenerSetVerdict(Part, frozen=True):
    gateway: Key
    data_plane: str
    findings: tuple[Finding, ...]
    listeners: tuple[ListenerVerdict, ...] = ()
    tunnel: str = ""
    """As in its Gateway's verdict."""


class OrphanVerdict(Part, frozen=True):
    """About a Gateway whose class does not exist, or a ListenerSet whose Gateway does not exist or has no class. It is
    no controller's, so its status is written only if it still says something of ours.
    """

    gateway: Key
    findings: tuple[Finding, ...]


class TunnelHost(NamedTuple):
    """A hostname that a tunnel must send to our proxies; empty: every host."""

    tunnel: str
    hostname: str


class ParentVerdict(Part, frozen=True):
    """About a route, for one of its parentRefs (as written)."""

    parent_ref: ParentRef
    findings: tuple[Finding, ...]
    hosts: tuple[TunnelHost, ...] = ()
    """Hostnames of requests that reach the route through a tunnel and this parent."""


class RouteVerdict(Part, frozen=True):
    """`parents`: those that we manage, in the route's order; empty: the route is not ours to judge."""

    parents: tuple[ParentVerdict, ...]


Verdict: TypeAlias = ClassVerdict | GatewayVerdict | ListenerSetVerdict | OrphanVerdict | RouteVerdict


def true(type_: ConditionType, reason: Reason, message: str = "") -> Finding:
    return Finding(type_, Status.TRUE, reason, _cut(message))


def false(type_: ConditionType, reason: Reason, message: str = "") -> Finding:
    return Finding(type_, Status.FALSE, reason, _cut(message))


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 4]} ..."
