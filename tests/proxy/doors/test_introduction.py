"""Connections from load balancers begin with a PROXY protocol header, which names their client."""

import contextlib
import socket
import struct
from typing import Any

import pytest
from h2.errors import ErrorCodes
from msgspec.structs import replace

from proxy import document
from proxy.doors.introduction import Introduction
from proxy.doors.peeking import Peeking
from proxy.routing import compile_table, socket_door
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.proxyheaders import LOCAL, UNSPECIFIED, binary, proxied
from tests.proxy.doors.rig import (
    Rig,
    ask,
    listening_socket,
    plain,
    port_of,
    read_all,
    read_all_or_reset,
    read_until,
    table_of,
)
from tests.proxy.doors.tlsrig import CA, OTHER_CA, A, TLSRig, ca_pem, client_context, client_hello, https
from tests.support.requirements import not_possible_here
from tests.support.watches import watches_refused

CLIENT = "203.0.113.9"
BALANCER = "198.51.100.4"
HELLO = b"\r\n\r\nhello\n"
FROM_BALANCERS: dict[str, Any] = {"forwarding": {"proxyProtocol": ["127.0.0.0/8"]}}
LINE = f"PROXY TCP4 {CLIENT} 192.0.2.1 40000 80\r\n".encode()


def address_of_next(rig: Rig) -> str:
    return rig.services.begun.get(timeout=10).client.arrival.address


@pytest.mark.parametrize("header", [LINE, proxied(CLIENT)])
def test_the_client_address_is_taken_from_the_header(header: bytes) -> None:
    with Rig(**FROM_BALANCERS).open_plain() as rig, rig.connect() as client:
        client.sendall(header + b"GET /hello HTTP/1.1\r\nHost: a.example\r\n\r\n")

        read_until(client, HELLO)
        assert address_of_next(rig) == CLIENT
        ask(client)
        assert address_of_next(rig) == CLIENT


@pytest.mark.parametrize("header", [LINE, proxied(CLIENT, b"\x04\x00\x03abc")])
def test_a_header_may_come_byte_by_byte(header: bytes) -> None:
    with Rig(**FROM_BALANCERS).open_plain() as rig, rig.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(header)):
            client.sendall(header[place : place + 1])
            rig.call(lambda: None)
        ask(client)

        read_until(client, HELLO)
        assert address_of_next(rig) == CLIENT


def test_a_short_request_may_follow_a_long_header() -> None:
    header = proxied(CLIENT, bytes(3000))
    with Rig(**FROM_BALANCERS).open_plain() as rig, rig.connect() as client:
        client.sendall(header[:20])

        def waits_for_the_rest() -> bool:
            return any(isinstance(one, Introduction) and one._peeking.wanted_bytes > 20 for one in rig.doors._registry)

        rig.wait_for(waits_for_the_rest, "a look at the first part")
        client.sendall(header[20:])
        rig.wait_for(lambda: not waits_for_the_rest(), "the end of the header")
        ask(client)

        read_until(client, HELLO)


def test_the_timeout_for_the_header_ends_with_it() -> None:
    with Rig(**FROM_BALANCERS, limits={"headerTimeout": "10s"}).open_plain() as rig, rig.connect() as client:
        client.sendall(LINE)
        for _ in range(2):
            ask(client)
            read_until(client, HELLO)
            rig.pass_time(11)
        ask(client)

        read_until(client, HELLO)
        assert rig.door_stats.refused == {}


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", binary(LOCAL, UNSPECIFIED, b"")])
def test_a_header_without_a_client_keeps_the_address_of_the_balancer(header: bytes) -> None:
    with Rig(**FROM_BALANCERS).open_plain() as rig, rig.connect() as client:
        client.sendall(header)
        ask(client)

        assert address_of_next(rig) == "127.0.0.1"


def test_a_header_may_come_before_tls() -> None:
    with TLSRig().open(https("l", A), **FROM_BALANCERS) as rig, rig.connect() as plain:
        plain.sendall(proxied(CLIENT))
        with client_context("h2", "http/1.1").wrap_socket(plain, server_hostname="a.example") as client:
            assert client.selected_alpn_protocol() == "h2"
        with rig.connect() as other:
            other.sendall(LINE)
            with client_context("http/1.1").wrap_socket(other, server_hostname="a.example") as client:
                ask(client)
                read_until(client, HELLO)
                assert address_of_next(rig) == CLIENT


