"""What translation decided about each object: findings that time, generation and receipts turn into a status.

`Accepted` and `ResolvedRefs` are decided here for good. `Programmed` is a finding only where something prevents it;
else the receipts of deliveries decide. Abnormal-true conditions are findings only where they are true.
"""

from typing import NamedTuple, TypeAlias

from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.gateways import GatewayAddress, RouteGroupKind
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.part import Part
from tunnelgw.model.refs import ParentRef

MAX_MESSAGE = 2048
"""Characters, for people to read; the API server takes 32,768."""
NOT_READ = "could not be read yet"
"""The API server has refused its content so far, or has not answered: that says nothing of it."""
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
    """Of a Gateway's or a ListenerSet's listener."""

    name: str
    findings: tuple[Finding, ...]
    supported_kinds: tuple[RouteGroupKind, ...] = ()
    attached_routes: int = 0


class GatewayVerdict(Part, frozen=True):
    findings: tuple[Finding, ...]
    data_plane: str
    """Whose receipts decide whether it is programmed."""
    tunnel: str = ""
    """Id of the tunnel that leads to it; empty: none does."""
    addresses: tuple[GatewayAddress, ...] = ()
    listeners: tuple[ListenerVerdict, ...] = ()
    attached_listener_sets: int = 0
    bound: tuple[str, ...] = ()
    """Addresses on which its listeners are bound, whether `addresses` shows them or not."""


class ListenerSetVerdict(Part, frozen=True):
    gateway: Key
    data_plane: str
    findings: tuple[Finding, ...]
    listeners: tuple[ListenerVerdict, ...] = ()
    tunnel: str = ""
    """As of its Gateway."""


class OrphanVerdict(Part, frozen=True):
    """Of a Gateway whose class does not exist, or of a ListenerSet whose Gateway does not, and so is nobody's: to be
    told only if we have told other things of it before.
    """

    gateway: Key
    findings: tuple[Finding, ...]


class TunnelHost(NamedTuple):
    """A name that the tunnel must lead to us. An empty hostname stands for every host."""

    tunnel: str
    hostname: str


class ParentVerdict(Part, frozen=True):
    """Of a route for one of its parentRefs, as that is written."""

    parent_ref: ParentRef
    findings: tuple[Finding, ...]
    hosts: tuple[TunnelHost, ...] = ()
    """For requests that reach the route through this parent."""


class RouteVerdict(Part, frozen=True):
    """`parents` are those that we manage, in the order of the route; none: the route is not ours to judge."""

    parents: tuple[ParentVerdict, ...]


Verdict: TypeAlias = ClassVerdict | GatewayVerdict | ListenerSetVerdict | OrphanVerdict | RouteVerdict


def true(type_: ConditionType, reason: Reason, message: str = "") -> Finding:
    return Finding(type_, Status.TRUE, reason, _cut(message))


def false(type_: ConditionType, reason: Reason, message: str = "") -> Finding:
    return Finding(type_, Status.FALSE, reason, _cut(message))


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 4]} ..."
