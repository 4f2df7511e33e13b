"""GatewayClass, Gateway and ListenerSet (gateway.networking.k8s.io/v1)."""

import ipaddress
from collections.abc import Iterable

import msgspec

from tunnelgw.model.meta import NO_STATUS, Object
from tunnelgw.model.part import Part
from tunnelgw.model.refs import GATEWAY_API, LocalRef, ObjectRef, ParametersRef, ParentRef


class GatewayClassSpec(Part, frozen=True):
    controller_name: str
    parameters_ref: ParametersRef | None = None
    description: str | None = None


class GatewayClass(Object, frozen=True):
    spec: GatewayClassSpec
    status: msgspec.Raw = NO_STATUS
    previous_spec: GatewayClassSpec | None = msgspec.field(default=None, name="(previous spec)")
    """As for a Gateway: the spec before it named a configuration that cannot be read now."""

    @property
    def parameters_ref(self) -> ParametersRef | None:
        """As for a Gateway."""
        return (self.previous_spec or self.spec).parameters_ref


class LabelRequirement(Part, frozen=True):
    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist; others make the selector invalid."""
    values: tuple[str, ...] = ()


class LabelSelector(Part, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class NamespacesFrom(Part, frozen=True):
    """Which namespaces may attach. `from_` empty: the default of the field that holds this struct."""

    from_: str = msgspec.field(default="", name="from")
    selector: LabelSelector | None = None


class RouteGroupKind(Part, frozen=True):
    kind: str
    group: str = GATEWAY_API


class AllowedRoutes(Part, frozen=True):
    namespaces: NamespacesFrom = NamespacesFrom("Same")
    kinds: tuple[RouteGroupKind, ...] = ()
    """Empty: all that the listener's protocol allows."""


class ListenerTls(Part, frozen=True):
    mode: str = "Terminate"
    certificate_refs: tuple[ObjectRef, ...] = ()
    options: dict[str, str] = {}


class ListenerFilter(Part, frozen=True):
    """A filter for requests before routing. Only its type is read, since no type is supported."""

    type: str


class ListenerFilters(Part, frozen=True):
    requests: tuple[ListenerFilter, ...] = ()


class Listener(Part, frozen=True):
    """A listener of a Gateway or a ListenerSet."""

    name: str
    port: int
    protocol: str
    hostname: str = ""
    tls: ListenerTls | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()
    filters: ListenerFilters = ListenerFilters()


class GatewayAddress(Part, frozen=True):
    value: str = ""
    type: str = "IPAddress"
    routability: str = ""
    """From where the address must be reachable; empty: anywhere will do."""


def is_ip_address(text: str) -> bool:
    """Whether the API accepts it as an IPAddress: not with a zone, which means nothing on another host."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


class Infrastructure(Part, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    parameters_ref: LocalRef | None = None


class FrontendValidation(Part, frozen=True):
    ca_certificate_refs: tuple[ObjectRef, ...]
    mode: str = "AllowValidOnly"


class FrontendTlsPart(Part, frozen=True):
    validation: FrontendValidation | None = None


class PortTls(Part, frozen=True):
    port: int
    tls: FrontendTlsPart


class FrontendTls(Part, frozen=True):
    default: FrontendTlsPart = FrontendTlsPart()
    per_port: tuple[PortTls, ...] = ()


class BackendClientTls(Part, frozen=True):
    client_certificate_ref: ObjectRef | None = None


class GatewayTls(Part, frozen=True):
    backend: BackendClientTls | None = None
    frontend: FrontendTls | None = None


class AllowedListeners(Part, frozen=True):
    namespaces: NamespacesFrom = NamespacesFrom("None")


class GatewaySpec(Part, frozen=True):
    gateway_class_name: str
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    infrastructure: Infrastructure | None = None
    allowed_listeners: AllowedListeners = AllowedListeners()
    tls: GatewayTls | None = None


class Gateway(Object, frozen=True):
    spec: GatewaySpec
    status: msgspec.Raw = NO_STATUS
    held: tuple[str, ...] = msgspec.field(default=(), name="(held)")
    """Addresses that it keeps while it exists: those in its status, and those that it was last given, which the status
    may not show yet. See `holding`; not a field of the API."""
    previous_spec: GatewaySpec | None = msgspec.field(default=None, name="(previous spec)")
    """The spec before it named a Secret, ConfigMap or GatewayConfig that could not be read yet; None: everything has
    been read. See the store; not a field of the API either."""

    @property
    def parameters_ref(self) -> LocalRef | None:
        """The GatewayConfig to use: while the named one cannot be read, the one that was named before."""
        infrastructure = (self.previous_spec or self.spec).infrastructure
        return infrastructure.parameters_ref if infrastructure else None


class _Shown(Part, frozen=True):
    addresses: tuple[GatewayAddress, ...] = ()


def _shown_addresses(gateway: Gateway) -> tuple[str, ...]:
    """The addresses in the status, which is not decoded with the object, since nothing else in it is needed."""
    try:
        status = msgspec.json.decode(gateway.status, type=_Shown)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    return tuple(address.value for address in status.addresses)


def holding(gateway: Gateway, given: Iterable[str] = ()) -> Gateway:
    """The Gateway with `held` filled in. `given`: the addresses that it was last given."""
    held = dict.fromkeys((*_shown_addresses(gateway), *given))
    return msgspec.structs.replace(gateway, held=tuple(held))


class ListenerSetSpec(Part, frozen=True):
    parent_ref: ParentRef
    listeners: tuple[Listener, ...] = ()


class ListenerSet(Object, frozen=True):
    spec: ListenerSetSpec
    status: msgspec.Raw = NO_STATUS
    previous_spec: ListenerSetSpec | None = msgspec.field(default=None, name="(previous spec)")
    """As for a Gateway."""
