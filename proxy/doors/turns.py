"""Whose body goes next where a connection takes less than its streams have: each in turn, a piece at a time.

Streams wait here for the connection's window, and for the socket. What waits for the socket lies before all that is
said later: over a narrow line it is what a new response, and the answer to a PING, wait for. So bodies are handed to it
only while little waits there; the rest stays with the exchanges, which hold their backends back.
"""

from collections import OrderedDict
from typing import Final

from proxy import h2
from proxy.doors.h2stream import H2Stream
from proxy.loop import Transport

FULL_BYTES: Final = 256 * 1024
"""As much waits for the socket: a twentieth of a second at 40 Mbit/s."""
_PIECE_BYTES: Final = 64 * 1024
"""Of each stream, while others wait."""


class Turns:
    __slots__ = ("_codec", "_fresh_bytes", "_transport", "_waiting")

    def __init__(self, codec: h2.Connection, transport: Transport) -> None:
        self._codec = codec
        self._transport = transport
        self._waiting: OrderedDict[int, H2Stream] = OrderedDict()
        self._fresh_bytes = 0
        """Of bodies, that the transport has not fetched yet."""

    def __contains__(self, stream_id: int) -> bool:
        return stream_id in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room_bytes(self) -> int:
        """What a stream may send of its body now."""
        room_bytes = FULL_BYTES - self._fresh_bytes - self._transport.queued_bytes
        if room_bytes <= 0:
            return 0
        return min(room_bytes, _PIECE_BYTES) if self._waiting else room_bytes

    def sent(self, size_bytes: int) -> None:
        self._fresh_bytes += size_bytes

    def fetched(self) -> None:
        """By the transport, all that was sent."""
        self._fresh_bytes = 0

    def add(self, stream: H2Stream) -> None:
        """It has more than there is room for, or than the connection's window takes; does nothing if it waits."""
        self._waiting.setdefault(stream.stream_id, stream)

    def forget(self, stream_id: int) -> None:
        if self._waiting:
            self._waiting.pop(stream_id, None)

    def clear(self) -> None:
        self._waiting.clear()

    def next(self) -> H2Stream | None:
        """Who is to send now. What it has left then is told by `add` again."""
        waiting = self._waiting
        if waiting and self._codec.has_send_window and self.room_bytes:
            return waiting.popitem(last=False)[1]
        return None

    def progress_of(self, stream_id: int) -> int | None:
        """How much the client has acknowledged, of whomsoever, where the socket is what the stream waits for."""
        is_in_line = stream_id in self._waiting and self._codec.has_send_window
        return self._transport.acknowledged_bytes if is_in_line else None

    @property
    def is_next_turn_due(self) -> bool:
        """There may be room when this turn's output has left; of what stays, and of the window, an event will tell."""
        return bool(self._waiting and self._fresh_bytes) and self._codec.has_send_window
