"""What cert-manager makes to get a certificate for a listener: a challenge's Service and route, then a Secret."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
import urllib3

from tests.e2e.controller.arena import SLICE_ADDRESS, Arena, Object
from tests.e2e.controller.fronts import Front
from tests.e2e.controller.site import DEADLINE_S
from tests.proxy.site import Backend, Proxy, eventually, reserved_port
from tests.tunnelgw.translate.pki import secret_data
from tunnelgw.model.kinds import Kind

ADDRESS = "127.0.0.2"
HOST = "a.example.org"
SECRET = "a-tls"
CHALLENGE = "/.well-known/acme-challenge/token"
ANSWER = "token.thumbprint"
GATEWAY_API = "gateway.networking.k8s.io"
HTTPS: Object = {"protocol": "HTTPS", "hostname": HOST, "tls": {"certificateRefs": [{"name": SECRET}]}}
REDIRECT: Object = {"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}]}


class Ports(NamedTuple):
    http: int
    https: int


@pytest.fixture
def ports() -> Iterator[Ports]:
    with reserved_port(ADDRESS) as http, reserved_port(ADDRESS) as https:
        yield Ports(http, https)


def on_the_gateway(arena: Arena, ports: Ports) -> Object:
    """The gateway-shim of an annotated Gateway. Returns the parent of the challenge's route."""
    listeners = [
        {"name": "http", "port": ports.http, "protocol": "HTTP"},
        {"name": "https", "port": ports.https, **HTTPS},
    ]
    make_gateway(arena, listeners)
    return {"group": GATEWAY_API, "kind": "Gateway", "name": "gw", "sectionName": "http"}


def on_a_set(arena: Arena, ports: Ports) -> Object:
    """That of an annotated ListenerSet, which gets the challenges itself."""
    make_gateway(arena, [{"name": "http", "port": ports.http, "protocol": "HTTP"}])
    http = {"name": "http", "port": ports.http, "protocol": "HTTP", "hostname": HOST}
    make_set(arena, [http, {"name": "https", "port": ports.https, **HTTPS}])
    parent = {"group": GATEWAY_API, "kind": "ListenerSet", "name": "set"}
    make_route(arena, "set-to-https", [{**parent, "sectionName": "http"}], [], REDIRECT)
    return parent


def on_a_set_without_a_listener_for_http(arena: Arena, ports: Ports) -> Object:
    """With `acme.cert-manager.io/http01-parentreffallback`, the Gateway gets its challenges."""
    make_gateway(arena, [{"name": "http", "port": ports.http, "protocol": "HTTP"}])
    make_set(arena, [{"name": "https", "port": ports.https, **HTTPS}])
    return {"group": GATEWAY_API, "kind": "Gateway", "name": "gw"}


@pytest.mark.parametrize("prepare", [on_the_gateway, on_a_set, on_a_set_without_a_listener_for_http])
def test_a_challenge_is_answered_beside_a_redirect_and_the_certificate_served_as_soon_as_its_secret_exists(
    prepare: Callable[[Arena, Ports], Object],
    arena: Arena,
    proxy: Proxy,
    ports: Ports,
    api_front: Front,
    tmp_path: Path,
) -> None:
    parent = prepare(arena, ports)
    make_route(arena, "to-https", [{"name": "gw", "sectionName": "http"}], [], REDIRECT)
    through = arena.cluster.through(api_front.url, tmp_path)
    with Backend(ANSWER) as solver, arena.controller(kubeconfig=through, proxies=[proxy]):
        eventually(lambda: asked(ports, "/")[0] == 301, "plain requests are redirected", DEADLINE_S)
        make_challenge(arena, parent, int(solver.address.rpartition(":")[2]))

        eventually(lambda: asked(ports, CHALLENGE) == (200, ANSWER), "the challenge is answered", DEADLINE_S)
        assert asked(ports, "/")[0] == 301
        assert presented(ports) is None

        arena.certificate(SECRET, HOST)
        eventually(lambda: presented(ports) is not None, "the listener is served", DEADLINE_S)
        before = presented(ports)
        arena.cluster.patch(Kind.SECRET, SECRET, arena.namespace, {"data": secret_data(HOST, f"www.{HOST}")})
        eventually(lambda: presented(ports) not in (None, before), "the renewed certificate is served", DEADLINE_S)

        arena.delete(Kind.HTTP_ROUTE, "solver")
        eventually(lambda: asked(ports, CHALLENGE)[0] == 301, "nothing is left of the challenge", DEADLINE_S)


# -- objects ---------------------------------------------------------------------------------------------------------


def make_gateway(arena: Arena, listeners: list[Object]) -> None:
    spec = {
        "gatewayClassName": arena.gateway_class(tunnel_id=None, direct=ADDRESS),
        "allowedListeners": {"namespaces": {"from": "Same"}},
        "listeners": listeners,
    }
    arena.cluster.create(Kind.GATEWAY, "gw", spec, arena.namespace)


def make_set(arena: Arena, listeners: list[Object]) -> None:
    spec = {"parentRef": {"name": "gw"}, "listeners": listeners}
    arena.cluster.create(Kind.LISTENER_SET, "set", spec, arena.namespace)


def make_route(arena: Arena, name: str, parents: list[Object], hostnames: list[str], rule: Object) -> None:
    spec = {"parentRefs": parents, "hostnames": hostnames, "rules": [rule]}
    arena.cluster.create(Kind.HTTP_ROUTE, name, spec, arena.namespace)


def make_challenge(arena: Arena, parent: Object, port: int) -> None:
    """`port`: on loopback, where the solver's Pod listens."""
    service = {"type": "NodePort", "ports": [{"name": "http", "port": 8089, "targetPort": port}]}
    arena.cluster.create(Kind.SERVICE, "solver", service, arena.namespace)
    arena.cluster.create(
        Kind.ENDPOINT_SLICE,
        "solver",
        namespace=arena.namespace,
        metadata={"labels": {"kubernetes.io/service-name": "solver"}},
        addressType="IPv4",
        endpoints=[{"addresses": [SLICE_ADDRESS], "conditions": {"ready": True}}],
        ports=[{"name": "http", "port": port, "protocol": "TCP"}],
    )
    backend = {
        "group": "",
        "kind": "Service",
        "name": "solver",
        "namespace": arena.namespace,
        "port": 8089,
        "weight": 1,
    }
    rule = {"matches": [{"path": {"type": "Exact", "value": CHALLENGE}}], "backendRefs": [backend]}
    make_route(arena, "solver", [parent], [HOST], rule)


# -- clients ---------------------------------------------------------------------------------------------------------


def asked(ports: Ports, path: str) -> tuple[int, str]:
    """Status code, 0 while nothing listens, and body."""
    try:
        response = requests.get(
            f"http://{ADDRESS}:{ports.http}{path}",
            headers={"Host": HOST, "Connection": "close"},
            timeout=DEADLINE_S,
            allow_redirects=False,
        )
    except (requests.ConnectionError, urllib3.exceptions.HTTPError):
        return 0, ""
    return response.status_code, response.text


def presented(ports: Ports) -> bytes | None:
    """The certificate for HOST; None: there is none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((ADDRESS, ports.https), DEADLINE_S) as connection,
            context.wrap_socket(connection, server_hostname=HOST) as secured,
        ):
            return secured.getpeercert(binary_form=True)
    except OSError:
        return None
