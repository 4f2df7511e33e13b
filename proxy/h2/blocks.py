"""Field blocks spread over HEADERS and CONTINUATION frames (RFC 9113, 4.3 and 6.10), within bounds.

A block may be twice as long as the field list size that we announce, so that it can be answered with 431. A longer one,
or one in more frames than the limit, is a connection error: a block that is not decoded breaks the compression state.
"""

from proxy.h2 import frames
from proxy.h2.errors import ErrorCode, FieldsTooLargeError, RemoteProtocolError


class Assembly:
    """A block that still lacks END_HEADERS; until it comes, the peer may send nothing else."""

    __slots__ = ("_fragments", "_max_bytes", "_max_continuations", "_size_bytes", "end_stream", "flaw", "stream_id")

    def __init__(
        self,
        stream_id: int,
        fragment: bytes,
        end_stream: bool,
        flaw: str | None,
        max_bytes: int,
        max_continuations: int,
    ) -> None:
        self.stream_id = stream_id
        self.end_stream = end_stream
        # Why the HEADERS frame itself is a stream error; the block must be decoded all the same.
        self.flaw = flaw
        self._fragments = [fragment]
        self._size_bytes = len(fragment)
        self._max_bytes = max_bytes
        self._max_continuations = max_continuations

    def add(self, kind: int, flags: int, stream_id: int, fragment: bytes) -> bytes | None:
        """Add a frame. Returns the block if it is complete."""
        if kind != frames.CONTINUATION or stream_id != self.stream_id:
            seen = f"frame of type {kind} on stream {stream_id} inside a field block"
            reason = f"{seen}, want CONTINUATION on {self.stream_id}"
            raise RemoteProtocolError(ErrorCode.PROTOCOL_ERROR, reason)
        self._fragments.append(fragment)
        self._size_bytes += len(fragment)
        is_too_large = self._size_bytes > self._max_bytes
        if is_too_large or len(self._fragments) > self._max_continuations + 1:
            reason = (
                f"field block of {self._size_bytes} bytes and more in {len(self._fragments)} frames, "
                f"want at most {self._max_bytes} in {self._max_continuations + 1}"
            )
            if is_too_large:
                raise FieldsTooLargeError(reason)
            raise RemoteProtocolError(ErrorCode.ENHANCE_YOUR_CALM, reason)
        return b"".join(self._fragments) if flags & frames.END_HEADERS else None


def header_fragment(flags: int, stream_id: int, payload: bytes) -> tuple[bytes, str | None]:
    """The field block fragment of a HEADERS frame with padding or priority, and the priority's flaw, if any."""
    if flags & frames.PADDED:
        payload = frames.strip_padding(payload)
    if not flags & frames.PRIORITIZED:
        return payload, None
    if len(payload) < 5:
        raise frames.wrong_size("HEADERS with priority", len(payload), "at least 5 without padding")
    flaw = "stream depends on itself" if frames.decode_dependency(payload) == stream_id else None
    return payload[5:], flaw
