"""A loop with pools, driven by the test itself, and receivers that note what they are told."""

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from proxy import document
from proxy.backend.pools import Pools
from proxy.backend.request import Request
from proxy.backend.resolver import GetAddrInfo
from proxy.backend.stream import CONNECTING, NO_WISH, Failure, Reason, Wish
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.loop import Loop
from proxy.routing import Backend, Table, compile_table
from proxy.stats import BackendStats, Stats

PATIENCE_S = 10.0


class Clock:
    """Real time, plus the time that a test adds."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self._stopped_at_s: float | None = None

    def stop(self) -> None:
        """From now on time passes only when the test adds it."""
        self._stopped_at_s = time.monotonic()

    def __call__(self) -> float:
        return (time.monotonic() if self._stopped_at_s is None else self._stopped_at_s) + self.passed_s


class _Loop(Loop):
    """Counts the calls that threads hand to it."""

    told = 0

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        super().call_from_thread(callback)
        self.told += 1


class Answer:
    """A receiver. Releases what it gets at once, unless it is told to hold it."""

    def __init__(self, *, holds: bool = False, client: object | None = None) -> None:
        self.client_connection = client
        self.request: Request | None = None
        self.interim: list[int] = []
        self.head: ResponseHead | None = None
        self.body = bytearray()
        self.trailers: Fields | None = None
        self.failure: Failure | None = None
        self.has_ended = False
        self.had_bug = False
        self.is_open_told = 0
        self.is_writable_told = 0
        self.holds = holds
        self.held_bytes = 0
        self.on_end: Callable[[], None] | None = None
        self.on_open: Callable[[], None] | None = None
        self.on_head: Callable[[], None] | None = None

    @property
    def status_code(self) -> int:
        assert self.head is not None, self.failure
        return self.head.status_code

    @property
    def is_over(self) -> bool:
        return self.has_ended or self.failure is not None

    def release(self) -> None:
        held_bytes, self.held_bytes = self.held_bytes, 0
        assert self.request is not None
        self.request.release(held_bytes)

    def on_backend_open(self) -> None:
        self.is_open_told += 1
        if self.on_open is not None:
            self.on_open()

    def on_backend_writable(self) -> None:
        self.is_writable_told += 1

    def on_response_interim(self, head: ResponseHead) -> None:
        self.interim.append(head.status_code)

    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None:
        assert self.head is None
        assert not self.is_over
        self.head = head
        if self.on_head is not None:
            self.on_head()
        self._end(end_stream)

    def on_response_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        assert self.head is not None
        assert not self.is_over
        self.body += data
        self.held_bytes += len(data)
        self._end(end_stream)
        if not self.holds and self.request is not None:
            self.release()

    def on_response(self, head: ResponseHead, data: bytes | memoryview) -> None:
        self.on_response_head(head, False)
        self.body += data
        self._end(True)

    def on_response_trailers(self, fields: Fields) -> None:
        assert not self.is_over
        self.trailers = fields
        self._end(True)

    def on_backend_failed(self, failure: Failure) -> None:
        assert not self.is_over
        # The rules of retries rely on both, or they would send again what may have been processed.
        assert failure.reason is Reason.RESET or not failure.was_reused
        assert failure.is_unprocessed or not (failure.was_connecting or failure.reason in CONNECTING)
        self.failure = failure
        if self.on_end is not None:
            self.on_end()

    def on_bug(self) -> None:
        self.had_bug = True

    def _end(self, end_stream: bool) -> None:
        self.has_ended = end_stream
        if end_stream and self.on_end is not None:
            self.on_end()


class Owed:
    """A creditor."""

    def __init__(self) -> None:
        self.released_bytes = 0

    def release(self, size_bytes: int) -> None:
        self.released_bytes += size_bytes


LIMITS = document.Limits()
"""As they are where nobody says otherwise."""


class World:
    def __init__(self, getaddrinfo: GetAddrInfo, draw: Callable[[], float]) -> None:
        self.clock = Clock()
        self.loop = _Loop(self.clock)
        self.stats = Stats()
        self.pools = Pools(self.loop, self.stats, getaddrinfo=getaddrinfo, draw=draw)
        self.table: Table | None = None
        self._known: dict[str, Backend] = {}

    @property
    def told(self) -> int:
        """Answers of threads that have come to the loop, which acts on them in its next turn."""
        return self.loop.told

    def use(
        self,
        *backends: document.Backend,
        connect_timeout: str = LIMITS.connect_timeout,
        backend_idle_timeout: str = LIMITS.backend_idle_timeout,
    ) -> None:
        limits = document.Limits(connect_timeout=connect_timeout, backend_idle_timeout=backend_idle_timeout)
        config = document.Document(backends=backends, limits=limits)
        self.table = compile_table(config)
        self._known.update(self.table.backends)
        self.pools.use(self.table)

    def _backend_of(self, key: str) -> Backend:
        """As the newest table has it, or the last one that had it."""
        return self._known.get(key) or Backend(key, document.Backend(name=key))

    def backend(self, name: str = "b") -> BackendStats:
        return self.stats.backends[name]

    def get(
        self,
        key: str = "b",
        path: bytes = b"/",
        *,
        method: bytes = b"GET",
        fields: Fields | None = None,
        end_stream: bool = True,
        wish: Wish = NO_WISH,
        holds: bool = False,
        protocol: bytes | None = None,
        of_table: Backend | None = None,
        client: object | None = None,
    ) -> Answer:
        """`of_table`: the backend as an earlier table has it, instead of the newest that has `key`; `client`: the
        connection that it is asked for."""
        answer = Answer(holds=holds, client=client)
        head = RequestHead(method, b"http", b"a.example", path, fields or [], protocol)
        answer.request = self.pools.request(of_table or self._backend_of(key), head, end_stream, answer, wish)
        return answer

    def fetch(self, key: str = "b", path: bytes = b"/", **options: Any) -> Answer:
        """A request with its whole answer."""
        answer = self.get(key, path, **options)
        self.until(lambda: answer.is_over)
        return answer

    def until(self, condition: Callable[[], bool]) -> None:
        """Turn the loop until `condition` holds."""
        end_s = time.monotonic() + PATIENCE_S
        beat = self.loop.deadline(lambda: beat.set(self.loop.now_s + 0.01))
        beat.set(self.loop.now_s)
        while not condition():
            assert time.monotonic() < end_s, "waited in vain"
            self.loop.turn()
        beat.cancel()

    def most_in_a_turn(self, answer: Answer) -> int:
        """Bytes of the body that come in one turn of the loop, until the answer is over."""
        lengths = [len(answer.body)]

        def look() -> bool:
            lengths.append(len(answer.body))
            return answer.is_over

        self.until(look)
        return max(after - before for before, after in pairwise(lengths))

    def turns(self, count: int = 5) -> None:
        """Let the loop do what it can do without waiting for anybody."""
        for _ in range(count):
            self.loop.call_soon(lambda: None)
            self.loop.turn()

    def pass_time(self, seconds: float) -> None:
        self.clock.passed_s += seconds
        self.turns()

    def close(self) -> None:
        self.pools.close()
        self.loop.close()


@contextmanager
def world(getaddrinfo: GetAddrInfo = socket.getaddrinfo, draw: Callable[[], float] = lambda: 0.0) -> Iterator[World]:
    made = World(getaddrinfo, draw)
    try:
        yield made
    finally:
        made.close()


def address_of(answer: Answer) -> str:
    assert answer.request is not None
    return answer.request.address


def readable(sock: socket.socket, timeout_s: float = PATIENCE_S) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def one(address: str, name: str = "b") -> document.Backend:
    """A backend with this address alone."""
    return document.Backend(name=name, addresses=(address,))
