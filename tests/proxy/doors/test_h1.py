"""HTTP/1.1 clients on plain doors: what comes back over a real socket."""

import contextlib
import re
import socket
from collections import Counter
from collections.abc import Callable

import pytest

from proxy.doors.h1connection import MAX_CHUNKS, PAUSE_BYTES, H1Connection
from proxy.h1 import Limits
from proxy.loop import LITTLE_BYTES
from proxy.loop.unsent import LARGE_BYTES
from tests.proxy.doors.echo import Exchange
from tests.proxy.doors.rig import WAIT_S, Rig, ask, read_all, read_all_or_reset, read_until, serving

MIB = 1024 * 1024
HELLO = b"\r\n\r\nhello\n"


def test_a_kept_connection_serves_one_request_after_another() -> None:
    with serving() as rig, rig.connect() as client:
        for path in ("/hello", "/later", "/hello"):
            ask(client, path)
            answer = read_until(client, HELLO)

            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"Connection: close" not in answer


def test_pipelined_requests_are_answered_in_order() -> None:
    with serving() as rig, rig.connect() as client:
        paths = ["/bulk/10", "/later", "/interim", "/hello"]
        client.sendall(b"".join(b"GET %b HTTP/1.1\r\nHost: a.example\r\n\r\n" % path.encode() for path in paths))
        client.sendall(b"GET /bulk/3 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")

        answer = read_all(client)

        assert [b"200", b"200", b"103", b"200", b"200", b"200"] == re.findall(rb"HTTP/1\.1 (\d+) ", answer)
        assert answer.endswith(b"\0\0\0")


