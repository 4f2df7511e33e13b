"""The lingering close of a connection whose client was refused with a short answer (RFC 9112, 9.6).

A client may have sent more by then, such as its request right after a handshake that we refuse. Data that is unread
when a socket is closed, or that comes later, makes the kernel reset the connection; then the client fails to send, and
never reads the answer. So the rest is received and dropped until the client closes, for a second at most.
"""

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from proxy.loop import Loop

MAX_S: Final = 1.0
_MAX_BYTES: Final = 256 * 1024


class LingeringClose:
    """Calls `on_over` once, unless `end` is called before; the caller then closes the socket."""

    __slots__ = ("_deadline", "_left_bytes", "_loop", "_on_over", "_sock")

    def __init__(self, loop: Loop, sock: socket.socket, on_over: Callable[[], None]) -> None:
        """`sock` is non-blocking, not watched by the loop, and has taken the answer."""
        self._loop = loop
        self._sock = sock
        self._on_over: Callable[[], None] | None = on_over
        self._left_bytes = _MAX_BYTES
        self._deadline = loop.deadline(self._end_and_tell)

    def start(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        self._deadline.set(self._loop.now_s + MAX_S)
        with contextlib.suppress(OSError):  # not watched, it lasts until the deadline
            self._loop.watch(self._sock, self)

    def end(self) -> None:
        """Does nothing the second time."""
        if self._on_over is not None:
            self._on_over = None
            self._deadline.cancel()
            self._loop.unwatch(self._sock)

    def on_readable(self) -> None:
        if self._on_over is None:
            return
        try:
            # The raw bytes below TLS: their content does not matter.
            received = socket.socket.recv(self._sock, _MAX_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        self._left_bytes -= len(received)
        if not received or self._left_bytes <= 0:
            self._end_and_tell()

    def on_writable(self) -> None:
        """Never asked for."""

    def on_bug(self) -> None:
        self._end_and_tell()

    def _end_and_tell(self) -> None:
        on_over = self._on_over
        self.end()
        if on_over is not None:
            on_over()
