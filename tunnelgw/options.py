"""Everything that `tunnelgw run` can be told, declared once: flags, variables, defaults, help, reference page."""

import ipaddress
import re
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from urllib.parse import urlsplit

from daemonkit.addresses import ListenAddress
from daemonkit.options import CommonOptions, option
from daemonkit.secret import Secret
from daemonkit.values import choice, comma_list, duration, parse_bool, parse_file, parse_url
from tunnelgw.model.meta import LABEL, Key
from tunnelgw.provider.transport import DEFAULT_URL

PROG = "tunnelgw"
PREFIX = "TUNNELGW_"
DESCRIPTION = (
    "A Gateway API controller: turns Gateways and routes into the configuration of tunnelgw-proxy and the tunnel "
    "provider's ingress document, and writes their statuses."
)
COMMANDS = {"run": "run the controller"}

KUBERNETES, DIRECTORY = "kubernetes", "directory"
DEFAULT_CONTROLLER = "tunnelgw.dev/tunnel-gateway-controller"
DEFAULT_NAMESPACE = "tunnelgw-system"
_CONTROLLER_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9/._~%!$&'()*+,;=:-]+")
_SERVER_LABEL = re.compile(rb"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
_UNSAFE = re.compile(r"[^a-z0-9]+")
_MAX_LABEL_CHARACTERS = 63


def parse_controller_name(text: str) -> str:
    """A name in the form of a GatewayClass's `spec.controllerName`."""
    name = text.strip()
    if not _CONTROLLER_NAME.fullmatch(name) or len(name) > 253:
        raise ValueError(f"seen {name!r}, want domain/path, such as {DEFAULT_CONTROLLER}")
    return name


def parse_endpoint(text: str) -> str:
    """The base URL of a proxy's config API."""
    endpoint = text.strip()
    if endpoint.startswith("unix:/") and endpoint != "unix:/":
        return endpoint
    want = "want http://host:port, https://host:port or unix:/path"
    if endpoint.startswith("unix:"):
        raise ValueError(f"seen {endpoint!r}, {want}")
    url = parse_url(endpoint)
    if urlsplit(url).path or not url.isascii():
        raise ValueError(f"seen {endpoint!r}, {want}")
    return url


def parse_namespace(text: str) -> str:
    name = text.strip()
    if not re.fullmatch(LABEL, name) or len(name) > _MAX_LABEL_CHARACTERS:
        raise ValueError(f"seen {name!r}, want a valid namespace name")
    return name


parse_namespaces = comma_list(parse_namespace)


def parse_key(text: str) -> Key:
    """`namespace/name`."""
    namespace, slash, name = text.strip().partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise ValueError(f"seen {text.strip()!r}, want namespace/name")
    return Key(namespace, name)


def parse_server_name(text: str) -> str:
    """A name that TLS can ask for: other ones fail in the middle of a connection."""
    name = text.strip()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if not _is_host_name(name):
            raise ValueError(f"seen {name!r}, want a host name or an IP address") from None
    return name


def _is_host_name(name: str) -> bool:
    try:
        octets = name.encode("idna")  # as `ssl` does
    except UnicodeError:
        return False
    return len(octets) <= 253 and all(map(_SERVER_LABEL.fullmatch, octets.split(b".")))


def _dns_label(text: str) -> str:
    """The most similar DNS label: in lower case, with hyphens for characters that it cannot have."""
    return _UNSAFE.sub("-", text.lower()).strip("-")[:_MAX_LABEL_CHARACTERS].rstrip("-")


def _is_same_folder(one: Path, other: Path) -> bool:
    try:
        return realpath(one) == realpath(other)
    except FileNotFoundError:  # the working directory was removed: what needs the folder reports it
        return False


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """Raises ValueError for options that do not go together."""

    source: str | None = option(
        parse=choice(KUBERNETES, DIRECTORY),
        group="source",
        help="where Gateways, routes and other objects come from: a Kubernetes API server, or a folder of manifests; "
        "if not set: directory if --manifests is given, kubernetes otherwise",
    )
    kubeconfig: str | None = option(
        env="KUBECONFIG",
        group="source",
        parse=parse_file,
        excludes="manifests",
        help="kubeconfig of the API server; if not set: the Pod's service account, or else ~/.kube/config; the flag "
        "takes precedence over TUNNELGW_MANIFESTS",
    )
    manifests: str | None = option(
        group="source", metavar="DIR", help="folder of YAML and JSON files, read recursively, instead of an API server"
    )
    status_dir: str | None = option(
        group="source",
        metavar="DIR",
        help="with --manifests: where statuses are written; if not set: `status` in that folder",
    )
    controller_name: str = option(
        parse=parse_controller_name,
        default=DEFAULT_CONTROLLER,
        group="source",
        help="serve the GatewayClasses with this spec.controllerName",
    )
    namespace: str = option(
        parse=parse_namespace,
        default=DEFAULT_NAMESPACE,
        group="source",
        help="the controller's own namespace: of its auth Secret and Lease, and of the Secrets and Services that "
        "cluster-scoped objects refer to",
    )
    secret_namespaces: tuple[str, ...] = option(
        parse=parse_namespaces,
        default="",
        group="source",
        metavar="NAMESPACE",
        help="with --source kubernetes: read Secrets only in these namespaces and the controller's own; if not set: in "
        "all",
    )
    leader_elect: bool = option(
        parse=parse_bool,
        default="false",
        group="source",
        help="with --source kubernetes: of several controllers, only the one that holds a Lease writes",
    )
    debounce_s: float = option(
        parse=duration(0, 10),
        default="5ms",
        unit="duration",
        group="source",
        help="after a change, wait this long for further ones, and apply them together",
    )
    proxy_endpoints: tuple[str, ...] = option(
        parse=comma_list(parse_endpoint),
        default="",
        group="proxies",
        metavar="URL",
        help="config APIs of the proxies: http://host:port, https://host:port or unix:/path",
    )
    proxy_service: Key | None = option(
        parse=parse_key,
        group="proxies",
        metavar="NAMESPACE/NAME",
        help="the proxies are the endpoints of this Service's port `config`, ready or not",
    )
    proxy_ca_file: str | None = option(
        group="proxies", parse=parse_file, help="PEM file with the CAs to trust for https config APIs"
    )
    proxy_tls_server_name: str | None = option(
        parse=parse_server_name,
        group="proxies",
        metavar="NAME",
        help="with --proxy-service: speak https to its endpoints; the certificate of a config API that is reached by "
        "its IP address must have this name",
    )
    proxy_auth_token: Secret | None = option(
        secret=True,
        env="PROXY_AUTH_TOKEN",
        group="proxies",
        help="the token of the proxies' config APIs, if no Secret in the cluster holds it",
    )
    proxy_auth_secret: str | None = option(
        group="proxies",
        metavar="NAME",
        help="Secret in the controller's namespace whose key auth-token is the token of the proxies' config APIs; "
        "created if absent, never changed. If not set: the last part of the controller name with -proxy-auth-token",
    )
    proxy_auth_secret_managed: bool = option(
        parse=parse_bool,
        default="false",
        group="proxies",
        help="somebody else creates that Secret: wait for it, never create it",
    )
    proxy_visit_interval_s: float = option(
        parse=duration(0.1, 3600),
        default="5s",
        unit="duration",
        group="proxies",
        help="how often to check that each proxy still has its configuration",
    )
    provider_api_url: str = option(
        parse=parse_url, default=DEFAULT_URL, group="tunnel provider", help="base URL of the provider's API"
    )
    drift_interval_s: float = option(
        parse=duration(1, 24 * 3600),
        default="10m",
        unit="duration",
        group="tunnel provider",
        help="how often to read the ingress document, to detect changes made by others",
    )
    adopt: bool = option(
        parse=parse_bool,
        default="false",
        group="tunnel provider",
        help="in the ingress document, replace rules that others made for our hostnames",
    )
    dry_run: bool = option(
        parse=parse_bool,
        default="false",
        group="tunnel provider",
        help="write nothing: no configurations, no ingress document, no statuses; `tunnelgw diff` shows what would be "
        "written",
    )
    metrics_addr: ListenAddress = option(
        parse=ListenAddress.parse, default=":8080", group="observability", help="where /metrics is served"
    )
    health_addr: ListenAddress = option(
        parse=ListenAddress.parse, default=":8081", group="observability", help="where /healthz and /readyz are served"
    )

    def __post_init__(self) -> None:
        reads_folder = self.reads_folder
        if reads_folder and not self.manifests:
            hint = "; with the flag --kubeconfig, which takes precedence over that variable, want --source kubernetes"
            raise ValueError(
                "--source directory (TUNNELGW_SOURCE) wants --manifests (TUNNELGW_MANIFESTS)"
                + (hint if self.kubeconfig else "")
            )
        if reads_folder and _is_same_folder(self.status_path, self.manifests_path):
            raise ValueError(
                "--status-dir (TUNNELGW_STATUS_DIR) is the folder of --manifests, want another, or one in it"
            )
        if not reads_folder and self.manifests:
            raise ValueError("--manifests (TUNNELGW_MANIFESTS) goes with --source directory (TUNNELGW_SOURCE)")
        if reads_folder and (self.leader_elect or self.proxy_service or self.proxy_auth_secret):
            raise ValueError(
                "--leader-elect, --proxy-service and --proxy-auth-secret need an API server, so --source kubernetes; "
                "from a directory name the proxies with --proxy-endpoints and give PROXY_AUTH_TOKEN"
            )
        if reads_folder and self.secret_namespaces:
            raise ValueError(
                "--secret-namespaces (TUNNELGW_SECRET_NAMESPACES) needs an API server, so --source kubernetes"
            )
        if self.proxy_auth_token is not None and not self.proxy_auth_token.fits_header():
            raise ValueError("PROXY_AUTH_TOKEN (or the file it is read from) is not one line of printable ASCII")
        if self.proxy_endpoints and self.proxy_service:
            raise ValueError("--proxy-endpoints and --proxy-service exclude each other")

    @property
    def reads_folder(self) -> bool:
        """The source is a folder of manifests."""
        return self.source == DIRECTORY or (self.source is None and bool(self.manifests))

    @property
    def manifests_path(self) -> Path:
        return Path(self.manifests or ".")

    @property
    def status_path(self) -> Path:
        return Path(self.status_dir) if self.status_dir else self.manifests_path / "status"

    @property
    def controller_id(self) -> str:
        """The last part of the controller's name as a DNS label. Marks our rules at the provider, names our Secret."""
        return _dns_label(self.controller_name.rpartition("/")[2]) or "tunnelgw"

    @property
    def auth_secret_key(self) -> Key:
        return Key(self.namespace, self.proxy_auth_secret or f"{self.controller_id}-proxy-auth-token")