def test_tls_without_a_header_before_it_is_refused() -> None:
    with TLSRig().open(https("l", A), **FROM_BALANCERS) as rig, rig.connect() as client:
        client.sendall(client_hello())

        assert read_all_or_reset(client) == b""
        rig.wait_for_connections(0)
        assert rig.door_stats.refused == {"proxy_protocol": 1}


def test_a_header_from_a_peer_that_is_not_a_balancer_is_refused() -> None:
    with Rig(forwarding={"proxyProtocol": ["127.0.0.9"]}).open_plain() as rig:
        with rig.connect() as client:
            ask(client)
            assert address_of_next(rig) == "127.0.0.1"
        with rig.connect() as client:
            client.sendall(LINE)
            ask(client)
            assert read_all_or_reset(client) == b""
        rig.wait_for_connections(0)
        assert rig.door_stats.refused == {"protocol": 1}


def test_an_ipv4_balancer_is_recognized_on_a_dual_stack_socket() -> None:
    if not socket.has_dualstack_ipv6():
        not_possible_here("this host has no IPv6")
    sock = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with Rig() as rig:
        rig.port = port_of(sock)
        table = table_of({"name": "web", "port": rig.port}, forwarding={"proxyProtocol": ["127.0.0.1"]})
        rig.use(table, {socket_door("", rig.port): sock})
        with rig.connect() as client:
            client.sendall(LINE)
            ask(client)
            assert address_of_next(rig) == CLIENT


def test_trust_is_decided_by_the_client_address_of_the_header() -> None:
    forwarding = {"proxyProtocol": ["127.0.0.1"], "trustedProxies": ["127.0.0.1", "198.51.100.0/24"]}
    with Rig(forwarding=forwarding).open_plain() as rig:
        for source, is_trusted in ((CLIENT, False), (BALANCER, True)):
            with rig.connect() as client:
                client.sendall(proxied(source))
                ask(client)
                arrival = rig.services.begun.get(timeout=10).client.arrival
                assert (arrival.address, arrival.is_trusted) == (source, is_trusted)


@pytest.mark.parametrize("is_trusted", [False, True])
def test_connections_end_with_their_requests_when_their_client_is_trusted_otherwise(is_trusted: bool) -> None:
    """Load balancers keep connections for hours, and each has the trust that its client had when it came in."""

    def forwarding(trusts: bool) -> dict[str, list[str]]:
        return {"proxyProtocol": ["127.0.0.1"], "trustedProxies": ["203.0.113.0/24", *[BALANCER] * trusts]}

    with Rig(forwarding=forwarding(is_trusted)).open_plain() as rig, contextlib.ExitStack() as connections:

        def connect(source: str) -> socket.socket:
            sock = connections.enter_context(rig.connect())
            sock.sendall(proxied(source))
            return sock

        others = H2Client(connect(CLIENT))
        concerned, uploading = H2Client(connect(BALANCER)), connect(BALANCER)
        running = [client.ask("/count", method="POST", has_body=True) for client in (others, concerned)]
        ask(uploading, "/count", "Content-Length: 5\r\n", "POST")
        begun = [rig.services.begun.get(timeout=10).client.arrival for _ in range(3)]
        assert {CLIENT: True, BALANCER: is_trusted} == {arrival.address: arrival.is_trusted for arrival in begun}

        rig.use(table_of(plain(rig.port), forwarding=forwarding(not is_trusted)), {})

        uploading.sendall(b"12345")
        assert b"\r\nConnection: close\r\n".lower() in read_all(uploading).lower()
        concerned.read_until(lambda: bool(concerned.goaways))
        for client, stream_id in zip((others, concerned), running, strict=True):
            client.send(stream_id, b"12345", ends=True)
            assert 200 == client.answer(stream_id).status_code
        concerned.read_until(lambda: concerned.is_closed)
        assert 200 == others.get("/hello").status_code
        assert not others.goaways
        ask(connect(BALANCER))
        rig.services.begun.get(timeout=10)
        arrival = rig.services.begun.get(timeout=10).client.arrival
        assert (BALANCER, not is_trusted) == (arrival.address, arrival.is_trusted)


