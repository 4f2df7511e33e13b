"""One stream that the edge has opened on a connector's connection, and the owner of what comes back on it."""

from __future__ import annotations

from typing import Protocol

from proxy.h2 import ErrorCode
from proxy.heads import Fields, ResponseHead
from proxy.loop import Creditor


class StreamOwner(Protocol):
    """Called by the loop's thread. `on_lost` or the end of the response is the last call."""

    def on_interim(self, head: ResponseHead) -> None:
        """A 1xx head."""

    def on_head(self, head: ResponseHead, end_stream: bool) -> None:
        """The final head, as received."""

    def on_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        """The owner must call `EdgeStream.release(len(data))` later."""

    def on_trailers(self, fields: Fields) -> None:
        """The response has ended."""

    def on_writable(self) -> None:
        """`send_data` had taken less than it was given, and would take more now."""

    def on_lost(self, error: str, code: int | None) -> None:
        """The stream is gone; `code` is that of the reset, None if the connection is gone as well."""


class Connection(Protocol):
    """What a stream tells its connection."""

    def send_data(self, stream: EdgeStream, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int: ...
    def send_trailers(self, stream: EdgeStream, fields: Fields) -> None: ...
    def release(self, stream: EdgeStream, size_bytes: int) -> None: ...
    def reset(self, stream: EdgeStream, code: int) -> None: ...


class EdgeStream:
    """A sink for `proxy.exchange.relay`, and a creditor. After its end, it accepts everything and does nothing."""

    def __init__(self, connection: Connection, stream_id: int, owner: StreamOwner) -> None:
        self._connection = connection
        self.stream_id = stream_id
        self.owner = owner
        self.is_waiting = False
        """Less was taken than given."""
        self.has_ended = False
        """Whether the response has ended."""

    def send_data(self, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        return self._connection.send_data(self, data, end_stream, creditor)

    def send_trailers(self, fields: Fields) -> None:
        self._connection.send_trailers(self, fields)

    def release(self, size_bytes: int) -> None:
        self._connection.release(self, size_bytes)

    def reset(self, code: int = ErrorCode.CANCEL) -> None:
        """Give the stream up; no call to the owner follows."""
        self._connection.reset(self, code)
