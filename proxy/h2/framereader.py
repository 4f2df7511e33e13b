"""Cut received bytes into frames; keep only an unfinished one (RFC 9113, 3.4 and 4.1).

DATA payloads of at least VIEW_BYTES are views into the received bytes, so bodies are not copied, except for a frame
that is split between two calls. Memory is bounded by one frame of our own MAX_FRAME_SIZE.
"""

from collections.abc import Iterator
from typing import Any

from proxy.h2 import frames
from proxy.h2.errors import ErrorCode, RemoteProtocolError

# Below this a copy is cheaper than a view, and does not keep a large read alive.
VIEW_BYTES = 2_048

Frame = tuple[int, int, int, Any]
"""Type, flags, stream identifier, payload: `bytes`, or for large DATA a view."""


class FrameReader:
    __slots__ = ("_expected_preface", "_max_frame_bytes", "_tail")

    def __init__(self, max_frame_bytes: int, *, expects_preface: bool) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._expected_preface = frames.PREFACE if expects_preface else b""
        self._tail = b""

    def frames(self, data: bytes) -> Iterator[Frame]:
        """Yield each complete frame, in order. Raises on reaching a bad preface or a frame that is too large."""
        pos = self._skip_preface(data) if self._expected_preface else 0
        if self._tail:
            pos = self._complete_tail(data)
            if self._length_of(self._tail) != len(self._tail):
                return
            whole, self._tail = self._tail, b""
            yield from self._cut(whole, 0)
        yield from self._cut(data, pos)

    def _cut(self, data: bytes, pos: int) -> Iterator[Frame]:
        end = len(data)
        unpack = frames.FRAME_HEAD.unpack_from
        view: memoryview | None = None
        while end - pos >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = unpack(data, pos)
            length = high << 8 | low
            if length > self._max_frame_bytes:
                raise frames.wrong_size("frame", length, f"at most {self._max_frame_bytes}")
            start = pos + frames.HEAD_BYTES
            if start + length > end:
                break
            pos = start + length
            if kind == frames.DATA and length >= VIEW_BYTES:
                view = view or memoryview(data)
                yield kind, flags, stream_id & frames.MAX_STREAM_ID, view[start:pos]
            else:
                yield kind, flags, stream_id & frames.MAX_STREAM_ID, data[start:pos]
        if pos < end:
            self._tail = data[pos:]

    def _complete_tail(self, data: bytes) -> int:
        """Move what the unfinished frame lacks from `data` to the tail; returns how much that was."""
        moved = 0
        # Twice: the frame's head may have to be completed before its length is known.
        for _ in range(2):
            lacking = self._length_of(self._tail) - len(self._tail)
            self._tail += data[moved : moved + lacking]
            moved = min(moved + lacking, len(data))
        return moved

    def _length_of(self, frame: bytes) -> int:
        """The length of the frame that starts like this; nine bytes while it is unknown."""
        if len(frame) < frames.HEAD_BYTES:
            return frames.HEAD_BYTES
        length = int.from_bytes(frame[:3], "big")
        if length > self._max_frame_bytes:
            raise frames.wrong_size("frame", length, f"at most {self._max_frame_bytes}")
        return frames.HEAD_BYTES + length

    def _skip_preface(self, data: bytes) -> int:
        expected = self._expected_preface
        seen = data[: len(expected)]
        if not expected.startswith(seen):
            reason = f"connection preface {seen[:24]!r}, want {expected!r}"
            raise RemoteProtocolError(ErrorCode.PROTOCOL_ERROR, reason)
        self._expected_preface = expected[len(seen) :]
        return len(seen)
