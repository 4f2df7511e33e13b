"""Flow-control windows (RFC 9113, 5.2 and 6.9), of streams and of the connection.

A send window is a plain integer, narrowed by what is sent and widened by `widened`. A `ReceiveWindow` follows one rule:
credit returns to the peer only for bytes that the caller has released, in steps of half a window. So a peer can never
make us hold more than the window, and there is one WINDOW_UPDATE for half a window of data, or for less if stalled
streams take up the window of their connection.

A stream begins with a small window, which is reserved for it. When bytes are released, somebody is taking its body, so
it gets its share of the connection's `Pool`. A stalled stream gets nothing.

Over a `Line` no window is wider than what arrives in `_QUEUE_S` and two round trips. More would not arrive faster: it
would queue somewhere on the way, with the requests of others behind it.
"""

from typing import Final, Protocol

from proxy.h2.errors import ErrorCode, LocalProtocolError, RemoteProtocolError

INITIAL_WINDOW_BYTES = 65_535
MAX_WINDOW_BYTES = 0x7FFFFFFF

_SHARES: Final = 8
"""A stream gets at most one part in this many of what the pool would have without it."""
_QUEUE_S: Final = 0.25
"""A window lasts this much longer than two round trips: lines falter, and data waits while lost packets are resent."""
_LONGEST_ROUND_TRIP_S: Final = 1.0
"""Over satellites it is 0.6."""
_GROWTH: Final = 4
"""A window grows to at most this many times its size in a step, and shrinks to no less than half of it."""
_UNDELAYED: Final = 1.5
"""A window that arrived within this many round trips did not have to queue on the way."""
_SHORTEST_SPAN_S: Final = 1e-6
_FORGOTTEN: Final = 8
"""With each step of a stream that earns less, `usual_bytes` falls by one part in this many."""


class Line(Protocol):
    """The line of a connection that many clients share, so no upload should fill it."""

    @property
    def now_s(self) -> float: ...
    @property
    def round_trip_s(self) -> float:
        """The shortest so far, which shows the length of the line and not how much is queued. Infinite until one is
        known.

        It has to be measured to the peer itself: measured to a hop on the way, it would make windows too narrow.
        """


def widened(window_bytes: int, increment: int, stream_id: int) -> int:
    """The send window after a WINDOW_UPDATE. An overflow is a stream error, or a connection error for stream 0."""
    window_bytes += increment
    if window_bytes > MAX_WINDOW_BYTES:
        reason = f"window of {window_bytes} bytes on stream {stream_id}, want at most {MAX_WINDOW_BYTES}"
        raise RemoteProtocolError(ErrorCode.FLOW_CONTROL_ERROR, reason, stream_id)
    return window_bytes


