"""Reads messages from a byte stream (Cap'n Proto encoding, "Serialization over a stream").

    for root in reader.receive(data): ...

A frame header gives the number of segments and their sizes; both are checked before anything is allocated for them.
`data` need not end at message boundaries: it may hold part of a message, or several.
"""

from collections.abc import Iterator
from typing import Final

from proxy.tunnel.capnp.decoding import decode
from proxy.tunnel.capnp.errors import MalformedMessage
from proxy.tunnel.capnp.values import WORD_BYTES, Struct

MAX_SEGMENTS: Final = 512
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Responses to a registration have a few hundred bytes. Once decoded, a message takes up to about twenty times its size
in memory."""
_NUMBER_BYTES: Final = 4


class MessageReader:
    """After MalformedMessage it must not be used again: the start of the next message is unknown."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._wanted_bytes = WORD_BYTES
        """How many bytes must be buffered before the next step."""

    @property
    def has_part(self) -> bool:
        """Whether a message has been received in part."""
        return bool(self._buffer)

    def receive(self, data: bytes | memoryview) -> Iterator[Struct]:
        """Yield the roots of the messages that are complete now. Raises MalformedMessage."""
        self._buffer += data
        while len(self._buffer) >= self._wanted_bytes:
            segments = self._next()
            if segments is not None:
                yield decode(segments)

    def _next(self) -> list[bytes] | None:
        """Take one message off the buffer; None if more bytes are needed."""
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
