"""Bytes to document and back.

`decode` makes all checks and reports all problems at once. `decode_outline` leaves backends and routes as bytes, for
callers that already know most of them, or that must not block for long.
"""

import codecs
import hashlib
import re
from typing import Any

import msgspec

from proxy.document.check import check
from proxy.document.model import Document, Outline, Settings
from proxy.document.problems import DocumentError, Findings, Problem
from proxy.document.repeats import find_repeated_fields
from proxy.document.routes import Route
from proxy.document.shape import SECRET_FIELDS, find_shape_problems
from proxy.document.targets import Backend

_document_decoder = msgspec.json.Decoder(Document)
_outline_decoder = msgspec.json.Decoder(Outline)
_route_decoder = msgspec.json.Decoder(Route)
_backend_decoder = msgspec.json.Decoder(Backend)
_encoder = msgspec.json.Encoder()

_MALFORMED = re.compile(r"JSON is malformed: (?P<reason>.*) \(byte (?P<byte>\d+)\)", re.DOTALL)
"""How msgspec words a syntax error, with the byte offset where it stopped."""


def decode(data: bytes) -> Document:
    """Decode and check a whole document. Raises DocumentError with up to MAX_PROBLEMS problems."""
    try:
        document = _document_decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _shape_error(data, error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(data, error) from error
    repeats = Findings()
    find_repeated_fields(data, repeats)
    repeats.raise_if_any()
    check(document)
    return document


def decode_outline(data: bytes | memoryview) -> Outline:
    """Decode all but backends and routes, unchecked. Raises MsgspecError, UnicodeDecodeError or RecursionError."""
    return _outline_decoder.decode(data)


def decode_route(raw: msgspec.Raw | bytes) -> Route:
    """Decode one route of an outline; only types and ranges are checked. Raises msgspec.ValidationError."""
    return _route_decoder.decode(raw)


def decode_backend(raw: msgspec.Raw) -> Backend:
    """Decode one backend of an outline, see `decode_route`."""
    return _backend_decoder.decode(raw)


def settings_of(document: Settings) -> Settings:
    """The document without backends and routes."""
    return Settings(**{name: getattr(document, name) for name in Settings.__struct_fields__})


def encode_redacted(document: Document) -> bytes:
    """The document as `GET /config` shows it, with the SHA-256 of each private key in its place."""
    return _encoder.encode(_redacted(msgspec.to_builtins(document)))


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _fingerprint(part) if name in SECRET_FIELDS else _redacted(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(part) for part in value]
    return value


def _fingerprint(secret: str) -> str:
    return f"<redacted sha256:{hashlib.sha256(secret.encode()).hexdigest()}>"


def _shape_error(data: bytes, error: msgspec.ValidationError) -> DocumentError:
    findings = Findings()
    try:
        plain = msgspec.json.decode(data)
        find_shape_problems(plain, Document, findings)
        findings.raise_if_any()
    except DocumentError as found:
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as worse:
        return _not_json(data, worse)
    return DocumentError((Problem("", str(error)),))


_MARKS = {
    codecs.BOM_UTF8: "begins with a byte order mark, want none",
    codecs.BOM_UTF16_LE: "this is UTF-16",
    codecs.BOM_UTF16_BE: "this is UTF-16",
}
"""Byte order marks, which some editors and shells write at the start of a file."""


def _not_json(data: bytes, error: Exception) -> DocumentError:
    return DocumentError((Problem("", f"not a JSON document in UTF-8: {_why_not_json(data, error)}"),))


def _why_not_json(data: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    for mark, words in _MARKS.items():
        if data.startswith(mark):
            return words
    if not data.strip():
        return "empty, want an object such as {}"
    malformed = _MALFORMED.fullmatch(str(error))
    if malformed is None:
        return str(error)
    before = data[: int(malformed["byte"])]
    line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    return f"line {line}, column {column}: {malformed['reason']}"
