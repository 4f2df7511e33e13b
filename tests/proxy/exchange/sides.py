"""Both sides of an exchange in memory, and a world around them: a client and a pool that keep to their protocols.

They are strict: a call that the protocols do not allow fails the test at once, and so does credit for bytes that were
never handed over. Windows are set by the test; what was taken is given back with `drain`.
"""

from collections.abc import Callable

from proxy import document
from proxy.backend.stream import NO_WISH, Failure, Reason, Receiver, Wish
from proxy.exchange.client import Arrival, ClientExchange
from proxy.exchange.record import Record
from proxy.exchange.relay import NOBODY
from proxy.exchange.services import Services
from proxy.heads import Field, Fields, RequestHead, ResponseHead
from proxy.loop import Creditor, Loop
from proxy.routing import Backend, compile_table
from proxy.stats import Stats

UNLIMITED = 1 << 40
WALL_S = 1_700_000_000.0


class Taken:
    """Bytes that one side has taken from the other."""

    def __init__(self) -> None:
        self.data = b""
        self.window_bytes = UNLIMITED
        self._debts: list[tuple[Creditor, int]] = []

    def take(self, data: bytes | memoryview, creditor: Creditor) -> int:
        size_bytes = min(len(data), self.window_bytes)
        self.window_bytes -= size_bytes
        self.data += bytes(data[:size_bytes])
        if size_bytes:
            self._debts.append((creditor, size_bytes))
        return size_bytes

    @property
    def is_owing(self) -> bool:
        """Bytes wait for the socket."""
        return bool(self._debts)

    def drain(self) -> None:
        """The socket has taken all of it."""
        debts, self._debts = self._debts, []
        for creditor, size_bytes in debts:
            creditor.release(size_bytes)


