"""HTTP servers before a real one: they forward requests unless a test wants another answer, or a later one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

import urllib3

DEADLINE_S = 60.0
# Bodies are forwarded, and replaced, without compression.
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "accept-encoding"})


class Asked(NamedTuple):
    method: str
    path: str
    """With its query."""


class Fault:
    """What happens to requests that `is_meant`: an answer instead, or a wait until `release`."""

    def __init__(
        self,
        is_meant: Callable[[Asked], bool],
        answer: tuple[int, bytes] | None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.is_meant = is_meant
        self.answer = answer
        self.fields = fields or {}
        """Of the answer."""
        self.struck = threading.Event()
        """At least one has come."""
        self.strikes = 0
        self._released = threading.Event()

    def release(self) -> None:
        """From now on these requests are forwarded like others."""
        self.answer = None
        self._released.set()

    def strike(self) -> None:
        self.strikes += 1
        self.struck.set()
        if self.answer is None:
            self._released.wait()

    def wait(self) -> None:
        assert self.struck.wait(DEADLINE_S), "no such request has come"


class Front:
    """`url` leads to `target`, a base URL; while that is empty, connections end without an answer."""

    def __init__(
        self, target: str = "", ca_file: str | None = None, replacing: Mapping[bytes, bytes] | None = None
    ) -> None:
        """`replacing`: what answers are to have instead of other text, within a line."""
        self.target = target
        self._replacing = replacing or {}
        self._pool = urllib3.PoolManager(num_pools=4, maxsize=64, ca_certs=ca_file, retries=False)
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._asked: list[Asked] = []
        self._faults: list[Fault] = []
        self._streams: set[urllib3.BaseHTTPResponse] = set()
        front = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                with contextlib.suppress(OSError):
                    super().handle_one_request()

            def do_GET(self) -> None:
                front._serve(self)

            def do_HEAD(self) -> None:
                front._serve(self)

            def do_PUT(self) -> None:
                front._serve(self)

            def do_POST(self) -> None:
                front._serve(self)

            def do_PATCH(self) -> None:
                front._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Tests look at the outcome."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def answer(self, is_meant: Callable[[Asked], bool], status_code: int, body: bytes = b"{}", **fields: str) -> Fault:
        """`fields`: of the head, with underscores for hyphens."""
        return self._add(
            Fault(is_meant, (status_code, body), {name.replace("_", "-"): text for name, text in fields.items()})
        )

    def hold(self, is_meant: Callable[[Asked], bool]) -> Fault:
        return self._add(Fault(is_meant, None))

    def count(self, is_meant: Callable[[Asked], bool]) -> int:
        """How many such requests have been answered."""
        with self._lock:
            return sum(map(is_meant, self._asked))

    def wait_for_more(self, is_meant: Callable[[Asked], bool], count: int) -> None:
        with self._news:
            before = sum(map(is_meant, self._asked))
            is_there = self._news.wait_for(lambda: sum(map(is_meant, self._asked)) >= before + count, DEADLINE_S)
        assert is_there, f"no {count} more requests of that sort within {DEADLINE_S:g} s"

    def cut(self) -> None:
        """End all answers that are under way."""
        with self._lock:
            streams = [*self._streams]
        for stream in streams:
            # It has just ended by itself: back in the pool, closed, or its socket is.
            with contextlib.suppress(RuntimeError, ValueError, OSError):
                stream.shutdown()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for fault in self._faults:
            fault.release()
        self.cut()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _pieces(self, response: urllib3.BaseHTTPResponse) -> Iterable[bytes]:
        """As they come; whole lines where text is replaced."""
        begun = b""
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError):
            while piece := response.read1():
                if self._replacing:
                    *lines, begun = (begun + piece).split(b"\n")
                    piece = b"".join(self._replaced(line) + b"\n" for line in lines)
                yield piece
            yield self._replaced(begun)

    def _replaced(self, text: bytes) -> bytes:
        for old, new in self._replacing.items():
            text = text.replace(old, new)
        return text

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        asked = Asked(handler.command, handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self._lock:
            fault = next((each for each in self._faults if each.is_meant(asked) and not each._released.is_set()), None)
        if fault is not None:
            fault.strike()
            if fault.answer is not None:
                status_code, content = fault.answer
                _reply(handler, status_code, {"Content-Type": "application/json", **fault.fields}, (content,))
                return
        if not self.target:
            return
        response = self._pool.request(
            asked.method,
            self.target + asked.path,
            body=body,
            headers=dict(_passed(handler.headers.items())),
            preload_content=False,
        )
        with self._lock:
            self._streams.add(response)
        try:
            _reply(handler, response.status, dict(_passed(response.headers.items())), self._pieces(response))
        except OSError:
            response.close()  # the client has gone: what follows is not the answer to the next request
            raise
        finally:
            with self._lock:
                self._streams.discard(response)
                self._asked.append(asked)
                self._news.notify_all()
            response.release_conn()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    """The watches of all kinds connect at once; one that found the queue full would try again after a second."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Some tests close the peer on purpose."""


def _passed(fields: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return ((name, value) for name, value in fields if name.lower() not in _HOP_BY_HOP)


def _reply(
    handler: BaseHTTPRequestHandler, status_code: int, fields: Mapping[str, str], pieces: Iterable[bytes]
) -> None:
    """As HTTP/1.0: the end of the connection is the end of the body."""
    handler.send_response(status_code, HTTPStatus(status_code).phrase)
    for name, value in fields.items():
        handler.send_header(name, value)
    handler.end_headers()
    for piece in pieces:
        handler.wfile.write(piece)
