"""GatewayClass, Gateway and ListenerSet (gateway.networking.k8s.io/v1)."""

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
    before: GatewayClassSpec | None = msgspec.field(default=None, name="(before)")
    """As of a Gateway: what it said before it named a configuration that cannot be read now."""


class LabelRequirement(Part, frozen=True):
    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist; others make the selector invalid."""
    values: tuple[str, ...] = ()


class LabelSelector(Part, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class NamespacesFrom(Part, frozen=True):
    """Which namespaces may attach. `from_` empty: the default of the place where this stands."""

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
    """Of requests before they are routed; what it does is not read, since none is served."""

    type: str


class ListenerFilters(Part, frozen=True):
    requests: tuple[ListenerFilter, ...] = ()


class Listener(Part, frozen=True):
    """Of a Gateway or a ListenerSet."""

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
    """From where it is to be reached; empty: from wherever it may be."""


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
    """Addresses that are its own until it goes: those that its status shows, and those that it was given last, which it
    may not show yet. See `holding`; the API knows nothing of this."""
    before: GatewaySpec | None = msgspec.field(default=None, name="(before)")
    """What it said before it named a Secret, ConfigMap or GatewayConfig that could not be read yet; None: all is read.
    See the store; the API knows nothing of this either."""

    @property
    def parameters_ref(self) -> LocalRef | None:
        """Which GatewayConfig counts: while that which it names cannot be read, the one before."""
        infrastructure = (self.before or self.spec).infrastructure
        return infrastructure.parameters_ref if infrastructure else None


class _Shown(Part, frozen=True):
    addresses: tuple[GatewayAddress, ...] = ()


def shown_addresses(gateway: Gateway) -> tuple[str, ...]:
    """What the status says. It is not decoded with the object, since nothing else of it is of use."""
    try:
        status = msgspec.json.decode(gateway.status, type=_Shown)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    return tuple(address.value for address in status.addresses)


def holding(gateway: Gateway, given: Iterable[str] = ()) -> Gateway:
    """With `held` filled in. `given`: what it was given last."""
    held = dict.fromkeys((*shown_addresses(gateway), *given))
    return msgspec.structs.replace(gateway, held=tuple(held))


class ListenerSetSpec(Part, frozen=True):
    parent_ref: ParentRef
    listeners: tuple[Listener, ...] = ()


class ListenerSet(Object, frozen=True):
    spec: ListenerSetSpec
    status: msgspec.Raw = NO_STATUS
    before: ListenerSetSpec | None = msgspec.field(default=None, name="(before)")
    """As of a Gateway."""
