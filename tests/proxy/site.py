"""A real proxy on free ports with the backends behind it, and what tests ask of it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import requests

from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.proxydaemon import ProxyDaemon

TOKEN = "a-token-of-the-tests"
DEADLINE_S = 30.0

Document = Mapping[str, Any]


class Proxy(ProxyDaemon):
    """`tunnelgw-proxy run`, its config API on a free port of loopback."""

    def __init__(self, *arguments: str, token: str | None = TOKEN, env: Mapping[str, str] | None = None) -> None:
        workers = [] if "--workers" in arguments else ["--workers", "1"]
        secret = {} if token is None else {"PROXY_AUTH_TOKEN": token}
        super().__init__([*workers, *arguments], {**secret, **(env or {})})

    def put(self, document: Document | bytes, token: str | None = TOKEN, **headers: str) -> requests.Response:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.send(body, {**headers, **authorization})

    def use(self, document: Document) -> Mapping[str, Any]:
        """PUTs the document, which must succeed; returns the response."""
        response = self.put(document)
        assert response.status_code == 200, response.text
        answer: Mapping[str, Any] = response.json()
        return answer

    def get(self, token: str | None = TOKEN) -> requests.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return requests.get(self.config_url, headers=headers, timeout=DEADLINE_S)

    def readiness(self, part: str = "") -> tuple[int, str]:
        """Status code and message."""
        response = requests.get(f"{self.api}/readyz{part and f'/{part}'}", timeout=DEADLINE_S)
        return response.status_code, response.json()["message"]

    def worker_pid(self, index: int = 0, nth: int = 1) -> int:
        """Of the `nth` worker process in that slot."""
        line = self.wait_for_line(
            lambda line: '"worker started"' in line and f'"worker":{index},' in line,
            f"start {nth} of worker {index}",
            DEADLINE_S,
            nth,
        )
        return int(json.loads(line)["pid"])


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Silent: in some tests a client disconnects on purpose."""


class Backend:
    """An HTTP server that answers `/wait` when `release` is set."""

    def __init__(self, say: str = "hello") -> None:
        self.release = threading.Event()
        self.asked = threading.Event()
        """Set when somebody waits."""
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path == "/wait":
                    backend.asked.set()
                    backend.release.wait(DEADLINE_S)
                body = say.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Silent: tests look at responses."""

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def reserved_port(host: str = LOOPBACK) -> Iterator[int]:
    """A port that nothing else is given, and that the proxy, which sets SO_REUSEPORT as well, can bind."""
    with ReservedPort(host) as port:
        yield port.number


def fixed(port: int, body: str = "fixed", **more: Any) -> dict[str, Any]:
    """A document with a fixed response to every request on a loopback port."""
    route = {"rules": [{"respond": {"statusCode": 200, "body": body}}]}
    return {"listeners": [{"name": "main", "address": "127.0.0.1", "port": port}], "routes": [route], **more}


def forwarding(port: int, address: str) -> dict[str, Any]:
    """A document that forwards everything to one address."""
    return {
        "listeners": [{"name": "main", "address": "127.0.0.1", "port": port}],
        "routes": [{"backends": [{"address": address}]}],
    }


def ask(port: int, path: str = "/") -> requests.Response:
    """On a connection of its own."""
    return requests.get(f"http://127.0.0.1:{port}{path}", headers={"Connection": "close"}, timeout=DEADLINE_S)


def eventually(is_so: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Polls, for what cannot be waited on: another process's state."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.05)):
        if is_so():
            return
        pause.wait(0.05)
    raise AssertionError(f"not within {timeout_s:g} s: {what}")
