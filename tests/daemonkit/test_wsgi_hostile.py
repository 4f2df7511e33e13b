"""The HTTP server with clients that are slow, broken or hostile: each costs little and ends in time."""

import contextlib
import itertools
import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Unpack

import pytest
import trustme

from daemonkit.tlssocket import TlsSocket
from daemonkit.wsgistreams import Head, Input, Output
from tests.daemonkit.conftest import EchoApp, Limits, Serve
from tests.daemonkit.rawhttp import DEADLINE_S, RawClient
from tests.proxy.loop.keyupdates import key_updates
from tests.proxy.loop.sides import tcp_pair
from tests.support.lettinggo import uncollected

CHUNKED = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def trickle(client: RawClient, begin: bytes, octet: bytes, pause_s: float) -> float:
    """Send `begin`, and one octet every `pause_s` until the server closes its side; the seconds that took."""
    began_s = time.monotonic()
    client.send(begin)
    client.socket.settimeout(pause_s)
    received = b""
    while time.monotonic() - began_s < DEADLINE_S:
        try:
            client.socket.send(octet)
        except (BrokenPipeError, ConnectionResetError):
            break
        try:
            data = client.socket.recv(65536)
        except TimeoutError:
            continue
        except ConnectionResetError:
            break
        received += data
        if not data:
            break
    client._buffer += received
    return time.monotonic() - began_s


def test_a_head_that_arrives_octet_by_octet_is_answered_408_at_its_total_timeout(serve: Serve) -> None:
    with RawClient(serve(header_timeout_s=0.6).bound_address.port) as client:
        assert 0.4 < trickle(client, b"GET / HTTP/1.1\r\nX: ", b"x", 0.1) < 3
        assert client.answer().json["message"] == "the request did not arrive in time"


