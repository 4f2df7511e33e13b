"""Requests at a steady rate, whatever their outcome: none waits for the previous one, and none is sent twice.

A third each is a GET, a POST with a known length, and a chunked POST. An `EchoSite` sends bodies back, so each response
is known byte by byte; anything else is a failure. A `Download` lasts as long as its reader wants.
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK
from tests.support.socketbackend import Dialogue, SocketBackend

TIMEOUT_S = 30.0
STOP_S = 60.0
MAX_IN_FLIGHT = 32
CHUNK_BYTES = 16 * 1024
POSTED_BYTES = 2000
CHUNKS = 3
_PACE_S = 0.005
_HOST = {"Host": "a.example"}


class EchoSite(SocketBackend):
    """`/download` sends chunks until its client has `finish_downloads` called; other requests get their body back."""

    def __init__(self) -> None:
        super().__init__(self._echo)
        self._finish = threading.Event()
        self.sums: list[str] = []
        """SHA-256 of each download that was sent completely."""

    def begin_downloads(self) -> None:
        self._finish.clear()

    def finish_downloads(self) -> None:
        self._finish.set()

    def _echo(self, dialogue: Dialogue) -> None:
        while request := dialogue.read_request():
            head, _, body = request.partition(b"\r\n\r\n")
            if head.startswith(b"GET /download "):
                self._pour(dialogue)
            else:
                is_chunked = b"\r\ntransfer-encoding: chunked" in head.lower()
                dialogue.answer(b"".join(_chunks(body)) if is_chunked else body)

    def _pour(self, dialogue: Dialogue) -> None:
        digest = hashlib.sha256()
        dialogue.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in itertools.count():
            chunk = bytes((number % 251,)) * CHUNK_BYTES
            digest.update(chunk)
            dialogue.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            if self._finish.wait(_PACE_S):
                break
        self.sums.append(digest.hexdigest())
        dialogue.send(b"0\r\n\r\n")


def _chunks(framed: bytes) -> Iterator[bytes]:
    while framed:
        size, _, rest = framed.partition(b"\r\n")
        size_bytes = int(size, 16)
        yield rest[:size_bytes]
        framed = rest[size_bytes + 2 :]


class SteadyLoad:
    """Runs inside its `with` block."""

    def __init__(self, port: int, rate_per_s: float) -> None:
        self._port = port
        self._rate_per_s = rate_per_s
        self._tickets = itertools.count()
        self._began_s = math.inf
        self._stop = threading.Event()
        self._news = threading.Condition()
        self.durations_s: list[float] = []
        """Durations of the correctly answered requests, measured from when they were due."""
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, name=f"load {n}", daemon=True) for n in range(MAX_IN_FLIGHT)
        ]

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(STOP_S)
            assert not thread.is_alive(), "a request of the load never ended"

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def wait_for(self, more: int, timeout_s: float = STOP_S) -> None:
        """Wait until this many further requests have ended, successfully or not."""
        with self._news:
            wanted = self._ended + more
            assert self._news.wait_for(lambda: self._ended >= wanted, timeout_s), f"{self._ended} of {wanted} requests"

    @property
    def _ended(self) -> int:
        return len(self.durations_s) + len(self.failures)

    def _run(self) -> None:
        connection = _connection(self._port)
        while True:
            number = next(self._tickets)
            due_s = self._began_s + number / self._rate_per_s
            if self._stop.wait(max(0.0, due_s - time.monotonic())):
                connection.close()
                return
            failure = _ask(connection, number)
            with self._news:
                if failure:
                    self.failures.append(f"request {number} after {self.elapsed_s:.1f} s: {failure}")
                else:
                    self.durations_s.append(time.monotonic() - due_s)
                self._news.notify_all()
            if failure:
                connection.close()
                connection = _connection(self._port)


def _connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)


def _ask(connection: http.client.HTTPConnection, number: int) -> str:
    """What went wrong; empty if nothing did."""
    try:
        expected = _KINDS[number % len(_KINDS)](connection, number)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    if response.status != 200:
        return f"{response.status} {body[:200]!r}"
    return "" if body == expected else f"{len(body)} bytes, want {len(expected)}"


def _get(connection: http.client.HTTPConnection, number: int) -> bytes:
    connection.request("GET", f"/{number}", headers=_HOST)
    return b""


def _post(connection: http.client.HTTPConnection, number: int) -> bytes:
    body = bytes((number % 251,)) * POSTED_BYTES
    connection.request("POST", f"/{number}", body, _HOST)
    return body


def _post_chunks(connection: http.client.HTTPConnection, number: int) -> bytes:
    chunks = [b"%d of %d\n" % (part, number) * 500 for part in range(CHUNKS)]
    connection.request("POST", f"/{number}", iter(chunks), _HOST)
    return b"".join(chunks)


_KINDS: tuple[Callable[[http.client.HTTPConnection, int], bytes], ...] = (_get, _post, _post_chunks)


class Download:
    """A download from an `EchoSite`, read from its head on, in a thread of its own, until the block ends."""

    def __init__(self, port: int, site: EchoSite) -> None:
        self._site = site
        self._connection = _connection(port)
        self._thread = threading.Thread(target=self._read, name="download", daemon=True)
        self._digest = hashlib.sha256()
        self._error = ""

    def __enter__(self) -> Self:
        self._site.begin_downloads()
        self._connection.request("GET", "/download", headers=_HOST)
        self._response = self._connection.getresponse()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the download complete."""
        self._site.finish_downloads()
        self._thread.join(STOP_S)
        self._connection.close()
        assert not self._thread.is_alive(), "the download never ended"

    def field(self, name: str) -> str:
        value = self._response.getheader(name)
        assert value is not None, f"no {name} in the answer to the download: {self._response.getheaders()}"
        return value

    @property
    def failures(self) -> list[str]:
        """What was wrong with the download; known after the block."""
        if self._error:
            return [f"the download: {self._error}"]
        return [] if self._digest.hexdigest() in self._site.sums else ["the download is not what was sent"]

    def _read(self) -> None:
        try:
            while data := self._response.read(CHUNK_BYTES):
                self._digest.update(data)
        except (OSError, http.client.HTTPException) as error:
            self._error = repr(error)