def test_thousands_of_pipelined_requests_do_not_recurse() -> None:
    with serving() as rig, rig.connect() as client:
        request = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
        client.sendall(request * 1999 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

        assert 2000 == read_all(client).count(b"hello\n")


def test_reading_pauses_when_pipelined_requests_exceed_the_limit() -> None:
    request = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
    count = 3 * Limits().max_pipelined_bytes // len(request)
    with serving() as rig, rig.connect() as client:
        ask(client, "/hold")
        rig.services.begun.get(timeout=10)
        client.sendall(request * count)
        (connection,) = rig.call(lambda: [*rig.doors._registry])
        assert isinstance(connection, H1Connection)
        rig.wait_for(lambda: connection._is_paused, "a pause")

        rig.call(rig.services.let_go)

        found = b""
        while found.count(b"hello\n") <= count:
            data = client.recv(65536)
            assert data, "closed before all were answered"
            found += data
        rig.wait_for(lambda: not connection._is_paused, "the end of the pause")


def test_a_backend_that_takes_a_body_in_small_pieces_does_not_make_more_of_it_wait() -> None:
    """Reading takes far more than such a piece, so it goes on once no more than half of what may wait is left."""
    with serving() as rig, rig.connect() as client:
        ask(client, "/hold", extra=f"Content-Length: {64 * MIB}\r\n", method="POST")
        exchange = rig.services.begun.get(timeout=10)
        (connection,) = rig.call(lambda: [*rig.doors._registry])
        assert isinstance(connection, H1Connection)
        client.setblocking(False)
        is_paused = is_full = False
        while not is_full:
            try:
                client.send(bytes(MIB))
            except BlockingIOError:
                is_full = is_paused
                is_paused = rig.call(lambda: connection._is_paused)
        held_bytes = exchange.received_bytes
        assert held_bytes > PAUSE_BYTES
        for _ in range(20):
            rig.call(lambda: exchange.client.release(1024))
        rig.call(lambda: exchange.client.release(held_bytes - 20 * 1024 - PAUSE_BYTES * 3 // 4))
        rig.call(lambda: None)
        assert exchange.received_bytes == held_bytes

        rig.call(lambda: exchange.client.release(PAUSE_BYTES * 3 // 4))
        rig.wait_for(lambda: exchange.received_bytes > held_bytes, "the rest")


def test_little_of_a_body_is_held_while_much_waits_for_peers() -> None:
    size_bytes = 8 * 1024 * 1024
    with serving() as rig, rig.connect() as client:

        def lade() -> None:
            rig.loop.unsent.size_bytes = LARGE_BYTES + 1

        rig.call(lade)
        ask(client, "/hold", extra=f"Content-Length: {size_bytes}\r\n", method="POST")
        exchange = rig.services.begun.get(timeout=10)
        client.sendall(bytes(12 * LITTLE_BYTES))
        (connection,) = rig.call(lambda: [*rig.doors._registry])
        assert isinstance(connection, H1Connection)
        rig.wait_for(lambda: connection._is_paused, "a pause")

        assert LITTLE_BYTES < exchange.received_bytes <= 6 * LITTLE_BYTES


@pytest.mark.parametrize("is_pipelined", [False, True])
def test_tiny_chunks_of_a_large_read_are_taken_over_many_turns(
    monkeypatch: pytest.MonkeyPatch, is_pipelined: bool
) -> None:
    """All those of one read at once would block all others for a tenth of a second, over TLS for three tenths."""
    count = 20_000
    taken: Counter[float] = Counter()
    take = Exchange.on_request_data

    def note(exchange: Exchange, data: bytes | memoryview, end_stream: bool) -> None:
        taken[exchange.services.loop.now_s] += len(data)
        take(exchange, data, end_stream)

    monkeypatch.setattr(Exchange, "on_request_data", note)
    with serving() as rig, rig.connect() as client:
        first = b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n" if is_pipelined else b""
        head = b"POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        client.sendall(first + head + b"1\r\na\r\n" * count + b"0\r\n\r\n")

        assert b"%d" % count in read_all(client).rpartition(b"\r\n\r\n")[2]
    assert max(taken.values()) <= 2 * MAX_CHUNKS


def test_an_http_10_client_gets_its_response_and_then_the_close() -> None:
    with serving() as rig, rig.connect() as client:
        client.sendall(b"GET /hello HTTP/1.0\r\nHost: a.example\r\n\r\n")

        assert read_all(client).endswith(HELLO)
        assert "HTTP/1.0" == rig.services.begun.get_nowait().client.arrival.protocol


def test_the_arrival_has_the_door_scheme_address_and_trust_of_a_client() -> None:
    with Rig(forwarding={"trustedProxies": ["127.0.0.0/8"]}) as rig:
        rig.open_plain(publicPort=80)
        with rig.connect() as client:
            ask(client)
            read_until(client, HELLO)
            arrival = rig.services.begun.get_nowait().client.arrival

            assert (rig.door, b"http", "127.0.0.1") == (arrival.door, arrival.scheme, arrival.address)
            assert arrival.protocol == "HTTP/1.1"
            assert arrival.is_trusted


def test_a_client_that_expects_100_gets_it() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/count", "Content-Length: 5\r\nExpect: 100-continue\r\n", "POST")

        assert b"HTTP/1.1 100 Continue\r\n\r\n" == read_until(client, b"\r\n\r\n")
        client.sendall(b"12345")
        assert read_until(client, b"5 bytes, trailers []\n")


def test_a_client_that_expects_100_may_be_refused_without_it() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/early", "Content-Length: 5\r\nExpect: 100-continue\r\n", "POST")

        answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close" in answer


def test_a_chunked_body_comes_with_its_trailers() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/count", "Transfer-Encoding: chunked\r\n", "POST")
        client.sendall(b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n")

        assert read_until(client, b"\n").endswith(b"5 bytes, trailers [x-sum]\n")


def test_a_response_ends_with_its_trailers() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/trailers")

        assert read_until(client, b"5\r\nbody\n\r\n0\r\nChecksum: 1234\r\n\r\n")


def test_after_101_bytes_pass_unchanged_both_ways() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/switch", "Connection: Upgrade\r\nUpgrade: websocket\r\n")
        client.sendall(b"early")
        assert read_until(client, b"early").startswith(b"HTTP/1.1 101 ")
        client.sendall(b"\x00\xff\r\n")
        assert b"\x00\xff\r\n" == read_until(client, b"\r\n")

        client.shutdown(socket.SHUT_WR)

        assert b"" == client.recv(10)


def test_a_half_close_during_a_request_cancels_its_exchange() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/hold")
        rig.services.begun.get(timeout=10)
        client.shutdown(socket.SHUT_WR)

        assert "closed by the client" == rig.services.gone.get(timeout=10)
        rig.wait_for_connections(0)


@pytest.mark.parametrize(("size_bytes", "reason"), [(6, ""), (5, "closed by the client")])
def test_a_half_close_cancels_an_exchange_only_before_the_whole_content_length_was_sent(
    size_bytes: int, reason: str
) -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, f"/endless/{size_bytes}")
        read_until(client, b"hello\n"[:size_bytes])
        client.shutdown(socket.SHUT_WR)

        assert reason == rig.services.gone.get(timeout=10)
        rig.wait_for_connections(0)


def test_a_half_close_before_the_response_was_sent_cancels_its_exchange() -> None:
    """The response has been queued, but not taken by the socket."""
    with serving() as rig, rig.connect() as client:
        ask(client, f"/endless/{32 * MIB}")
        rig.services.begun.get(timeout=10)
        client.shutdown(socket.SHUT_WR)

        assert "closed by the client" == rig.services.gone.get(timeout=10)


def test_a_reset_by_the_client_cancels_its_exchange() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/hold")
        rig.services.begun.get(timeout=10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()

        assert "connection lost" in rig.services.gone.get(timeout=10)
        rig.wait_for_connections(0)


def test_a_response_that_breaks_off_is_visible_to_the_client() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/break")

        answer = read_all(client)
        assert b"half of " in answer
        assert not answer.endswith(b"0\r\n\r\n")
        client.close()
        rig.wait_for_connections(0)


def test_an_http_10_response_that_breaks_off_ends_in_a_reset() -> None:
    with serving() as rig, rig.connect() as client:
        client.sendall(b"GET /break HTTP/1.0\r\nHost: a.example\r\n\r\n")

        with pytest.raises(ConnectionResetError):
            read_all(client)
        rig.wait_for_connections(0)


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_in_an_exchange_resets_only_its_connection() -> None:
    with serving() as rig, rig.connect() as client, rig.connect() as other:
        ask(client, "/raise")

        with pytest.raises(ConnectionResetError):
            client.recv(10)
        ask(other)
        assert read_until(other, HELLO)
        rig.wait_for_connections(1)


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_in_a_pipelined_request_ends_its_connection() -> None:
    with serving() as rig, rig.connect() as client:
        client.sendall(b"".join(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"/hello", b"/raise")))

        read_all_or_reset(client)
        rig.wait_for_connections(0)


@pytest.mark.usefixtures("with_an_error")
def test_a_bug_in_a_request_during_the_drain_leaves_no_other_connection_open() -> None:
    with serving() as rig, contextlib.ExitStack() as clients:
        raising, *idle = [clients.enter_context(rig.connect()) for _ in range(10)]
        rig.wait_for_connections(10)

        def ask_and_drain() -> None:
            """In one turn of the loop: the request lies in its socket when draining begins."""
            ask(raising, "/raise")
            rig.drain()

        rig.call(ask_and_drain)

        assert [b""] * 9 == [read_all(client) for client in idle]
        assert rig.is_idle.wait(WAIT_S)


Way = Callable[[Rig, socket.socket], None]


def break_off(_: Rig, client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()


WAYS_OUT: dict[str, Way] = {
    "closes its side": lambda _, client: client.shutdown(socket.SHUT_WR),
    "breaks off": break_off,
    "breaks the protocol": lambda _, client: client.sendall(b"no size\r\n"),
    "is sent away": lambda rig, _: rig.call(rig.doors.abort),
}


@pytest.mark.usefixtures("with_an_error")
@pytest.mark.parametrize("way", WAYS_OUT.values(), ids=WAYS_OUT.keys())
def test_a_bug_at_the_end_of_an_exchange_does_not_leak_its_connection_when_its_client(way: Way) -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/grudge", "Transfer-Encoding: chunked\r\n", "POST")
        rig.services.begun.get(timeout=10)

        way(rig, client)

        assert rig.services.gone.get(timeout=10)
        rig.wait_for_connections(0)
