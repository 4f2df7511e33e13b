"""Connections that have ended leave nothing for the garbage collector.

It is triggered by the number of objects, regardless of the sockets, TLS states and buffers that they refer to: with
cycles, a thousand short connections would hold their memory until it runs.
"""

import contextlib
import gc
import ssl
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from proxy.tunnel.orders import Reached
from tests.proxy.doors.chain import PROTOCOLS, Proxy
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.proxyheaders import proxied
from tests.proxy.doors.rig import Rig, ask, connect, read_all_or_reset, read_until
from tests.proxy.doors.tlsrig import A, TLSRig, client_context, client_hello, https, status_of
from tests.proxy.tunnel.rig import Rig as TunnelRig
from tests.support.edge.behaviour import Behaviour
from tests.support.edge.edge import Edge
from tests.support.ports import ReservedPort

OF_RIGS = "Deadline"
"""The rigs make some too."""


@contextlib.contextmanager
def nothing_is_left(*, of: tuple[str, ...]) -> Iterator[None]:
    """No object of modules in these packages is left in a cycle by what is done meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(
            type(one).__qualname__
            for one in gc.garbage
            if type(one).__module__.startswith(of) and type(one).__qualname__ != OF_RIGS
        )
        assert not left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def small_request(proxy: Proxy, _: Rig) -> None:
    with proxy.connect() as client:
        ask(client)
        read_until(client, b"hello\n")


def small_h2_request(proxy: Proxy, _: Rig) -> None:
    with H2Client(proxy.connect()) as client:
        client.get("/hello")


def download_given_up(proxy: Proxy, _: Rig) -> None:
    with proxy.connect() as client:
        ask(client, "/bulk/50000000")
        client.recv(10)


def h2_transfers_given_up(proxy: Proxy, backend: Rig) -> None:
    with H2Client(proxy.connect()) as client:
        client.ask("/bulk/50000000")
        client.send(client.ask("/echo", method="POST", has_body=True), b"x" * 1000)
        proxy.wait_for(lambda: backend.services.begun.qsize() >= 2, "two requests")


def malformed_request(proxy: Proxy, _: Rig) -> None:
    with proxy.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n")
        while client.recv(1000):
            pass


DOINGS = [small_request, small_h2_request, download_given_up, h2_transfers_given_up, malformed_request]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("doing", DOINGS, ids=lambda doing: doing.__name__)
def test_a_client_and_then_a_backend_that_disconnect_leave_nothing(
    doing: Callable[[Proxy, Rig], None], protocol: str
) -> None:
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(Rig()).open_plain()
        proxy = stack.enter_context(Proxy(backend.port, protocol)).open()
        with nothing_is_left(of=("proxy.", "ssl", "socket")):
            doing(proxy, backend)
            proxy.wait_for_connections(0)
            backend.call(backend.doors.abort)
            proxy.wait_for(lambda: backend_connections(proxy) == 0, "no connection to the backend")
            proxy.call(lambda: None)  # the rest of the turn
            backend.call(lambda: None)
        proxy.call(proxy.pools.close)


@pytest.mark.parametrize("kind", ["mirror", "question", "question to nobody"])
def test_mirrors_and_authorization_requests_leave_nothing(kind: str) -> None:
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(Rig()).open_plain()
        proxy = stack.enter_context(Proxy(backend.port, "http"))
        nobody = stack.enter_context(ReservedPort())
        port = nobody.number if kind == "question to nobody" else backend.port
        other = {"backend": {"address": f"127.0.0.1:{port}"}}
        proxy.open(filters={"requestMirrors": [other]} if kind == "mirror" else {"externalAuth": other})
        with nothing_is_left(of=("proxy.", "ssl", "socket")):
            with proxy.connect() as client:
                ask(client)
                read_until(client, b"\n")
            proxy.wait_for_connections(0)
            backend.call(backend.doors.abort)
            proxy.wait_for(lambda: backend_connections(proxy) == 0, "no connection to the backend")
            proxy.call(lambda: None)
            backend.call(lambda: None)
        proxy.call(proxy.pools.close)


def test_an_h2_client_whose_upload_was_answered_early_leaves_nothing() -> None:
    with (
        Rig() as backend,
        Proxy(backend.open_plain().port, "http").open(respond={"statusCode": 404}) as proxy,
        nothing_is_left(of=("proxy.",)),
    ):
        with H2Client(proxy.connect()) as client:
            client.answer(client.ask("/", method="POST", has_body=True))
        proxy.wait_for_connections(0)
        proxy.call(lambda: None)


def served(rig: TLSRig) -> None:
    with rig.handshake() as client:
        assert status_of(client) == 200


def served_over_h2(rig: TLSRig) -> None:
    with H2Client(rig.handshake("a.example", "h2")) as client:
        client.get("/hello")


def refused_by_the_client(rig: TLSRig) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        rig.handshake(context=ssl.create_default_context())


def gone_in_the_handshake(rig: TLSRig) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing).do_handshake()
    with connect(rig.port) as client:
        client.sendall(outgoing.read())
        client.recv(1)


def without_a_word(rig: TLSRig) -> None:
    connect(rig.port).close()


def in_clear(rig: TLSRig) -> None:
    with connect(rig.port) as client:
        ask(client)
        while client.recv(1000):
            pass


GREETINGS = [served, served_over_h2, refused_by_the_client, gone_in_the_handshake, without_a_word, in_clear]


@pytest.mark.parametrize("doing", GREETINGS, ids=lambda doing: doing.__name__)
def test_a_tls_client_that_disconnects_leaves_nothing(doing: Callable[[TLSRig], None]) -> None:
    with TLSRig().open(https("web", A)) as rig, nothing_is_left(of=("proxy.",)):
        doing(rig)
        rig.wait_for(lambda: any(door.accepted for door in rig.stats.doors.values()), "a client")
        rig.wait_for_connections(0)
        rig.call(lambda: None)


def introduced(rig: TLSRig) -> None:
    with connect(rig.port) as plain:
        plain.sendall(proxied("203.0.113.9"))
        with client_context().wrap_socket(plain, server_hostname="a.example") as client:
            assert status_of(client) == 200


def introduced_in_parts(rig: TLSRig) -> None:
    with connect(rig.port) as client:
        client.sendall(proxied("203.0.113.9")[:20])
        rig.wait_for_connections(1)
        client.sendall(proxied("203.0.113.9")[20:])
        client.sendall(client_hello())
        client.recv(1)


def gone_in_the_introduction(rig: TLSRig) -> None:
    with connect(rig.port) as client:
        client.sendall(proxied("203.0.113.9")[:20])
        rig.wait_for_connections(1)


def without_an_introduction(rig: TLSRig) -> None:
    with connect(rig.port) as client:
        client.sendall(client_hello())
        read_all_or_reset(client)


INTRODUCTIONS = [introduced, introduced_in_parts, gone_in_the_introduction, without_an_introduction, without_a_word]


@pytest.mark.parametrize("doing", INTRODUCTIONS, ids=lambda doing: doing.__name__)
def test_a_client_behind_a_balancer_leaves_nothing(doing: Callable[[TLSRig], None]) -> None:
    forwarding = {"proxyProtocol": ["127.0.0.1"]}
    with TLSRig().open(https("web", A), forwarding=forwarding) as rig, nothing_is_left(of=("proxy.",)):
        doing(rig)
        rig.wait_for(lambda: any(door.accepted for door in rig.stats.doors.values()), "a client")
        rig.wait_for_connections(0)
        rig.call(lambda: None)


def backend_connections(proxy: Proxy) -> int:
    return sum(backend.connections for backend in proxy.stats.backends.values())


def lost(rig: TunnelRig) -> int:
    number = rig.register()
    rig.edge.drop()
    return number


def withdrawn(rig: TunnelRig) -> int:
    number = rig.register()
    rig.withdraw(number)
    return number


def lost_while_it_registers(rig: TunnelRig) -> int:
    rig.edge.plan(Behaviour(drops_at_register=True))
    return rig.dial()


EDGE_ENDS = [lost, withdrawn, lost_while_it_registers]
OF_EDGE_CONNECTIONS = ("proxy.tunnel.link", "proxy.tunnel.controlstream", "proxy.doors", "proxy.heads")
"""The simulated edge is made of our codec and transport, so those are not looked for."""


@pytest.mark.parametrize("doing", EDGE_ENDS, ids=lambda doing: doing.__name__)
def test_an_edge_connection_that_ended_leaves_nothing(doing: Callable[[TunnelRig], int]) -> None:
    with Edge(("127.0.0.1:0",)) as edge, TunnelRig(edge) as rig, nothing_is_left(of=OF_EDGE_CONNECTIONS):
        rig.wait_for_end(doing(rig))
        rig.call(lambda: None)


def test_a_reachability_check_of_the_edge_leaves_nothing() -> None:
    with Edge(("127.0.0.1:0",)) as edge, TunnelRig(edge) as rig, nothing_is_left(of=OF_EDGE_CONNECTIONS):
        rig.wait_for(Reached, rig.dial(registers=False))
        rig.call(lambda: None)
