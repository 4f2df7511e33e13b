"""Remove the framing of message bodies: by length, in chunks, until the connection closes (RFC 9112, 6 and 7).

A reader takes the bytes received and an offset, appends `DataReceived` and `TrailersReceived` events, and returns the
offset up to which it has read; `is_done` says that the message ended there. Data is handed out as views; only small
pieces are copied, and small chunks are joined. Chunk framing is read here and not by llhttp, because httptools does not
say where in its input a message ended, and so could not tell a body from the pipelined request behind it.

Stricter than RFC 9112, 7.1 where readers differ: sizes have at most 16 digits and no spaces around them, lines end with
CRLF, extensions hold no control characters and are bounded and dropped. In responses spaces may follow a size: some
devices pad it to four characters.
"""

import re
import sys
from typing import Final, Protocol

from proxy.h1.errors import FIELDS_TOO_LARGE, RemoteProtocolError
from proxy.h1.events import DataReceived, Event, TrailersReceived
from proxy.h1.grammar import decode_trailers
from proxy.h1.headbuffer import BARE_LINE_END
from proxy.h1.limits import Limits

CHUNKED: Final = -1
UNTIL_CLOSE: Final = -2
"""In place of a length: the body ends with its last chunk, or with the connection."""
UNLIMITED: Final = sys.maxsize

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
# Matches the start of a line that may still become valid, so that rubbish is refused at once.
_SIZE_LINE_START = re.compile(rb"[0-9A-Fa-f]{1,16}(?:\r|;[^\x00-\x08\x0a-\x1f\x7f]*\r?)?")
_PADDED_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_PADDED_SIZE_LINE_START = re.compile(rb"[0-9A-Fa-f]{1,16}[ \t]*(?:\r|;[^\x00-\x08\x0a-\x1f\x7f]*\r?)?")
COPIED_BYTES = 2048
"""Below this a copy is cheaper than a view, and does not keep a large read alive."""
_SMALL_CHUNKS_BYTES = 64 * 1024
_SMALL_CHUNK_BYTES = 4 * 1024
_BAD_REQUEST = 400


class BodyReader(Protocol):
    is_done: bool

    def read(self, data: bytes, start: int, events: list[Event], max_chunks: int) -> int: ...


class LengthReader:
    """A body of known length, at least 1."""

    __slots__ = ("_left_bytes", "is_done")

    def __init__(self, length_bytes: int) -> None:
        self._left_bytes = length_bytes
        self.is_done = False

    def read(self, data: bytes, start: int, events: list[Event], max_chunks: int) -> int:  # noqa: ARG002
        available_bytes = len(data) - start
        taken_bytes = min(available_bytes, self._left_bytes)
        self._left_bytes -= taken_bytes
        self.is_done = self._left_bytes == 0
        if start == 0 and taken_bytes == len(data):
            piece: bytes | memoryview = data
        elif taken_bytes < COPIED_BYTES:
            piece = data[start : start + taken_bytes]
        else:
            piece = memoryview(data)[start : start + taken_bytes]
        events.append(DataReceived(piece, self.is_done))
        return start + taken_bytes


class EndlessReader:
    """A body that ends with the connection, or the raw bytes after a switch of protocols."""

    __slots__ = ("is_done",)

    def __init__(self) -> None:
        self.is_done = False

    def read(self, data: bytes, start: int, events: list[Event], max_chunks: int) -> int:  # noqa: ARG002
        events.append(DataReceived(data if start == 0 else memoryview(data)[start:], False))
        return len(data)


