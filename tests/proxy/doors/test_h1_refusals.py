"""HTTP/1.1 clients that violate the protocol, exceed a limit or take too long."""

import contextlib
import re
import socket
import time
from collections.abc import Callable

import pytest

from proxy.doors.h1connection import H1Connection
from proxy.loop import Transport
from tests.proxy.doors.rig import WAIT_S, Rig, ask, read_all, read_all_or_reset, read_until, serving
from tests.support.watches import watches_refused

HEADER_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 75.0
"""Unless the document says otherwise."""

MALFORMED = {
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "another version": (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    "CONNECT": (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
    "another transfer coding": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "another expectation": (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\n\r\n", 417),
    "long request line": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "target one byte too long": (b"GET /" + b"a" * 16_384 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "large head": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
}


def dates_of(answer: bytes) -> list[bytes]:
    return re.findall(rb"\r\nDate: (\w{3}, [^\r]+ GMT)\r\n", answer)


@pytest.mark.parametrize(("raw", "status_code"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_answered_and_the_connection_closed(raw: bytes, status_code: int) -> None:
    with serving() as rig, rig.connect() as client:
        client.sendall(raw)

        answer = read_all(client)

        assert answer.startswith(b"HTTP/1.1 %d " % status_code)
        assert b"Connection: close\r\n" in answer
        assert len(dates_of(answer)) == 1
        assert re.search(rb"\r\n\r\n%d [a-z- ]+: .+\n$" % status_code, answer)
        assert rig.services.begun.empty()
        assert {"protocol": 1} == rig.door_stats.refused


def test_a_client_that_does_not_speak_http_gets_no_response() -> None:
    with serving() as rig, rig.connect() as client:
        client.sendall(b"EHLO mail.example\r\n\r\n")

        assert b"" == read_all(client)
        assert {"protocol": 1} == rig.door_stats.refused


def test_a_target_exactly_at_the_limit_is_served() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/" + "a" * 16_383)

        assert read_until(client, b"\n").startswith(b"HTTP/1.1 200 ")


def test_a_malformed_body_ends_its_exchange_and_is_answered_400() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/hold", "Transfer-Encoding: chunked\r\n", "POST")
        rig.services.begun.get(timeout=10)
        client.sendall(b"3\r\nabcdef\r\n")

        assert read_all(client).startswith(b"HTTP/1.1 400 ")
        assert rig.services.gone.get_nowait()


def test_a_malformed_body_after_the_response_began_truncates_the_response() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/echo", "Transfer-Encoding: chunked\r\n", "POST")
        client.sendall(b"3\r\nabc\r\n")
        read_until(client, b"abc\r\n")
        client.sendall(b"zzz\r\n")

        assert b"" == read_all(client)
        assert rig.services.gone.get_nowait()


def test_a_client_that_sends_nothing_is_closed_without_a_response() -> None:
    with serving(limits={"headerTimeout": "50ms"}) as rig, rig.connect() as client:
        assert b"" == read_all(client)
        assert {} == rig.door_stats.refused


def wait_for_a_part_of_a_head(rig: Rig) -> None:
    """From the only client."""

    def has_come() -> bool:
        return any(
            isinstance(member, H1Connection) and member._is_head_timed and not member._codec.is_idle
            for member in rig.doors._registry
        )

    rig.wait_for(has_come, "the beginning of a head")


def test_an_incomplete_head_is_answered_408() -> None:
    with serving() as rig, rig.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a")
        wait_for_a_part_of_a_head(rig)
        rig.pass_time(HEADER_TIMEOUT_S)

        answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert len(dates_of(answer)) == 1
        assert {"header_timeout": 1} == rig.door_stats.refused


def test_a_trickle_of_bytes_does_not_extend_the_header_timeout() -> None:
    """Slowloris: each byte arrives well within the timeout."""
    with serving(limits={"headerTimeout": "1h"}) as rig, rig.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        wait_for_a_part_of_a_head(rig)
        for _ in range(9):
            client.sendall(b"x")
            rig.pass_time(360)
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(100)
        client.sendall(b"x")
        rig.pass_time(360)
        client.settimeout(WAIT_S)

        assert read_all(client).startswith(b"HTTP/1.1 408 ")


def test_the_header_timeout_applies_to_the_next_head_on_a_kept_connection() -> None:
    with serving(limits={"idleTimeout": "1h"}) as rig, rig.connect() as client:
        ask(client)
        read_until(client, b"hello\n")
        client.sendall(b"GET / HT")
        wait_for_a_part_of_a_head(rig)
        rig.pass_time(HEADER_TIMEOUT_S)

        assert read_all(client).startswith(b"HTTP/1.1 408 ")


def test_a_kept_connection_is_closed_after_the_idle_timeout() -> None:
    with serving(limits={"idleTimeout": "50ms"}) as rig, rig.connect() as client:
        ask(client)
        read_until(client, b"hello\n")

        assert b"" == read_all(client)
        rig.wait_for_connections(0)


def test_the_idle_timeout_of_the_connection_does_not_apply_to_a_running_request() -> None:
    with serving() as rig, rig.connect() as client:
        ask(client, "/hold")
        rig.services.begun.get(timeout=10)
        with rig.connect() as other:
            rig.wait_for_connections(2)
            rig.pass_time(IDLE_TIMEOUT_S)
            assert b"" == read_all(other)
        rig.call(rig.services.let_go)

        assert read_until(client, b"hello\n")


def test_reading_stops_while_an_exchange_cannot_forward_a_body() -> None:
    size_bytes = 64 * 1024 * 1024
    with serving() as rig, rig.connect() as client:
        ask(client, "/hold", f"Content-Length: {size_bytes}\r\n", "POST")
        exchange = rig.services.begun.get(timeout=10)
        client.settimeout(1)
        with pytest.raises(TimeoutError):
            client.sendall(bytes(size_bytes))

        # One read beyond the limit at most; the rest is in the kernel's buffers.
        held_bytes = exchange.received_bytes
        assert held_bytes <= 512 * 1024

        rig.call(lambda: exchange.client.release(held_bytes))

        rig.wait_for(lambda: exchange.received_bytes > held_bytes + 256 * 1024, "as much of the body again")


def test_a_large_upload_is_echoed_completely() -> None:
    size_bytes = 8 * 1024 * 1024
    with serving() as rig, rig.connect() as client:
        ask(client, "/echo", f"Content-Length: {size_bytes}\r\nConnection: close\r\n", "POST")
        rest_bytes = size_bytes
        answer_bytes = 0
        client.setblocking(False)
        deadline_s = time.monotonic() + 30
        piece = b"\xff" * 65536
        while time.monotonic() < deadline_s:
            if rest_bytes:
                with contextlib.suppress(BlockingIOError):
                    rest_bytes -= client.send(piece[:rest_bytes])
            try:
                data = client.recv(1 << 20)
            except BlockingIOError:
                continue
            answer_bytes += data.count(b"\xff")
            if not data:
                break

        assert size_bytes == answer_bytes


def test_a_refused_client_that_is_still_sending_gets_the_response() -> None:
    """Closing with unread data would reset the connection, and the response would be lost."""
    with serving() as rig, rig.connect() as client:
        ask(client, "/early", "Content-Length: 1000000\r\n", "POST")
        client.sendall(bytes(500_000))

        assert read_all(client).startswith(b"HTTP/1.1 413 ")
        client.shutdown(socket.SHUT_WR)
        rig.wait_for_connections(0)


@pytest.mark.parametrize("path", ["/bulk/10000", "/later/10000"])
def test_requests_of_a_client_that_does_not_read_are_not_begun_without_bound(path: str) -> None:
    """Whether they are answered at once, or later, as a backend does."""
    count = 20_000
    with serving() as rig, rig.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * count)
        rig.wait_for(Standstill(rig.services.begun.qsize), "the end of new exchanges")

        assert rig.services.begun.qsize() * 10_000 < 32 * 1024 * 1024
        answer_bytes = 0
        while answer_bytes < count * 10_000:
            answer_bytes += client.recv(1 << 20).count(b"\0")
        assert count == rig.services.begun.qsize()


@pytest.mark.parametrize("path", ["/bulk/10000", "/later/10000"])
def test_a_client_that_reads_again_is_served_again(path: str) -> None:
    with Rig() as rig, rig.open_plain(send_buffer_bytes=65536).connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        ask(client, path)
        rig.services.begun.get(timeout=WAIT_S)
        (connection,) = rig.call(lambda: [*rig.doors._registry])
        assert isinstance(connection, H1Connection)
        count = 1
        while not rig.call(lambda: connection._is_clogged):
            ask(client, path)
            rig.services.begun.get(timeout=WAIT_S)
            count += 1
            assert count < 10_000, "100 MB of answers wait for the client"
        answer_bytes = 0
        while answer_bytes < count * 10_000:
            answer_bytes += client.recv(1 << 20).count(b"\0")
        ask(client, "/hello")

        assert read_until(client, b"hello\n").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_reads_slowly_gets_all_its_answers_though_that_takes_longer_than_the_idle_timeout() -> None:
    count, size_bytes = 3, 4_000_000
    with Rig() as rig, rig.open_plain(send_buffer_bytes=65536).connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(f"GET /later/{size_bytes} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * count)
        rig.wait_for(lambda: bool(rig.doors._registry), "the connection")
        (connection,) = rig.call(lambda: [*rig.doors._registry])
        assert isinstance(connection, H1Connection)
        transport = connection._transport
        rig.wait_for(lambda: connection._is_clogged, "too many unread answers")
        answer_bytes = 0
        for _ in range(3):
            before_bytes = rig.call(lambda: transport.queued_bytes)
            while rig.call(lambda: transport.queued_bytes) == before_bytes:
                data = client.recv(10_000)
                assert data, "closed by the proxy"
                answer_bytes += data.count(b"\0")
            assert rig.call(lambda: connection._is_clogged)
            rig.pass_time(IDLE_TIMEOUT_S)
        while answer_bytes < count * size_bytes:
            data = client.recv(1 << 20)
            assert data, "closed by the proxy"
            answer_bytes += data.count(b"\0")

        rig.pass_time(IDLE_TIMEOUT_S)
        assert read_all(client) == b""


def test_a_client_that_reads_none_of_its_answers_is_closed_at_the_idle_timeout() -> None:
    with Rig() as rig, rig.open_plain(send_buffer_bytes=65536).connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(b"GET /later/10000 HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
        rig.wait_for(lambda: bool(rig.doors._registry), "the connection")
        (connection,) = rig.call(lambda: [*rig.doors._registry])
        assert isinstance(connection, H1Connection)
        rig.wait_for(lambda: connection._is_clogged, "too many unread answers")
        rig.wait_for(Standstill(lambda: connection._transport.queued_bytes), "full buffers of both kernels")
        rig.pass_time(IDLE_TIMEOUT_S)  # what was read until the buffers were full counts
        rig.pass_time(IDLE_TIMEOUT_S)

        assert rig.call(lambda: connection._is_ending)


class Standstill:
    """Whether a number has been the same at the last fifty checks."""

    def __init__(self, number: Callable[[], int]) -> None:
        self._number = number
        self._last = -1
        self._looks = 0

    def __call__(self) -> bool:
        number = self._number()
        self._looks = self._looks + 1 if number == self._last else 0
        self._last = number
        return self._looks > 50


def test_a_client_that_the_kernel_does_not_watch_counts_as_refused() -> None:
    with serving() as rig, watches_refused(Transport), rig.connect() as client:
        assert b"" == read_all_or_reset(client)
        rig.wait_for_connections(0)

        assert rig.door_stats.refused == {"descriptors": 1}
