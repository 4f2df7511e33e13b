"""The client's side of one exchange over HTTP/2: implements `ClientStream` by calling the codec at once.

Response data is accepted as far as the windows of stream and connection allow, and as the socket takes it. Credit for
request data goes back to the codec when the exchange gives it, or all at once when the exchange ends.
"""

from typing import Final, Protocol

from proxy import h2
from proxy.exchange.client import Arrival, ClientExchange
from proxy.exchange.relay import NOBODY
from proxy.heads import Fields, ResponseHead
from proxy.loop import Creditor, Transport

_SMALL_BYTES: Final = 16 * 1024
"""A whole response up to this size is sent without asking `Turns`, if the socket has taken everything before."""


class Turns(Protocol):
    """How much of a body the connection accepts now."""

    def room_for(self, stream: "H2Stream") -> int: ...
    def sent(self, stream: "H2Stream", size_bytes: int) -> None: ...
    def progress_of(self, stream_id: int) -> int | None: ...


class Dialect(Protocol):
    """How responses are encoded for a peer that is no ordinary client."""

    def encode(self, head: ResponseHead, /) -> ResponseHead:
        """The peer's form of a final head."""

    def permitted(self, fields: Fields, /) -> Fields:
        """The fields of interim heads and trailers that may be sent, unchanged."""


class Connection(Protocol):
    """What a stream tells its connection."""

    dialect: Dialect | None

    @property
    def turns(self) -> "Turns": ...
    def on_response_end(self, stream: "H2Stream") -> None: ...
    def on_incomplete(self, stream: "H2Stream", error_code: h2.ErrorCode) -> None: ...
    def on_window_closed(self, stream: "H2Stream") -> None: ...


class H2Stream:
    __slots__ = (
        "_codec",
        "_connection",
        "_transport",
        "arrival",
        "exchange",
        "has_body",
        "is_request_dropped",
        "is_waiting",
        "round_number",
        "share_bytes",
        "stream_id",
    )

    def __init__(
        self,
        connection: Connection,
        codec: h2.Connection,
        transport: Transport,
        stream_id: int,
        arrival: Arrival,
        has_body: bool,
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._transport = transport
        self.stream_id = stream_id
        self.arrival = arrival
        self.exchange: ClientExchange | None = None
        """None until `begin` has returned, and after the end."""
        self.has_body = has_body
        """The request has a body."""
        self.is_request_dropped = False
        self.is_waiting = False
        """The last `send_data` took less than it was given."""
        self.round_number = -1
        """The last round of `Turns` in which the stream had a share, of which `share_bytes` are left."""
        self.share_bytes = 0

    def progress_of(self, creditor: Creditor | None) -> int | None:
        progress = None if creditor is None else self._transport.progress_of(creditor)
        return self._connection.turns.progress_of(self.stream_id) if progress is None else progress

    def send_interim(self, head: ResponseHead) -> None:
        dialect = self._connection.dialect
        if dialect is not None:
            head = ResponseHead(head.status_code, dialect.permitted(head.fields), head.never_indexed)
        self._codec.send_headers(self.stream_id, head)
        self._transport.flush_later()

    def send_headers(self, head: ResponseHead, end_stream: bool) -> None:
        dialect = self._connection.dialect
        if dialect is not None:
            head = dialect.encode(head)
        self._codec.send_headers(self.stream_id, head, end_stream)
        self._transport.flush_later()
        if end_stream:
            self._connection.on_response_end(self)

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        given_bytes = len(data)
        if not given_bytes:
            if end_stream:
                # Not `send_data`: the end needs no window, and must not wait for one.
                self._codec.end_stream(self.stream_id)
                self._transport.flush_later()
                self._connection.on_response_end(self)
            return 0
        turns = self._connection.turns
        room_bytes = turns.room_for(self)
        if given_bytes > room_bytes:
            data, end_stream = memoryview(data)[:room_bytes], False
        size_bytes = self._codec.send_data(self.stream_id, data, end_stream) if room_bytes else 0
        if size_bytes:
            turns.sent(self, size_bytes)
            self._transport.owe(creditor, size_bytes)
        if size_bytes < given_bytes:
            self._connection.on_window_closed(self)
        elif end_stream:
            self._connection.on_response_end(self)
        return size_bytes

    def send_response(self, head: ResponseHead, data: bytes | memoryview) -> int:
        connection = self._connection
        if len(data) > _SMALL_BYTES or self._transport.is_writing:
            self.send_headers(head, False)
            return self.send_data(data, True, NOBODY)
        if connection.dialect is not None:
            head = connection.dialect.encode(head)
        size_bytes = self._codec.send_response(self.stream_id, head, data)
        self._transport.flush_later()
        if size_bytes < len(data):
            connection.on_window_closed(self)
        else:
            connection.on_response_end(self)
        return size_bytes

    def send_trailers(self, fields: Fields) -> None:
        dialect = self._connection.dialect
        if dialect is not None:
            fields = dialect.permitted(fields)
        if fields:
            self._codec.send_trailers(self.stream_id, fields)
        else:
            self._codec.end_stream(self.stream_id)
        self._transport.flush_later()
        self._connection.on_response_end(self)

    def reset(self, *, is_cancelled: bool = False) -> None:
        self._connection.on_incomplete(self, h2.ErrorCode.CANCEL if is_cancelled else h2.ErrorCode.INTERNAL_ERROR)

    def release(self, size_bytes: int) -> None:
        if self.exchange is None:
            # At the end, the connection has given back all that was still held.
            return
        self._codec.release(self.stream_id, size_bytes)
        if self._codec.has_output:
            self._transport.flush_later()

    def stop_request(self) -> None:
        """The rest is received and dropped; after the response only for a while (`rests`)."""
        self.is_request_dropped = True
