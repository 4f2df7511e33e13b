"""The kinds of tunnelgw.dev/v1alpha1. Their CRDs are files under helm/; docs/controller-reference.md explains them."""

import msgspec

from tunnelgw.model.meta import NO_STATUS, Object
from tunnelgw.model.part import Part
from tunnelgw.model.refs import SecretKeyRef

TUNNELGW = "tunnelgw.dev"
API_TOKEN_FIELD = "api-token"  # noqa: S105  # the name of a key, as the next two
AUTH_TOKEN_FIELD = "auth-token"  # noqa: S105
TUNNEL_TOKEN_FIELD = "tunnel-token"  # noqa: S105
TUNNEL_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""A UUID in lower case, as a regular expression for the whole id."""


class DirectService(Part, frozen=True):
    name: str
    namespace: str = ""
    addresses: tuple[str, ...] = ()
    """IP addresses and hostnames at which clients reach it, instead of those in the Service itself."""


class Direct(Part, frozen=True):
    """For direct listeners: addresses that the proxy binds, or the Service whose addresses lead to it."""

    addresses: tuple[str, ...] = ()
    """A pool: each Gateway gets one address, or all share it if there is only one."""
    service: DirectService | None = None


class ProxyForwarding(Part, frozen=True):
    trusted_proxies: tuple[str, ...] = ()
    proxy_protocol: tuple[str, ...] = ()
    client_cert: bool = False
    forwarded: bool = False
    via: bool = False
    request_id_header: str | None = None


class ProxyLimits(Part, frozen=True):
    max_header_bytes: int | None = None
    max_uri_bytes: int | None = None
    max_connections: int | None = None
    header_timeout: str | None = None
    idle_timeout: str | None = None
    stream_idle_timeout: str | None = None
    connect_timeout: str | None = None
    request_timeout: str | None = None
    backend_idle_timeout: str | None = None


class ProxySettings(Part, frozen=True):
    """The settings of a proxy's document besides listeners, backends and routes, with the same names.

    None: the proxy's default.
    """

    merge_slashes: bool = True
    forwarding: ProxyForwarding = ProxyForwarding()
    limits: ProxyLimits = ProxyLimits()


class GatewayClassConfigSpec(Part, frozen=True):
    tunnel_id: str = msgspec.field(default="", name="tunnelID")
    """See `TUNNEL_ID`; empty: no tunnel, direct listeners only."""
    account_id: str = msgspec.field(default="", name="accountID")
    """Empty: taken from the connector's token, or from the provider if it lists exactly one."""
    provider_credentials_secret_ref: SecretKeyRef | None = None
    """Key `api-token`, unless the reference names another."""
    direct: Direct | None = None
    publish: str = ""
    """Tunnel or Direct: which address a Gateway shows. Empty: Direct if it has a direct address that is not just a
    cluster IP."""
    proxy: ProxySettings | None = None
    """The shared proxies use the settings of the oldest class with any; the proxy of a GatewayConfig uses its own."""


class GatewayClassConfig(Object, frozen=True):
    """Cluster-scoped; referenced by GatewayClass.spec.parametersRef."""

    spec: GatewayClassConfigSpec = GatewayClassConfigSpec()
    status: msgspec.Raw = NO_STATUS


class GatewayConfigSpec(GatewayClassConfigSpec, frozen=True):
    """A Gateway's own proxy, with its own tunnel and its own auth Secret."""

    auth_secret_ref: SecretKeyRef | None = None
    """The token of the proxy's config API; key `auth-token`, unless the reference names another."""
    tunnel_token_secret_ref: SecretKeyRef | None = None
    """The token of the tunnel; key `tunnel-token`, unless the reference names another."""
    proxy_endpoints: tuple[str, ...] = ()
    """The config APIs of the Gateway's proxies: http(s)://host:port or unix:/path. Empty: it has no proxy."""


class GatewayConfig(Object, frozen=True):
    """Namespaced; referenced by Gateway.spec.infrastructure.parametersRef."""

    spec: GatewayConfigSpec = GatewayConfigSpec()
    status: msgspec.Raw = NO_STATUS


class BackendTls(Part, frozen=True):
    """How the target's certificate is verified; `caCertificate` empty: by the system's authorities."""

    hostname: str
    ca_certificate: str = ""


class BackendSpec(Part, frozen=True):
    """A target outside the cluster."""

    host: str
    port: int
    protocol: str = "http"
    """http, h2c or https."""
    tls: BackendTls | None = None


class Backend(Object, frozen=True):
    spec: BackendSpec
    status: msgspec.Raw = NO_STATUS
