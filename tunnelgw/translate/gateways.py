"""Which Gateways are ours, which proxy serves each, and with which parameters.

Each Gateway with a GatewayConfig has a data plane of its own; the shared one serves all others.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tunnelgw.model.gateways import Gateway, GatewayClass
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.own import TUNNELGW, Direct, GatewayClassConfigSpec, GatewayConfig, ProxySettings
from tunnelgw.model.part import Part
from tunnelgw.model.refs import LocalRef
from tunnelgw.model.snapshot import Index
from tunnelgw.translate.classes import class_setup, config_problem
from tunnelgw.translate.queries import View
from tunnelgw.translate.verdicts import NOT_READ

SHARED = "shared"
"""Id of the data plane of all Gateways without a GatewayConfig; other data planes have the id `namespace/name`."""


class Age(NamedTuple):
    """Sorts older Gateways before younger ones, and those of equal age by name."""

    created_at: str
    name: str


class GatewaySetup(Part, frozen=True):
    """What listeners and routes need to know about their Gateway."""

    class_name: str
    data_plane: str
    age: Age
    tunnel: str = ""
    direct: Direct | None = None
    publish: str = ""
    proxy: ProxySettings | None = None
    problem: str = ""
    """Why the parameters cannot be used, so that nothing of the Gateway is served; empty: they can."""
    unread: str = ""
    """Why the parameters that it named before are used; empty: those that it names now are used."""


def gateway_setup(view: View, key: Key) -> GatewaySetup | None:
    """A query. None: there is no such Gateway, or its class is not ours."""
    gateway = view.get(Kind.GATEWAY, key)
    if not isinstance(gateway, Gateway):
        return None
    name = gateway.spec.gateway_class_name
    setup = view.ask(class_setup, name)
    if setup is None:
        return None
    age = Age(*gateway.age)
    ref = gateway.parameters_ref
    data_plane = SHARED if ref is None else str(key)
    if setup.problem:
        return GatewaySetup(name, data_plane, age, problem=f"GatewayClass {name} is not accepted: {setup.problem}")
    unread = _unread(gateway)
    if ref is None:
        return _setup_with(setup.config, name, data_plane, age, unread)
    config = _own_config(view, key.namespace, ref)
    if isinstance(config, str):
        return GatewaySetup(name, data_plane, age, problem=f"infrastructure.parametersRef: {unread or config}")
    return _setup_with(config, name, data_plane, age, unread)


def gateways_of(view: View, data_plane: str) -> tuple[Key, ...]:
    """A query: the Gateways of a data plane, the oldest first."""
    ours = {key: view.ask(gateway_setup, key) for key in _candidates(view, data_plane)}
    members = [(setup.age, key) for key, setup in ours.items() if setup and setup.data_plane == data_plane]
    return tuple(key for _, key in sorted(members))


def _candidates(view: View, data_plane: str) -> Iterator[Key]:
    if data_plane != SHARED:
        yield Key(*data_plane.split("/", 1))
        return
    for item in view.bucket(Index.CLASSES_BY_CONTROLLER, Key("", view.controller_name)):
        if isinstance(item, GatewayClass):
            yield from (gateway.key for gateway in view.bucket(Index.GATEWAYS_BY_CLASS, item.key))


def _setup_with(
    config: GatewayClassConfigSpec, class_name: str, data_plane: str, age: Age, unread: str
) -> GatewaySetup:
    return GatewaySetup(
        class_name,
        data_plane,
        age,
        tunnel=config.tunnel_id,
        direct=config.direct,
        publish=config.publish,
        proxy=config.proxy,
        unread=unread,
    )


def _unread(gateway: Gateway) -> str:
    if gateway.previous_spec is None or gateway.previous_spec.infrastructure == gateway.spec.infrastructure:
        return ""
    ref = gateway.spec.infrastructure.parameters_ref if gateway.spec.infrastructure else None
    return f"{ref.kind} {Key(gateway.metadata.namespace, ref.name)} {NOT_READ}" if ref else ""


def _own_config(view: View, namespace: str, ref: LocalRef) -> GatewayClassConfigSpec | str:
    if (ref.group, ref.kind) != (TUNNELGW, Kind.GATEWAY_CONFIG):
        return f"names a {ref.group}/{ref.kind}, want {TUNNELGW}/{Kind.GATEWAY_CONFIG}"
    config = view.get(Kind.GATEWAY_CONFIG, Key(namespace, ref.name))
    if not isinstance(config, GatewayConfig):
        return f"{ref.kind} {Key(namespace, ref.name)} does not exist"
    problem = config_problem(config.spec)
    return f"{ref.kind} {config.key}: {problem}" if problem else config.spec
