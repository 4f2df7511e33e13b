"""HAProxy before the proxy: it forwards connections, and names their clients by the PROXY protocol."""

import json

import pytest

from tests.proxy.site import eventually
from tests.support.gateway import Gateway, route_to
from tests.support.programs import curl
from tests.support.recordingbackend import RecordingBackend
from tests.support.servers import Server, haproxy

CLIENT = "127.0.0.9"
FROM_BALANCERS = {"forwarding": {"proxyProtocol": ["127.0.0.1"]}}


def refused(gateway: Gateway) -> float:
    """How many connections, on account of their PROXY headers."""
    return gateway.metric("tunnelgw_proxy_connections_refused_total", cause="proxy_protocol")


def asked(gateway: Gateway, balancer: Server, scheme: str, protocol: str) -> str:
    """The client's address as the backend gets it."""
    url = f"{scheme}://{balancer.address}/"
    done = curl("--interface", CLIENT, "--cacert", str(gateway.doors.authority.file), protocol, "--fail", url)
    assert done.returncode == 0, (done.stderr, gateway.tail)
    return str(dict(json.loads(done.stdout)["headers"])["x-forwarded-for"])


@pytest.mark.parametrize(
    "options",
    ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn", "send-proxy-v2 proxy-v2-options crc32c,unique-id"],
)
def test_backends_learn_the_address_of_the_client_behind_the_balancer(
    gateway: Gateway, backend: RecordingBackend, options: str
) -> None:
    gateway.serve(route_to(backend.address), **FROM_BALANCERS)
    clear, tls = (f"{host}:{port}" for host, port in (gateway.clear, gateway.tls))

    with haproxy(clear, options) as balancer:
        assert asked(gateway, balancer, "http", "--http1.1") == CLIENT
        assert asked(gateway, balancer, "http", "--http2-prior-knowledge") == CLIENT
    with haproxy(tls, options) as balancer:
        assert asked(gateway, balancer, "https", "--http1.1") == CLIENT
        assert asked(gateway, balancer, "https", "--http2") == CLIENT


@pytest.mark.parametrize("check", ["check inter 50ms", "check inter 50ms check-send-proxy"])
def test_health_checks_of_the_balancer_succeed_and_are_not_counted_as_refused_clients(
    gateway: Gateway, backend: RecordingBackend, check: str
) -> None:
    gateway.serve(route_to(backend.address), **FROM_BALANCERS)
    before = refused(gateway)

    def accepted() -> float:
        return gateway.metric("tunnelgw_proxy_connections_accepted_total")

    with haproxy("{}:{}".format(*gateway.clear), f"send-proxy-v2 {check}") as balancer:
        enough = accepted() + 5
        eventually(lambda: accepted() >= enough, "the balancer has checked")
        assert asked(gateway, balancer, "http", "--http1.1") == CLIENT
    assert refused(gateway) == before


def test_a_balancer_that_sends_no_proxy_header_is_refused_and_logged(backend: RecordingBackend) -> None:
    with Gateway() as gateway:
        gateway.serve(route_to(backend.address), **FROM_BALANCERS)
        with haproxy("{}:{}".format(*gateway.clear), "") as balancer:
            done = curl("--interface", CLIENT, f"http://{balancer.address}/")

        assert done.returncode != 0
        gateway.wait_for_message("client refused", cause="proxy_protocol", detail="no PROXY header")
        assert refused(gateway) == 1