@pytest.mark.parametrize("is_waiting", [False, True], ids=["begins later", "waits in the socket"])
def test_a_connection_whose_client_is_trusted_otherwise_ends_although_it_goes_on_in_http2(is_waiting: bool) -> None:
    with Rig().open_plain() as rig, rig.connect() as sock:
        rig.wait_for_connections(1)
        clients: list[H2Client] = []

        def use() -> None:
            if is_waiting:
                clients.append(H2Client(sock))
            rig.doors.prepare(table_of(plain(rig.port), forwarding={"trustedProxies": ["127.0.0.1"]}), {})()

        rig.call(use)
        client = clients[0] if is_waiting else H2Client(sock)
        running = client.ask("/hello")

        client.read_until(lambda: bool(client.goaways))
        assert client.answer(running).status_code == 200
        client.read_until(lambda: client.is_closed)


def test_requests_that_wait_when_their_client_is_trusted_otherwise_have_to_meet_new_requirements() -> None:
    with TLSRig().open(https("web", A)) as rig, rig.handshake() as sock:
        rig.wait_for_connections(1)
        ask(sock)
        read_until(sock, b"hello\n")

        def use() -> None:
            ask(sock)
            strict = https("web", A, clientValidation={"ca": ca_pem(OTHER_CA)})
            table = table_of({**strict, **plain(rig.port)}, forwarding={"trustedProxies": ["127.0.0.1"]})
            rig.doors.prepare(table, {})()

        rig.call(use)

        assert b"421" == sock.recv(65536).split()[1]


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
def test_who_is_introduced_after_its_port_was_removed_is_not_served_by_a_later_listener_on_it(protocol: str) -> None:
    """Which may demand TLS and a client certificate, whereas this connection has neither."""
    with Rig(**FROM_BALANCERS).open_plain() as rig, rig.connect() as client:
        client.sendall(LINE[:20])
        rig.wait_for_connections(1)
        rig.use(table_of(), {})
        rig.pass_time(1)
        sock = listening_socket(rig.port)
        strict = https("l", A, clientValidation={"ca": ca_pem(CA)}) | {"address": "127.0.0.1", "port": rig.port}
        rig.use(table_of(strict, **FROM_BALANCERS), {rig.door: sock})

        client.sendall(LINE[20:])
        if protocol == "h2":
            peer = H2Client(client)
            assert ErrorCodes.REFUSED_STREAM == peer.answer(peer.ask("/hello")).reset_code
        else:
            ask(client)
            assert read_all(client).startswith(b"HTTP/1.1 421 ")
        assert rig.services.begun.empty()


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_connection_that_begins_with_http2_after_a_change_of_trust_has_the_new_trust(is_trusted: bool) -> None:
    """It came in before, as one that might have become HTTP/1.1."""
    forwarding = [{"trustedProxies": ["127.0.0.1"] if trusts else []} for trusts in (not is_trusted, is_trusted)]
    with Rig(forwarding=forwarding[0]).open_plain() as rig, rig.connect() as sock:
        rig.wait_for_connections(1)
        rig.use(table_of(plain(rig.port), forwarding=forwarding[1]), {})

        assert 200 == H2Client(sock).get("/hello").status_code
        assert is_trusted == rig.services.begun.get(timeout=10).client.arrival.is_trusted


def test_connections_end_with_their_requests_when_their_balancer_may_no_longer_name_clients() -> None:
    """Whoever could name a trusted client once would be trusted for as long as it keeps its connections."""
    forwarding = {"proxyProtocol": ["127.0.0.1"], "trustedProxies": [CLIENT]}
    with Rig(forwarding=forwarding).open_plain() as rig, rig.connect() as uploading, rig.connect() as late:
        with rig.connect() as multiplexing:
            multiplexing.sendall(LINE)
            client = H2Client(multiplexing)
            running = client.ask("/count", method="POST", has_body=True)
            uploading.sendall(LINE)
            ask(uploading, "/count", "Content-Length: 5\r\n", "POST")
            late.sendall(LINE[:20])
            assert all(rig.services.begun.get(timeout=10).client.arrival.is_trusted for _ in range(2))

            rig.use(table_of(plain(rig.port), forwarding={**forwarding, "proxyProtocol": ["192.0.2.1"]}), {})

            client.read_until(lambda: bool(client.goaways))
            client.send(running, b"12345", ends=True)
            assert 200 == client.answer(running).status_code
            client.read_until(lambda: client.is_closed)
        uploading.sendall(b"12345")
        assert b"\r\nConnection: close\r\n" in read_all(uploading)
        late.sendall(LINE[20:])
        ask(late)
        assert b"\r\nConnection: close\r\n" in read_all(late)


