"""Requests through doors, exchange and pools, to a backend and back."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial

import h2.events
import pytest
from h2.settings import SettingCodes
from hpack import NeverIndexedHeaderTuple

from proxy.doors.h1connection import H1Connection
from proxy.doors.h2connection import H2Connection
from proxy.exchange.exchange import Exchange
from proxy.heads import NeverIndexedField
from proxy.loop.output import Output
from tests.proxy.backend.h2peer import H2Peer, speaks
from tests.proxy.backend.servers import backend
from tests.proxy.doors.chain import (
    IDLE_S,
    LEAPS,
    PROTOCOLS,
    UNTIL_A_LOOK_S,
    Chain,
    Proxy,
    chain_over,
    streams_with_data,
)
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.rig import WAIT_S, ask, port_of, read_all, read_until

MIB = 1024 * 1024


@pytest.fixture(params=PROTOCOLS)
def chain(request: pytest.FixtureRequest) -> Iterator[Chain]:
    with chain_over(request.param) as made:
        yield made


def test_small_requests_pass_through_over_both_protocols(chain: Chain) -> None:
    proxy, backend = chain
    with proxy.connect() as client, H2Client(proxy.connect()) as other:
        for _ in range(3):
            ask(client)
            assert read_until(client, b"hello\n").startswith(b"HTTP/1.1 200 ")
            assert b"hello\n" == other.get("/hello").body
    proxy.wait_for(lambda: len(proxy.records) == 6, "six records")
    assert 6 == backend.services.begun.qsize()


def test_pipelined_requests_keep_their_order(chain: Chain) -> None:
    with chain[0].connect() as client:
        requests = [f"GET /bulk/{size} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for size in (5, 0, 300_000, 1)]
        client.sendall(b"".join(requests) + b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

        answer = read_all(client)
        assert 300_006 == answer.count(b"\0")
        assert answer.endswith(b"hello\n")


def test_large_bodies_pass_through_both_ways(chain: Chain) -> None:
    with H2Client(chain[0].connect()) as client:
        stream_id = client.ask("/echo", method="POST", has_body=True)
        client.send(stream_id, b"\xff" * (3 * MIB), ends=True)
        assert 3 * MIB == len(client.answer(stream_id).body)
        assert 5 * MIB == len(client.get(f"/bulk/{5 * MIB}").body)


def test_a_large_upload_over_http_1_arrives_completely(chain: Chain) -> None:
    with chain[0].connect() as client:
        ask(client, "/count", f"Content-Length: {5 * MIB}\r\n", "POST")
        client.sendall(bytes(5 * MIB))

        assert b"5242880 bytes" in read_until(client, b"]\n")


def test_a_client_that_expects_100_gets_the_one_of_the_backend(chain: Chain) -> None:
    with chain[0].connect() as client:
        ask(client, "/count", "Content-Length: 5\r\nExpect: 100-continue\r\n", "POST")
        assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.sendall(b"12345")
        assert b"5 bytes" in read_until(client, b"]\n")


def test_trailers_pass_both_ways(chain: Chain) -> None:
    with H2Client(chain[0].connect()) as client:
        assert {b"checksum": b"1234"} == client.get("/trailers").trailers
        stream_id = client.ask("/count", method="POST", has_body=True)
        client.send(stream_id, b"abc")
        client.h2.send_headers(stream_id, [(b"x-sum", b"1")], end_stream=True)
        client.flush()
        assert b"3 bytes, trailers [x-sum]\n" == client.answer(stream_id).body


def test_never_indexed_trailers_stay_so_both_ways() -> None:
    with chain_over("h2c") as (proxy, backend), H2Client(proxy.connect()) as client:
        stream_id = client.ask("/return", method="POST", has_body=True)
        client.h2.send_headers(stream_id, [NeverIndexedHeaderTuple(b"x-pin", b"1"), (b"x-sum", b"2")], end_stream=True)
        client.flush()
        answer = client.answer(stream_id)

        trailers = backend.services.begun.get(timeout=WAIT_S).trailers
        assert [b"x-pin"] == [field[0] for field in trailers if isinstance(field, NeverIndexedField)]
        assert ({b"x-pin": b"1", b"x-sum": b"2"}, [b"x-pin"]) == (answer.trailers, answer.secret_trailers)


def test_a_client_that_disconnects_cancels_its_request_at_the_backend(chain: Chain) -> None:
    proxy, backend = chain
    with proxy.connect() as client, H2Client(proxy.connect()) as other:
        ask(client, "/hold")
        stream_id = other.ask("/hold")
        for _ in range(2):
            backend.services.begun.get(timeout=WAIT_S)
        client.shutdown(socket.SHUT_WR)
        assert backend.services.gone.get(timeout=WAIT_S)
        other.h2.reset_stream(stream_id)
        other.flush()
        assert backend.services.gone.get(timeout=WAIT_S)


def test_a_response_truncated_by_the_backend_is_truncated_for_the_client(chain: Chain) -> None:
    with chain[0].connect() as client, H2Client(chain[0].connect()) as other:
        ask(client, "/break")
        assert not read_all(client).endswith(b"0\r\n\r\n")
        assert other.get("/break").reset_code is not None
        assert b"hello\n" == other.get("/hello").body


def test_an_early_answer_reaches_a_client_that_is_still_sending(chain: Chain) -> None:
    with chain[0].connect() as client, H2Client(chain[0].connect()) as other:
        ask(client, "/early", f"Content-Length: {MIB}\r\n", "POST")
        client.sendall(bytes(100_000))
        answer = read_until(client, b"too much\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"\r\nConnection: close\r\n" in answer
        stream_id = other.ask("/early", method="POST", has_body=True)
        assert (413, b"too much\n") == (other.answer(stream_id).status_code, other.answer(stream_id).body)


def test_draining_ends_with_the_last_exchange(chain: Chain) -> None:
    proxy, backend = chain
    with proxy.connect() as client:
        ask(client, "/hold")
        backend.services.begun.get(timeout=WAIT_S)
        proxy.call(proxy.drain)
        backend.call(backend.services.let_go)

        assert read_all(client).endswith(b"hello\n")
        assert proxy.is_idle.wait(WAIT_S)


def test_an_http_2_client_is_read_while_it_takes_downloads_slowly(chain: Chain) -> None:
    """Its next requests and PING acknowledgements do not wait until it has taken all that its windows allow."""
    proxy, backend = chain
    with H2Client(proxy.connect()) as client:
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
        client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
        client.get("/hello")
        for _ in range(8):
            client.ask(f"/bulk/{50 * MIB}")
        (connection,) = proxy.call(lambda: [*proxy.doors._registry])
        assert isinstance(connection, H2Connection)
        proxy.wait_for(lambda: connection.turns.is_narrow, "a full socket")
        for begun in (10, 11, 12):
            client.ask("/hello")
            proxy.wait_for(partial(lambda count: backend.services.begun.qsize() == count, begun), f"request {begun}")


@contextlib.contextmanager
def slow_client(proxy: Proxy) -> Iterator[socket.socket]:
    """One whose kernel takes little that it has not read."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        sock.settimeout(WAIT_S)
        sock.connect(("127.0.0.1", proxy.port))
        yield sock


