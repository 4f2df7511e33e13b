"""The byte streams of one HTTP connection: input and output with total deadlines, and request bodies.

cheroot's own files only have a timeout per receive, so a client that sends one byte a second can hold a thread for as
long as it likes. Here, the thread that waits for all connections reads the head of a request without blocking
(`Input.gather_head`), and a worker gets a connection only when the head is complete. Reading the body and writing the
response then each have a single deadline. Framing follows RFC 9112 section 7 (chunked) and 6.2 (length).
"""

import contextlib
import errno
import fcntl
import io
import re
import select
import socket
import ssl
import sys
import termios
import time
from abc import abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any

from daemonkit.tlssocket import TlsSocket

_RECEIVE_BYTES = 16 * 1024
_MAX_CHUNK_LINE_BYTES = 256
_MAX_TRAILER_BYTES = 8 * 1024
_LOOK_S = 0.125
"""How often to check whether others need the thread of a client that reads or sends nothing: health probes wait only
1 s."""
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00\r\n]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00\r\n]*\r\n")
_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
_MAX_RECEIVES = 16
"""Per turn, for a head: more than the largest head needs, unless it arrives in tiny TLS records."""


class BodyError(OSError):
    """The request's body cannot be read; the status code says why."""

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(errno.EIO, message)
        self.status_code = status_code
        self.message = message

    def __str__(self) -> str:
        return self.message


class ClientGone(ConnectionError):
    """The client went away or stopped reading before it had the whole response."""

    def __init__(self, message: str) -> None:
        # cheroot recognises harmless ends of a connection by their error number.
        super().__init__(errno.EPIPE, message)


def comes_within(timeout_s: float, sock: socket.socket) -> bool:
    """Whether data arrives in time; the next receive then takes what has arrived, without blocking.

    With a socket timeout instead, each step of a TlsSocket could take all of it.
    """
    sock.settimeout(0)
    if isinstance(sock, TlsSocket) and sock.pending():
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


class Head(Enum):
    """How much of the next request's head has arrived."""

    ABSENT = "nothing received yet"
    PARTIAL = "begun"
    COMPLETE = "complete, or broken beyond doubt"
    GONE = "the client closed before it was complete"


