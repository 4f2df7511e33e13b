"""Where deliveries go: to the proxies of each data plane, and to tunnels with their provider's credentials. Pure.

    objects -> {data plane: config APIs}, {tunnel: credentials}

They are queries like those of translation, so that only a change of what they name is looked into.

Proxies in a cluster are found through the EndpointSlices of their Service, whether ready or not: a proxy is not ready
before it is configured. Terminating ones are left alone. A Pod with addresses of both families is one proxy, reached by
its IPv4 address.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from daemonkit.secret import Secret
from tunnelgw.deliver.credentials import Credentials, account_for, other_tunnel, token_at
from tunnelgw.model.conditions import ConditionType
from tunnelgw.model.core import EndpointSlice
from tunnelgw.model.gateways import Gateway, GatewayClass
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import (
    API_TOKEN_FIELD,
    AUTH_TOKEN_FIELD,
    TUNNEL_ID,
    TUNNELGW,
    GatewayClassConfig,
    GatewayClassConfigSpec,
    GatewayConfig,
)
from tunnelgw.model.snapshot import Entry, Index, Objects, Snapshot
from tunnelgw.translate.gateways import SHARED
from tunnelgw.translate.names import created_at
from tunnelgw.translate.queries import View

NAMING_TUNNELS = frozenset({Kind.GATEWAY_CLASS, Kind.GATEWAY, Kind.GATEWAY_CLASS_CONFIG, Kind.GATEWAY_CONFIG})
"""Kinds that name tunnels: an object of these that cannot be read may name a tunnel that nothing else names."""
CONFIG_PORT = "config"
"""Name of the Service port at which proxies serve their config API."""
TAKEN = (
    "it serves another Gateway already, and a proxy has one document: name other proxyEndpoints in the GatewayConfig"
)
"""Why a proxy gets no document from a data plane that names it."""
_TOLD_TUNNELS = re.compile(
    rf"(?:\S+: )?(?:hostnames may still be in tunnels? ((?:{TUNNEL_ID}, )*{TUNNEL_ID}); )?"
    rf"(?:held by [0-9]+ prox(?:y|ies) and tunnel ({TUNNEL_ID})\b)?"
)


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    message: str = ""


class _Said(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class Author(NamedTuple):
    """The Gateway that a document was made for, as its listeners name it."""

    gateway: str
    created_at: str
    """Empty: not known."""


class Plane(msgspec.Struct, frozen=True):
    """Where a data plane's document goes."""

    endpoints: tuple[str, ...]
    """URLs of config APIs."""
    token: Credentials
    taken: frozenset[str] = frozenset()
    """Members of `endpoints` that already belong to another data plane: a proxy holds one document."""
    created_at: str = ""
    """When its Gateway was created, as its document says it; empty: not known, or it is the shared one."""
    misled: str = ""
    """Why its proxies open another tunnel than the one that gets its hostnames; empty: nothing says that they do."""


class Tunnel(msgspec.Struct, frozen=True):
    """A tunnel whose ingress document is ours to keep."""

    tunnel_id: str
    account_id: str
    """Empty: the provider is asked."""
    token: Credentials
    remedy: str = ""
    """Without `account_id`: what to do if the provider cannot tell the account."""

    @property
    def place(self) -> str:
        return self.tunnel_id


class Discovery(msgspec.Struct, frozen=True):
    """How to find the shared proxies, from the options."""

    controller_name: str
    namespace: str
    """The default namespace for Secrets and Services that cluster-scoped objects name."""
    endpoints: tuple[str, ...] = ()
    service: Key | None = None
    is_tls: bool = False
    token: Secret | None = None


def planes(view: View, discovery: Discovery) -> dict[str, Plane]:
    """A query: by id of the data plane.

    A proxy that several data planes name belongs to the shared one if that is among them, else to the oldest Gateway's.
    """
    shared = tuple(dict.fromkeys(map(_one_spelling, discovery.endpoints))) or view.ask(_service_endpoints, discovery)
    found = {SHARED: Plane(shared, Credentials(discovery.token))}
    taken = set(shared)
    for age, gateway, config in sorted(view.ask(_users, discovery)):
        plane = view.ask(_own_plane, config)
        if plane is not None:
            found[str(gateway)] = msgspec.structs.replace(
                plane,
                taken=frozenset(taken.intersection(plane.endpoints)),
                created_at=created_at(age[0]) or "",
            )
            taken.update(plane.endpoints)
    return found


