"""The fronts of the simulated edge: requests of clients reach a connector, and its responses come back."""

import hashlib
import socket
import threading
from pathlib import Path

import h2.events
import pytest

from tests.support.edge.behaviour import Behaviour
from tests.support.edge.edge import Edge
from tests.support.edge.tunnels import new_tunnel
from tests.support.h2peer import H2Client
from tests.support.programs import curl
from tests.support_tests.edge.conftest import Connect
from tests.support_tests.edge.connector import WAIT_S, WINDOW_BYTES, Connector

MIB = 1 << 20


def ask(edge: Edge, path: str, *arguments: str) -> str:
    """Returns the output of curl."""
    return curl(*arguments, f"http://{edge.front}{path}").stdout.decode("latin-1")


def client_of(edge: Edge) -> socket.socket:
    host, _, port = edge.front.rpartition(":")
    return socket.create_connection((host, int(port)), WAIT_S)


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_a_response_comes_back_with_the_fields_that_were_serialised(
    edge: Edge, connector: Connector, version: str
) -> None:
    shown = ask(edge, "/hello", "--include", version)

    assert shown.partition("\r\n")[0].split()[1] == "200"
    assert "content-type: text/plain\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n" in shown.lower()
    assert shown.endswith("\r\n\r\nhello\n")
    assert "cf-cloudflared" not in shown


def test_requests_carry_what_the_edge_knows_of_the_client_and_not_what_the_client_claims(
    edge: Edge, connector: Connector
) -> None:
    forged = {"cf-connecting-ip": "192.0.2.9", "cf-ray": "mine", "cf-cloudflared-proxy-src": "1.2.3.4"}
    extra = [part for name, value in forged.items() for part in ("--header", f"{name}: {value}")]
    ask(edge, "/hello?x=1", "--header", "Host: shop.example", "--header", "X-Forwarded-For: 198.51.100.7", *extra)

    (head,) = connector.requests
    values = dict(head.fields)
    assert (b"GET", b"http", b"shop.example", b"/hello?x=1") == (head.method, head.scheme, head.authority, head.path)
    assert b"127.0.0.1" == values[b"cf-connecting-ip"]
    assert b"198.51.100.7, 127.0.0.1" == values[b"x-forwarded-for"]
    assert (b"http", b'{"scheme":"http"}') == (values[b"x-forwarded-proto"], values[b"cf-visitor"])
    assert b"cloudflare; loops=1" == values[b"cdn-loop"]
    assert values[b"cf-ray"].endswith(b"-LIS")
    assert b"cf-cloudflared-proxy-src" not in values


def test_requests_to_the_secure_front_have_the_scheme_https(edge: Edge, connector: Connector) -> None:
    curl(f"http://{edge.secure_front}/hello")

    assert b"https" == connector.requests[0].scheme
    assert (b"x-forwarded-proto", b"https") in connector.requests[0].fields


def test_requests_are_sent_round_robin_to_the_registered_connections(edge: Edge, connect: Connect) -> None:
    connectors = [connect(index % 2, index) for index in range(3)]
    edge.wait_for_registered(3)

    for _ in range(6):
        assert "hello\n" == ask(edge, "/hello")

    assert [2, 2, 2] == [len(connector.requests) for connector in connectors]


def test_a_request_is_routed_to_the_tunnel_of_its_host(edge: Edge, connector: Connector, connect: Connect) -> None:
    shop = new_tunnel()
    edge.tunnels.add(shop, "shop.example")
    of_shop = connect(token=shop.token)
    edge.wait_for_registered(2)

    for host in ("shop.example", f"{shop.tunnel_id}.cfargotunnel.com", "SHOP.example:80"):
        ask(edge, "/hello", "--header", f"Host: {host}")
    ask(edge, "/hello", "--header", "Host: any.example")

    assert (3, 1) == (len(of_shop.requests), len(connector.requests))


