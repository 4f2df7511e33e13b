"""Logs: one JSON object per line on stderr, or one readable line for a person.

Keys in this order: `time` (RFC 3339, UTC, milliseconds), `level`, `msg` (a constant), `error` if there is one, then the
fields of the call in snake_case; `stack` only for bugs. Our code logs through `Logger`, because the standard library
refuses fields called `name`, `args` or `module`, and `name` is our most common one. Third-party loggers and `warnings`
pass through the same handler, with a field `logger`.

A Secret in a field value is redacted wherever it is nested. Libraries that would log secrets at debug are silenced at
that level. A newline in a value can never start a new line. A line that cannot be written (reader stopped, pipe closed,
disk full) is dropped, and the number of dropped lines is logged as soon as possible: logging never raises, and never
blocks for long. Any thread may log.

If the log goes to systemd's journal, each line begins with its priority, which the journal removes (sd-daemon(3)).
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

from daemonkit.linesink import LineSink
from daemonkit.logformat import FIELDS_ATTRIBUTE, JsonFormatter, TextFormatter

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMATS: Final = ("json", "text")

_PRIORITIES: Final = {logging.DEBUG: "<7>", logging.INFO: "<6>", logging.WARNING: "<4>", logging.ERROR: "<3>"}
"""Priorities of syslog(3). Libraries also use CRITICAL, which is logged as an error."""

# Libraries whose own handlers would write lines in another format.
_LIBRARIES_WITH_HANDLERS = ("werkzeug", "cheroot", "urllib3", "requests", "py.warnings")

# Libraries that log at debug what passes through them: request fields, tokens, API server responses.
_INDISCREET_LIBRARIES = ("hpack", "kubernetes.client.rest", "oauthlib", "requests_oauthlib")


def setup(level: str = "info", fmt: str = "json", stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream` (stderr); may be called again to change level or format."""
    handler = _LineHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if fmt == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        # Our handlers from an earlier call, and those of `logging.basicConfig`; no others.
        if isinstance(old, _LineHandler) or type(old) is logging.StreamHandler:
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    for name in _LIBRARIES_WITH_HANDLERS:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    for name in _INDISCREET_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.INFO, LEVELS[level]))
    logging.captureWarnings(capture=True)


class _LineHandler(logging.Handler):
    """Writes whole lines past Python's buffers, so that no line is lost when the process ends at once."""

    def __init__(self, stream: TextIO | None) -> None:
        """`stream` is None in a process that was started without stderr: nothing is written."""
        super().__init__()
        self._stream = stream
        self._sink: LineSink | None = None
        self._lost = 0
        """Lines lost since the last one was written."""
        self._is_journal = False
        with contextlib.suppress(OSError, ValueError):
            self._sink = LineSink(stream.fileno()) if stream is not None else None
            self._is_journal = stream is not None and _is_journal(stream.fileno())

    def emit(self, record: logging.LogRecord) -> None:
        # A failure cannot be reported anywhere.
        with contextlib.suppress(Exception):
            self._put(record)

    def _put(self, record: logging.LogRecord) -> None:
        line = self._line_of(record)
        if self._sink is None:
            if self._stream is not None:
                self._stream.write(line)
            return
        octets = line.encode("utf-8", "backslashreplace")
        told = self._line_of(_loss_of(self._lost)).encode() if self._lost else b""
        unwritten = self._sink.write(told + octets)
        if len(unwritten) <= len(octets):
            self._lost = 0  # they have been told of
        if unwritten:
            self._lost += 1

    def _line_of(self, record: logging.LogRecord) -> str:
        priority = _PRIORITIES.get(record.levelno, "<3>") if self._is_journal else ""
        return f"{priority}{self.format(record)}\n"


