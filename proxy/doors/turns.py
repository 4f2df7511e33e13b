"""Whose body goes next where a connection takes less than its streams have, so that small answers pass by large ones.

What a socket's queue holds is sent in order: all that is said later waits for it. So once the socket has not taken all,
a stream hands over its share of a round and then waits, and the next round begins when the socket has taken this one
(round robin). A stream that does not wait has a small share of every round, so the answer to a small request, and an
event now and then, is at most a round behind, however many downloads there are. Where there are more of those than a
round holds, they wait as well, so that every round ends. Rounds grow as long as the socket takes them at once; when it
has taken the largest, shares count no more. Those that it takes long for shrink. The kernel would queue megabytes
likewise, and is given as little as a round: `Transport.keep_unsent_low`.

Streams wait here for the connection's window too, in the same order.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from proxy import h2
from proxy.doors.h2stream import H2Stream
from proxy.loop import Loop, Transport

ROUND_BYTES: Final = 128 * 1024
"""Of all streams together, where that takes no longer than `_SLOW_S`: it is a tenth of a second at 10 Mbit/s."""
FULL_BYTES: Final = 256 * 1024
"""At the most, and of what waits for the socket; who does not wait has another `ROUND_BYTES` where shares count."""
QUANTUM_BYTES: Final = 16 * 1024
"""The least that a turn is worth: where there would be more turns to a round, some have theirs in the next."""
_SLOW_S: Final = 0.25
"""Rounds that the socket takes longer for become as short as that, but for one turn."""
_FAST_S: Final = _SLOW_S / 4
"""Who takes less may have twice as much, and still is not slow."""


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
        """`wake` has a stream send what it has."""
        self._loop = loop
        self._codec = codec
        self._transport = transport
        self._wake = wake
        self.waiting: OrderedDict[int, H2Stream] = OrderedDict()
        """By number, in the order of their turns; others only look."""
        self._fresh_bytes = 0
        """Handed over, and not fetched yet."""
        self._given_bytes = 0
        """Handed over in this round."""
        self._round_number = 0
        self._round_bytes = ROUND_BYTES
        self._full_bytes = FULL_BYTES
        """What may wait for the socket: two rounds."""
        self._unsent_bytes = ROUND_BYTES
        """What the kernel may have beyond what is under way."""
        self._stuck_at_s: float | None = None
        """Since when the socket has not taken all of the round while others wait."""
        transport.keep_unsent_low(ROUND_BYTES)
        self.is_narrow = False
        """The socket has not taken all lately, so each stream has its share."""
        self._is_look_due = False
        self._is_fetched = True
        """All that was handed over before a look became due."""

    # -- what streams ask and say ------------------------------------------------------------------------------------

    def room_for(self, stream: H2Stream) -> int:
        """How many bytes of its body it may send now."""
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
        """For all streams."""
        room_bytes = self._full_bytes - self._fresh_bytes - self._transport.queued_bytes
        if self.is_narrow:
            # Were the queue filled up while it empties, it would never be empty, and no round would begin.
            room_bytes = min(room_bytes, self._round_bytes - self._given_bytes) + ROUND_BYTES
        return max(0, room_bytes)

    def sent(self, stream: H2Stream, size_bytes: int) -> None:
        stream.share_bytes -= size_bytes
        self._fresh_bytes += size_bytes
        self._given_bytes += size_bytes

    def wait(self, stream: H2Stream) -> None:
        """It has more than there is room for, or than the connection's window takes."""
        self.waiting.setdefault(stream.stream_id, stream)
        self._look_later()

    def progress_of(self, stream_id: int) -> int | None:
        """How much the client has acknowledged, of whomsoever, where the socket is what the stream waits for."""
        is_in_line = stream_id in self.waiting and self._codec.has_send_window
        return self._transport.acknowledged_bytes if is_in_line else None

    def forget(self, stream_id: int) -> None:
        self.waiting.pop(stream_id, None)

    # -- what the connection says ------------------------------------------------------------------------------------

    def on_fetched(self) -> None:
        """The transport has taken all that was handed over, and offers it to the socket."""
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
        """That of the connection."""
        if not self._transport.is_writing:
            self._begin_round()

    def on_streams_gone(self) -> None:
        self.waiting.clear()
        self.is_narrow = False

    def close(self) -> None:
        """Nobody has a turn any more."""
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
        """Whether the socket has taken at once what was handed over. Where it has not, `on_drained` follows."""
        if not self._is_fetched:
            # It is at the end of this turn of the loop.
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
        # An event tells of the connection's window.
        if waiting and codec.has_send_window:
            self._look_later()


def _nobody(_: H2Stream) -> None:
    """Is woken."""
