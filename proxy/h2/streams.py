"""Streams (RFC 9113, 5.1): the live ones with their state, and what must be remembered about those that are gone.

A stream's state is a boolean for each direction, and how far each has come; it is in the table while one direction is
open. Gone streams need no record, except those that were reset: frames that the peer sent before it received our
RST_STREAM are no error. How many resets are remembered is bounded by the streams that a peer may have open until it
hears of them; a stream whose reset is forgotten is treated as ended.
"""

from enum import Enum

from proxy.h2.windows import StreamWindow

LEAST_REMEMBERED_RESETS = 2_000
MOST_REMEMBERED_RESETS = 20_000
# No body expectation: the peer named no content-length.
UNKNOWN_LENGTH = -1


class Stream:
    """One live stream. `expected_bytes` is what is left of the peer's content-length, or UNKNOWN_LENGTH."""

    __slots__ = (
        "expected_bytes",
        "has_received_head",
        "has_sent_head",
        "interim_bytes",
        "interim_count",
        "is_bodiless",
        "is_connect",
        "is_local_open",
        "is_remote_open",
        "is_tunnel",
        "receive_window",
        "send_window",
        "stream_id",
    )

    def __init__(self, stream_id: int, send_window: int) -> None:
        self.stream_id = stream_id
        self.send_window = send_window
        # Created with the first DATA: most requests have none.
        self.receive_window: StreamWindow | None = None
        self.is_remote_open = True
        self.is_local_open = True
        self.has_received_head = False
        self.has_sent_head = False
        # 1xx responses before the final one.
        self.interim_count = self.interim_bytes = 0
        self.expected_bytes = UNKNOWN_LENGTH
        # The response answers HEAD, or is a 204 or 304: a content-length says nothing about DATA.
        self.is_bodiless = False
        # Opened by CONNECT. A 2xx response makes it a tunnel without a length, on which only data follows (8.5).
        self.is_connect = False
        self.is_tunnel = False


class Gone(Enum):
    """Why a stream identifier is not in the table."""

    IDLE = "idle"
    SKIPPED = "skipped"
    RESET_BY_US = "reset by us"
    RESET_BY_PEER = "reset by the peer"
    ENDED = "ended"


class StreamTable:
    """The streams of one connection. Only the client opens streams, since nobody pushes."""

    __slots__ = ("_last_skipped_id", "_max_resets", "_resets", "held_by_ended", "last_id", "live")

    def __init__(self, max_streams: int) -> None:
        """`max_streams` is the limit of concurrent streams, set by the side that does not open them."""
        self.live: dict[int, Stream] = {}
        self._max_resets = min(max(LEAST_REMEMBERED_RESETS, max_streams), MOST_REMEMBERED_RESETS)
        # The highest stream identifier opened.
        self.last_id = 0
        self._last_skipped_id = 0
        self._resets: dict[int, Gone] = {}
        # Windows of ended streams whose bodies the caller has not released completely.
        self.held_by_ended: dict[int, StreamWindow] = {}

    def open(self, stream_id: int, send_window: int) -> Stream:
        """`stream_id` is odd and above `last_id`; this closes the idle ones in between (5.1.1)."""
        if stream_id != self.last_id + 2 and stream_id != 1:
            self._last_skipped_id = stream_id - 2
        self.last_id = stream_id
        stream = self.live[stream_id] = Stream(stream_id, send_window)
        return stream

    def end(self, stream: Stream) -> None:
        """Both directions have ended in order. What the caller holds of the body stays owed to the connection."""
        del self.live[stream.stream_id]
        window = stream.receive_window
        if window is None:
            return
        window.end()
        if window.held:
            self.held_by_ended[stream.stream_id] = window

    def release_ended(self, stream_id: int, size_bytes: int) -> int:
        """Returns how many bytes the connection's window gets back: none for a stream that was reset."""
        window = self.held_by_ended.get(stream_id)
        if window is None:
            return 0
        window.drain(size_bytes)
        if not window.held:
            del self.held_by_ended[stream_id]
        return size_bytes

    def held_by(self, stream_id: int) -> int:
        """Bytes of the body of a live or ended stream that the caller has not released."""
        stream = self.live.get(stream_id)
        window = self.held_by_ended.get(stream_id) if stream is None else stream.receive_window
        return 0 if window is None else window.held

    def reset(self, stream_id: int, how: Gone) -> int:
        """Forget a stream; returns how many bytes its caller held, which the connection's window gets back."""
        resets = self._resets
        if len(resets) >= self._max_resets:
            del resets[next(iter(resets))]
        resets[stream_id] = how
        stream = self.live.pop(stream_id, None)
        window = self.held_by_ended.pop(stream_id, None) if stream is None else stream.receive_window
        if window is None:
            return 0
        window.close()
        return window.held

    def why_gone(self, stream_id: int) -> Gone:
        if stream_id > self.last_id or stream_id % 2 == 0:
            return Gone.IDLE
        how = self._resets.get(stream_id)
        if how is not None:
            return how
        return Gone.SKIPPED if stream_id <= self._last_skipped_id else Gone.ENDED
