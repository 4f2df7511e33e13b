"""Writes lines to a descriptor whose reader may be slow or may have stopped: a pipe, a socket, a file.

Logging must never stop the program. If the reader does not keep up, a write waits only briefly; after one such wait in
vain, later writes do not wait at all. The caller counts the lines that were dropped. A line cut off in this way, or by
a full disk, is terminated before the next one begins. Data is written in pieces so small that a pipe takes each of them
either completely or not at all. For one thread at a time.
"""

import os
import select
from typing import Final

PATIENCE_S: Final = 0.05


class LineSink:
    def __init__(self, descriptor: int, patience_s: float | None = PATIENCE_S) -> None:
        """If `patience_s` is None, writing waits for as long as it takes."""
        self._descriptor = descriptor
        self._patience_ms = None if patience_s is None else patience_s * 1000
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._is_stuck = False
        self._is_line_open = False

    def write(self, lines: bytes) -> bytes:
        """Returns what was not written; empty if all was. Never raises OSError."""
        rest = memoryview(b"\n" + lines if self._is_line_open else lines)
        size_bytes = len(rest)
        try:
            while rest and self._has_room():
                rest = self._write_piece(rest)
        except OSError:
            pass  # the pipe is closed, or the disk full: the rest is lost
        if len(rest) < size_bytes:
            self._is_line_open = bool(rest)
        # Without a limit it waits the next time too: the reader of a FIFO may have been replaced by another.
        self._is_stuck = bool(rest) and self._patience_ms is not None
        # The newline that ends an earlier line does not count.
        return bytes(rest[max(0, len(rest) - len(lines)) :])

    def _has_room(self) -> bool:
        """Also true if the reader has gone; the write then fails."""
        return bool(self._poll.poll(0 if self._is_stuck else self._patience_ms))

    def _write_piece(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]
        except BlockingIOError:
            # Another writer has taken the room in between.
            return rest