@pytest.mark.parametrize(
    "head", [b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", CHUNKED + b"fffff\r\n"]
)
def test_a_body_that_arrives_octet_by_octet_is_answered_408_at_its_total_timeout(serve: Serve, head: bytes) -> None:
    with RawClient(serve(body_timeout_s=0.8).bound_address.port) as client:
        assert 0.6 < trickle(client, head, b"x", 0.1) < 5
        answer = client.answer()
        assert (answer.status_code, answer.fields["connection"]) == (408, "close")


def test_many_slow_heads_and_idle_connections_take_no_thread_from_the_others(serve: Serve) -> None:
    port = serve(threads=2, header_timeout_s=DEADLINE_S).bound_address.port
    slow = [RawClient(port) for _ in range(50)]
    try:
        for client in slow[:25]:
            client.send(b"GET / HT")
        with RawClient(port) as client:
            assert client.get().status_code == 200
    finally:
        for client in slow:
            client.socket.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_clients_that_open_connections_without_end_do_not_keep_others_from_being_served(
    serve: Serve, sent: bytes
) -> None:
    port = serve(threads=2, max_connections=20, header_timeout_s=DEADLINE_S).bound_address.port
    with contextlib.ExitStack() as hostile:
        for _ in range(10):
            for _ in range(30):
                idle = hostile.enter_context(RawClient(port))
                idle.send(sent)
                if sent.endswith(b"\r\n\r\n"):
                    assert idle.answer().status_code == 200, "until then it is at work, and its place is its own"
            with RawClient(port) as client:
                assert client.get().status_code == 200


def test_an_idle_connection_is_closed_without_a_response(serve: Serve) -> None:
    with RawClient(serve(idle_timeout_s=0.3).bound_address.port) as client:
        assert client.get().status_code == 200
        assert client.is_closed_by_server()


class Stopper(logging.Handler):
    """Blocks the thread that logs the refusal of a client until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.stands = threading.Event()
        self.may_go_on = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.stands.set()
        assert self.may_go_on.wait(DEADLINE_S)


@contextlib.contextmanager
def standing_still(port: int) -> Iterator[None]:
    """The thread that watches connections is blocked within the context; its server is full."""
    stopper = Stopper()
    log = logging.getLogger("tests.wsgi")
    log.addHandler(stopper)
    try:
        with RawClient(port) as refused:
            assert stopper.stands.wait(DEADLINE_S)
            yield
            stopper.may_go_on.set()
            assert refused.answer().status_code == 503
    finally:
        stopper.may_go_on.set()
        log.removeHandler(stopper)


@pytest.mark.parametrize("sent_meanwhile", [5, None])
def test_a_request_that_came_while_the_server_was_blocked_is_served_though_its_idle_timeout_has_passed(
    serve: Serve, app: EchoApp, sent_meanwhile: int | None
) -> None:
    request = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
    port = serve(max_connections=1, idle_timeout_s=0.3).bound_address.port
    with RawClient(port) as client:
        client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        with standing_still(port):
            app.release.set()
            assert client.answer().body == b"GET /hold 0"
            client.send(request[:sent_meanwhile])
            assert select.select([client.socket], [], [], 1.0)[0] == [], "nobody hears it for longer than the timeout"

        if sent_meanwhile:
            assert select.select([client.socket], [], [], 0.5)[0] == [], "the time for the rest of its head has begun"
            client.send(request[sent_meanwhile:])
        assert client.answer().body == b"GET /next 0"


def test_a_connection_with_news_does_not_give_way_to_another(serve: Serve, app: EchoApp) -> None:
    port = serve(threads=1, max_connections=2).bound_address.port
    stopper = Stopper()
    log = logging.getLogger("tests.wsgi")
    with RawClient(port) as older, RawClient(port) as newer, contextlib.ExitStack() as stack:
        assert [older.get().status_code, newer.get().status_code] == [200, 200]
        log.addHandler(stopper)
        try:
            running = stack.enter_context(RawClient(port))
            running.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
            assert stopper.stands.wait(DEADLINE_S), "it takes the place of the older one"
            late = stack.enter_context(RawClient(port))
            newer.send(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
        finally:
            stopper.may_go_on.set()
            log.removeHandler(stopper)

        assert late.answer().status_code == 503
        app.release.set()
        assert running.answer().status_code == 200
        assert newer.answer().body == b"GET /next 0"


def test_a_connection_without_any_byte_is_closed_at_the_header_timeout(serve: Serve) -> None:
    with RawClient(serve(header_timeout_s=0.3).bound_address.port) as client:
        assert client.is_closed_by_server()


def test_a_connection_whose_time_is_not_over_delays_no_timeout_of_a_later_one(serve: Serve) -> None:
    port = serve(header_timeout_s=2 * DEADLINE_S, idle_timeout_s=0.3).bound_address.port
    with RawClient(port), RawClient(port) as idle:
        assert idle.get().status_code == 200
        assert idle.is_closed_by_server()


def test_the_connection_of_a_refused_client_is_not_reset_though_nobody_has_read_its_request(
    serve: Serve, app: EchoApp
) -> None:
    """On its way, a reset may overtake the response."""
    port = serve(max_connections=1).bound_address.port
    with RawClient(port) as running:
        running.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S)
        with contextlib.ExitStack() as stack:
            with standing_still(port):
                client = stack.enter_context(RawClient(port))
                client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

            assert client.answer().status_code == 503
            assert stack.enter_context(RawClient(port)).answer().status_code == 503, "it is the next one's turn"
            assert client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_a_clock_that_is_set_back_delays_no_timeout(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    port = serve(header_timeout_s=0.3).bound_address.port
    with RawClient(port) as first:
        assert first.is_closed_by_server(), "the server is at work by the right clock"
    a_year_ago_s = time.time() - 365 * 86400.0
    monkeypatch.setattr(time, "time", lambda: a_year_ago_s)

    with RawClient(port) as client:
        assert client.is_closed_by_server()


@pytest.mark.parametrize("step_s", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_server_that_stops_while_the_clock_is_set_gives_requests_just_the_time_that_they_have(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    server = serve(body_timeout_s=2 * DEADLINE_S)
    port = server.bound_address.port
    with RawClient(port) as quick, RawClient(port) as slow:
        for client in (quick, slow):
            client.send(CHUNKED + b"3\r\nabc\r\n")
        clock = itertools.count(time.time(), step_s)
        monkeypatch.setattr(time, "time", lambda: next(clock))
        stopping = threading.Thread(target=server.drain, args=(time.monotonic() + 2.0,))
        stopping.start()
        stopping.join(0.5)

        assert stopping.is_alive(), "it waits for both"
        quick.send(b"3\r\ndef\r\n0\r\n\r\n")
        assert quick.answer().body == b"POST /x 6"
        assert slow.answer().status_code == 400, "its body was cut off"
        assert slow.is_closed_by_server()
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()


def test_a_client_that_does_not_read_its_response_is_disconnected(serve: Serve) -> None:
    port = serve(threads=1, send_timeout_s=0.5).bound_address.port
    with RawClient(port) as deaf, RawClient(port) as other:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")

        assert other.get().status_code == 200


def test_a_connection_whose_answer_was_cut_off_ends(serve: Serve) -> None:
    """The answer to a next request would be taken for the rest of this one."""
    port = serve(threads=1, send_timeout_s=0.5, idle_timeout_s=2 * DEADLINE_S).bound_address.port
    with RawClient(port) as deaf, RawClient(port) as other:
        deaf.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert select.select([deaf.socket], [], [], DEADLINE_S)[0], "its answer takes the only thread"
        assert other.get().status_code == 200

        while deaf._more():
            pass
        assert len(deaf._buffer) < 10_000_000


def test_a_chunked_answer_that_was_cut_off_has_no_last_chunk(serve: Serve, app: EchoApp) -> None:
    """Its client began to read just afterwards, and took what it got for all of it."""
    with RawClient(serve(send_timeout_s=0.5).bound_address.port) as late:
        late.send(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        assert app.entered.acquire(timeout=DEADLINE_S), "it was cut off"
        app.release.set()

        while late._more():
            pass
        assert not late._buffer.endswith(b"0\r\n\r\n")


def test_a_head_over_the_limit_is_431(serve: Serve) -> None:
    with RawClient(serve(max_header_bytes=4096).bound_address.port) as client:
        answer = client.get(extra=f"X: {'x' * 100_000}\r\n")

        assert (answer.status_code, answer.fields["connection"]) == (431, "close")
        assert answer.json == {
            "error": "request header too large",
            "message": "the request's head is larger than 4096 bytes",
        }
    with RawClient(serve(max_header_bytes=4096).bound_address.port) as client:
        assert client.get("/" + "x" * 100_000).status_code == 431


@pytest.mark.parametrize("end", [b"\r\n", b"# HTTP/1.1\r\nHost: x\r\n\r\n", b" HTTP/1.1\nHost: x\r\n\r\n"])
def test_a_long_malformed_target_in_absolute_form_is_refused_without_delay(serve: Serve, end: bytes) -> None:
    """Time that grew with the square of its length would hold up all threads."""
    with RawClient(serve(max_header_bytes=128 * 1024).bound_address.port) as client:
        client.send(b"GET http://" + b"a" * 130_000 + end + b"\r\n")

        assert client.answer().status_code == 400


def test_a_chunked_body_over_the_limit_is_413_while_it_is_read(serve: Serve) -> None:
    with RawClient(serve(max_body_bytes=1000).bound_address.port) as client:
        client.send(CHUNKED + b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n")
        assert client.answer().body == b"POST /x 1000"
        client.send(CHUNKED + b"fffffff\r\n")
        assert client.answer().status_code == 413


@pytest.mark.parametrize(
    "request_",
    [
        b"GARBAGE\r\n\r\n",
        b"GARBAGE\n",
        b"\x00\x01\x02\n",
        b"GET /\r\n\r\n",
        b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http:/x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http:///x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://:80/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://u@x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://u:p@x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x\\@y/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x,y/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x:y/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x/#y HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x/ y HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x HTTP/1.1\r\n\r\n",
        b"GET http://x HTTP/1.1\r\nHost: u@x\r\n\r\n",
        b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET httpss://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //x/y HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS http:/x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS http://u@x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS //x/y HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS *x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/x.y\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.+1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.-1\r\nHost: x\r\n\r\n",
        b"G@T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a\rb HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: [a\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\ncontent-type: a/c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\nX: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1_0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"0" * 18 + b"1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ,\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\x0c\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 300 + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;" + b"x" * 300 + b"\r\nabc\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x" * 9000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 1500 + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: y\n\r\n",
    ],
)
def test_a_malformed_request_is_400_in_our_shape_and_closes(serve: Serve, request_: bytes) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(request_)

        answer = client.answer()
        assert (answer.status_code, answer.fields["content-type"]) == (400, "application/json")
        assert answer.json["error"] == "bad request"
        assert answer.json["message"]
        assert "not allowed" not in answer.json["message"], "the absolute form is allowed"
        assert "retry-after" not in answer.fields
        assert client.is_closed_by_server()


@pytest.mark.parametrize(
    ("chunks", "status_code"),
    [
        (b"2\r\nabXX0\r\n\r\n", 400),
        (b"1\r\na\r\n1\r\nbXX0\r\n\r\n", 400),
        (b"zz\r\n0\r\n\r\n", 400),
        (b"1;a=\x00\r\na\r\n0\r\n\r\n", 400),
        (b"1\r\na\r\n0\r\nx: y\n0\r\n\r\n", 400),
        (b"1\r\na\r\n0\r\nGET /other HTTP/1.1\r\n\r\n", 400),
        (b"1\r\na\r\n0\r\nx : y\r\n\r\n", 400),
        (b"1\r\na\r\n0\r\nx: y\r\n z\r\n\r\n", 400),
        (b"fffffff\r\n0\r\n\r\n", 413),
    ],
    ids=[
        "a chunk too long",
        "the second too long",
        "no size",
        "NUL in an extension",
        "a trailer that ends with LF",
        "a request as a trailer",
        "a space before the colon",
        "a folded trailer",
        "too large",
    ],
)
def test_what_follows_a_malformed_chunk_is_no_request_even_if_the_app_has_answered(
    serve: Serve, app: EchoApp, chunks: bytes, status_code: int
) -> None:
    """It may be data to a proxy in front ("funky chunks")."""
    with RawClient(serve(max_body_bytes=1000).bound_address.port) as client:
        client.send(CHUNKED.replace(b"/x", b"/own") + chunks + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")

        answer = client.answer()
        assert (answer.status_code, answer.fields.get("connection")) == (status_code, "close")
        assert client.is_closed_by_server()
        assert len(app.gone) == 1


def test_a_malformed_chunk_leaves_nothing_for_the_garbage_collector(serve: Serve, app: EchoApp) -> None:
    server = serve()
    with uncollected() as garbage_of:
        with RawClient(server.bound_address.port) as client:
            client.send(CHUNKED.replace(b"/x", b"/own") + b"zz\r\n")
            assert client.answer().status_code == 400
            assert client.is_closed_by_server()
        server.stop()
        app.gone.clear()
        assert garbage_of("daemonkit") == []


def test_a_target_of_https_is_421_where_the_connection_is_not_secured(serve: Serve) -> None:
    """RFC 9110, 7.4."""
    with RawClient(serve().bound_address.port) as client:
        client.send(b"GET https://x/ HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = client.answer()
        assert (answer.status_code, answer.json["error"]) == (421, "misdirected request")
        assert client.is_closed_by_server()


@pytest.mark.parametrize(
    "host", ["", "a", "a.test:80", "A_b-1.test:", "127.0.0.1:8080", "[::1]:8080", "[fe80::1%25eth0]"]
)
def test_every_valid_host_is_served(serve: Serve, host: str) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
        assert client.answer().status_code == 200


def test_every_refusal_has_the_date_at_which_it_is_made(serve: Serve) -> None:
    """RFC 9110, 6.6.1; also where no worker is involved, as for the 408."""
    patient, hasty = serve().bound_address.port, serve(header_timeout_s=1.5).bound_address.port
    malformed, late = b"GET x HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\n"
    for port, request_, status_code in ((patient, malformed, 400), (hasty, late, 408)):
        with RawClient(port) as client:
            before = datetime.now(UTC).replace(microsecond=0)
            client.send(request_)

            answer = client.answer()
            assert answer.status_code == status_code
            assert before <= parsedate_to_datetime(answer.fields["date"]) <= datetime.now(UTC)


def test_a_refused_head_request_is_answered_without_content(serve: Serve) -> None:
    """RFC 9110, 9.3.2: a client would take it for the beginning of the next response."""
    with RawClient(serve().bound_address.port) as client:
        client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n")

        assert client.head().status_code == 400
        assert client.is_closed_by_server()


@pytest.mark.parametrize("codings", [b"gzip", b"gzip, chunked", b"chunked, gzip"])
def test_an_unknown_transfer_coding_is_501(serve: Serve, codings: bytes) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + codings + b"\r\n\r\n")
        answer = client.answer()
        assert answer.status_code == 501
        assert answer.json["message"] == "unknown transfer coding, want chunked"
        assert client.is_closed_by_server()


def test_connect_is_501(serve: Serve) -> None:
    """405 would need Allow (RFC 9110, 15.5.6), and no path of ours takes it."""
    with RawClient(serve().bound_address.port) as client:
        client.send(b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n")
        answer = client.answer()
        assert (answer.status_code, answer.json["message"]) == (501, "this is no proxy for CONNECT")
        assert client.is_closed_by_server()


@pytest.mark.parametrize("request_", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/0.9\r\nHost: x\r\n\r\n"])
def test_another_version_of_http_is_505_with_what_is_wanted(serve: Serve, request_: bytes) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(request_)
        answer = client.answer()
        assert (answer.status_code, answer.json["message"]) == (505, "want HTTP/1.1 or HTTP/1.0")
        assert client.is_closed_by_server()


def test_header_names_with_underscores_are_ignored(serve: Serve) -> None:
    """To an app X_Role and X-Role are one name: a client could send one beside the other, which a proxy has set."""
    with RawClient(serve().bound_address.port) as client:
        assert client.get("/role", extra="X_Role: admin\r\n").body == b"none"
        assert client.get("/role", extra="X-Role: guest\r\nX_Role: admin\r\n").body == b"guest"
        assert client.get("/role", extra="X_Role: admin\r\nX-Role: guest\r\n").body == b"guest"
        assert client.get(extra="Content_Length: 5\r\n").body == b"GET / 0"


@pytest.mark.parametrize(
    "head", [b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", CHUNKED + b"9\r\nabc"]
)
def test_a_client_that_half_closes_in_the_middle_of_its_body_gets_400(serve: Serve, head: bytes) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(head)
        client.socket.shutdown(socket.SHUT_WR)

        assert client.answer().status_code == 400
        assert client.is_closed_by_server()


def test_a_client_that_half_closes_in_the_middle_of_its_head_is_closed(serve: Serve) -> None:
    with RawClient(serve().bound_address.port) as client:
        client.send(b"GET / HTTP/1.1\r\nHo")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed_by_server()


def test_a_reset_at_any_point_of_a_request_does_not_harm_the_server(serve: Serve) -> None:
    port = serve(threads=1).bound_address.port
    whole = CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"
    for cut in range(len(whole) + 1):
        with RawClient(port) as client:
            client.send(whole[:cut])
            # A reset instead of an orderly end.
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    with RawClient(port) as client:
        assert client.get().status_code == 200
    assert sum(thread.name.startswith("CP Server") for thread in threading.enumerate()) >= 1


def test_unread_bodies_that_never_arrive_leave_threads_for_other_clients(serve: Serve) -> None:
    port = serve(threads=2).bound_address.port
    unfinished = [RawClient(port) for _ in range(40)]
    try:
        for client in unfinished:
            client.send(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nx")
        with RawClient(port) as other:
            assert other.get("/ready").body == b"GET /ready 0"
    finally:
        for client in unfinished:
            client.socket.close()


def test_bodies_that_never_arrive_leave_threads_for_other_clients(serve: Serve) -> None:
    port = serve(threads=2, body_timeout_s=DEADLINE_S).bound_address.port
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            silent = stack.enter_context(RawClient(port))
            silent.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nx")
        other = stack.enter_context(RawClient(port))
        other.socket.settimeout(DEADLINE_S / 4)

        assert other.get().body == b"GET / 0"


def test_a_client_that_pauses_within_its_body_is_served_while_threads_are_free(serve: Serve) -> None:
    port = serve(threads=2, body_timeout_s=DEADLINE_S).bound_address.port
    with RawClient(port) as slow, RawClient(port) as other:
        slow.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nx")
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            assert other.get().status_code == 200
        slow.send(b"yyyy")

        assert slow.answer().body == b"POST /x 5"


def test_clients_that_never_read_their_responses_leave_threads_for_other_clients(serve: Serve) -> None:
    port = serve(threads=2, send_timeout_s=DEADLINE_S).bound_address.port
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            deaf = stack.enter_context(RawClient(port))
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            # Its answer has begun: all threads but one are taken, or given up for this one.
            assert select.select([deaf.socket], [], [], DEADLINE_S / 4)[0]
        other = stack.enter_context(RawClient(port))
        other.socket.settimeout(DEADLINE_S / 4)

        assert other.get().body == b"GET / 0"


def test_a_client_that_never_reads_its_answer_does_not_keep_a_server_from_stopping(serve: Serve) -> None:
    server = serve(send_timeout_s=DEADLINE_S)
    with RawClient(server.bound_address.port) as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert select.select([deaf.socket], [], [], DEADLINE_S)[0]
        begun_s = time.monotonic()

        server.drain(begun_s + DEADLINE_S)

        assert time.monotonic() - begun_s < DEADLINE_S / 4


def test_a_client_that_pauses_gets_its_whole_response_while_threads_are_free(serve: Serve) -> None:
    port = serve(threads=2, send_timeout_s=DEADLINE_S).bound_address.port
    with RawClient(port) as slow, RawClient(port) as other:
        slow.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert select.select([slow.socket], [], [], DEADLINE_S)[0]
        until_s = time.monotonic() + 2.0  # longer than a server that stops would wait
        while time.monotonic() < until_s:
            assert other.get().status_code == 200

        assert len(slow.answer().body) == 10_000_000


def test_a_client_that_reads_slowly_gets_its_whole_answer_from_a_server_that_stops(serve: Serve) -> None:
    """With megabytes buffered, the kernel reports a socket as writable only once a third of them has been sent."""
    server = serve(send_timeout_s=DEADLINE_S)
    stopping = threading.Thread(target=lambda: server.drain(time.monotonic() + DEADLINE_S))
    with RawClient(server.bound_address.port) as slow:
        slow.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert select.select([slow.socket], [], [], DEADLINE_S)[0]
        stopping.start()
        # Longer than the wait for a client that reads nothing.
        for _ in range(10):
            stopping.join(0.25)
            slow._buffer += slow.socket.recv(200_000)

        assert len(slow.answer().body) == 10_000_000
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()


def test_several_clients_that_never_read_their_responses_delay_a_stop_no_longer_than_one(
    serve: Serve,
) -> None:
    server = serve(threads=1, send_timeout_s=DEADLINE_S)
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(RawClient(server.bound_address.port)) for _ in range(6)]
        for each in deaf:
            each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert select.select([each.socket for each in deaf], [], [], DEADLINE_S)[0]
        begun_s = time.monotonic()

        server.drain(begun_s + DEADLINE_S)

        assert time.monotonic() - begun_s < DEADLINE_S / 3


def test_a_client_that_reads_in_bursts_counts_as_reading() -> None:
    """A socket that is refilled after each burst holds the same number of bytes at every look."""
    near, far = socket.socketpair()
    looks: list[float] = []

    def on_look(deaf_s: float) -> bool:
        looks.append(deaf_s)
        if len(looks) % 4 == 0:
            for _ in range(3):
                far.recv(64 * 1024)
        return False

    with near, far:
        Output(near, DEADLINE_S, on_look).write(bytes(800_000))

    bursts = range(4, len(looks), 4)
    assert bursts
    assert all(looks[after] < looks[after - 1] for after in bursts)


def test_a_flood_of_tls_key_updates_blocks_no_other_client(serve: Serve, tmp_path: Path) -> None:
    """Key updates carry no application data: OpenSSL by itself would read on for as long as they arrive."""
    authority, secrets, pair = trustme.CA(), tmp_path / "secrets", str(tmp_path / "both.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pair)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client)
    server = serve(tls=(pair, pair))
    address = ("127.0.0.1", server.bound_address.port)
    with client.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as other:
        client.keylog_filename = str(secrets)
        with client.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as restless:
            restless.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            updates = key_updates(60_000, restless, secrets)
            flooding = threading.Thread(target=_flood, args=(restless, updates))
            flooding.start()
            assert fills_up(restless)
            other.settimeout(DEADLINE_S)
            other.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

            assert other.recv(65536).startswith(b"HTTP/1.1 200")
            assert flooding.is_alive()
            restless.shutdown(socket.SHUT_RDWR)
            flooding.join(DEADLINE_S)


class Endless(socket.socket):
    """However much is received, there is more."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data
        self.receives_left = 100

    def recv(self, _size_bytes: int, _flags: int = 0) -> bytes:
        self.receives_left -= 1
        assert self.receives_left, "others never get their turn"
        return self.data


@pytest.mark.parametrize(("data", "head"), [(b"\r\n" * 8192, Head.ABSENT), (b"G", Head.PARTIAL)])
def test_endless_input_without_a_complete_head_does_not_hold_the_thread(data: bytes, head: Head) -> None:
    """Empty lines are ignored; each octet may be in a TLS record of its own."""
    with Endless(data) as sock:
        assert Input(sock, 65536, lambda: False).gather_head() is head


def test_a_request_that_arrives_with_the_end_of_the_tls_handshake_is_read_in_the_same_turn() -> None:
    """It may be the last turn, of a server that stops or of a connection whose time is over."""
    authority = trustme.CA()
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(ours)
    authority.configure_trust(theirs)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    near, far = tcp_pair()
    with far, TlsSocket(near, ours) as sock:
        source = Input(sock, 65536, lambda: False)
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        far.sendall(to_server.read())
        assert source.gather_head() is Head.ABSENT
        far.settimeout(DEADLINE_S)
        while True:
            to_client.write(far.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                break
        client.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        far.sendall(to_server.read())

        assert source.gather_head() is Head.COMPLETE


def test_an_incomplete_tls_record_of_a_body_is_answered_408_at_its_total_timeout(serve: Serve, tmp_path: Path) -> None:
    authority, pair = trustme.CA(), str(tmp_path / "both.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pair)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    context.maximum_version = (
        ssl.TLSVersion.TLSv1_2
    )  # with 1.3, session tickets arrive that this client does not expect
    address = ("127.0.0.1", serve(tls=(pair, pair), body_timeout_s=2.0).bound_address.port)
    with context.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as client:
        began_s = time.monotonic()
        client.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        assert select.select([client], [], [], 1.8)[0] == []
        socket.socket.send(client, b"\x17\x03\x03\0\x40")
        client.settimeout(DEADLINE_S)
        assert client.recv(65536).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began_s < 3.4


@pytest.mark.parametrize(
    ("request_", "status", "limits"),
    [
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"400", {}),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"200", {"idle_timeout_s": 0.5}),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"200", {}),
        (b"GET /stream HTTP/1.0\r\n\r\n", b"200", {}),
        (b"GET /boom HTTP/1.1\r\nHost: x\r\n\r\n", b"500", {}),
        (b"GET / HTTP/1.1\r\n", b"408", {"header_timeout_s": 2.0}),  # within which the handshake must be complete
    ],
    ids=["refused", "idle", "asked to close", "without a length", "failed", "late"],
)
def test_a_tls_connection_ends_with_close_notify(
    serve: Serve, tmp_path: Path, request_: bytes, status: bytes, limits: Limits
) -> None:
    """Without it a client cannot tell the end from a cut (RFC 8446, 6.1)."""
    with tls_client(serve, tmp_path, **limits) as client:
        client.sendall(request_)

        assert client.recv(65536).startswith(b"HTTP/1.1 " + status)
        read_to_its_end(client)