def downloads_of(path: str, sock: socket.socket, proxy: Proxy) -> H2Connection:
    """Eight of them on one connection, whose windows hold nothing back."""
    client = H2Client(sock)
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
    for _ in range(8):
        client.ask(path)
    registry = proxy.doors._registry
    proxy.wait_for(lambda: any(isinstance(each, H2Connection) for each in registry), "the protocol to be known")
    (connection,) = proxy.call(lambda: [*registry])
    assert isinstance(connection, H2Connection)
    return connection


def read_slowly(sock: socket.socket, size_bytes: int, proxy: Proxy, output: Output) -> None:
    """For longer than a client may be idle: each time until the proxy sees that some has arrived."""
    for _ in range(LEAPS):
        before_bytes = proxy.call(lambda: output.acknowledged_bytes)
        while proxy.call(lambda: output.acknowledged_bytes) <= before_bytes:
            assert sock.recv(size_bytes)
        proxy.pass_time(UNTIL_A_LOOK_S)


# HTTP/2 to the backend has PINGs, which cannot be answered when time leaps.
@pytest.mark.parametrize("chain", ["http"], indirect=True)
@pytest.mark.parametrize("speaks_h2", [False, True], ids=["h1 client", "h2 client"])
def test_a_client_that_reads_slowly_is_not_idle_and_one_that_stops_is(chain: Chain, speaks_h2: bool) -> None:
    """The kernel's buffer hides its progress: a third of it must have been sent before the socket takes more."""
    proxy, _ = chain
    with slow_client(proxy) as sock:
        if speaks_h2:
            client = H2Client(sock)
            stream_id = client.ask(f"/bulk/{50 * MIB}")
            client.h2.increment_flow_control_window(50 * MIB)
            client.h2.increment_flow_control_window(50 * MIB, stream_id)
            client.flush()
        else:
            ask(sock, f"/bulk/{50 * MIB}")
        proxy.wait_for_connections(1)
        (connection,) = proxy.call(lambda: [*proxy.doors._registry])
        assert isinstance(connection, H1Connection | H2Connection)
        output = connection._transport._output
        proxy.wait_for(lambda: output.queued_bytes > 0, "a full socket")
        read_slowly(sock, 16 * 1024, proxy, output)
        assert not proxy.records
        for _ in range(4):
            proxy.pass_time(12)

        proxy.wait_for(lambda: bool(proxy.records), "the end of the exchange")
        assert proxy.records[0].reason == "idle_timeout"