class ChunkedReader:
    """`status_code` answers broken framing: 400 if a client sent it, 502 if a backend did."""

    __slots__ = (
        "_extension_bytes",
        "_held",
        "_left_bytes",
        "_limits",
        "_needs_crlf",
        "_reads_trailers",
        "_size_line",
        "_size_line_start",
        "_status_code",
        "is_done",
    )

    def __init__(self, limits: Limits, status_code: int) -> None:
        self._limits = limits
        self._status_code = status_code
        is_request = status_code == _BAD_REQUEST
        self._size_line = _SIZE_LINE if is_request else _PADDED_SIZE_LINE
        self._size_line_start = _SIZE_LINE_START if is_request else _PADDED_SIZE_LINE_START
        # An incomplete size line, CRLF after a chunk, or trailer section.
        self._held = b""
        self._left_bytes = 0
        self._needs_crlf = False
        self._reads_trailers = False
        self._extension_bytes = 0
        self.is_done = False

    def read(self, data: bytes, start: int, events: list[Event], max_chunks: int) -> int:
        """Stops at the end of the message, or after `max_chunks` chunks; one continued from the last call counts."""
        pieces: list[memoryview] = []
        if self._left_bytes:
            max_chunks -= 1
        try:
            return self._read(data, start, pieces, events, max_chunks)
        finally:
            # Also when an error is raised: what came before it was received all the same.
            _report(pieces, events)

    def _read(self, data: bytes, start: int, pieces: list[memoryview], events: list[Event], max_chunks: int) -> int:
        view = memoryview(data)
        size = len(data)
        while start < size:
            if self._left_bytes:
                taken_bytes = min(size - start, self._left_bytes)
                pieces.append(view[start : start + taken_bytes])
                self._left_bytes -= taken_bytes
                start += taken_bytes
                self._needs_crlf = not self._left_bytes
            elif self._needs_crlf:
                start = self._read_crlf(data, start)
            elif self._reads_trailers:
                start = self._read_trailers(data, start, pieces, events)
                if self.is_done:
                    break
            elif max_chunks:
                max_chunks -= 1
                start = self._read_size_line(data, start)
            else:
                break
        return start

    def _read_crlf(self, data: bytes, start: int) -> int:
        wanted = b"\n" if self._held else b"\r\n"
        seen = data[start : start + len(wanted)]
        if not wanted.startswith(seen):
            raise self._error("chunk longer than its size, want CRLF after it")
        if seen == wanted:
            self._held = b""
            self._needs_crlf = False
        else:
            self._held = seen
        return start + len(seen)

    def _read_size_line(self, data: bytes, start: int) -> int:
        max_bytes = self._limits.max_chunk_line_bytes
        # The line with its CRLF. All of it lies in `data`, but for the few bytes held from before.
        end = data.find(b"\n", start, start + max_bytes + 2)
        line = self._held + data[start : end + 1 if end >= 0 else start + max_bytes + 2]
        match = self._size_line.fullmatch(line)
        if match is None:
            if not self._size_line_start.fullmatch(line):
                raise self._error("malformed chunk size line, want 1 to 16 hexadecimal digits and CRLF")
            if len(line) > max_bytes:
                raise self._error(f"chunk size line longer than {max_bytes} bytes")
            self._held = line
            return len(data)
        if len(line) > max_bytes:
            raise self._error(f"chunk size line longer than {max_bytes} bytes")
        self._held = b""
        self._begin_chunk(int(match[1], 16), len(match[2] or b""))
        return end + 1

    def _begin_chunk(self, size_bytes: int, extension_bytes: int) -> None:
        self._extension_bytes += extension_bytes
        if self._extension_bytes > self._limits.max_chunk_extension_bytes:
            raise self._error(f"chunk extensions of more than {self._limits.max_chunk_extension_bytes} bytes")
        self._left_bytes = size_bytes
        self._reads_trailers = not size_bytes

    def _read_trailers(self, data: bytes, start: int, pieces: list[memoryview], events: list[Event]) -> int:
        """The section is CRLF alone, or field lines and an empty line."""
        max_bytes = self._limits.max_trailer_bytes
        known = len(self._held)
        held = self._held + data[start : start + max_bytes + 4]
        if held.startswith(b"\r\n"):
            self.is_done = True
            _report(pieces, events)
            _end(events)
            return start + 2 - known
        end = held.find(b"\r\n\r\n", max(known - 3, 0))
        section = held[: end + 4] if end >= 0 else held
        bare = BARE_LINE_END.search(section, max(known - 1, 0), len(section) - (end < 0 and section.endswith(b"\r")))
        if bare is not None and bare.start() + (bare[0] == b"\r") <= max_bytes:
            raise self._error("trailer line ends with a bare CR or LF, want CRLF")
        if len(section) > max_bytes:
            raise RemoteProtocolError(FIELDS_TOO_LARGE, f"trailers larger than {max_bytes} bytes")
        if end < 0:
            self._held = held
            return len(data)
        count, max_count = section.count(b"\r\n") - 1, self._limits.max_fields
        if count > max_count:
            raise RemoteProtocolError(FIELDS_TOO_LARGE, f"{count} trailer fields, want at most {max_count}")
        fields = decode_trailers(section, self._status_code)
        self.is_done = True
        _report(pieces, events)
        events.append(TrailersReceived(fields))
        return start + end + 4 - known

    def _error(self, reason: str) -> RemoteProtocolError:
        return RemoteProtocolError(self._status_code, reason)


def reader_for(length_bytes: int, limits: Limits, status_code: int) -> BodyReader:
    """The reader for a body of `length_bytes`, or CHUNKED or UNTIL_CLOSE. For `status_code` see `ChunkedReader`."""
    if length_bytes == CHUNKED:
        return ChunkedReader(limits, status_code)
    return EndlessReader() if length_bytes == UNTIL_CLOSE else LengthReader(length_bytes)


def _report(pieces: list[memoryview], events: list[Event]) -> None:
    """Append as few events as possible: an attacker's body of tiny chunks must not cost an event per chunk."""
    size_bytes = sum(map(len, pieces))
    if len(pieces) > 1 and size_bytes <= max(_SMALL_CHUNKS_BYTES, len(pieces) * _SMALL_CHUNK_BYTES):
        events.append(DataReceived(b"".join(pieces), False))
    else:
        events.extend(DataReceived(piece, False) for piece in pieces)
    pieces.clear()


def _end(events: list[Event]) -> None:
    last = events[-1] if events else None
    if isinstance(last, DataReceived):
        last.end_stream = True
    else:
        events.append(DataReceived(b"", True))
