"""Records are gathered on the loop's thread; a separate thread formats and writes them.

The loop's thread appends to a list, and hands it over every tenth of a second, so that one wake-up of the other thread
serves many records. Records that wait are limited in bytes; above the limit they are dropped and counted, as are those
that cannot be written. Lines are written to standard error in pieces that a pipe takes atomically, since several
processes write to it.
"""

import queue
import random
import select
import threading
from functools import partial
from typing import Final

from daemonkit.linesink import LineSink
from daemonkit.logs import get_logger
from proxy.accesslog.lines import LineMaker, is_failure
from proxy.accesslog.settings import ALL, OFF, AccessLogSettings
from proxy.exchange.record import Record
from proxy.loop import Loop
from proxy.stats import Stats

log = get_logger(__name__)

MAX_WAITING_BYTES: Final = 12 * 1024 * 1024
"""How much memory records that wait to be written may take."""
_RECORD_BYTES: Final = 600
"""The size of a usual record. Texts that the client chooses count in addition."""
_GATHER_S: Final = 0.1
_STDERR: Final = 2
_LAST_WRITE_S: Final = 2.0

_Batch = list[Record]


class AccessLogWriter:
    """All public methods belong to the loop's thread."""

    def __init__(self, loop: Loop, stats: Stats, settings: AccessLogSettings, descriptor: int = _STDERR) -> None:
        self._loop = loop
        self._stats = stats
        self._is_off = settings.mode == OFF
        self._share = settings.sample if settings.mode == ALL else 0.0
        self._draw = random.random
        self._gathered: _Batch = []
        self._hand_over_soon = loop.deadline(self._hand_over)
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._lines = LineMaker(settings.format)
        # It may wait without limit: its thread has nothing else to do.
        self._sink = LineSink(descriptor, patience_s=None)
        # Each is changed by one thread only; their difference is what waits.
        self._accepted_bytes = 0
        self._written_bytes = 0
        self._thread = threading.Thread(target=self._write_batches, name="access-log", daemon=True)

    def start(self) -> None:
        if not self._is_off:
            self._thread.start()

    def wants(self, status_code: int, has_failed: bool) -> bool:
        """Whether such an exchange gets a line, see `Record`. Ask once for each, before creating its record."""
        share = self._share
        if share < 1.0 and not is_failure(status_code, has_failed) and (share <= 0.0 or self._draw() >= share):
            return False
        return not self._is_off

    def write(self, record: Record) -> None:
        """Write a wanted record. Never blocks: if too many wait to be written, it is dropped."""
        if self._accepted_bytes - self._written_bytes >= MAX_WAITING_BYTES:
            self._drop(1)
            return
        self._accepted_bytes += _size_bytes(record)
        if not self._gathered:
            self._hand_over_soon.set(self._loop.now_s + _GATHER_S)
        self._gathered.append(record)

    def close(self) -> None:
        """Write what still waits, but only for a moment."""
        self._hand_over()
        self._batches.put(None)
        if self._thread.is_alive():
            self._thread.join(_LAST_WRITE_S)

    def _hand_over(self) -> None:
        if self._gathered:
            self._batches.put(self._gathered)
            self._gathered = []

    def _drop(self, count: int) -> None:
        self._stats.access_log_dropped += count

    # -- the other thread --------------------------------------------------------------------------------------------

    def _write_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            piece: list[bytes] = []
            size_bytes = 0
            for record in batch:
                line = self._line(record)
                if size_bytes + len(line) > select.PIPE_BUF:
                    self._put(piece)
                    piece, size_bytes = [], 0
                piece.append(line)
                size_bytes += len(line)
                self._written_bytes += _size_bytes(record)
            self._put(piece)

    def _line(self, record: Record) -> bytes:
        try:
            return self._lines.line(record)
        except Exception:
            log.exception("bug: a line of the access log cannot be made")
            return b""

    def _put(self, piece: list[bytes]) -> None:
        unwritten = self._sink.write(b"".join(piece))
        if unwritten:
            self._loop.call_from_thread(partial(self._drop, unwritten.count(b"\n")))


def _size_bytes(record: Record) -> int:
    return _RECORD_BYTES + len(record.path) + len(record.host) + len(record.method)