def _own_plane(view: View, key: Key) -> Plane | None:
    """A query: the data plane of a GatewayConfig, as if no other had its proxies, and for a Gateway of any age."""
    config = view.get(Kind.GATEWAY_CONFIG, key)
    if not isinstance(config, GatewayConfig):
        return None
    ref = config.spec.auth_secret_ref
    # The author of a GatewayConfig chooses where its document is sent: the shared proxies' token must not go there.
    token = token_at(view, ref, key.namespace, AUTH_TOKEN_FIELD) if ref else Credentials(None)
    endpoints = tuple(dict.fromkeys(_one_spelling(url) for url in config.spec.proxy_endpoints))
    return Plane(endpoints, token, misled=other_tunnel(view, config.spec, key.namespace))


def _one_spelling(url: str) -> str:
    """A proxy with two URLs would get two documents in turn. Case matters in a path, and in the zone of an address."""
    url = url.rstrip("/")
    if url.startswith("unix:"):
        return url
    front, percent, zone = url.partition("%")
    return front.lower() + percent + zone


def tunnels(view: View, discovery: Discovery) -> dict[str, Tunnel]:
    """A query: by id of the tunnel. If several configurations name a tunnel, the first one with credentials decides."""
    found: dict[str, Tunnel] = {}
    for id_, tunnel in _named(view, discovery):
        if tunnel is not None:
            found.setdefault(id_, tunnel)
    return found


def named_tunnels(view: View, discovery: Discovery) -> frozenset[str]:
    """A query: ids of all tunnels that lead to us, including those whose ingress document is not ours to keep."""
    return frozenset(id_ for id_, _ in _named(view, discovery))


def _named(view: View, discovery: Discovery) -> Iterator[tuple[str, Tunnel | None]]:
    """What the configurations in use name: the id of a tunnel, with its credentials if its ingress document is ours to
    keep. Those of classes come first."""
    configs = [_parameters(gateway_class) for gateway_class in _classes(view, discovery.controller_name)]
    configs += [Entry(Kind.GATEWAY_CONFIG, user.config) for user in view.ask(_users, discovery)]
    for config in configs:
        if config and (named := view.ask(_tunnel_of, config)):
            yield named


def _tunnel_of(view: View, entry: Entry) -> tuple[str, Tunnel | None] | None:
    """A query: what a configuration names, see `_named`. None: no tunnel."""
    config = _config(view, entry)
    if config is None or not config.tunnel_id:
        return None
    return config.tunnel_id, _tunnel(view, config, entry.key.namespace or view.home_namespace, config.tunnel_id)


def left_tunnels(snapshot: Snapshot, discovery: Discovery) -> dict[str, Tunnel]:
    """Tunnels, by id, that may still have hostnames of ours because of changes made while no controller was running.

    These are the tunnels that got a Gateway's hostnames according to its status (with the credentials that the Gateway
    has now), and those named by GatewayConfigs that no Gateway uses any more.
    """
    found: dict[str, Tunnel] = {}
    for gateway, config, namespace in _gateway_configs(snapshot, discovery):
        for id_ in told_tunnels(gateway):
            tunnel = _tunnel(snapshot, config, namespace, id_)
            if tunnel is not None:
                found.setdefault(id_, tunnel)
    for own in _unused_configs(snapshot):
        tunnel = _tunnel(snapshot, own.spec, own.metadata.namespace, own.spec.tunnel_id)
        if tunnel is not None and own.spec.tunnel_id:
            found.setdefault(own.spec.tunnel_id, tunnel)
    return found


def told_tunnels(gateway: Gateway) -> frozenset[str]:
    """Ids of the tunnels that got the Gateway's hostnames according to its status; see `deliveries.delivered` and
    `deliveries.with_left`.

    That may be False because of some of the hostnames only. Only the beginning of its message is read, since others
    contain text from proxies.
    """
    try:
        status = msgspec.json.decode(gateway.status, type=_Said)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return frozenset()
    said = (_TOLD_TUNNELS.match(each.message) for each in status.conditions if each.type == ConditionType.DELIVERED)
    return frozenset(id_ for found in said if found for ids in found.groups("") for id_ in ids.split(", ") if id_)


def tunnel_name(tunnel_id: str) -> str:
    """The tunnel's name in receipts, and so in statuses."""
    return f"tunnel {tunnel_id}"


def depends_on_tunnels(snapshot: Snapshot, discovery: Discovery) -> bool:
    """Whether each of our classes has a tunnel whose ingress document is ours to keep, so that none works without
    credentials."""
    specs = [_config(snapshot, _parameters(each)) for each in _classes(snapshot, discovery.controller_name)]
    return all(spec is not None and spec.tunnel_id and spec.provider_credentials_secret_ref for spec in specs)


