"""What errors and log say about an API server that does not respond."""

from __future__ import annotations

import contextlib
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from kubernetes.client import Configuration

from daemonkit.logformat import describe_error
from daemonkit.logs import get_logger
from tests.e2e.controller.fronts import Front
from tests.support.ports import ReservedPort
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.sources.kubernetes.discovery import Bell
from tunnelgw.sources.kubernetes.failures import Unreachable
from tunnelgw.sources.kubernetes.reach import Reach
from tunnelgw.sources.kubernetes.server import ApiServer
from tunnelgw.sources.kubernetes.setbacks import Restart
from tunnelgw.sources.kubernetes.watch import Shared, Timing, Watch
from tunnelgw.sources.store import Store

WAIT_S = 60.0
Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def peer(talk: Talk) -> Iterator[str]:
    """`host:port` of a server that accepts one connection, runs `talk` after a request, and closes the connection."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                sock, _ = listener.accept()
                with sock:
                    sock.recv(65536)
                    talk(sock)
                    is_over.wait(0.0 if talk is not silent else WAIT_S)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        is_over.set()
    thread.join(WAIT_S)


def hang_up(_: socket.socket) -> None:
    """At once."""


def silent(_: socket.socket) -> None:
    """For ever."""


def half_an_answer(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nab")


def half_a_chunk(sock: socket.socket) -> None:
    no_more_chunks(sock)
    sock.sendall(b"5\r\nab")


def no_more_chunks(sock: socket.socket) -> None:
    """As a watch ends when its server has gone."""
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


def no_tls(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def failure(url: str, timeout_s: float = WAIT_S) -> str:
    """As the log shows it."""
    configuration = Configuration()
    configuration.host = url
    with contextlib.closing(ApiServer(lambda: configuration)) as server, pytest.raises(Unreachable) as told:
        server.request("GET", "/version", timeout_s=timeout_s)
    return describe_error(told.value)


@pytest.mark.parametrize(
    ("talk", "scheme", "words"),
    [
        (hang_up, "http", "the connection to {} broke: Remote end closed connection without response"),
        (half_an_answer, "http", "the connection to {} ended in the middle of an answer"),
        (half_a_chunk, "http", "the connection to {} ended in the middle of an answer"),
        (no_more_chunks, "http", "the connection to {} ended in the middle of an answer"),
        (silent, "http", "no answer from {} for 0.2 s"),
        (no_tls, "https", r"TLS with {} failed: \[SSL: WRONG_VERSION_NUMBER\] wrong version number .*"),
    ],
)
def test_the_error_about_a_missing_response_says_why_and_from_which_address(
    talk: Talk, scheme: str, words: str
) -> None:
    with peer(talk) as address:
        told = failure(f"{scheme}://{address}", 0.2 if talk is silent else WAIT_S)

        assert re.fullmatch("Unreachable: GET /version: " + words.format(re.escape(f"{scheme}://{address}")), told), (
            told
        )


def test_the_errors_about_a_refused_connection_and_an_unknown_host_say_so_once() -> None:
    with ReservedPort() as port:
        url = f"https://{port.address}"
        refused = f"Unreachable: GET /version: cannot connect to {url}: [Errno 111] Connection refused"
        assert failure(url) == refused

    unknown = failure("https://api.invalid:6443")
    assert unknown.startswith("Unreachable: GET /version: no such host: https://api.invalid:6443: check DNS")
    assert "object at" not in unknown
    assert "Encrypted" not in unknown


def test_an_outage_is_logged_once_a_minute_and_its_end_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "tunnelgw")
    configuration, now_s = Configuration(), 100.0
    with Front() as front:
        configuration.host = front.url
        front.answer(lambda asked: asked.path == "/there", 503)
        with contextlib.closing(ApiServer(lambda: configuration, clock=lambda: now_s)) as server:

            def ask(path: str) -> list[tuple[str, str]]:
                caplog.clear()
                with contextlib.suppress(Exception):
                    server.request("GET", path)
                return [(record.levelname, record.getMessage()) for record in caplog.records]

            away = [("WARNING", "API server cannot be reached, retrying")]
            assert ask("/away") == [], "one request says nothing"
            now_s += 4.9
            assert ask("/away") == [], "it may only have restarted"
            now_s += 0.1
            assert ask("/away") == away
            now_s += 59.9
            assert ask("/away") == []
            now_s += 0.1
            assert ask("/away") == away
            now_s += 3.0
            assert ask("/there") == [("INFO", "API server answers again")], "a refusal is an answer"
            assert ask("/there") == []
            ask("/away")
            now_s += 6.0
            assert ask("/away") == [], "nor is a server that comes and goes told of more often"
            assert ask("/there") == []


class AnsweredElsewhere(Reach):
    """Another thread gets an answer just when a request has failed."""

    def lost(self, error: Exception) -> int:
        returns = super().lost(error)
        self.answered()
        return returns


def test_a_watch_waits_no_longer_when_another_thread_got_an_answer_just_after_its_own_request_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backoff.full_jitter", lambda _cap_s: 3600.0)
    configuration, stop = Configuration(), threading.Event()
    failures: queue.Queue[Restart] = queue.Queue()
    with ReservedPort() as port:
        configuration.host = f"http://{port.address}"
        server = ApiServer(lambda: configuration, reach=AnsweredElsewhere())
        shared = Shared(
            server,
            Store(),
            Bell(),
            stop,
            Timing(),
            on_restart=lambda _part, cause, _error: failures.put(cause),
            log=get_logger("test").every(60.0),
        )
        watch = Watch(RESOURCES[Kind.HTTP_ROUTE], shared)
        thread = threading.Thread(target=watch.run, daemon=True)
        thread.start()
        try:
            assert [failures.get(timeout=WAIT_S) for _ in range(2)] == [Restart.DISCONNECTED] * 2
        finally:
            stop.set()
            server.interrupt()
            thread.join(WAIT_S)
            server.close()
        assert not thread.is_alive()