def test_a_tls_connection_whose_answer_was_cut_off_ends_without_close_notify(serve: Serve, tmp_path: Path) -> None:
    """Nothing else tells a client of HTTP/1.0, which knows no chunks."""
    with tls_client(serve, tmp_path) as client:
        client.sendall(b"GET /broken-stream HTTP/1.0\r\n\r\n")

        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        with pytest.raises(ssl.SSLEOFError):
            read_to_its_end(client)


@contextlib.contextmanager
def tls_client(serve: Serve, folder: Path, **limits: Unpack[Limits]) -> Iterator[ssl.SSLSocket]:
    """An end without close_notify is an error."""
    authority, pair = trustme.CA(), str(folder / "both.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pair)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    port = serve(tls=(pair, pair), **limits).bound_address.port
    connection = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    with context.wrap_socket(connection, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client:
        yield client


def read_to_its_end(client: ssl.SSLSocket) -> None:
    """Raises SSLEOFError after a cut."""
    while client.recv(65536):
        pass


def fills_up(sock: socket.socket) -> bool:
    """Whether the socket ever stops taking data."""
    deadline_s = time.monotonic() + DEADLINE_S
    while select.select([], [sock], [], 0)[1]:
        if time.monotonic() > deadline_s:
            return False
    return True


def _flood(sock: ssl.SSLSocket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        socket.socket.sendall(sock, data)
