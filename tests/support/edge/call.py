"""A stream that a test opens itself, with any fields, on any connection: for requests that the front door never sends.

Calls come from the test's thread and wait with deadlines. Credit is returned only for what the test has read, so a call
that nobody reads stalls its stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from proxy.exchange.relay import NOBODY, Relay
from proxy.h2 import ErrorCode
from proxy.heads import Fields, ResponseHead
from tests.support.edge.heads import Response, read_response
from tests.support.edge.ledger import PATIENCE_S
from tests.support.edge.stream import EdgeStream


class Call:
    """Whoever opens the stream sets `stream`, in the loop's thread."""

    stream: EdgeStream

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` arranges for its argument to be called in the loop's thread."""
        self._post = post
        self._news = threading.Condition()
        self._upload = Relay()
        self._unread = bytearray()
        self._is_sent = True
        self.interims: list[ResponseHead] = []
        self.raw_head: ResponseHead | None = None
        self.pieces: list[int] = []
        """Sizes of the DATA frames received."""
        self.trailers: Fields | None = None
        self.has_ended = False
        self.lost: str | None = None
        self.reset_code: int | None = None

    # -- to the connector --------------------------------------------------------------------------------------------

    def send(self, data: bytes, end_stream: bool = False, *, waits: bool = True) -> None:
        """Send data; waits until the windows have taken all of it."""
        self._is_sent = False

        def add() -> None:
            self._upload.add(data, end_stream, NOBODY)
            self.on_writable()

        self._post(add)
        if waits:
            self.wait_until_sent()

    def wait_until_sent(self, timeout_s: float = PATIENCE_S) -> None:
        self._wait(lambda: self._is_sent or self.lost is not None, "room for what was sent", timeout_s)
        assert self.lost is None, self.lost

    def end(self) -> None:
        self.send(b"", True)

    def send_trailers(self, fields: Fields) -> None:
        def add() -> None:
            self._upload.add_trailers(fields)
            self.on_writable()

        self._post(add)

    def reset(self, code: int = ErrorCode.CANCEL) -> None:
        self._post(lambda: self.stream.reset(code))

    # -- from the connector ------------------------------------------------------------------------------------------

    def wait_for_head(self, timeout_s: float = PATIENCE_S) -> ResponseHead:
        """Wait for the response head, and return it as received."""
        self._wait(lambda: self.raw_head is not None or self.lost is not None, "a head", timeout_s)
        assert self.raw_head is not None, self.lost
        return self.raw_head

    def wait_for_interim(self) -> ResponseHead:
        """Wait for the first 1xx head."""
        self._wait(lambda: bool(self.interims) or self.lost is not None, "an interim head")
        assert self.interims, self.lost
        return self.interims[0]

    def response(self) -> Response:
        """The parsed response head."""
        return read_response(self.wait_for_head())

    def read(self, size_bytes: int) -> bytes:
        """This many bytes, or fewer if the response has ended."""

        def is_there() -> bool:
            return len(self._unread) >= size_bytes or self.has_ended or self.lost is not None

        self._wait(is_there, f"{size_bytes} bytes")
        assert self.lost is None or len(self._unread) >= size_bytes, self.lost
        return self._take(size_bytes)

    def read_all(self, timeout_s: float = PATIENCE_S) -> bytes:
        """Everything up to the end of the response. `timeout_s` applies to each piece."""
        found = bytearray()
        while True:
            self._wait(lambda: bool(self._unread) or self.has_ended or self.lost is not None, "more", timeout_s)
            found += self._take(len(self._unread))
            assert self.lost is None, self.lost
            if self.has_ended and not self._unread:
                return bytes(found)

    def wait_until_lost(self, timeout_s: float = PATIENCE_S) -> int | None:
        """Wait for a reset and return its code; None if the whole connection was lost."""
        self._wait(lambda: self.lost is not None, "a reset", timeout_s)
        return self.reset_code

    def _take(self, size_bytes: int) -> bytes:
        with self._news:
            taken = bytes(self._unread[:size_bytes])
            del self._unread[:size_bytes]
        if taken:
            self._post(lambda: self.stream.release(len(taken)))
        return taken

    def _wait(self, is_there: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        with self._news:
            assert self._news.wait_for(is_there, timeout_s), f"never came within {timeout_s:g} s: {what}"

    # -- the loop's thread -------------------------------------------------------------------------------------------

    def on_interim(self, head: ResponseHead) -> None:
        with self._news:
            self.interims.append(head)
            self._news.notify_all()

    def on_head(self, head: ResponseHead, end_stream: bool) -> None:
        with self._news:
            self.raw_head = head
            self.has_ended = end_stream
            self._news.notify_all()

    def on_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        with self._news:
            self._unread += data
            self.pieces.append(len(data))
            self.has_ended = end_stream
            self._news.notify_all()

    def on_trailers(self, fields: Fields) -> None:
        with self._news:
            self.trailers = fields
            self.has_ended = True
            self._news.notify_all()

    def on_writable(self) -> None:
        self._upload.pump(self.stream)
        if not self.stream.is_waiting:
            with self._news:
                self._is_sent = True
                self._news.notify_all()

    def on_lost(self, error: str, code: int | None) -> None:
        with self._news:
            self.lost = error
            self.reset_code = code
            self._news.notify_all()
