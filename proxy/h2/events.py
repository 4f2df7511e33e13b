"""What `Connection.receive` reports, in the order the peer caused it.

One is made for every frame that matters, so they are structs: those are made in C. Nobody may change an event.
A stream's events come in this order: one head (`RequestReceived`, or `InformationalReceived`* then `ResponseReceived`),
`DataReceived`*, at most one `TrailersReceived`. `StreamReset` may cut them short at any point, also after `end_stream`,
where it cancels what we still send; nothing follows it.
"""

import msgspec

from proxy.heads import Fields, RequestHead, ResponseHead

_MAX_DEBUG_BYTES = 256


class Event(msgspec.Struct, eq=False):
    """Base of all events; each is one of its kind, equal only to itself."""


class RequestReceived(Event):
    """A peer opened a stream (server role). No body follows when `end_stream`."""

    stream_id: int
    head: RequestHead
    end_stream: bool


class RequestTooLarge(Event):
    """A request whose field list is over our limit: the stream is open, to be answered with 431 and then reset."""

    stream_id: int
    size_bytes: int
    limit_bytes: int
    method: bytes | None
    """As it was sent, whatever else is wrong."""


class RequestRejected(Event):
    """A request that never became a stream for the caller (malformed, or one too many); for counters and logs only."""

    stream_id: int
    error_code: int
    reason: str


class InformationalReceived(Event):
    """A 1xx head; the final one is still to come (client role)."""

    stream_id: int
    head: ResponseHead


class ResponseReceived(Event):
    """The final head of a response (client role)."""

    stream_id: int
    head: ResponseHead
    end_stream: bool
    is_whole: bool
    """Nothing more is to come, of the request neither; but for the end of the stream, perhaps."""


class DataReceived(Event):
    """Body bytes; the caller owes `release(stream_id, len(data))` once they have been taken by the other side.

    `data` is `bytes`, or a view into the `bytes` that were given to `receive`: it never changes, and keeps them alive.
    """

    stream_id: int
    data: bytes | memoryview
    end_stream: bool


class TrailersReceived(Event):
    """The fields after the body; the peer's direction of the stream has ended."""

    stream_id: int
    fields: Fields


class StreamReset(Event):
    """The stream is gone, both directions; what is sent on it from now on is dropped, its credit has been given back.

    `by_peer` with REFUSED_STREAM: the peer did nothing with the request, it may be sent again elsewhere. Not `by_peer`:
    the peer broke the protocol on this stream, and `reason` says how.
    """

    stream_id: int
    error_code: int
    by_peer: bool
    reason: str


class WindowUpdated(Event):
    """A send window that was used up is open again: of one stream, or of the connection (`stream_id` 0)."""

    stream_id: int


class SettingsChanged(Event):
    """The peer's SETTINGS came and are in force (`Connection.peer`); the first one ends the handshake."""


class PingAcked(Event):
    """The answer to `ping(payload)`."""

    payload: bytes


class GoawayReceived(Event):
    """The peer takes no more streams. Ours above `last_stream_id` follow as `StreamReset` with REFUSED_STREAM."""

    last_stream_id: int
    error_code: int
    debug_data: bytes

    @property
    def words(self) -> str:
        """For logs: what it says beside the stream, in one line."""
        code = f", code {self.error_code}" if self.error_code else ""
        debug = f": {repr(self.debug_data[:_MAX_DEBUG_BYTES])[2:-1]}" if self.debug_data else ""
        return f"GOAWAY{code}{debug}"


class ConnectionTerminated(Event):
    """A connection error by the peer: a GOAWAY is ready to be sent, then close. Every stream is gone."""

    error_code: int
    reason: str
