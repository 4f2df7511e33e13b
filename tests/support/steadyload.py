"""Requests at a steady rate, whatever their outcome: none waits for the previous one, and none is sent twice.

A third each is a GET, a POST with a known length, and a chunked POST. The backend is an `EchoSite`, so each response is
known byte by byte; anything else is a failure.
"""

from __future__ import annotations

import http.client
import itertools
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK

TIMEOUT_S = 30.0
STOP_S = 60.0
MAX_IN_FLIGHT = 32
POSTED_BYTES = 2000
CHUNKS = 3
_HOST = {"Host": "a.example"}


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
