"""The options of `tunnelgw-proxy run`: flags, variables, defaults and help, which docs/options.md is generated from."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from daemonkit.addresses import ListenAddress
from daemonkit.options import CommonOptions, option
from daemonkit.secret import Secret
from daemonkit.values import choice, comma_list, duration, integer, number, parse_bool, parse_file, size
from proxy.accesslog import AccessLogSettings
from proxy.accesslog.settings import CHOICES, ERRORS
from proxy.tunnel.addresses import IpVersion

PROG = "tunnelgw-proxy"
PREFIX = "PROXY_"
DESCRIPTION = "A reverse proxy that is configured by one document, sent with PUT /config."
COMMANDS = {"run": "run the proxy"}

_MOST_DEFAULT_WORKERS = 4


def parse_edge(text: str) -> ListenAddress:
    """An address of the edge, host:port. Raises ValueError."""
    wanted = f"seen {text.strip()!r}, want host:port or [IPv6]:port"
    try:
        address = ListenAddress.parse(text)
    except ValueError as error:
        # The parser's message about the form lists forms that are not allowed here; its other messages are kept.
        raise ValueError(wanted if "want host:port" in str(error) else str(error)) from error
    if not address.host or not address.port:
        raise ValueError(wanted)
    if "%" in address.host:
        raise ValueError(f"seen {text.strip()!r}, want an address without a zone")
    return address


def parse_source(text: str) -> str:
    """An IP address of this host, in canonical spelling. Raises ValueError."""
    text = text.strip()
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise ValueError(f"seen {text!r}, want an IP address of this host") from error
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_link_local or address.scope_id:
            raise ValueError(f"seen {text!r}, want an address without a zone that the edge can send answers to")
        address = address.ipv4_mapped or address
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f"seen {text!r}, which no host can have as its address, want an address of this host")
    return str(address)


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """Raises ValueError for options that exclude each other."""

    # cloudflared's too: what of its settings has no effect here is named as well.
    SHARED_PREFIXES = ("TUNNEL_",)

    config_addr: ListenAddress = option(
        parse=ListenAddress.parse,
        default=":8082",
        group="config API",
        help="address that serves /config, /healthz, /readyz and /metrics; also unix:/path",
    )
    auth_token: Secret | None = option(
        secret=True,
        group="config API",
        help="the token that /config requires (Authorization: Bearer); read once, at the start",
    )
    allow_unauthenticated_config: bool = option(
        parse=parse_bool,
        default="false",
        group="config API",
        help="without a token, accept /config requests from every client that addresses the proxy by IP address "
        "or as localhost; only on a loopback address or a unix socket",
    )
    config_tls_cert: str | None = option(
        group="config API",
        parse=parse_file,
        help="serve the config API over TLS with this certificate chain (PEM). When this file or the key file "
        "changes, both are read again",
    )
    config_tls_key: str | None = option(
        group="config API", parse=parse_file, help="the private key of that certificate (PEM)"
    )
    max_document_bytes: int = option(
        parse=size(1024),
        default="64MiB",
        unit="bytes",
        group="config API",
        help="larger documents are refused with 413",
    )
    config: str | None = option(
        group="configuration",
        parse=parse_file,
        help="document to load at the start, in place of the one in the state directory, and again on SIGHUP",
    )
    state_dir: str | None = option(
        group="configuration",
        metavar="DIR",
        help="keep the last good document here (mode 0600, private keys included), and start with it after a restart",
    )
    tunnel_token: Secret | None = option(
        secret=True,
        env="TUNNEL_TOKEN",
        group="tunnel",
        help="the tunnel's token, to register at the provider's edge and serve the requests that it sends; without it "
        "there are only direct listeners. A file is read again when it changes",
    )
    edge: tuple[ListenAddress, ...] = option(
        parse=comma_list(parse_edge),
        default="",
        group="tunnel",
        metavar="HOST:PORT",
        help="addresses of the edge, in place of those found in DNS; for private edges and tests",
    )
    edge_ca_file: str | None = option(
        group="tunnel",
        parse=parse_file,
        help="the only CAs (PEM) to trust for the edge; without it, the provider's two published roots are fetched, "
        "checked, and kept in the state directory",
    )
    edge_ip_version: str = option(
        parse=choice(*IpVersion),
        default="auto",
        group="tunnel",
        help="which addresses of the edge to dial; auto: those that the resolver lists first, and the others if these "
        "fail",
    )
    edge_bind_address: str | None = option(
        parse=parse_source,
        group="tunnel",
        metavar="IP",
        help="source address of connections to the edge; then only addresses of the edge with the same IP version are "
        "dialled",
    )
    ha_connections: int = option(
        parse=integer(1, 64),
        default="4",
        group="tunnel",
        help="connections to the edge, spread over its addresses and over the workers",
    )
    register_without_config: bool = option(
        parse=parse_bool,
        default="false",
        group="tunnel",
        help="register at the edge before there is a configuration; requests get 404 until it arrives",
    )
    workers: int = option(
        parse=integer(0, 256),
        default="0",
        group="process",
        help="worker processes; 0: one per usable core, at most 4",
    )
    jit: bool = option(
        parse=parse_bool,
        default="false",
        group="process",
        help="let workers use Python's JIT compiler, which makes requests cheaper; experimental, needs Python 3.15",
    )
    shutdown_delay_s: float = option(
        parse=duration(0, 3600),
        default="0s",
        unit="duration",
        group="process",
        help="after SIGTERM, keep serving for this time, but report not ready, so that load balancers stop "
        "sending first",
    )
    access_log: str = option(
        parse=choice(*CHOICES),
        default=ERRORS,
        group="access log",
        help="which requests get a log line; errors: those that end with 5xx, or what that is in gRPC, "
        "without a response or with one that broke off",
    )
    access_log_sample: float = option(
        parse=number(0, 1),
        default="1",
        group="access log",
        help="with --access-log all: share of requests that get a line; errors always do",
    )

    def __post_init__(self) -> None:
        address = self.config_addr
        if self.allow_unauthenticated_config and not address.is_loopback:
            raise ValueError(
                "--allow-unauthenticated-config (PROXY_ALLOW_UNAUTHENTICATED_CONFIG) is accepted only where "
                f"--config-addr (PROXY_CONFIG_ADDR) is a loopback address or a unix socket, seen {address}"
            )
        if bool(self.config_tls_cert) != bool(self.config_tls_key):
            raise ValueError(
                "--config-tls-cert (PROXY_CONFIG_TLS_CERT) and --config-tls-key (PROXY_CONFIG_TLS_KEY) go together"
            )
        if self.edge_bind_address and self.edge_ip_version not in (IpVersion.AUTO, self.edge_version):
            raise ValueError(
                f"--edge-bind-address (PROXY_EDGE_BIND_ADDRESS) is {self.edge_bind_address}, and --edge-ip-version "
                f"(PROXY_EDGE_IP_VERSION) asks for IPv{self.edge_ip_version}, which it cannot reach: leave one of the "
                "two out"
            )

    @property
    def edge_version(self) -> IpVersion:
        """The IP version of the edge's addresses to dial."""
        if not self.edge_bind_address:
            return IpVersion(self.edge_ip_version)
        return IpVersion.IPV6 if ":" in self.edge_bind_address else IpVersion.IPV4

    @property
    def worker_count(self) -> int:
        return self.workers or min(_MOST_DEFAULT_WORKERS, len(os.sched_getaffinity(0)))

    @property
    def config_tls(self) -> tuple[str, str] | None:
        """Paths of certificate chain and private key."""
        return (self.config_tls_cert, self.config_tls_key) if self.config_tls_cert and self.config_tls_key else None

    @property
    def config_path(self) -> Path | None:
        return Path(self.config) if self.config else None

    @property
    def state_path(self) -> Path | None:
        return Path(self.state_dir) if self.state_dir else None

    def access_log_settings(self) -> AccessLogSettings:
        return AccessLogSettings(self.access_log, self.access_log_sample, self.log_format)
