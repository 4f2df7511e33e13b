"""The client's side of one exchange over HTTP/1.1: implements `ClientStream` by calling the codec at once.

Response data is always accepted as a whole: the credit of its creditor bounds what is in flight. Request data is
counted while the exchange holds it, so that the connection can stop reading.
"""

from typing import Protocol

from proxy import h1
from proxy.exchange.client import Arrival, ClientExchange
from proxy.heads import Fields, ResponseHead
from proxy.loop import Creditor, Transport


class Connection(Protocol):
    """What a stream tells its connection."""

    def on_response_end(self) -> None: ...
    def on_switched(self) -> None: ...
    def on_incomplete(self) -> None: ...
    def on_released(self) -> None: ...


class H1Stream:
    __slots__ = (
        "_codec",
        "_connection",
        "_transport",
        "arrival",
        "exchange",
        "has_answered",
        "is_http_10",
        "is_over",
        "is_request_dropped",
        "is_switched",
        "unreleased_bytes",
    )

    def __init__(
        self,
        connection: Connection,
        codec: h1.ServerConnection,
        transport: Transport,
        arrival: Arrival,
        is_http_10: bool,
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._transport = transport
        self.arrival = arrival
        self.exchange: ClientExchange | None = None
        """None until `begin` has returned."""
        self.is_http_10 = is_http_10
        self.has_answered = False
        """The final head, or 101, is sent."""
        self.is_switched = False
        self.is_over = False
        self.is_request_dropped = False
        self.unreleased_bytes = 0
        """Bytes of the request that the exchange holds."""

    def progress_of(self, creditor: Creditor | None) -> int | None:
        return None if creditor is None else self._transport.progress_of(creditor)

    def send_interim(self, head: ResponseHead) -> None:
        self._codec.send_headers(head)
        self._transport.flush_later()

    def send_headers(self, head: ResponseHead, end_stream: bool) -> None:
        self._codec.send_headers(head, end_stream)
        self._transport.flush_later()
        self.has_answered = True
        if end_stream:
            self._connection.on_response_end()
        elif head.status_code == 101:
            self.is_switched = True
            self._connection.on_switched()

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        size_bytes = len(data)
        self._codec.send_data(data, end_stream)
        # Also if the codec drops the bytes, as for HEAD.
        self._transport.owe(creditor, size_bytes)
        if end_stream:
            self._connection.on_response_end()
        return size_bytes

    def send_response(self, head: ResponseHead, data: bytes | memoryview) -> int:
        self._codec.send_headers(head, False)
        self._codec.send_data(data, True)
        self._transport.flush_later()
        self.has_answered = True
        self._connection.on_response_end()
        return len(data)

    def send_trailers(self, fields: Fields) -> None:
        self._codec.send_trailers(fields)
        self._transport.flush_later()
        self._connection.on_response_end()

    def reset(self, *, is_cancelled: bool = False) -> None:  # noqa: ARG002 - HTTP/1.1 has no codes
        self._connection.on_incomplete()

    def release(self, size_bytes: int) -> None:
        self.unreleased_bytes -= size_bytes
        if not self.is_over:
            self._connection.on_released()

    def stop_request(self) -> None:
        """The rest is read and dropped. If some is still missing after the response, the connection is closed."""
        self.is_request_dropped = True
        self._connection.on_released()
