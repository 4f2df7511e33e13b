"""Formats a log record as one line: plain values, errors with their causes, keys in order (pure).

`JsonFormatter` and `TextFormatter` accept any record of the standard library, both ours (which carry error and fields
in one attribute) and those of libraries. Nothing in here raises for a value that cannot be formatted: its repr is shown
instead.
"""

import json
import logging
import math
import re
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from daemonkit.secret import REDACTED, Secret

FIELDS_ATTRIBUTE: Final = "daemonkit_line"
"""The attribute of our records that holds (error, fields, has_stack)."""

MAX_ERROR_CHARS = 2048
MAX_CAUSES = 8
MAX_STACK_CHARS = 16 * 1024
"""journald splits a line of more than 48 KiB into several entries, none of which is JSON."""
_MAX_DEPTH = 6
_OWN_KEYS = frozenset({"time", "level", "msg", "error", "stack"})


def describe_error(error: BaseException | str) -> str:
    """Type and text, then the causes: `StoreUnreachable: no answer; caused by ConnectionError: refused`.

    A cause is left out if its text is already part of the error it caused.
    """
    if isinstance(error, str):
        return _cut(error)
    told: list[str] = []
    current: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if current is None:
            break
        kind, text = type(current).__name__, _text(current)
        if not (told and _is_told(current, text, told[-1])):
            told.append(f"{kind}: {text}" if text else kind)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return _cut("; caused by ".join(told))


def _is_told(cause: BaseException, text: str, told: str) -> bool:
    if isinstance(cause, OSError) and cause.strerror and (cause.filename is None or str(cause.filename) in told):
        # The outer error may repeat only the words, with number and file name elsewhere.
        text = cause.strerror
    return bool(text) and text in told


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(no text: its __str__ fails)"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


def plain(value: object, depth: int = _MAX_DEPTH) -> object:
    """`value` in a form that JSON can hold, with every Secret redacted."""
    if type(value) is str:  # nearly all of them
        return value
    if value is None or (isinstance(value, bool | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Secret):
        return REDACTED
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, BaseException):
        return describe_error(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if depth and isinstance(value, Mapping):
        return {str(key): plain(item, depth - 1) for key, item in list(value.items())}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth - 1) for item in list(value)]
    return _shown(value)


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} whose repr fails>"


def line_of(record: logging.LogRecord) -> dict[str, object]:
    """The keys and values of one line, in order."""
    error, fields, has_stack = getattr(record, FIELDS_ATTRIBUTE, (None, None, False))
    if fields is None:
        fields = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            error, has_stack = record.exc_info[1], True
    line: dict[str, object] = {
        "time": _rfc3339(record.created),
        "level": record.levelname if record.levelname != "CRITICAL" else "ERROR",
        "msg": _message(record),
    }
    if error is not None:
        line["error"] = describe_error(error)
    for key, value in fields.items():
        line[f"{key}_" if key in _OWN_KEYS else key] = plain(value)
    if has_stack and isinstance(error, BaseException):
        line["stack"] = _without_middle("".join(traceback.format_exception(error)).rstrip("\n"))
    return line


def _without_middle(stack: str) -> str:
    """Shorten a long stack in the middle: its ends say the most, and usually an error's text makes it too long."""
    half = MAX_STACK_CHARS // 2
    return stack if len(stack) <= MAX_STACK_CHARS else f"{stack[: half - 1]}…{stack[-half:]}"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().rstrip("\n")
    except Exception:
        return f"{record.msg!r} with arguments {plain(record.args)!r}"


def _rfc3339(created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


_encode = json.JSONEncoder(ensure_ascii=False, default=_shown, separators=(",", ":")).encode

_NOT_IN_A_LINE: Final = re.compile("[\x7f-\x9f\ud800-\udfff]")
"""Characters that are escaped in addition to JSON's own. Control characters: they drive terminals, and journalctl does
not show a line with one as text. And lone surrogates (`os.fsdecode`), which UTF-8 cannot encode; strict JSON parsers,
such as Rust's serde_json, reject them as escapes too."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _NOT_IN_A_LINE.sub(_escaped, _encode(line_of(record)))


def _escaped(char: re.Match[str]) -> str:
    """Inside a JSON string: an escape for the character; for a lone surrogate, the text of its escape."""
    code = ord(char[0])
    return f"\\u{code:04x}" if code < 0xD800 else f"\\\\u{code:04x}"


class TextFormatter(logging.Formatter):
    """`2026-01-31T10:00:00.000Z WARNING route refused  error="..." route=a/b`, with any stack indented below it."""

    def format(self, record: logging.LogRecord) -> str:
        line = line_of(record)
        stack = line.pop("stack", None)
        moment, level, msg = line.pop("time"), line.pop("level"), line.pop("msg")
        pairs = "".join(f" {key}={_word(value)}" for key, value in line.items())
        text = f"{moment} {level:<7} {one_line(str(msg))}{' ' if pairs else ''}{pairs}"
        if stack is not None:
            text += "".join(f"\n    | {one_line(row)}" for row in str(stack).splitlines())
        return text


def _word(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(" \"'=\\"):
        return value
    return one_line(json.dumps(value, ensure_ascii=False, default=_shown))


def one_line(text: str) -> str:
    """Escape control characters and line separators: they could forge a line, or drive a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
