"""Which stream sends next when a connection takes less than its streams have, so that small answers pass large ones.

What is queued for a socket is sent in order, so later output waits for all of it. Therefore, once the socket has not
taken everything, streams send in rounds (round robin): each hands over its share of a round and then waits; the next
round begins when the socket has taken this one. A stream that is not waiting has a small share of every round, so the
answer to a small request, or an occasional event, is at most one round behind, however many downloads there are. If
there are more such streams than a round has room for, they wait too, so that every round ends.

Rounds grow as long as the socket takes them at once; when it has taken the largest, shares no longer count. Rounds that
take long shrink. The kernel would queue megabytes too, so it is given no more than a round:
`Transport.keep_unsent_low`.

Streams also wait here for the connection's window, in the same order.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from proxy import h2
from proxy.doors.h2stream import H2Stream
from proxy.loop import Loop, Transport

ROUND_BYTES: Final = 128 * 1024
"""The size of a round, unless it takes longer than `_SLOW_S`. At 10 Mbit/s it takes a tenth of a second."""
FULL_BYTES: Final = 256 * 1024
"""The largest round, and the most that waits for the socket. While shares count, streams that do not wait may send
another `ROUND_BYTES`."""
QUANTUM_BYTES: Final = 16 * 1024
"""The smallest share. If a round is too small for all streams, the others have their turn in the next one."""
_SLOW_S: Final = 0.25
"""A round that took longer is followed by one that should take this long, but holds at least one share."""
_FAST_S: Final = _SLOW_S / 4
"""A round that took less is followed by one of twice its size, which is still not slow."""


class Turns:
    __slots__ = (
        "_codec",
        "_fresh_bytes",
        "_full_bytes",
        "_given_bytes",
        "_is_fetched",
        "_is_look_due",
        "_loop",
        "_round_bytes",
        "_round_number",
        "_stuck_at_s",
        "_transport",
        "_unsent_bytes",
        "_wake",
        "is_narrow",
        "waiting",
    )

    def __init__(
        self, loop: Loop, codec: h2.Connection, transport: Transport, wake: Callable[[H2Stream], None]
    ) -> None:
        """`wake` makes a stream send what it has."""
        self._loop = loop
        self._codec = codec
        self._transport = transport
        self._wake = wake
        self.waiting: OrderedDict[int, H2Stream] = OrderedDict()
        """By stream id, in the order of their turns. Others only read it."""
        self._fresh_bytes = 0
        """Bytes that streams have handed over and the transport has not fetched yet."""
        self._given_bytes = 0
        """Bytes that streams have handed over in this round."""
        self._round_number = 0
        self._round_bytes = ROUND_BYTES
        self._full_bytes = FULL_BYTES
        """How much may wait for the socket: two rounds."""
        self._unsent_bytes = ROUND_BYTES
        """How much unsent data the kernel may hold."""
        self._stuck_at_s: float | None = None
        """Since when part of the round waits for the socket, while streams wait for the next."""
        transport.keep_unsent_low(ROUND_BYTES)
        self.is_narrow = False
        """The socket has not taken everything lately, so shares count."""
        self._is_look_due = False
        self._is_fetched = True
        """The transport has fetched what was handed over before `_look` became due."""

    # -- calls of streams --------------------------------------------------------------------------------------------

    def room_for(self, stream: H2Stream) -> int:
        """How many bytes of its body the stream may send now."""
        if self._transport.is_writing and not self.is_narrow:
            self.is_narrow, self._given_bytes = True, 0
        room_bytes = self._room_bytes
        if not self.is_narrow:
            return room_bytes
        if stream.stream_id in self.waiting:
            return 0
        if stream.round_number != self._round_number:
            stream.round_number = self._round_number
            stream.share_bytes = QUANTUM_BYTES
        return max(0, min(room_bytes, stream.share_bytes))

    @property
    def _room_bytes(self) -> int:
        """How many bytes all streams together may send now."""
        room_bytes = self._full_bytes - self._fresh_bytes - self._transport.queued_bytes
        if self.is_narrow:
            # A queue refilled while the socket empties it would never be empty, and no round would begin.
            room_bytes = min(room_bytes, self._round_bytes - self._given_bytes) + ROUND_BYTES
        return max(0, room_bytes)

    def sent(self, stream: H2Stream, size_bytes: int) -> None:
        stream.share_bytes -= size_bytes
        self._fresh_bytes += size_bytes
        self._given_bytes += size_bytes

    def wait(self, stream: H2Stream) -> None:
        """The stream has more data than there is room for, or than the connection's window allows."""
        self.waiting.setdefault(stream.stream_id, stream)
        self._look_later()

    def progress_of(self, stream_id: int) -> int | None:
        """How much of all streams the client has acknowledged; None unless this stream waits for the socket."""
        is_in_line = stream_id in self.waiting and self._codec.has_send_window
        return self._transport.acknowledged_bytes if is_in_line else None

    def forget(self, stream_id: int) -> None:
        self.waiting.pop(stream_id, None)

    # -- calls of the connection -------------------------------------------------------------------------------------

    def on_fetched(self) -> None:
        """The transport has fetched all that was handed over, and offers it to the socket."""
        self._fresh_bytes = 0
        self._is_fetched = True

    def on_drained(self) -> None:
        """The socket has taken all that waited for it."""
        round_bytes = min(self._round_bytes, ROUND_BYTES)
        if self._stuck_at_s is not None:
            took_s = self._loop.now_s - self._stuck_at_s
            self._stuck_at_s = None
            if took_s > _SLOW_S:
                round_bytes = max(int(round_bytes * _SLOW_S / took_s), QUANTUM_BYTES)
            elif took_s < _FAST_S:
                round_bytes = min(2 * round_bytes, ROUND_BYTES)
            if round_bytes != self._unsent_bytes:
                self._unsent_bytes = round_bytes
                self._transport.keep_unsent_low(round_bytes)
        self._resize_rounds(round_bytes)
        self._begin_round()

    def on_window_opened(self) -> None:
        """The connection's window is open again."""
        if not self._transport.is_writing:
            self._begin_round()

    def on_streams_gone(self) -> None:
        self.waiting.clear()
        self.is_narrow = False

    def close(self) -> None:
        """No stream is woken any more."""
        self.waiting.clear()
        self._wake = _nobody
        self._is_fetched = True

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if not self._is_look_due and not self._transport.is_writing:
            self._is_look_due = True
            self._is_fetched = not self._fresh_bytes
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Check whether the socket has taken at once what was handed over. If it has not, `on_drained` follows."""
        if not self._is_fetched:
            # The transport fetches at the end of this turn of the loop.
            self._loop.call_soon(self._look)
            return
        self._is_look_due = False
        if self._transport.is_writing:
            self._stuck_at_s = self._loop.now_s
            return
        if self._round_bytes == FULL_BYTES:
            self.is_narrow = False
        else:
            self._resize_rounds(2 * self._round_bytes)
        self._begin_round()

    def _resize_rounds(self, round_bytes: int) -> None:
        self._round_bytes = min(round_bytes, FULL_BYTES)
        self._full_bytes = min(2 * round_bytes, FULL_BYTES)

    def _begin_round(self) -> None:
        waiting, codec = self.waiting, self._codec
        self._given_bytes = 0
        if not waiting:
            self.is_narrow = False
            return
        self._round_number += 1
        turns, round_bytes = len(waiting), self._round_bytes
        share_bytes = max(round_bytes // turns, QUANTUM_BYTES)
        while turns and waiting and codec.has_send_window and self._room_bytes and self._given_bytes < round_bytes:
            turns -= 1
            _, stream = waiting.popitem(last=False)
            stream.round_number, stream.share_bytes = self._round_number, share_bytes
            self._wake(stream)
        # If the connection's window is closed, an event will come when it opens.
        if waiting and codec.has_send_window:
            self._look_later()


def _nobody(_: H2Stream) -> None:
    """Nothing to wake: the connection has ended."""
