"""A WSGI server with an app that shows what it was given."""

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypedDict, Unpack

import pytest
from werkzeug.wrappers import Request, Response

from daemonkit.addresses import ListenAddress
from daemonkit.logs import get_logger
from daemonkit.wsgi import HttpServer, ServerLimits
from daemonkit.wsgistreams import BodyError
from tests.daemonkit.rawhttp import DEADLINE_S


class Held:
    """Stands for something large."""


@dataclass
class EchoApp:
    """`/hold` waits for `release`, `/endless` does so once its answer is cut off, `/closing` tells when its answer is
    closed, `/boom` and `/full` raise, `/unread` reads nothing, `/late` reads once its answer has begun, `/role` returns
    the field X-Role, `/url` the host and the target, all others the length of the body. `/own` answers by itself if
    that is malformed."""

    release: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gone: list[Callable[[], bool]] = field(default_factory=list)
    held: "weakref.ref[Held] | None" = None
    """What the call of `/full` holds that raises."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ, populate_request=False)
        self.gone.append(environ["daemonkit.client_gone"])
        if request.path == "/boom":
            raise LookupError("a bug")
        if request.path == "/full":
            held = Held()
            self.held = weakref.ref(held)
            raise MemoryError
        if request.path == "/exit":
            raise SystemExit(3)
        if request.path == "/role":
            return Response(request.headers.get("X-Role", "none"))(environ, start_response)
        if request.path == "/url":
            words = request.headers["Host"], environ["REQUEST_URI"], environ["QUERY_STRING"]
            return Response(" ".join(words))(environ, start_response)
        if request.path == "/unread":
            return Response("unread")(environ, start_response)
        if request.path == "/late":
            return Response(length_after_beginning(request))(environ, start_response)
        if request.path == "/big":
            return Response(b"x" * 10_000_000)(environ, start_response)
        if request.path == "/stream":
            return Response(iter([b"a", b"", b"b"]))(environ, start_response)
        if request.path.startswith("/closing"):
            response = Response(broken_stream() if request.path.endswith("broken") else "closing")
            response.call_on_close(self.entered.release)
            return response(environ, start_response)
        if request.path == "/endless":
            return Response(self._endless())(environ, start_response)
        if request.path == "/broken-stream":
            return Response(broken_stream())(environ, start_response)
        try:
            body = request.stream.read()
        except BodyError as error:
            if request.path == "/own":
                return Response(str(error), error.status_code)(environ, start_response)
            raise
        if request.path == "/hold":
            self.entered.release()
            assert self.release.wait(20)
        return Response(f"{request.method} {request.path} {len(body)}")(environ, start_response)

    def _endless(self) -> Iterator[bytes]:
        try:
            while True:
                yield bytes(100_000)
        finally:
            self.entered.release()
            assert self.release.wait(20)


def length_after_beginning(request: Request) -> Iterator[bytes]:
    yield b"begun "
    yield b"%d" % len(request.stream.read())


def broken_stream() -> Iterator[bytes]:
    yield b"a"
    raise LookupError("a bug in the middle")


@pytest.fixture
def app() -> Iterator[EchoApp]:
    app = EchoApp()
    yield app
    app.release.set()


PATIENT = ServerLimits(threads=4, header_timeout_s=DEADLINE_S, body_timeout_s=DEADLINE_S, idle_timeout_s=DEADLINE_S)
"""Clients have all the time that a test has."""


class Limits(TypedDict, total=False):
    """Limits that a test may set in place of those of `PATIENT`."""

    threads: int
    request_queue: int
    max_connections: int
    header_timeout_s: float
    body_timeout_s: float
    idle_timeout_s: float
    send_timeout_s: float
    max_header_bytes: int
    max_body_bytes: int


class Serve(Protocol):
    def __call__(
        self, address: str = "127.0.0.1:0", tls: tuple[str, str] | None = None, **limits: Unpack[Limits]
    ) -> HttpServer: ...


@pytest.fixture
def serve(app: EchoApp) -> Iterator[Serve]:
    """Starts servers of `app`; all are stopped afterwards."""
    servers: list[HttpServer] = []

    def serve(address: str = "127.0.0.1:0", tls: tuple[str, str] | None = None, **limits: Unpack[Limits]) -> HttpServer:
        log = get_logger("tests.wsgi")
        server = HttpServer(
            "echo", ListenAddress.parse(address), app, log=log, limits=replace(PATIENT, **limits), tls=tls
        )
        servers.append(server)
        server.start()
        return server

    yield serve
    app.release.set()
    for server in servers:
        server.stop()