class MemoryClient:
    """A `ClientStream`."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.exchange: ClientExchange
        self.interims: list[ResponseHead] = []
        self.head: ResponseHead | None = None
        self.trailers: Fields | None = None
        self.taken = Taken()
        self.is_ended = False
        self.is_reset = self.is_cancelled = False
        self.is_gone = False
        self.is_request_stopped = False
        self.owed_bytes = 0
        """Of the request, for which the exchange has not given credit."""
        self.progress: int | None = None
        """Of the exchange's backend, whose bytes wait for this client."""

    @property
    def is_over(self) -> bool:
        return self.is_ended or self.is_reset or self.is_gone

    @property
    def body(self) -> bytes:
        return self.taken.data

    def field(self, name: bytes) -> bytes | None:
        assert self.head is not None
        return dict(self.head.fields).get(name)

    # -- what the exchange calls

    def progress_of(self, _: Creditor | None) -> int | None:
        return self.progress

    def send_interim(self, head: ResponseHead) -> None:
        assert self.head is None, "interim head after the final one"
        assert not self.is_over
        self.interims.append(head)

    def send_headers(self, head: ResponseHead, end_stream: bool) -> None:
        assert self.head is None, "two heads"
        assert not self.is_over
        self.head = head
        self.is_ended = end_stream

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        assert self.head is not None, "data before the head"
        assert not self.is_over, "data after the end"
        taken_bytes = self.taken.take(data, creditor)
        self.is_ended = end_stream and taken_bytes == len(data)
        return taken_bytes

    def send_response(self, head: ResponseHead, data: bytes | memoryview) -> int:
        assert len(data)
        self.send_headers(head, False)
        return self.send_data(data, True, NOBODY)

    def send_trailers(self, fields: Fields) -> None:
        assert self.head is not None
        assert not self.is_over
        self.trailers = fields
        self.is_ended = True

    def reset(self, *, is_cancelled: bool = False) -> None:
        assert not self.is_over
        self.is_reset = True
        self.is_cancelled = is_cancelled

    def release(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self.owed_bytes, f"credit for {size_bytes} bytes, {self.owed_bytes} are owed"
        self.owed_bytes -= size_bytes

    def stop_request(self) -> None:
        assert not self.is_over
        assert not self.is_request_stopped, "stopped twice"
        self.is_request_stopped = True

    # -- what the test does

    def send(self, data: bytes, end_stream: bool = False) -> None:
        self.owed_bytes += len(data)
        self.exchange.on_request_data(data, end_stream)

    def leave(self, reason: str = "reset by the client") -> None:
        self.is_gone = True
        self.exchange.on_client_gone(reason)

    def widen(self, size_bytes: int = UNLIMITED) -> None:
        self.taken.window_bytes = size_bytes
        self.exchange.on_client_writable()


class MemoryStream:
    """A `BackendStream`."""

    def __init__(self, key: str, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish) -> None:
        self.key = key
        self.head = head
        self.has_no_body = end_stream
        self.wish = wish
        self.is_open = False
        self.address = "192.0.2.10:80"
        self.taken = Taken()
        self.trailers: Fields | None = None
        self.is_request_ended = end_stream
        self.is_over = False
        self.is_cancelled = False
        self.is_timed_out = False
        self.progress: int | None = None
        """Of the exchange's client, whose bytes wait for this backend."""
        self.owed_bytes = 0
        """Of the response, likewise."""
        self.surprise: Callable[[], None] | None = None
        """Happens from within the next call of `send_data`."""
        self._receiver = receiver

    @property
    def body(self) -> bytes:
        return self.taken.data

    def field(self, name: bytes) -> bytes | None:
        return dict(self.head.fields).get(name)

    # -- what the exchange calls

    def progress_of(self, _: Creditor) -> int | None:
        return self.progress

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        if self.is_over:
            creditor.release(len(data))
            return len(data)
        assert self.is_open, "data before the stream is open"
        assert not self.is_request_ended, "data after the end of the request"
        taken_bytes = self.taken.take(data, creditor)
        self.is_request_ended = end_stream and taken_bytes == len(data)
        surprise, self.surprise = self.surprise, None
        if surprise is not None:
            surprise()
        return taken_bytes

    def send_trailers(self, fields: Fields) -> None:
        if not self.is_over:
            assert self.is_open
            assert not self.is_request_ended
            self.trailers = fields
            self.is_request_ended = True

    def release(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self.owed_bytes, f"credit for {size_bytes} bytes, {self.owed_bytes} are owed"
        self.owed_bytes -= size_bytes

    def cancel(self, *, timed_out: bool = False) -> None:
        if not self.is_over:
            self.is_over = self.is_cancelled = True
            self.is_timed_out = timed_out
            self.taken.drain()

    # -- what the test does

    def open(self) -> None:
        self.is_open = True
        self._receiver.on_backend_open()

    def widen(self, size_bytes: int = UNLIMITED) -> None:
        self.taken.window_bytes = size_bytes
        self._receiver.on_backend_writable()

    def interim(self, status_code: int, fields: Fields | None = None) -> None:
        self._receiver.on_response_interim(ResponseHead(status_code, fields or []))

    def answer(
        self,
        status_code: int = 200,
        fields: Fields | None = None,
        end_stream: bool = False,
        head: ResponseHead | None = None,
    ) -> None:
        """`head`: this object, instead of one that is made of the others."""
        self.is_over = end_stream
        if status_code == 101 and self.head.protocol is not None:
            # The connection is a pipe of bytes from here on.
            self.is_request_ended = False
        self._receiver.on_response_head(head or ResponseHead(status_code, fields or []), end_stream)

    def send(self, data: bytes, end_stream: bool = False) -> None:
        self.is_over = end_stream
        self.owed_bytes += len(data)
        self._receiver.on_response_data(data, end_stream)

    def answer_whole(
        self, data: bytes, status_code: int = 200, fields: Fields | None = None, head: ResponseHead | None = None
    ) -> None:
        """All at once, for which no credit is owed."""
        self.is_over = True
        self._receiver.on_response(head or ResponseHead(status_code, fields or []), data)

    def end_with(self, trailers: Fields) -> None:
        self.is_over = True
        self._receiver.on_response_trailers(trailers)

    def have_bug(self) -> None:
        """A call of the receiver has raised."""
        self.cancel()
        self._receiver.on_bug()

    def fail(
        self,
        reason: Reason = Reason.RESET,
        *,
        is_unprocessed: bool = False,
        was_reused: bool = False,
        was_connecting: bool = False,
        error_code: int | None = None,
    ) -> None:
        self.is_over = True
        self.taken.drain()
        failure = Failure(reason, "as the test wants", is_unprocessed, was_reused, was_connecting, error_code)
        self._receiver.on_backend_failed(failure)


class MemoryPool:
    """A `Pool`. Streams are open at once unless the test says otherwise."""

    def __init__(self) -> None:
        self.streams: list[MemoryStream] = []
        self.opens_at_once = True
        self.addresses = ["192.0.2.10:80"]

    def request(
        self, backend: Backend, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish = NO_WISH
    ) -> MemoryStream:
        stream = MemoryStream(backend.key, head, end_stream, receiver, wish)
        free = [address for address in self.addresses if address not in wish.avoid]
        stream.address = (free or self.addresses)[0]
        stream.is_open = self.opens_at_once
        self.streams.append(stream)
        return stream

    @property
    def stream(self) -> MemoryStream:
        """The last one."""
        return self.streams[-1]


class World:
    """A worker without sockets; its clock moves only when the test says so."""

    def __init__(self, config: document.Document, draw: Callable[[], float] = lambda: 0.5) -> None:
        self._now_s = 100.0
        self.loop = Loop(clock=lambda: self._now_s)
        self.pool = MemoryPool()
        self.stats = Stats()
        self.records: list[Record] = []
        self.services = Services(
            loop=self.loop,
            pools=self.pool,
            stats=self.stats,
            access_log=self.records.append,
            draw=draw,
            wall_clock_s=lambda: WALL_S + self._now_s,
        )
        self.services.use(compile_table(config))

    @property
    def record(self) -> Record:
        assert len(self.records) == 1, f"{len(self.records)} records"
        return self.records[0]

    def wait(self, seconds: float = 0.0) -> None:
        """Let the time pass, and what is due then happen."""
        self._now_s += seconds
        self.loop.call_soon(lambda: None)
        self.loop.turn()

    def begin(self, head: RequestHead, end_stream: bool = True, arrival: Arrival | None = None) -> MemoryClient:
        client = MemoryClient(arrival or arrived())
        client.exchange = self.services.begin(client, head, end_stream)
        return client

    def close(self) -> None:
        self.loop.close()


def arrived(
    *,
    address: str = "203.0.113.7",
    is_trusted: bool = False,
    is_edge: bool = False,
    protocol: str = "HTTP/2",
    scheme: bytes = b"http",
) -> Arrival:
    return Arrival(":80", scheme, address, protocol, is_trusted or is_edge, is_edge=is_edge)


def asked(
    method: bytes = b"GET",
    path: bytes = b"/",
    fields: Fields | None = None,
    *,
    authority: bytes = b"a.example",
    protocol: bytes | None = None,
) -> RequestHead:
    return RequestHead(method, b"http", authority, path, [] if fields is None else fields, protocol)


def config_of(text: str) -> document.Document:
    return document.decode(text.encode())


def config(rule: str = "", *, more: str = "", backend: str = '{"address": "192.0.2.10:80"}') -> document.Document:
    """One listener and one route with one rule; `rule` and `more` are further members of the rule and the document."""
    return config_of(
        f"""{{"listeners": [{{"name": "web", "port": 80}}], {more}
        "routes": [{{"name": "shop", "rules": [{{ {rule} "backends": [{backend}]}}]}}]}}"""
    )


DATE: Field = (b"date", b"Sun, 06 Nov 1994 08:49:37 GMT")
GRPC: Field = (b"content-type", b"application/grpc")
