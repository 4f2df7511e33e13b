"""What `Connection.receive` reports, in the order in which it arrived.

There is one for every frame that matters, so events are structs, which are created in C. They must not be changed.
A stream's events come in this order: one head (`RequestReceived`, or `InformationalReceived`* then `ResponseReceived`),
`DataReceived`*, at most one `TrailersReceived`. `StreamReset` may cut them short at any point, also after `end_stream`,
where it cancels what we still send; nothing follows it.
"""

import msgspec

from proxy.heads import Fields, RequestHead, ResponseHead

_MAX_DEBUG_BYTES = 256


class Event(msgspec.Struct, eq=False):
    """Base of all events, which are compared by identity."""


class RequestReceived(Event):
    """A peer opened a stream (server role). No body follows if `end_stream`."""

    stream_id: int
    head: RequestHead
    end_stream: bool


class RequestTooLarge(Event):
    """A request whose field list is over our limit: the stream is open, to be answered with 431 and then reset."""

    stream_id: int
    size_bytes: int
    limit_bytes: int
    method: bytes | None
    """As it was sent, whatever else is wrong with the request."""


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
    """Request and response are complete, except perhaps for the end of the stream."""


class DataReceived(Event):
    """Body bytes; the caller owes `release(stream_id, len(data))` once the other side has taken them.

    `data` is `bytes`, or a view into the `bytes` given to `receive`: it never changes, and keeps them alive.
    """

    stream_id: int
    data: bytes | memoryview
    end_stream: bool


class TrailersReceived(Event):
    """The fields after the body; the peer's direction of the stream has ended."""

    stream_id: int
    fields: Fields


class StreamReset(Event):
    """The stream is gone, both directions: what is sent on it from now on is dropped, and its credit was given back.

    `by_peer` with REFUSED_STREAM: the peer has not processed the request, which may be sent again elsewhere. Not
    `by_peer`: the peer broke the protocol on this stream, and `reason` says how.
    """

    stream_id: int
    error_code: int
    by_peer: bool
    reason: str
    are_fields_too_large: bool = False
    """Not `by_peer`: its head or trailers exceed a limit of ours, but may be valid HTTP all the same."""


class WindowUpdated(Event):
    """A used-up send window is open again: that of a stream, or of the connection (`stream_id` 0)."""

    stream_id: int


class SettingsChanged(Event):
    """SETTINGS of the peer arrived and are in force (`Connection.peer`); the first ones end the handshake."""


class PingAcked(Event):
    """The answer to `ping(payload)`."""

    payload: bytes


class GoawayReceived(Event):
    """The peer accepts no more streams. Ours above `last_stream_id` each get a `StreamReset` with REFUSED_STREAM."""

    last_stream_id: int
    error_code: int
    debug_data: bytes

    @property
    def words(self) -> str:
        """For logs: error code and debug data, in one line."""
        code = f", code {self.error_code}" if self.error_code else ""
        debug = f": {repr(self.debug_data[:_MAX_DEBUG_BYTES])[2:-1]}" if self.debug_data else ""
        return f"GOAWAY{code}{debug}"


class ConnectionTerminated(Event):
    """A connection error by the peer: a GOAWAY is ready to be sent, then close. Every stream is gone."""

    error_code: int
    reason: str
    are_fields_too_large: bool = False
    """Those of one stream, as in `StreamReset`: they are too large even to be decoded."""
