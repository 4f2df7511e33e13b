"""Bytes to document and back.

`decode` is what the supervisor calls: all checks, every problem at once. A worker trusts what the supervisor has
accepted, so it takes the document apart with `decode_outline` (its routes stay bytes) and reads a few routes at a
time with `decode_route`, between turns of its loop. `encode` is canonical: documents that say the same in another
order of keys or with other white space have the same bytes, hence the same `content_hash`.
"""

import hashlib
from typing import Any

import msgspec

from proxy.document.check import check, check_route_names, check_routes, check_settings
from proxy.document.model import Document, Outline, Settings
from proxy.document.part import UNSET
from proxy.document.problems import DocumentError, Findings, Problem
from proxy.document.routes import Route
from proxy.document.shape import SECRET_FIELDS, find_shape_problems

_document_decoder = msgspec.json.Decoder(Document)
_outline_decoder = msgspec.json.Decoder(Outline)
_route_decoder = msgspec.json.Decoder(Route)
_encoder = msgspec.json.Encoder()


def decode(data: bytes) -> Document:
    """The document in `data`, checked as a whole. Raises DocumentError with up to MAX_PROBLEMS problems."""
    try:
        document = _document_decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _shape_error(data, error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(error) from error
    check(document)
    return document


def decode_outline(data: bytes | memoryview) -> Outline:
    """The document with its routes still encoded. For documents that `decode` has accepted."""
    return _outline_decoder.decode(data)


def decode_route(raw: msgspec.Raw) -> Route:
    """One route of an outline. For documents that `decode` has accepted."""
    return _route_decoder.decode(raw)


class Reader:
    """Reads one document after another and looks only at routes whose bytes have changed; answers as `decode` does.

    Not thread-safe: for the one thread that takes configurations.
    """

    def __init__(self) -> None:
        self._routes: dict[bytes, Route] = {}
        self._names: tuple[frozenset[str], frozenset[str]] | None = None

    def read(self, data: bytes) -> Document:
        """The document in `data`, checked as a whole. Raises DocumentError."""
        try:
            document, routes = self._read(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DocumentError):
            # Rare, and then all problems are wanted, with their places.
            return decode(data)
        self._routes = routes
        return document

    def _read(self, data: bytes) -> tuple[Document, dict[bytes, Route]]:
        outline = decode_outline(data)
        findings = Findings()
        names = check_settings(outline, findings)
        # What a sound route may name has not changed, so it is sound still.
        known = self._routes if names == self._names else {}
        routes: list[Route] = []
        fresh: list[Route] = []
        remembered: dict[bytes, Route] = {}
        for raw in outline.routes:
            text = bytes(raw)
            route = known.get(text)
            if route is None:
                route = decode_route(raw)
                fresh.append(route)
            remembered[text] = route
            routes.append(route)
        check_routes(fresh, names, findings)
        check_route_names(routes, findings)
        findings.raise_if_any()
        self._names = names
        settings = {name: getattr(outline, name) for name in Settings.__struct_fields__}
        return Document(**settings, routes=tuple(routes)), remembered


def settings_of(document: Settings) -> Settings:
    """The document without its routes."""
    return Settings(**{name: getattr(document, name) for name in Settings.__struct_fields__})


def encode(document: Document) -> bytes:
    """The canonical bytes, private keys included: for the state directory and for workers."""
    return _encoder.encode(document)


def content_hash(document: Document) -> str:
    """SHA-256 in hexadecimal of all but the version."""
    return hashlib.sha256(encode(msgspec.structs.replace(document, version=UNSET))).hexdigest()


def encode_redacted(document: Document) -> bytes:
    """The document as `GET /config` shows it: in place of each private key its SHA-256."""
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
        return _not_json(worse)
    return DocumentError((Problem("", str(error)),))


def _not_json(error: Exception) -> DocumentError:
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return DocumentError((Problem("", f"not a JSON document in UTF-8: {reason}"),))