def _service_endpoints(view: View, discovery: Discovery) -> tuple[str, ...]:
    """A query: the config APIs of the Service's proxies, sorted."""
    if discovery.service is None:
        return ()
    scheme = "https" if discovery.is_tls else "http"
    found: set[str] = set()
    families: dict[str, str] = {}
    """By uid of the Pod: the address family by which it is reached."""
    for item in sorted(_slices(view, discovery.service), key=lambda each: each.address_type):
        port = next((each.port for each in item.ports or () if each.name == CONFIG_PORT and each.port), None)
        if port is None:
            continue
        for endpoint in item.endpoints or ():
            if not endpoint.addresses or endpoint.conditions.terminating:
                continue
            pod = endpoint.target_ref.uid
            if not pod or families.setdefault(pod, item.address_type) == item.address_type:
                host = f"[{endpoint.addresses[0]}]" if item.address_type == "IPv6" else endpoint.addresses[0]
                found.add(f"{scheme}://{host}:{port}")
    return tuple(sorted(found))


def _slices(view: View, service: Key) -> Iterator[EndpointSlice]:
    for item in view.bucket(Index.SLICES_BY_SERVICE, service):
        if isinstance(item, EndpointSlice) and item.address_type in ("IPv4", "IPv6"):
            yield item


def _classes(objects: Objects, controller_name: str) -> Iterator[GatewayClass]:
    for item in objects.bucket(Index.CLASSES_BY_CONTROLLER, Key("", controller_name)):
        if isinstance(item, GatewayClass):
            yield item


def _gateways(objects: Objects, gateway_class: GatewayClass) -> Iterator[Gateway]:
    for item in objects.bucket(Index.GATEWAYS_BY_CLASS, gateway_class.key):
        if isinstance(item, Gateway):
            yield item


class _User(NamedTuple):
    """A Gateway that names a GatewayConfig, which need not exist."""

    age: tuple[str, str]
    gateway: Key
    config: Key


def _users(view: View, discovery: Discovery) -> tuple[_User, ...]:
    """A query: those of our classes. It keeps edits of Gateways that name the same as before from going any further."""
    return tuple(
        _User(gateway.age, gateway.key, config.key)
        for gateway_class in _classes(view, discovery.controller_name)
        for gateway in _gateways(view, gateway_class)
        if (config := _parameters(gateway))
    )


def _gateway_configs(snapshot: Snapshot, discovery: Discovery) -> Iterator[tuple[Gateway, GatewayClassConfigSpec, str]]:
    """Our Gateways, each with its effective configuration and the default namespace of that configuration's
    references."""
    for gateway_class in _classes(snapshot, discovery.controller_name):
        spec = _config(snapshot, _parameters(gateway_class))
        for gateway in _gateways(snapshot, gateway_class):
            if own := _config(snapshot, _parameters(gateway)):
                yield gateway, own, gateway.metadata.namespace
            elif spec is not None:
                yield gateway, spec, discovery.namespace


def _unused_configs(snapshot: Snapshot) -> Iterator[GatewayConfig]:
    """GatewayConfigs that no Gateway names, whether ours or another controller's."""
    gateways = (item for item in snapshot.all(Kind.GATEWAY).values() if isinstance(item, Gateway))
    used = {_parameters(gateway) for gateway in gateways}
    for key, config in snapshot.all(Kind.GATEWAY_CONFIG).items():
        if Entry(Kind.GATEWAY_CONFIG, key) not in used and isinstance(config, GatewayConfig):
            yield config


def _parameters(item: GatewayClass | Gateway) -> Entry | None:
    """The configuration in effect for a class or a Gateway, which need not exist."""
    kind = Kind.GATEWAY_CONFIG if isinstance(item, Gateway) else Kind.GATEWAY_CLASS_CONFIG
    ref = item.parameters_ref
    if ref is None or (ref.group, ref.kind) != (TUNNELGW, kind):
        return None
    return Entry(kind, Key(item.metadata.namespace, ref.name))


def _config(objects: Objects, entry: Entry | None) -> GatewayClassConfigSpec | None:
    found = objects.get(Kind(entry.table), entry.key) if entry else None
    return found.spec if isinstance(found, GatewayClassConfig | GatewayConfig) else None


def _tunnel(objects: Objects, config: GatewayClassConfigSpec, namespace: str, tunnel_id: str) -> Tunnel | None:
    """None: its ingress document is not ours to keep."""
    if config.provider_credentials_secret_ref is None:
        return None
    token = token_at(objects, config.provider_credentials_secret_ref, namespace, API_TOKEN_FIELD)
    account, remedy = account_for(objects, config, namespace)
    return Tunnel(tunnel_id, account, token, remedy)
