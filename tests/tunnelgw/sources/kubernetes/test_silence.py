"""A connection that the network has forgotten, a slow server, and answers without an end."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from kubernetes.client import Configuration

from tests.e2e.controller.fronts import Front
from tests.support.deafness import lose_data
from tests.support.socketbackend import Dialogue, Script, SocketBackend
from tests.tunnelgw.sources.objects import route
from tunnelgw.model.kinds import Kind
from tunnelgw.sources.kubernetes.failures import Refused, Unreachable
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.statuses import StatusWriter
from tunnelgw.sources.writing import Outcome, Written

FOR_EVER_S = 3600.0
WAIT_S = 120.0
WEBHOOK_S = 20.0
"""An API server waits up to 30 s for an admission webhook, by default 10 s."""


class ForgottenApi:
    """Answers one request on its only connection; all later data is lost."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def configuration(self) -> Configuration:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        return configuration

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            with sock:
                sock.recv(65536)
                lose_data(sock)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                self._over.wait(WAIT_S)

    def stop(self) -> None:
        self._over.set()
        self._listener.close()
        self._thread.join(WAIT_S)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    api = ForgottenApi()
    with contextlib.closing(ApiServer(api.configuration)) as server:
        yield server
    api.stop()


@pytest.mark.timeout(WAIT_S)
def test_a_request_that_does_not_arrive_fails_long_before_its_timeout(server: ApiServer) -> None:
    assert server.request("GET", "/version") == b"{}"

    with pytest.raises(Unreachable):
        server.request("PUT", "/status", body=b"{}", timeout_s=FOR_EVER_S)


@pytest.mark.timeout(WAIT_S)
def test_a_status_update_waits_for_slow_admission_webhooks() -> None:
    """The API server drops a write whose client has gone, so that retries would never succeed."""
    configuration = Configuration()
    with Front() as api, Front(api.url) as front, contextlib.closing(ApiServer(lambda: configuration)) as server:
        configuration.host = front.url
        api.answer(lambda _: True, 200)
        admission = front.hold(lambda _: True)
        threading.Timer(WEBHOOK_S, admission.release).start()

        written = StatusWriter(server).write(Kind.HTTP_ROUTE, route("web"), b"{}")

    assert written == Written(Outcome.WRITTEN)


def dripping(head: bytes) -> Script:
    """Answers each request with this head, and then a byte now and then."""

    def drip(dialogue: Dialogue) -> None:
        dialogue.read_request()
        with contextlib.suppress(OSError):
            dialogue.send(head)
            while not dialogue.backend.over.wait(0.02):
                dialogue.send(b" ")

    return drip


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 503 No\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow:"],
    ids=["answer", "refusal", "head"],
)
def test_an_answer_that_trickles_in_is_given_up_at_its_deadline(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0  # goes on with each byte: a server that is late itself would count as silent

    def drip(dialogue: Dialogue) -> None:
        nonlocal now_s
        dialogue.read_request()
        with contextlib.suppress(OSError):
            dialogue.send(head)
            while not dialogue.backend.over.wait(0.02):
                dialogue.send(b" ")
                now_s += WAIT_S / 4

    monkeypatch.setattr("daemonkit.timedresponse.time", SimpleNamespace(monotonic=lambda: now_s))
    with server_at(drip) as server:
        for _ in range(2):
            with pytest.raises(Unreachable, match=r"GET /api: .* answers too slowly: .* not complete after 120 s"):
                server.request("GET", "/api", timeout_s=WAIT_S)


def test_a_watch_that_never_completes_an_event_is_given_up_at_its_deadline() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    with (
        server_at(dripping(head)) as server,
        pytest.raises(Unreachable, match=r"not complete after 0\.5 s"),
        server.stream("/api", {}, answer_s=0.5) as lines,
    ):
        list(lines)


def endless(head: bytes) -> Script:
    def pour(dialogue: Dialogue) -> None:
        dialogue.read_request()
        with contextlib.suppress(OSError):
            dialogue.send(head)
            while not dialogue.backend.over.is_set():
                dialogue.send(b"x" * 65536)

    return pour


def test_an_answer_without_an_end_is_given_up_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunnelgw.sources.kubernetes.server.MAX_ANSWER_BYTES", 4_000_000)
    with (
        server_at(endless(b"HTTP/1.1 200 OK\r\n\r\n")) as server,
        pytest.raises(Unreachable, match="GET /api: the answer is longer than 4000000 bytes"),
    ):
        server.request("GET", "/api")


@pytest.mark.parametrize("answer_bytes", [60_000_000, 15_000_000])
def test_a_packed_answer_takes_no_more_memory_than_the_limit_and_one_piece(
    monkeypatch: pytest.MonkeyPatch, answer_bytes: int
) -> None:
    """A copy of the whole would take twice as much."""
    packed = gzip.compress(bytes(answer_bytes))
    monkeypatch.setattr("tunnelgw.sources.kubernetes.server.MAX_ANSWER_BYTES", 16_000_000)

    def answer(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)

    with server_at(answer) as server:
        tracemalloc.start()
        try:
            with contextlib.suppress(Unreachable):
                assert len(server.request("GET", "/api")) == answer_bytes
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak_bytes < 16_000_000 * 1.5


def test_of_a_refusal_without_an_end_only_the_beginning_is_read() -> None:
    with (
        server_at(endless(b"HTTP/1.1 503 No\r\nRetry-After: 7\r\n\r\n")) as server,
        pytest.raises(Refused, match=r"^503 no Status of the API: xxx") as refused,
    ):
        server.request("GET", "/api")

    assert refused.value.retry_after_s == 7.0


def test_a_watch_whose_line_has_no_end_is_given_up_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunnelgw.sources.kubernetes.server.MAX_LINE_BYTES", 1_000_000)
    with (
        server_at(endless(b"HTTP/1.1 200 OK\r\n\r\n")) as server,
        pytest.raises(Unreachable, match="a line of a watch is longer than 1000000 bytes"),
        server.stream("/api", {}) as lines,
    ):
        list(lines)


@contextlib.contextmanager
def server_at(script: Script) -> Iterator[ApiServer]:
    """A client of an API server that follows `script` on each connection."""
    configuration = Configuration()
    with SocketBackend(script) as backend, contextlib.closing(ApiServer(lambda: configuration)) as server:
        configuration.host = f"http://{backend.address}"
        yield server