def test_without_a_connector_the_edge_answers_530_itself(edge: Edge) -> None:
    shown = ask(edge, "/", "--include")

    assert shown.startswith("HTTP/1.1 530")
    assert {530: 1} == edge.ledger.answered


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_large_bodies_pass_both_ways_unchanged(edge: Edge, connector: Connector, version: str, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(hashlib.shake_128(b"seed").digest(8 * MIB))

    echoed = curl(version, "--data-binary", f"@{sent}", f"http://{edge.front}/echo").stdout

    assert hashlib.sha256(sent.read_bytes()).digest() == hashlib.sha256(echoed).digest()


def test_a_body_of_unknown_length_is_forwarded(edge: Edge, connector: Connector) -> None:
    shown = curl("--header", "Transfer-Encoding: chunked", "--data", "abc", f"http://{edge.front}/echo").stdout

    assert b"abc" == shown
    assert b"content-length" not in dict(connector.requests[0].fields)


def test_a_client_that_does_not_read_stalls_the_connector(edge: Edge, connector: Connector) -> None:
    with client_of(edge) as client:
        client.sendall(b"GET /bulk/67108864 HTTP/1.1\r\nHost: a.example\r\n\r\n")
        connector.wait_for(lambda: connector.is_stalled, "a window that is used up")
        assert "hello\n" == ask(edge, "/hello")

        found = 0
        while found < 64 * MIB:
            found += len(client.recv(MIB))
    assert not connector.is_stalled


def test_a_connector_that_withholds_window_update_stalls_the_client(edge: Edge, connector: Connector) -> None:
    size_bytes = 32 * MIB
    with client_of(edge) as client:
        head = f"POST /hold HTTP/1.1\r\nHost: a.example\r\nContent-Length: {size_bytes}\r\n\r\n".encode()
        sender = threading.Thread(target=client.sendall, args=(head + bytes(size_bytes),))
        sender.start()
        connector.wait_for(lambda: connector.received.get("/hold") == WINDOW_BYTES, "all that the window takes")
        edge.ping(edge.ledger.registered[0])
        assert WINDOW_BYTES == connector.received["/hold"]
        assert sender.is_alive()

        connector.let_go()

        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
        sender.join(WAIT_S)
    assert size_bytes == sum(connector.received.values())


def test_trailers_reach_clients_over_http_2(edge: Edge, connector: Connector) -> None:
    with H2Client(int(edge.front.rpartition(":")[2])) as client:
        stream_id = client.request("/trailers", fields=[("te", "trailers")])
        assert b"body\n" == client.body(stream_id)
        (trailers,) = [event for event in client.events if isinstance(event, h2.events.TrailersReceived)]

    assert {"grpc-status": "0"} == {str(name): str(value) for name, value in trailers.headers}
    assert (b"te", b"trailers") in connector.requests[0].fields


def test_interim_responses_are_forwarded(edge: Edge, connector: Connector) -> None:
    shown = ask(edge, "/interim", "--include")

    assert shown.startswith("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(("path", "arguments"), [("/nothing", []), ("/hello", ["--head"])])
def test_responses_without_a_body_end(edge: Edge, connector: Connector, path: str, arguments: list[str]) -> None:
    assert "" == ask(edge, path, *arguments).partition("\r\n\r\n")[2]
    assert [] == edge.ledger.failures


def test_a_websocket_is_accepted_and_carries_bytes_both_ways(edge: Edge, connector: Connector) -> None:
    with client_of(edge) as client:
        client.sendall(
            b"GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        head = client.recv(65536)
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert b"Sec-WebSocket-Accept: accepted\r\n" in head
        client.sendall(b"bytes")
        assert b"bytes" == client.recv(65536)
        client.shutdown(socket.SHUT_WR)
        assert b"" == client.recv(65536)

    values = dict(connector.requests[0].fields)
    assert b"websocket" == values[b"cf-cloudflared-proxy-connection-upgrade"]
    assert b"x3JJHMbDL1EzLkh9GBhXDw==" == values[b"sec-websocket-key"]
    assert {b"connection", b"upgrade"}.isdisjoint(values)


def test_a_websocket_over_http_2_gets_a_key_from_the_edge(edge: Edge, connector: Connector) -> None:
    with H2Client(int(edge.front.rpartition(":")[2])) as client:
        client.wait_for(lambda: bool(client.events), "SETTINGS")
        stream_id = client.connect_websocket("/chat")
        assert "200" == client.head(stream_id)[":status"]
        client.send(stream_id, b"bytes")
        client.wait_for(lambda: client.data(stream_id) == b"bytes", "the bytes")

    assert b"GET" == connector.requests[0].method
    assert b"sec-websocket-key" in dict(connector.requests[0].fields)


def test_a_reset_before_the_head_is_a_502_without_a_retry(edge: Edge, connector: Connector) -> None:
    assert ask(edge, "/reset", "--include").startswith("HTTP/1.1 502")
    assert 1 == len(connector.requests)


def test_a_reset_inside_a_body_is_seen_by_the_client(edge: Edge, connector: Connector) -> None:
    assert 18 == curl(f"http://{edge.front}/half").returncode


def test_a_client_that_disconnects_cancels_its_stream(edge: Edge, connector: Connector) -> None:
    with client_of(edge) as client:
        client.sendall(b"GET /hold HTTP/1.1\r\nHost: a.example\r\n\r\n")
        connector.wait_for(lambda: bool(connector.requests), "the request")

    connector.wait_for(lambda: connector.resets == [8], "CANCEL")


def test_a_dropped_connection_is_a_502_for_the_requests_that_it_carried(edge: Edge, connector: Connector) -> None:
    with client_of(edge) as client:
        client.sendall(b"GET /hold HTTP/1.1\r\nHost: a.example\r\n\r\n")
        connector.wait_for(lambda: bool(connector.requests), "the request")

        edge.drop()

        assert client.recv(65536).startswith(b"HTTP/1.1 502")
    assert 0 == edge.ledger.in_flight


def test_a_response_head_without_its_meta_field_is_a_violation(edge: Edge, connector: Connector) -> None:
    assert ask(edge, "/foul", "--include").startswith("HTTP/1.1 502")

    (violation,) = edge.forgive()
    assert "cf-cloudflared-response-meta" in violation


def test_streams_in_flight_are_counted(edge: Edge, connector: Connector) -> None:
    calls = [edge.call("/hold") for _ in range(100)]
    connector.wait_for(lambda: len(connector.requests) == 100, "the requests")
    assert 100 == edge.ledger.in_flight

    connector.answer_held()

    assert [b"hello\n"] * 100 == [call.read_all() for call in calls]
    edge.wait_for(lambda: edge.ledger.in_flight == 0, "the end of all")
    assert 100 == edge.ledger.records[0].max_streams


def test_a_slow_edge_delays_requests_and_loses_nothing(edge: Edge, connect: Connect) -> None:
    edge.behave(Behaviour(request_delay_s=0.1))
    connect()
    edge.wait_for_registered(1)

    done = curl("--data", "x" * 1000, "--write-out", " %{time_total}", f"http://{edge.front}/echo").stdout

    body, _, total_s = done.decode().rpartition(" ")
    assert "x" * 1000 == body
    assert float(total_s) >= 0.1


def test_a_call_that_is_not_read_stalls_its_stream_and_can_be_reset(edge: Edge, connector: Connector) -> None:
    call = edge.call("/bulk/67108864")
    call.wait_for_head()
    connector.wait_for(lambda: connector.is_stalled, "a window that is used up")

    call.reset()

    connector.wait_for(lambda: connector.resets == [8], "CANCEL")
    assert not connector.is_stalled