# As above.
@pytest.mark.parametrize("chain", ["http"], indirect=True)
def test_downloads_that_wait_for_their_turns_with_a_slow_client_are_not_idle(chain: Chain) -> None:
    proxy, _ = chain
    with slow_client(proxy) as sock:
        connection = downloads_of(f"/bulk/{50 * MIB}", sock, proxy)
        output = connection._transport._output
        proxy.wait_for(lambda: len(streams_with_data(connection)) == 8 and output.queued_bytes > 0, "a full socket")
        read_slowly(sock, 1024, proxy, output)
        assert not proxy.records
        for _ in range(4):
            proxy.pass_time(IDLE_S)

        proxy.wait_for(lambda: len(proxy.records) == 8, "the end of all")
        assert {record.reason for record in proxy.records} == {"idle_timeout"}


# As above.
@pytest.mark.parametrize("chain", ["http"], indirect=True)
def test_downloads_completely_sent_by_the_backend_are_not_idle_while_they_wait_for_their_turns(chain: Chain) -> None:
    proxy, _ = chain
    with slow_client(proxy) as sock:
        connection = downloads_of("/bulk/200000", sock, proxy)
        output, running = connection._transport._output, proxy.real.running
        proxy.wait_for(
            lambda: sum(isinstance(each, Exchange) and each._response_bytes == 200_000 for each in running) > 4,
            "whole bodies",
        )
        proxy.wait_for(lambda: output.queued_bytes > 0, "a full socket")
        read_slowly(sock, 1024, proxy, output)
        assert not any(record.reason for record in proxy.records)
        for _ in range(4):
            proxy.pass_time(IDLE_S)

        proxy.wait_for(lambda: len(proxy.records) == 8, "the end of all")
        assert sum(record.reason == "idle_timeout" for record in proxy.records) > 4


def is_waiting_for_the_backend(proxy: Proxy) -> bool:
    balancers = proxy.pools._balancers.values()
    links = [link for each in balancers for to in each._destinations.values() for link in to.pool._links]
    return any(link._transport.queued_bytes for link in links)


def test_a_backend_that_reads_an_upload_slowly_is_not_idle_and_one_that_stops_is() -> None:
    with socket.socket() as listening, contextlib.ExitStack() as stack:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        listening.settimeout(WAIT_S)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        proxy = stack.enter_context(Proxy(port_of(listening), "http")).open()
        client = stack.enter_context(proxy.connect())
        uploading = threading.Thread(target=partial(upload, client, 50 * MIB))
        uploading.start()
        backend = stack.enter_context(listening.accept()[0])
        backend.settimeout(WAIT_S)
        for _ in range(LEAPS):
            # More than the kernel on its side buffers, so that some of it came from ours.
            for _ in range(200):
                assert backend.recv(1024)
            # Otherwise it waits for the client, whose thread may not have run.
            proxy.wait_for(lambda: is_waiting_for_the_backend(proxy), "more for the backend than it takes")
            proxy.pass_time(UNTIL_A_LOOK_S)
        assert not proxy.records
        for _ in range(20):
            proxy.pass_time(12)
        proxy.wait_for(lambda: bool(proxy.records), "the end of the exchange")
        proxy.call(proxy.doors.abort)
        uploading.join(WAIT_S)
        proxy.call(proxy.pools.close)

    assert proxy.records[0].reason == "idle_timeout"


def reads_only_others(peer: H2Peer, event: h2.events.Event) -> None:
    """The handler of the first upload hangs, with a byte left of its window. What is read of others is given back for
    each `/go`, a little at a time."""
    if isinstance(event, h2.events.RequestReceived):
        path = dict(event.headers)[b":path"]
        if path == b"/go":
            peer.h2.increment_flow_control_window(1_000)
        elif path == b"/reads":
            peer.h2.increment_flow_control_window(MIB, event.stream_id)
    elif isinstance(event, h2.events.DataReceived) and event.stream_id == 1:
        peer.h2.increment_flow_control_window(1, event.stream_id)
    elif isinstance(event, h2.events.StreamEnded):
        peer.answer(event.stream_id)


def test_an_upload_that_its_backend_does_not_read_is_idle_though_others_over_its_connection_go_on() -> None:
    initial = {SettingCodes.INITIAL_WINDOW_SIZE: 2_000}
    with backend(speaks(reads_only_others, initial)) as peer, Proxy(peer.port, "h2c") as proxy:
        proxy.open()
        with H2Client(proxy.connect()) as client:
            hanging = client.ask("/hangs", method="PUT", has_body=True)
            client.send(hanging, bytes(2_500), ends=True)
            reading = client.ask("/reads", method="PUT", has_body=True)
            client.send(reading, bytes(100_000))
            for _ in range(LEAPS):
                proxy.pass_time(IDLE_S / 4)
                client.get("/go")

            assert (504, False) == (client.answer(hanging).status_code, client.answers[reading].has_ended)
        proxy.call(proxy.pools.close)

    assert "idle_timeout" in [record.reason for record in proxy.records]


def upload(client: socket.socket, size_bytes: int) -> None:
    ask(client, "/upload", f"Content-Length: {size_bytes}\r\n", "PUT")
    with contextlib.suppress(OSError):
        client.sendall(bytes(size_bytes))
