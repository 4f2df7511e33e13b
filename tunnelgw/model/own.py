"""The kinds of tunnelgw.dev/v1alpha1. Their CRDs are files under helm/; docs/controller-reference.md explains them."""

import msgspec

from tunnelgw.model.meta import NO_STATUS, Object
from tunnelgw.model.part import Part
from tunnelgw.model.refs import SecretKeyRef

TUNNELGW = "tunnelgw.dev"


class DirectService(Part, frozen=True):
    name: str
    namespace: str = ""
    addresses: tuple[str, ...] = ()
    """IP addresses and hostnames at which clients reach it, in place of those that it tells of itself."""


class Direct(Part, frozen=True):
    """The direct door: addresses that the proxy binds, or the Service whose addresses lead to it."""

    addresses: tuple[str, ...] = ()
    """A pool: one address per Gateway, or a single one that all Gateways share."""
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
    """What a proxy's document says beside listeners, backends and routes, spelled as there.

    None: as the proxy has it by itself.
    """

    merge_slashes: bool = True
    forwarding: ProxyForwarding = ProxyForwarding()
    limits: ProxyLimits = ProxyLimits()


class GatewayClassConfigSpec(Part, frozen=True):
    tunnel_id: str = msgspec.field(default="", name="tunnelID")
    """Lower-case UUID; empty: no tunnel, direct listeners only."""
    account_id: str = msgspec.field(default="", name="accountID")
    """Empty: found from the connector's token, or from the provider when it lists exactly one."""
    provider_credentials_secret_ref: SecretKeyRef | None = None
    """Key `api-token` unless it names another."""
    direct: Direct | None = None
    publish: str = ""
    """Tunnel or Direct: which address a Gateway shows. Empty: Direct where there are direct listeners."""
    proxy: ProxySettings | None = None
    """Of the shared proxies those of the oldest class that has any; of a GatewayConfig those of its own."""


class GatewayClassConfig(Object, frozen=True):
    """Cluster scope; GatewayClass.spec.parametersRef names it."""

    spec: GatewayClassConfigSpec = GatewayClassConfigSpec()
    status: msgspec.Raw = NO_STATUS


class GatewayConfigSpec(GatewayClassConfigSpec, frozen=True):
    """A Gateway's own proxy, with its own tunnel and its own auth Secret."""

    auth_secret_ref: SecretKeyRef | None = None
    """Token of the proxy's config API, key `auth-token` unless it names another."""
    tunnel_token_secret_ref: SecretKeyRef | None = None
    """Token of the tunnel, key `tunnel-token` unless it names another."""
    proxy_endpoints: tuple[str, ...] = ()
    """Config APIs of the Gateway's proxy where the chart does not run it: http(s)://host:port or unix:/path."""


class GatewayConfig(Object, frozen=True):
    """Namespaced; Gateway.spec.infrastructure.parametersRef names it."""

    spec: GatewayConfigSpec = GatewayConfigSpec()
    status: msgspec.Raw = NO_STATUS


class BackendTls(Part, frozen=True):
    """How the target proves who it is; `caCertificate` empty: the system's authorities."""

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