class ReceiveWindow:
    """How much the peer may still send, how much of it the caller holds, and how much credit waits to be announced."""

    __slots__ = ("available", "held", "returnable", "step")

    def __init__(self, size_bytes: int) -> None:
        self.available = size_bytes
        self.held = 0
        self.returnable = 0
        self.step = max(1, size_bytes // 2)

    def take(self, size_bytes: int, stream_id: int) -> None:
        """The peer has sent a DATA payload of this size."""
        if size_bytes > self.available:
            reason = f"{size_bytes} bytes of DATA into a window of {self.available} on stream {stream_id}"
            raise RemoteProtocolError(ErrorCode.FLOW_CONTROL_ERROR, reason, stream_id)
        self.available -= size_bytes
        self.held += size_bytes

    def release(self, size_bytes: int) -> int:
        """The caller is done with this many bytes; returns the increment to announce now, most often 0."""
        if not 0 <= size_bytes <= self.held:
            raise LocalProtocolError(f"{size_bytes} bytes released, want 0 to {self.held}")
        self.held -= size_bytes
        self.returnable += size_bytes
        return self.announce() if self.returnable >= self.step else 0

    def announce(self) -> int:
        """The increment to announce now: all credit that waits."""
        increment, self.returnable = self.returnable, 0
        self.available += increment
        return increment


class Pool:
    """What all streams of a connection together may have beyond their first windows.

    A stream gets at most an eighth of what the others leave, so the pool is never empty, however many streams take from
    it and then stall. Streams that make progress give back what exceeds their share when others come.
    """

    __slots__ = ("first_bytes", "first_step_bytes", "free_bytes", "line", "max_bytes", "usual_bytes")

    def __init__(self, first_bytes: int, max_bytes: int, pool_bytes: int) -> None:
        self.first_bytes = first_bytes
        self.first_step_bytes = max(1, first_bytes // 2)
        self.max_bytes = max(first_bytes, max_bytes)
        """Limit of one stream's window."""
        self.free_bytes = pool_bytes
        self.line: Line | None = None
        """None: windows are as wide as the pool allows."""
        self.usual_bytes = 0
        """The window that the fastest stream has earned lately, with which the next stream begins."""

    def earned(self, size_bytes: int, moved_bytes: int, span_s: float, round_trip_s: float) -> int:
        """The next size for a window of this size, through which `moved_bytes` came in `span_s`."""
        round_trip_s = min(round_trip_s, _LONGEST_ROUND_TRIP_S)
        due_bytes = moved_bytes * (_QUEUE_S + 2 * round_trip_s) / max(span_s, _SHORTEST_SPAN_S)
        # If nothing was queued on the way, the window was the limit, so it doubles at least. (While a window grows,
        # `moved_bytes` is less than what it allows.)
        least_bytes = 2 * size_bytes if span_s <= _UNDELAYED * round_trip_s else size_bytes // 2
        earned_bytes = int(min(max(due_bytes, least_bytes), _GROWTH * size_bytes))
        self.usual_bytes = max(earned_bytes, self.usual_bytes - self.usual_bytes // _FORGOTTEN)
        return earned_bytes

    def resized(self, size_bytes: int, least_bytes: int, most_bytes: int) -> int:
        """The next size for the window of a stream that makes progress; the pool is charged with the difference."""
        first_bytes = self.first_bytes
        share_bytes = (self.free_bytes + size_bytes - first_bytes) // _SHARES
        next_bytes = max(min(self.max_bytes, first_bytes + share_bytes, most_bytes), first_bytes, least_bytes)
        self.free_bytes -= next_bytes - size_bytes
        return next_bytes


class StreamWindow(ReceiveWindow):
    """The window of a stream; `close` gives its share back to the pool."""

    __slots__ = ("_is_ended", "_pool", "_steps", "size_bytes")

    # Created for every response body of a backend, so `ReceiveWindow.__init__` is inlined.
    def __init__(self, pool: Pool) -> None:
        self.available = self.size_bytes = pool.first_bytes
        self.held = self.returnable = 0
        self.step = pool.first_step_bytes
        self._pool = pool
        self._is_ended = False
        self._steps: tuple[float, float, int] | None = None
        """When credit was announced the last two times, the earlier first, and how much it was the last time."""

    def drain(self, size_bytes: int) -> int:
        """`release`, and change the size of the window; returns the increment to announce now, 0 after the end."""
        increment = self.release(size_bytes)
        if self._is_ended:
            self.end()
            return 0
        if not increment:
            return 0
        # A window cannot shrink by more than the increment: what was announced cannot be taken back.
        size_before = self.size_bytes
        most_bytes = self._most_bytes(increment)
        self.size_bytes = self._pool.resized(size_before, size_before - increment, most_bytes)
        self.step = max(1, self.size_bytes // 2)
        change = self.size_bytes - size_before
        self.available += change
        return increment + change

    def _most_bytes(self, increment: int) -> int:
        """The largest size that the line allows. Judged by two steps, a whole window, since that much may arrive at
        once, for instance after a lost packet that the others waited for has been resent.
        """
        pool, size_bytes = self._pool, self.size_bytes
        line = pool.line
        if line is None:
            return pool.max_bytes
        now_s, steps = line.now_s, self._steps
        if steps is None:
            self._steps = now_s, now_s, 0
            return pool.usual_bytes or _GROWTH * size_bytes
        before_s, last_s, last_bytes = steps
        self._steps = last_s, now_s, increment
        return pool.earned(size_bytes, last_bytes + increment, now_s - before_s, line.round_trip_s)

    def end(self) -> None:
        """The peer sends nothing more. The pool gets its share back as soon as nothing is held, however long the other
        direction lasts.
        """
        self._is_ended = True
        if not self.held:
            self.close()

    def close(self) -> None:
        self._pool.free_bytes += self.size_bytes - self._pool.first_bytes
        self.size_bytes = self._pool.first_bytes


class SharedWindow(ReceiveWindow):
    """The window of a connection. What one stream holds and does not release is missing for all others.

    So credit cannot always wait for half a window, which may never add up: it is due as soon as more credit waits than
    the peer can still send.
    """

    __slots__ = ()

    @property
    def is_due(self) -> bool:
        """Ask after `take` too, which may be the connection's last event for a long time."""
        return self.returnable > self.available

    def release(self, size_bytes: int) -> int:
        return super().release(size_bytes) or (self.announce() if self.is_due else 0)