class Input:
    """What the client sends, as the file object from which cheroot reads heads.

    A client that sends nothing of its body is cut off as soon as other requests wait for its thread.
    """

    def __init__(self, sock: socket.socket, max_head_bytes: int, is_thread_needed: Callable[[], bool]) -> None:
        self.closed = False
        self.bytes_read = 0
        self.deadline_s = 0.0
        """When blocking reads give up (monotonic clock)."""
        self.before_wait: Callable[[], None] | None = None
        """Called once, before the first wait for more: it asks for a body that the client holds back."""
        self._socket = sock
        self._max_head_bytes = max_head_bytes
        self._is_thread_needed = is_thread_needed
        self._buffer = bytearray()
        self._searched = 0
        self._is_at_end = False

    def gather_head(self) -> Head:
        """Read what has arrived, without blocking; only part of it if it is a lot, so that others have their turn."""
        head = self._head()
        for _ in range(_MAX_RECEIVES):
            if head is Head.COMPLETE or self._is_at_end:
                break
            self._socket.settimeout(0)
            try:
                self._receive_or_peek()
            except (BlockingIOError, ssl.SSLWantWriteError):
                return head
            except OSError:
                return Head.GONE
            head = self._head()
        return Head.GONE if self._is_at_end and head is not Head.COMPLETE else head

    def _receive_or_peek(self) -> None:
        try:
            self._receive()
        except ssl.SSLWantReadError:
            # A record in pieces, or one without data, as in a handshake. The next one may have arrived as well.
            self._socket.recv(1, socket.MSG_PEEK)

    def _head(self) -> Head:
        buffer = self._buffer
        if empty_lines := _EMPTY_LINES.match(buffer):
            # RFC 9112, 2.2: empty lines before a request are ignored.
            del buffer[: empty_lines.end()]
            self._searched = 0
        if not buffer:
            return Head.ABSENT
        if buffer.find(b"\r\n\r\n", max(0, self._searched - 3)) >= 0 or len(buffer) > self._max_head_bytes:
            return Head.COMPLETE
        first_end = buffer.find(b"\n")
        if first_end >= 0 and not buffer.startswith(b"\r", first_end - 1):
            # A bare line feed is not HTTP: respond with an error at once.
            return Head.COMPLETE
        self._searched = len(buffer)
        return Head.PARTIAL

    def has_data(self) -> bool:
        """Whether a worker could go on at once: the next head is complete, or TLS holds bytes unknown to epoll."""
        return self._head() is Head.COMPLETE or (isinstance(self._socket, TlsSocket) and self._socket.pending() > 0)

    def readline(self, limit: int = -1) -> bytes:
        """A line including its end, or `limit` bytes, or what is left if the client has closed."""
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched) + 1
            if end or 0 <= limit <= len(self._buffer) or not self._fill():
                break
            searched = max(0, len(self._buffer) - _RECEIVE_BYTES)
        wanted = end or len(self._buffer)
        return self._take(wanted if limit < 0 else min(wanted, limit))

    def read(self, size: int | None = None) -> bytes:
        """`size` bytes; fewer only if the client has closed."""
        if size is None or size < 0:
            raise ValueError("reading to the end of a connection would never end")
        while len(self._buffer) < size and self._fill():
            pass
        return self._take(size)

    def read_into(self, target: memoryview) -> int:
        """Read what is available, at least one byte; returns 0 if the client has closed."""
        while not self._buffer:
            if not self._fill():
                return 0
        count = min(len(target), len(self._buffer))
        target[:count] = self._take(count)
        return count

    def _fill(self) -> bool:
        """Block for more bytes until the deadline; returns False if the client has closed."""
        if self._is_at_end:
            return False
        if self.before_wait is not None:
            ask, self.before_wait = self.before_wait, None
            ask()
        self._await_data()
        try:
            return self._receive()
        except (BlockingIOError, ssl.SSLWantReadError):
            # A TLS record in pieces, or one without data.
            return True
        except OSError as error:
            raise BodyError(400, f"the connection broke: {error.strerror or error}") from error

    def _await_data(self) -> None:
        is_needed = False
        while (remaining_s := self.deadline_s - time.monotonic()) > 0:
            if comes_within(min(_LOOK_S, remaining_s), self._socket):
                return
            # Twice in a row, as in `Output.write`.
            was_needed, is_needed = is_needed, self._is_thread_needed()
            if was_needed and is_needed:
                raise BodyError(408, "the request did not arrive, and its thread is needed")
        raise BodyError(408, "the request did not arrive in time")

    def _receive(self) -> bool:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            data = b""
        self._buffer += data
        self.bytes_read += len(data)
        self._is_at_end = not data
        return bool(data)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._searched = 0
        return taken

    def close(self) -> None:
        self.closed = True


