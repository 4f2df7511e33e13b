"""Messages out of a stream of bytes (Cap'n Proto encoding, "Serialization over a stream").

    for root in reader.receive(data): ...

A frame says how many segments follow and how long each is; both are bounded before anything is stored for them. Pieces
of a stream have nothing to do with messages: one may bring half of one, or several.
"""

from collections.abc import Iterator
from typing import Final

from proxy.tunnel.capnp.decoding import decode
from proxy.tunnel.capnp.errors import MalformedMessage
from proxy.tunnel.capnp.values import WORD_BYTES, Struct

MAX_SEGMENTS: Final = 512
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Answers to a registration have some hundred bytes. What is read takes about twenty times as much memory, at most."""
_NUMBER_BYTES: Final = 4


class MessageReader:
    """After MalformedMessage nothing more can be read: where the next message starts is not known."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._wanted_bytes = WORD_BYTES
        """Less than that cannot be dealt with."""

    @property
    def has_part(self) -> bool:
        """A message has begun to arrive and is not complete."""
        return bool(self._buffer)

    def receive(self, data: bytes | memoryview) -> Iterator[Struct]:
        """The roots of the messages that are complete now. Raises MalformedMessage."""
        self._buffer += data
        while len(self._buffer) >= self._wanted_bytes:
            segments = self._next()
            if segments is not None:
                yield decode(segments)

    def _next(self) -> list[bytes] | None:
        """Take one message off the buffer; None when more bytes are wanted."""
        buffer = self._buffer
        segment_count = self._number(0) + 1
        if segment_count > MAX_SEGMENTS:
            raise MalformedMessage(f"message of {segment_count} segments, want at most {MAX_SEGMENTS}")
        head_bytes = (_NUMBER_BYTES * (segment_count + 1) + WORD_BYTES - 1) // WORD_BYTES * WORD_BYTES
        if len(buffer) < head_bytes:
            self._wanted_bytes = head_bytes
            return None
        sizes = [self._number(_NUMBER_BYTES * (index + 1)) * WORD_BYTES for index in range(segment_count)]
        end = head_bytes + sum(sizes)
        if end > self._max_message_bytes:
            raise MalformedMessage(f"message of {end} bytes, want at most {self._max_message_bytes}")
        if len(buffer) < end:
            self._wanted_bytes = end
            return None
        segments, start = [], head_bytes
        for size in sizes:
            segments.append(bytes(buffer[start : start + size]))
            start += size
        del buffer[:end]
        self._wanted_bytes = WORD_BYTES
        return segments

    def _number(self, at: int) -> int:
        return int.from_bytes(self._buffer[at : at + _NUMBER_BYTES], "little")
