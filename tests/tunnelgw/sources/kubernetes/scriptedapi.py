"""An API server of one kind that answers as a test says: for what a real one cannot be made to do."""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Send = Callable[[Any], None]
"""One chunk: a document as a line, or bytes as they are."""
Answer = Callable[[Send], None]
_PATH = "/apis/gateway.networking.k8s.io/v1/httproutes"
_ABSENT = ("/apis/gateway.networking.k8s.io/", "/apis/tunnelgw.dev/")


class ScriptedApi:
    """Lists and watches of HTTPRoute take their answers from these queues; every other kind is empty, or absent."""

    def __init__(self) -> None:
        self.lists: queue.Queue[tuple[int, Any]] = queue.Queue()
        self.watches: queue.Queue[tuple[int, Any] | Answer] = queue.Queue()
        self.asked: queue.Queue[dict[str, str]] = queue.Queue()
        """The queries of HTTPRoute, as they came."""
        self.requested: Counter[str] = Counter()
        """How often each path was requested."""
        self.limits: dict[str, str] = {}
        """Of each list by path, as last requested."""
        self.newest = "999"
        """What the server says of its version when it is asked for nothing else."""
        self.has_chunks = True
        """False: watches end with their connection, as those of HTTP/1.0 do."""
        self.refusals: dict[str, tuple[int, Any] | Answer] = {}
        """Answers to all other requests, by path; to watches only where they are no documents."""
        self.items: dict[str, list[Any]] = {}
        """What lists of other kinds hold, by path."""
        self.held: dict[str, threading.Semaphore] = {}
        """Paths whose requests are answered one for each permit."""
        self.recovers_at = ""
        """The path whose first request ends all refusals."""
        self.retry_after = ""
        """What every refusal says of it; empty: nothing."""
        self.is_over = threading.Event()
        self._counting = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, name="scripted-api", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def kubeconfig(self, folder: Path) -> Path:
        document = {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": self.url}}],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }
        path = folder / "scripted-kubeconfig"
        path.write_text(json.dumps(document))
        return path

    def hold(self, path: str) -> int:
        """From now on its requests wait for permits. Returns how many came before: none of those waits."""
        with self._counting:
            self.held[path] = threading.Semaphore(0)
            return self.requested[path]

    def stay(self, _send: Send) -> None:
        """An answer to a watch on which nothing happens."""
        self.is_over.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, query: dict[str, str], accept: str) -> tuple[int, Any] | Answer:
        with self._counting:
            self.requested[path] += 1
            held = self.held.get(path)
        if held is not None:
            held.acquire(timeout=60)
        self.limits.update({path: query["limit"]} if "limit" in query else {})
        if path == self.recovers_at:
            self.refusals.clear()
        refusal = self.refusals.get(path)
        if refusal is not None and (isinstance(refusal, tuple) or "watch" in query):
            return refusal
        if path == _PATH and "PartialObjectMetadata" in accept:
            return 200, listing([], self.newest)
        if path == _PATH:
            self.asked.put(query)
            if "watch" in query:
                return self.watches.get(timeout=60)
            return self.lists.get(timeout=60)
        if path == _PATH.rpartition("/")[0]:
            return 200, {"resources": [{"name": "httproutes"}]}
        if path.startswith(_ABSENT):
            return 404, {"code": 404, "reason": "NotFound"}
        if "watch" in query:
            return self.stay
        return 200, listing(self.items.get(path, []), "1")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                answer = api._answer(url.path, query, self.headers.get("Accept", ""))
                if isinstance(answer, tuple):
                    body = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                    self.send_response(answer[0])
                    if api.retry_after and answer[0] >= HTTPStatus.BAD_REQUEST:
                        self.send_header("Retry-After", api.retry_after)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                    return
                self.send_response(200)
                framing = ("Transfer-Encoding", "chunked") if api.has_chunks else ("Connection", "close")
                self.send_header(*framing)
                self.end_headers()
                answer(self._send)
                if api.has_chunks:
                    self.wfile.write(b"0\r\n\r\n")

            def _send(self, chunk: Any) -> None:
                octets = chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(octets), octets) if api.has_chunks else octets)
                self.wfile.flush()

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    """The watches of all kinds connect at once; one that found no room would try again after seconds."""


def listing(items: list[Any], version: str, continue_: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, "continue": continue_}, "items": items}


def route(name: str, version: str = "1", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "resourceVersion": version, "generation": 3}
    return {"metadata": metadata, "spec": {"hostnames": [f"{name}.example.org"]}, **fields}
