"""A worker's services without backends: exchanges that answer from what their request says. Real ones, not mocks:
they keep the contract of `proxy.exchange.client` about credit, partial writes and the end.

    /hello            200 and a short body, from within `begin`
    /later            the same, in a later call of the loop; /later/N answers N bytes
    /echo             the request's body, as it comes; its credit is given back when the client has taken the bytes
    /count, others    100 if it is expected; reads the body, then reports how many bytes arrived, and which trailers
    /bulk/N           N bytes
    /endless/N        N bytes of an announced length of 6, or of N, and no end
    /hold             nothing until `Services.let_go`; credit for the body is kept as well
    /stall/N          nothing either; credit for the first N bytes only
    /early            413 although the body is still coming
    /break            half of a body, then `reset`
    /cut              more than most windows take, then `reset`
    /interim          103, then 200
    /trailers         a body with trailers
    /return           the request's trailers
    /switch           101, or 200 over HTTP/2, then the bytes received
    /raise            a bug
    /grudge           nothing; a bug when the client is gone
    /trip/N           N bytes; a bug when the client can take more of them
"""

import queue
from collections import deque
from collections.abc import Callable

from proxy.exchange.client import ClientStream
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.loop import Creditor, Loop

TEXT = (b"content-type", b"text/plain")


class Services:
    """Notes what happens for the test's thread, which waits on the queues."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.begun: queue.Queue[Exchange] = queue.Queue()
        self.gone: queue.Queue[str] = queue.Queue()
        self.held: list[Exchange] = []

    def begin(self, client: ClientStream, head: RequestHead, end_stream: bool) -> "Exchange":
        exchange = Exchange(self, client, head)
        self.begun.put(exchange)
        exchange.start(end_stream)
        return exchange

    def let_go(self) -> None:
        """Answer those that are held."""
        held, self.held = self.held, []
        for exchange in held:
            exchange.hello()


class Exchange:
    def __init__(self, services: Services, client: ClientStream, head: RequestHead) -> None:
        self.services = services
        self.client = client
        self.head = head
        self.is_over = False
        self.received_bytes = 0
        self.body = b""
        """Its beginning."""
        self.trailers: Fields = []

        self._output: deque[tuple[bytes | memoryview, bool, Creditor]] = deque()
        self._on_data: Callable[[bytes | memoryview, bool], None] = self._drop
        self._on_end: Callable[[], None] = lambda: None
        self._on_writable: Callable[[], None] = self._send
        self._on_gone: Callable[[], None] = lambda: None

    def start(self, end_stream: bool) -> None:
        name, _, argument = self.head.path.decode("latin-1")[1:].partition("/")
        getattr(self, f"_do_{name}", self._do_count)(*([argument] if argument else []))
        if end_stream and not self.is_over:
            self._on_end()

    # -- calls of the door -------------------------------------------------------------------------------------------

    def on_request_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        assert not self.is_over
        self.received_bytes += len(data)
        if self.received_bytes < 100_000:
            self.body += data
        self._on_data(data, end_stream)
        if end_stream and not self.is_over:
            self._on_end()

    def on_request_trailers(self, fields: Fields) -> None:
        self.trailers = fields
        self._on_end()

    def on_client_writable(self) -> None:
        assert not self.is_over
        self._on_writable()

    def on_client_gone(self, reason: str) -> None:
        assert not self.is_over
        self.is_over = True
        self.services.gone.put(reason)
        self._on_gone()

    def release(self, size_bytes: int) -> None:
        """For bytes of our own."""

    # -- answers -----------------------------------------------------------------------------------------------------

    def hello(self) -> None:
        self._on_data = self._drop
        if self._has_begun:
            self._put(b"hello\n", True, self)
        else:
            self._answer(200, b"hello\n")

    def _do_hello(self) -> None:
        self.hello()

    def _do_later(self, size: str = "") -> None:
        def answer() -> None:
            if self.is_over:
                return
            if size:
                self._do_bulk(size)
            else:
                self.hello()

        self.services.loop.call_soon(answer)

    def _do_echo(self) -> None:
        self.client.send_headers(ResponseHead(200, [TEXT]), False)
        self._on_data = lambda data, end_stream: self._put(data, end_stream, self.client)
        self._on_end = lambda: self._put(b"", True, self) if not self._has_end else None

    def _do_count(self) -> None:
        if (b"expect", b"100-continue") in self.head.fields:
            self.client.send_interim(ResponseHead(100, []))

        def tell() -> None:
            names = b",".join(name for name, _ in self.trailers)
            self._answer(200, b"%d bytes, trailers [%b]\n" % (self.received_bytes, names))

        self._on_end = tell

    def _do_bulk(self, size: str) -> None:
        self.client.send_headers(ResponseHead(200, [TEXT, (b"content-length", size.encode())]), False)
        self._put(bytes(int(size)), True, self)

    def _do_hold(self) -> None:
        self._on_data = lambda data, end_stream: None
        self.services.held.append(self)

    def _do_endless(self, size: str) -> None:
        size_bytes = int(size)
        length_bytes = max(6, size_bytes)
        self.client.send_headers(ResponseHead(200, [TEXT, (b"content-length", b"%d" % length_bytes)]), False)
        self._put(b"hello\n".ljust(length_bytes)[:size_bytes], False, self)

    def _do_begin(self) -> None:
        self._has_begun = True
        self.client.send_headers(ResponseHead(200, [TEXT, (b"content-length", b"6")]), False)
        self._do_hold()

    def _do_stall(self, size: str) -> None:
        left_bytes = int(size)

        def take(data: bytes | memoryview, _: bool) -> None:
            nonlocal left_bytes
            taken_bytes = min(left_bytes, len(data))
            left_bytes -= taken_bytes
            self.client.release(taken_bytes)

        self._on_data = take
        self.services.held.append(self)

    def _do_early(self) -> None:
        self._answer(413, b"too much\n")

    def _do_break(self) -> None:
        self.client.send_headers(ResponseHead(200, [TEXT]), False)
        self._put(b"half of ", False, self)
        self.is_over = True
        self.client.reset()

    def _do_cut(self) -> None:
        self.client.send_headers(ResponseHead(200, [TEXT]), False)
        self._put(bytes(1 << 20), False, self)
        self.is_over = True
        self.client.reset()

    def _do_interim(self) -> None:
        self.client.send_interim(ResponseHead(103, [(b"link", b"</a.css>")]))
        self.hello()

    def _do_trailers(self) -> None:
        self.client.send_headers(ResponseHead(200, [TEXT]), False)
        self._put(b"body\n", False, self)
        self.is_over = True
        self.client.send_trailers([(b"checksum", b"1234")])

    def _do_return(self) -> None:
        def give_back() -> None:
            self.client.send_headers(ResponseHead(200, [TEXT]), False)
            self.is_over = True
            self.client.send_trailers(self.trailers)

        self._on_end = give_back

    def _do_switch(self) -> None:
        over_h2 = self.client.arrival.protocol == "HTTP/2"
        self._on_data = lambda data, end_stream: self._put(data, end_stream, self.client)
        self.client.send_headers(ResponseHead(200 if over_h2 else 101, []), False)

    def _do_raise(self) -> None:
        raise RuntimeError("asked for")

    def _do_grudge(self) -> None:
        self._on_gone = self._do_raise

    def _do_trip(self, size: str) -> None:
        self._on_writable = self._do_raise
        self._do_bulk(size)

    # -- sending -----------------------------------------------------------------------------------------------------

    _has_begun = False
    _has_end = False

    def _answer(self, status_code: int, body: bytes) -> None:
        head = ResponseHead(status_code, [TEXT, (b"content-length", b"%d" % len(body))])
        self.client.send_headers(head, False)
        self._put(body, True, self)

    def _put(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> None:
        self._has_end = self._has_end or end_stream
        self._output.append((data, end_stream, creditor))
        if len(self._output) == 1:
            self._send()

    def _send(self) -> None:
        while self._output and not self.is_over:
            data, end_stream, creditor = self._output[0]
            self.is_over = end_stream
            taken_bytes = self.client.send_data(data, end_stream, creditor)
            if taken_bytes < len(data):
                self.is_over = False
                self._output[0] = (memoryview(data)[taken_bytes:], end_stream, creditor)
                return
            self._output.popleft()

    def _drop(self, data: bytes | memoryview, end_stream: bool) -> None:
        self.client.release(len(data))