@pytest.mark.parametrize("first", [b"GET /hello HTTP/1.1\r\nHost: a.example\r\n\r\n", b"PROXY TCP4 nobody\r\n"])
def test_a_balancer_that_sends_no_valid_header_is_refused(first: bytes) -> None:
    with Rig(**FROM_BALANCERS).open_plain() as rig, rig.connect() as client:
        client.sendall(first)

        assert read_all_or_reset(client) == b""
        rig.wait_for_connections(0)
        assert rig.door_stats.refused == {"proxy_protocol": 1}
        assert rig.services.begun.empty()


@pytest.mark.parametrize("first", [b"", LINE[:20], proxied(CLIENT)[:20]])
def test_an_incomplete_header_is_closed_after_the_header_timeout(first: bytes) -> None:
    with Rig(**FROM_BALANCERS, limits={"headerTimeout": "50ms"}).open_plain() as rig, rig.connect() as client:
        client.sendall(first)

        assert read_all_or_reset(client) == b""
        rig.wait_for_connections(0)
        assert rig.door_stats.refused == {"header_timeout": 1}


def test_a_tcp_health_check_of_a_balancer_is_not_counted_as_refused() -> None:
    with Rig(**FROM_BALANCERS).open_plain() as rig:
        with rig.connect():
            rig.wait_for_connections(1)
        rig.wait_for_connections(0)
        with rig.connect() as client:
            rig.wait_for_connections(1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rig.wait_for_connections(0)
        # Nor after the header timeout.
        rig.pass_time(3600)
        assert rig.door_stats.refused == {}

        with rig.connect() as client:
            client.sendall(LINE[:20])
            client.shutdown(socket.SHUT_WR)
            assert read_all_or_reset(client) == b""
        rig.wait_for_connections(0)
        assert rig.door_stats.refused == {"proxy_protocol": 1}


def test_a_connection_whose_header_is_incomplete_when_the_door_drains_is_served() -> None:
    with Rig(**FROM_BALANCERS).open_plain() as rig, rig.connect() as client:
        client.sendall(LINE[:20])
        rig.wait_for_connections(1)
        rig.call(rig.drain)
        client.sendall(LINE[20:])
        ask(client)

        assert b"hello" in read_all(client)
        assert rig.is_idle.wait(10)


def test_a_connection_whose_header_is_incomplete_after_the_grace_period_is_closed() -> None:
    with Rig(**FROM_BALANCERS, limits={"headerTimeout": "0s"}).open_plain() as rig, rig.connect() as client:
        client.sendall(LINE[:20])
        rig.wait_for_connections(1)
        rig.call(rig.drain)
        rig.call(rig.doors.abort)

        assert read_all_or_reset(client) == b""
        assert rig.is_idle.wait(10)
        rig.wait_for_connections(0)


def test_a_connection_whose_header_is_incomplete_is_closed_over_the_limit() -> None:
    with Rig(**FROM_BALANCERS, limits={"maxConnections": 1}).open_plain() as rig, rig.connect() as first:
        rig.wait_for_connections(1)
        with rig.connect() as second:
            second.sendall(LINE)
            ask(second)
            read_until(second, HELLO)

        assert read_all_or_reset(first) == b""


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_after_the_header_does_not_leak_the_connection() -> None:
    with TLSRig().open(https("l", A), **FROM_BALANCERS) as rig, rig.connect() as client:
        sound = table_of(https("l", A) | {"address": "127.0.0.1", "port": rig.port}, **FROM_BALANCERS)
        (listener,) = sound.settings.listeners
        assert listener.tls
        # No document can have this.
        without_certificates = replace(listener, tls=replace(listener.tls, certificates=()))
        unsound = document.Document(listeners=(without_certificates,), forwarding=sound.settings.forwarding)
        rig.use(compile_table(unsound), {})
        client.sendall(LINE + client_hello())

        assert read_all_or_reset(client) == b""
        rig.call(rig.drain)
        assert rig.is_idle.wait(10)


def test_a_connection_from_a_balancer_that_the_kernel_does_not_watch_is_closed_even_without_a_header_timeout() -> None:
    settings = {**FROM_BALANCERS, "limits": {"headerTimeout": "0s"}}
    with Rig(**settings).open_plain() as rig, watches_refused(Peeking), rig.connect() as client:
        client.sendall(LINE)

        assert read_all_or_reset(client) == b""
        rig.wait_for_connections(0)
