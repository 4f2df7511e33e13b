"""Lines on their way to a descriptor whose reader may be slow, or may have stopped: a pipe, a socket, a file.

A log must never stop what it tells of. So writing waits for a moment at most where the reader does not keep up, and
not at all after that has once been in vain; what finds no room is for the caller to count. A line that was cut off
there, or by a full disk, is ended before the next one begins. Pieces are so small that a pipe takes each of them whole
or has no room for it. One thread at a time.
"""

import os
import select
from typing import Final

PATIENCE_S: Final = 0.05


class LineSink:
    def __init__(self, descriptor: int, patience_s: float | None = PATIENCE_S) -> None:
        """With `patience_s` None, writing waits for as long as it takes."""
        self._descriptor = descriptor
        self._patience_ms = None if patience_s is None else patience_s * 1000
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._is_stuck = False
        self._is_line_open = False

    def write(self, lines: bytes) -> bytes:
        """Returns what was not written: empty when all was. Never raises OSError."""
        rest = memoryview(b"\n" + lines if self._is_line_open else lines)
        size_bytes = len(rest)
        try:
            while rest and self._has_room():
                rest = self._write_piece(rest)
        except OSError:
            pass  # the pipe is closed, or the disk full: the rest is lost
        if len(rest) < size_bytes:
            self._is_line_open = bool(rest)
        self._is_stuck = bool(rest)
        # Without the end of an earlier line.
        return bytes(rest[max(0, len(rest) - len(lines)) :])

    def _has_room(self) -> bool:
        """Also where the reader has gone, which writing will tell."""
        return bool(self._poll.poll(0 if self._is_stuck and self._patience_ms is not None else self._patience_ms))

    def _write_piece(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]
        except BlockingIOError:
            # Somebody else has taken the room in between.
            return rest
