"""What `Connection.receive` reports, in the order the peer caused it.

Plain slotted classes with written-out constructors: one is made for every frame that matters, and frozen dataclasses
cost four times as much. Nobody may change an event. A stream's events come in this order: one head (`RequestReceived`,
or `InformationalReceived`* then `ResponseReceived`), `DataReceived`*, at most one `TrailersReceived`. `StreamReset` may
cut them short at any point, also after `end_stream`, where it cancels what we still send; nothing follows it.
"""

from proxy.h2.heads import Fields, RequestHead, ResponseHead


class Event:
    """Base of all events; its repr names every attribute."""

    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({pairs})"


class RequestReceived(Event):
    """A peer opened a stream (server role). No body follows when `end_stream`."""

    __slots__ = ("end_stream", "head", "stream_id")

    def __init__(self, stream_id: int, head: RequestHead, end_stream: bool) -> None:
        self.stream_id = stream_id
        self.head = head
        self.end_stream = end_stream


class RequestTooLarge(Event):
    """A request whose field list is over our limit: the stream is open, to be answered with 431 and then reset."""

    __slots__ = ("end_stream", "limit_bytes", "size_bytes", "stream_id")

    def __init__(self, stream_id: int, size_bytes: int, limit_bytes: int, end_stream: bool) -> None:
        self.stream_id = stream_id
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.end_stream = end_stream


class RequestRejected(Event):
    """A request that never became a stream for the caller (malformed, or one too many); for counters and logs only."""

    __slots__ = ("error_code", "reason", "stream_id")

    def __init__(self, stream_id: int, error_code: int, reason: str) -> None:
        self.stream_id = stream_id
        self.error_code = error_code
        self.reason = reason


class InformationalReceived(Event):
    """A 1xx head; the final one is still to come (client role)."""

    __slots__ = ("head", "stream_id")

    def __init__(self, stream_id: int, head: ResponseHead) -> None:
        self.stream_id = stream_id
        self.head = head


class ResponseReceived(Event):
    """The final head of a response (client role)."""

    __slots__ = ("end_stream", "head", "stream_id")

    def __init__(self, stream_id: int, head: ResponseHead, end_stream: bool) -> None:
        self.stream_id = stream_id
        self.head = head
        self.end_stream = end_stream


class DataReceived(Event):
    """Body bytes; the caller owes `release(stream_id, len(data))` once they have been taken by the other side.

    `data` is `bytes`, or a view into the `bytes` that were given to `receive`: it never changes, and keeps them alive.
    """

    __slots__ = ("data", "end_stream", "stream_id")

    def __init__(self, stream_id: int, data: bytes | memoryview, end_stream: bool) -> None:
        self.stream_id = stream_id
        self.data = data
        self.end_stream = end_stream


class TrailersReceived(Event):
    """The fields after the body; the peer's direction of the stream has ended."""

    __slots__ = ("fields", "never_indexed", "stream_id")

    def __init__(self, stream_id: int, fields: Fields, never_indexed: frozenset[bytes]) -> None:
        self.stream_id = stream_id
        self.fields = fields
        self.never_indexed = never_indexed


class StreamReset(Event):
    """The stream is gone, both directions; what is sent on it from now on is dropped, its credit has been given back.

    `by_peer` with REFUSED_STREAM: the peer did nothing with the request, it may be sent again elsewhere. Not `by_peer`:
    the peer broke the protocol on this stream, and `reason` says how.
    """

    __slots__ = ("by_peer", "error_code", "reason", "stream_id")

    def __init__(self, stream_id: int, error_code: int, by_peer: bool, reason: str) -> None:
        self.stream_id = stream_id
        self.error_code = error_code
        self.by_peer = by_peer
        self.reason = reason


class WindowUpdated(Event):
    """A send window that was used up is open again: of one stream, or of the connection (`stream_id` 0)."""

    __slots__ = ("stream_id",)

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id


class SettingsChanged(Event):
    """The peer's SETTINGS came and are in force (`Connection.peer`); the first one ends the handshake."""

    __slots__ = ()


class PingAcked(Event):
    """The answer to `ping(payload)`."""

    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class GoawayReceived(Event):
    """The peer takes no more streams. Ours above `last_stream_id` follow as `StreamReset` with REFUSED_STREAM."""

    __slots__ = ("debug_data", "error_code", "last_stream_id")

    def __init__(self, last_stream_id: int, error_code: int, debug_data: bytes) -> None:
        self.last_stream_id = last_stream_id
        self.error_code = error_code
        self.debug_data = debug_data


class ConnectionTerminated(Event):
    """A connection error by the peer: a GOAWAY is ready to be sent, then close. Every stream is gone."""

    __slots__ = ("error_code", "reason")

    def __init__(self, error_code: int, reason: str) -> None:
        self.error_code = error_code
        self.reason = reason
