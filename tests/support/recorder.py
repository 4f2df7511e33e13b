"""A pass-through between external-dns and the webhook that records every call: request, response, and order.

It changes nothing: headers and bodies pass through verbatim, a late response stays late, and if the webhook drops the
connection, the caller's connection is dropped.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

UPSTREAM_TIMEOUT_S = 60.0
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    body: bytes
    status_code: int
    """Status code of the response; 0 if the webhook closed the connection without one."""

    @property
    def sent(self) -> Any:
        """The request's JSON; None without a body."""
        return json.loads(self.body) if self.body else None


class WebhookRecorder:
    """Listens on a free loopback port for the duration of the block."""

    def __init__(self, webhook_url: str) -> None:
        address = urlsplit(webhook_url).netloc
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._before: dict[tuple[str, str], Callable[[], None]] = {}
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                recorder._pass_on(self, address)

            def do_POST(self) -> None:
                recorder._pass_on(self, address)

            def log_message(self, format: str, *args: object) -> None:
                """Prints nothing: the calls are recorded."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="recorder")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def calls(self) -> tuple[Call, ...]:
        with self._lock:
            return tuple(self._calls)

    def count(self, method: str, path: str) -> int:
        return sum(call.method == method and call.path == path for call in self.calls)

    def before_next(self, method: str, path: str, act: Callable[[], None]) -> None:
        """Run `act` once the next such call has arrived, before forwarding it."""
        with self._lock:
            self._before[method, path] = act

    def forget(self) -> None:
        with self._lock:
            self._calls.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _pass_on(self, handler: BaseHTTPRequestHandler, address: str) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = dict(handler.headers.items())
        with self._lock:
            act = self._before.pop((handler.command, handler.path), None)
        if act:
            act()
        upstream = http.client.HTTPConnection(address, timeout=UPSTREAM_TIMEOUT_S)
        try:
            upstream.request(handler.command, handler.path, body or None, headers)
            response = upstream.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            self._keep(Call(handler.command, handler.path, body, 0))
            handler.close_connection = True
            return
        finally:
            upstream.close()
        self._keep(Call(handler.command, handler.path, body, response.status))
        _answer(handler, response, answer)

    def _keep(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)


def _answer(handler: BaseHTTPRequestHandler, response: http.client.HTTPResponse, body: bytes) -> None:
    try:
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP_BY_HOP:
                handler.send_header(name, value)
        if response.status != http.HTTPStatus.NO_CONTENT:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
    except OSError:  # the caller has given up in the meantime
        handler.close_connection = True
