"""A document on its way from the supervisor to its workers: in parts, so that reading it never takes long.

Each part has its length before it. The first holds the settings, the others some dozens of routes each, still encoded
one by one when they are read: a worker has many of them already, from the document before.
"""

from collections.abc import Iterator
from struct import Struct

import msgspec

from proxy.document.codec import settings_of
from proxy.document.model import Document, Settings

_ROUTES_PER_PART = 50
_LENGTH = Struct(">I")

_encode = msgspec.json.Encoder().encode
_decode_settings = msgspec.json.Decoder(Settings).decode
_decode_routes = msgspec.json.Decoder(list[msgspec.Raw]).decode


def pack(document: Document) -> bytes:
    """Canonical: documents that say the same have the same bytes."""
    routes = document.routes
    parts = [_encode(settings_of(document))]
    parts += [_encode(routes[at : at + _ROUTES_PER_PART]) for at in range(0, len(routes), _ROUTES_PER_PART)]
    return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))


def unpack(data: memoryview) -> tuple[Settings, Iterator[list[msgspec.Raw]]]:
    """The settings, and the routes in their order, some at a time."""
    parts = _parts(data)
    return _decode_settings(next(parts)), map(_decode_routes, parts)


def _parts(data: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(data):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        yield data[start:at]