class Output:
    """What the client receives; one `write` takes at most `timeout_s`, however slowly the client reads.

    A client that reads nothing is cut off as soon as its thread is needed: a few such clients could hold up health
    probes and the shutdown of the daemon.
    """

    def __init__(self, sock: socket.socket, timeout_s: float, is_thread_needed: Callable[[float], bool]) -> None:
        """`is_thread_needed` is called with the seconds for which the client has taken nothing."""
        self.bytes_written = 0
        self._socket = sock
        self._timeout_s = timeout_s
        self._is_thread_needed = is_thread_needed

    def write(self, data: bytes) -> int:
        deadline_s = time.monotonic() + self._timeout_s
        rest = memoryview(data)
        is_needed = False
        taken_s, untaken_bytes = time.monotonic(), 0
        while rest:
            self._socket.settimeout(max(0.001, min(_LOOK_S, deadline_s - time.monotonic())))
            try:
                rest = rest[self._socket.send(rest) :]
                # As many bytes as the client has taken may have been sent anew, so that the count below does not
                # change.
                taken_s = time.monotonic()
            except TimeoutError as error:
                now_s = time.monotonic()
                if now_s >= deadline_s:
                    raise ClientGone("the client did not read its answer in time") from error
                # The socket accepts more only once a third of its buffer is free, which may be megabytes.
                before_bytes, untaken_bytes = untaken_bytes, self._untaken_bytes()
                if untaken_bytes != before_bytes:
                    taken_s = now_s
                # Twice in a row: at the first check, a thread may be about to become free.
                was_needed, is_needed = is_needed, self._is_thread_needed(now_s - taken_s)
                if was_needed and is_needed:
                    raise ClientGone("the client did not read its answer, and its thread is needed") from error
            except OSError as error:
                raise ClientGone(f"the connection broke: {error.strerror or error}") from error
        self.bytes_written += len(data)
        return len(data)

    def _untaken_bytes(self) -> int:
        """Bytes that the client's kernel has not acknowledged."""
        try:
            return int.from_bytes(fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:
            return 0


class RequestBody(io.RawIOBase):
    """A body that ends by itself; reading raises BodyError if it is late, cut off, malformed or too large."""

    def __init__(self, source: Input) -> None:
        super().__init__()
        self._source = source
        self.is_consumed = False
        """True once no part of it is left in the connection."""

    def readable(self) -> bool:
        return True

    def skip(self, max_bytes: int, timeout_s: float) -> bool:
        """Read and drop a small rest, so that the connection can be reused; returns False if that is not possible."""
        self._source.deadline_s = min(self._source.deadline_s, time.monotonic() + timeout_s)
        scratch = bytearray(min(max_bytes, _RECEIVE_BYTES) or 1)
        with contextlib.suppress(BodyError):
            while not self.is_consumed and max_bytes > 0:
                max_bytes -= self.readinto(scratch)
            return self.is_consumed
        return False

    @abstractmethod
    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what is available; returns 0 at the end of the body."""


class LengthBody(RequestBody):
    """A body of `Content-Length` bytes."""

    def __init__(self, source: Input, length_bytes: int) -> None:
        super().__init__(source)
        self._left_bytes = length_bytes
        self.is_consumed = length_bytes == 0

    def readinto(self, buffer: Any) -> int:
        if self.is_consumed:
            return 0
        count = self._source.read_into(memoryview(buffer).cast("B")[: self._left_bytes])
        if not count:
            raise BodyError(400, f"the body ended {self._left_bytes} bytes before its Content-Length")
        self._left_bytes -= count
        self.is_consumed = self._left_bytes == 0
        return count


class ChunkedBody(RequestBody):
    """A chunked body; a chunk that exceeds `max_bytes` in total is an error as soon as its size is announced."""

    def __init__(self, source: Input, max_bytes: int | None) -> None:
        super().__init__(source)
        self._chunk_left_bytes = 0
        self._room_bytes = max_bytes
        self._max_bytes = max_bytes
        self._failure: tuple[int, str] | None = None

    def readinto(self, buffer: Any) -> int:
        if self.is_consumed:
            return 0
        if self._failure is not None:
            raise BodyError(*self._failure)
        try:
            return self._read_next(buffer)
        except BodyError as failure:
            # Nobody knows where a chunk begins now, nor the next request: what looks like one may be data.
            self._failure = failure.status_code, failure.message  # the error itself refers to its frames, and us
            raise

    def _read_next(self, buffer: Any) -> int:
        if not self._chunk_left_bytes:
            self._open_chunk()
            if self.is_consumed:
                return 0
        count = self._source.read_into(memoryview(buffer).cast("B")[: self._chunk_left_bytes])
        if not count:
            raise BodyError(400, "the body ended inside a chunk")
        self._chunk_left_bytes -= count
        if not self._chunk_left_bytes and self._source.read(2) != b"\r\n":
            raise BodyError(400, "a chunk is longer than its announced size")
        return count

    def _open_chunk(self) -> None:
        match = _CHUNK_SIZE.fullmatch(self._source.readline(_MAX_CHUNK_LINE_BYTES))
        if match is None:
            raise BodyError(400, "malformed chunk size, want hexadecimal digits")
        size_bytes = int(match[1], 16)
        if size_bytes == 0:
            self._read_trailers()
            self.is_consumed = True
        elif self._room_bytes is not None:
            self._room_bytes -= size_bytes
            if self._room_bytes < 0:
                raise BodyError(413, f"the body is larger than {self._max_bytes} bytes")
        self._chunk_left_bytes = size_bytes

    def _read_trailers(self) -> None:
        room_bytes = _MAX_TRAILER_BYTES
        while (line := self._source.readline(room_bytes)) != b"\r\n":
            room_bytes -= len(line)
            if not _TRAILER.fullmatch(line) or room_bytes <= 0:
                raise BodyError(400, "malformed or too long trailers after the body")
