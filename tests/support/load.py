"""Continuous requests from several threads, and the outcome of each."""

from __future__ import annotations

import http.client
import threading
import time
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK

TIMEOUT_S = 20.0
STOP_S = 30.0


class Load:
    """Runs inside its `with` block; afterwards, `failures` tells which requests got no complete 200, and why.

    Each thread sends on a connection of its own: a new one for each request, or with `keeps_alive` the same as long as
    the proxy keeps it. If a kept connection ends before the first byte of a response, it is replaced and the request
    sent again, for which every client must be prepared (RFC 9112, 9.3.1); `repeated` counts these.
    """

    def __init__(self, port: int, *, threads: int = 4, keeps_alive: bool = False) -> None:
        self._port = port
        self._keeps_alive = keeps_alive
        self._stop = threading.Event()
        self._news = threading.Condition()
        self.done = 0
        self.repeated = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run, name=f"load {n}", daemon=True) for n in range(threads)]

    def __enter__(self) -> Self:
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

    def wait_for(self, more: int, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until this many further requests have been answered."""
        with self._news:
            wanted = self.done + more
            assert self._news.wait_for(lambda: self.done >= wanted, timeout_s), (
                f"{self.done} requests answered, want {wanted}; failures: {self.failures[:3]}"
            )

    def _run(self) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._stop.is_set():
            is_used = connection is not None
            connection = connection or http.client.HTTPConnection(LOOPBACK, self._port, timeout=TIMEOUT_S)
            failure, is_repeatable = _ask(connection)
            if failure and is_used and is_repeatable:
                connection.close()
                connection = None
                with self._news:
                    self.repeated += 1
                continue
            with self._news:
                if failure:
                    self.failures.append(f"{time.strftime('%H:%M:%S')} {failure}")
                self.done += not failure
                self._news.notify_all()
            if failure or not self._keeps_alive or connection.sock is None:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()


def _ask(connection: http.client.HTTPConnection) -> tuple[str, bool]:
    """What went wrong, and whether the request may be repeated."""
    try:
        connection.request("GET", "/", headers={"Host": "a.example"})
        response = connection.getresponse()
    except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
        return f"no response: {error!r}", True
    except OSError as error:
        return f"no connection: {error!r}", False
    except http.client.HTTPException as error:
        return f"no response in HTTP: {error!r}", False
    try:
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        return f"response cut: {error!r}", False
    return ("" if response.status == 200 else f"{response.status} {body[:100]!r}"), False