def _is_journal(descriptor: int) -> bool:
    """systemd.exec(5): the variable stays set even if the process was given another stream, so the two are compared."""
    status = os.fstat(descriptor)
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _loss_of(count: int) -> logging.LogRecord:
    record = logging.LogRecord(__name__, logging.WARNING, "", 0, "log lines were lost", None, None)
    reason = "the reader of this log did not keep up, or its disk was full"
    setattr(record, FIELDS_ATTRIBUTE, (reason, {"count": count}, False))
    return record


class Logger:
    """The only way our code logs: `log.info("route refused", route=key, reason=reason)`."""

    __slots__ = ("_bound", "_log")

    def __init__(self, log: logging.Logger, bound: Mapping[str, object] | None = None) -> None:
        self._log = log
        self._bound = dict(bound or {})

    def bind(self, /, **fields: object) -> "Logger":
        """A logger that adds `fields` to each of its lines."""
        return Logger(self._log, {**self._bound, **fields})

    def debug(self, msg: str, /, error: BaseException | str | None = None, **fields: object) -> None:
        self._emit(logging.DEBUG, msg, error, fields)

    def info(self, msg: str, /, error: BaseException | str | None = None, **fields: object) -> None:
        self._emit(logging.INFO, msg, error, fields)

    def warning(self, msg: str, /, error: BaseException | str | None = None, **fields: object) -> None:
        self._emit(logging.WARNING, msg, error, fields)

    def error(self, msg: str, /, error: BaseException | str | None = None, **fields: object) -> None:
        self._emit(logging.ERROR, msg, error, fields)

    def exception(self, msg: str, /, error: BaseException | None = None, **fields: object) -> None:
        """Log a bug as an error with its stack. Without `error`, the exception being handled."""
        error = sys.exc_info()[1] if error is None else error
        self._emit(logging.ERROR, msg, error, fields, has_stack=True)

    def every(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> "LimitedLogger":
        """A logger that lets each message through once per `seconds`. Keep the object: it does the counting."""
        return LimitedLogger(self, seconds, clock)

    def _emit(
        self,
        level: int,
        msg: str,
        error: BaseException | str | None,
        fields: Mapping[str, object],
        has_stack: bool = False,
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        carried = {FIELDS_ATTRIBUTE: (error, {**self._bound, **fields}, has_stack)}
        # `Logger.log` would search the stack for file and line, which our lines do not show.
        self._log.handle(self._log.makeRecord(self._log.name, level, "", 0, "%s", (msg,), None, extra=carried))


class LimitedLogger:
    """Logs at most one line per message and period; the next line reports in `suppressed` how many were left out."""

    def __init__(self, log: Logger, period_s: float, clock: Callable[[], float]) -> None:
        self._log = log
        self._period_s = period_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def info(self, msg: str, /, error: BaseException | str | None = None, **fields: object) -> None:
        if (suppressed := self._admit(msg)) is not None:
            self._log.info(msg, error, **suppressed, **fields)

    def warning(self, msg: str, /, error: BaseException | str | None = None, **fields: object) -> None:
        if (suppressed := self._admit(msg)) is not None:
            self._log.warning(msg, error, **suppressed, **fields)

    def error(self, msg: str, /, error: BaseException | str | None = None, **fields: object) -> None:
        if (suppressed := self._admit(msg)) is not None:
            self._log.error(msg, error, **suppressed, **fields)

    def _admit(self, msg: str) -> dict[str, Any] | None:
        """None if the line is suppressed; otherwise the fields that report earlier suppressed lines."""
        now_s = self._clock()
        with self._lock:
            last_s, count = self._seen.get(msg, (None, 0))
            if last_s is not None and now_s - last_s < self._period_s:
                self._seen[msg] = (last_s, count + 1)
                return None
            self._seen[msg] = (now_s, 0)
        return {"suppressed": count} if count else {}


def get_logger(name: str) -> Logger:
    return Logger(logging.getLogger(name))


# With a broken stderr, the standard library must not print its own errors there.
logging.raiseExceptions = False
