"""Records as lines, in the log format of all daemons (`daemonkit.logformat`): JSON objects, or text for people."""

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from daemonkit.logformat import FIELDS_ATTRIBUTE, TextFormatter
from proxy.exchange.record import Record

MESSAGE = "request"
_CONTROLS = re.compile("[\x7f-\x9f]")
"""Those that JSON does not escape: they control terminals, and journalctl does not take a line with one for text."""
MAX_TEXT_BYTES = 2048
"""Limit of a path or another value that clients choose; longer ones are cut."""


class _Line(msgspec.Struct, gc=False, omit_defaults=True):
    """The keys of a line, in order."""

    time: str
    level: str
    msg: str
    # These defaults never occur, so the keys are always there.
    status_code: int = -1
    method: str = "\0"
    host: str = "\0"
    path: str = "\0"
    duration_ms: float = -1.0
    request_id: str = ""
    client: str = ""
    protocol: str = ""
    door: str = ""
    listener: str = ""
    route: str = ""
    rule: str = ""
    backend: str = ""
    address: str = ""
    response_after_ms: float = 0.0
    request_bytes: int = 0
    response_bytes: int = 0
    retries: int = 0
    grpc_status: int | None = None
    reason: str = ""
    detail: str = ""


class LineMaker:
    """Turns records into lines; belongs to one thread."""

    def __init__(self, fmt: str) -> None:
        self._render = _json_line if fmt == "json" else _text_line
        self._second = -1
        self._prefix = ""

    def line(self, record: Record) -> bytes:
        """The line with its newline; its time is the end of the exchange."""
        time_s = record.began_s + record.duration_s
        return self._render(time_s, _line_of(self._rfc3339(time_s), record)) + b"\n"

    def _rfc3339(self, time_s: float) -> str:
        second = int(time_s)
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")
        return f"{self._prefix}.{int((time_s - second) * 1000):03d}Z"


def is_failure(status_code: int, has_failed: bool) -> bool:
    """The exchange ended with an error of the server, as HTTP or gRPC tell it, without a response, or with one that
    broke off."""
    return status_code >= 500 or status_code == 0 or has_failed


def _line_of(moment: str, record: Record) -> _Line:
    return _Line(
        moment,
        "WARNING" if is_failure(record.status_code, record.has_failed) else "INFO",
        MESSAGE,
        record.status_code,
        _text(record.method),
        _text(record.host),
        _text(record.path.partition(b"?")[0]),
        _ms(record.duration_s),
        _text(record.request_id),
        record.client,
        record.protocol,
        record.door,
        record.listener,
        record.route,
        record.rule or (f"rules[{record.rule_index}]" if record.rule_index >= 0 else ""),
        record.backend,
        record.address,
        _ms(record.response_after_s),
        record.request_bytes,
        record.response_bytes,
        record.retries,
        record.grpc_status,
        record.reason,
        record.detail,
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _text(value: bytes) -> str:
    text = value[:MAX_TEXT_BYTES].decode("utf-8", "backslashreplace")
    return text if text.isprintable() else _CONTROLS.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode


def _json_line(_time_s: float, line: _Line) -> bytes:
    return _encode(line)


_text_formatter = TextFormatter()


def _text_line(time_s: float, line: _Line) -> bytes:
    fields = {
        name: getattr(line, name)
        for name, default in zip(_Line.__struct_fields__[3:], _Line.__struct_defaults__, strict=True)
        if getattr(line, name) != default
    }
    level = logging.WARNING if line.level == "WARNING" else logging.INFO
    record = logging.LogRecord(__name__, level, "", 0, MESSAGE, None, None)
    record.created = time_s
    setattr(record, FIELDS_ATTRIBUTE, (None, fields, False))
    return _text_formatter.format(record).encode("utf-8", "backslashreplace")
