"""Response heads as the edge wants them: one field holds all of the user's fields, another the response's origin.

    cf-cloudflared-response-headers: base64(name) ":" base64(value) ";" ...      standard alphabet, no padding
    cf-cloudflared-response-meta: {"src":"origin"}

A head object keeps its encoding, in case the same object comes again. For other heads, the base64 segment of each field
is cached, as the lines of field blocks are, so that encoding a head is a join. A head whose fields have all been seen
before is likely to repeat, so its serialised field may enter the cache of lines too. Any other is marked never-indexed,
which keeps it, and any secrets in it, out of that cache.

`content-length` is also sent beside the serialised fields, since HTTP/2 itself needs it. Trailers and interim responses
(1xx) are not serialised. Pure; one `ResponseHeads` per thread.
"""

from binascii import b2a_base64
from functools import lru_cache
from typing import Final

from proxy.h2.fieldcache import MAX_CACHED_BYTES, MAX_CACHED_FIELD_BYTES, MAX_CACHED_FIELDS
from proxy.heads import MAX_KEPT_NAME_BYTES, UNCACHED_NAMES, Field, Fields, ResponseHead
from proxy.recent import Recent

SERIALIZED: Final = b"cf-cloudflared-response-headers"
META: Final = b"cf-cloudflared-response-meta"
FROM_ORIGIN: Final[Field] = (META, b'{"src":"origin"}')
FROM_CONNECTOR: Final[Field] = (META, b'{"src":"cloudflared"}')

RESERVED_PREFIXES: Final = (b":", b"cf-int-", b"cf-cloudflared-", b"cf-proxy-")
"""Reserved for connector and edge: no backend may send such fields."""
_NEVER_INDEXED: Final = frozenset((SERIALIZED,))
_LENGTH: Final = b"content-length"
_WEBSOCKET_FIELDS: Final[Fields] = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
_NO_BODY: Final[Field] = (_LENGTH, b"0")


class ResponseHeads:
    __slots__ = ("_find", "_segments")

    def __init__(self) -> None:
        self._segments: Recent[Field, bytes] = Recent(MAX_CACHED_FIELDS, MAX_CACHED_BYTES)
        self._find = self._segments.young.get

    def encode(self, head: ResponseHead) -> ResponseHead:
        """Encode a final head for the edge. 101 becomes 200: HTTP/2 has no 101, and the edge knows what it asked for.

        The result is kept in `head`, since identical heads of a backend are one object.
        """
        encoded = head.onward
        if encoded is None:
            if head.is_failure:
                encoded = FAILURE_HEAD
            elif head.status_code == 101:
                fields = [field for field in head.fields if field[0] not in (b"connection", b"upgrade", _LENGTH)]
                encoded = self._encode(200, fields + _WEBSOCKET_FIELDS)
            else:
                encoded = self._encode(head.status_code, head.fields)
            head.onward = encoded
        return encoded

    @staticmethod
    def permitted(fields: Fields) -> Fields:
        """Filter interim responses and trailers: drop fields that a backend may not send."""
        return [field for field in fields if not field[0].startswith(RESERVED_PREFIXES)]

    def _encode(self, status_code: int, fields: Fields) -> ResponseHead:
        segments = [*map(self._find, fields)]
        never_indexed: frozenset[bytes] = frozenset()
        if None in segments:
            never_indexed = _NEVER_INDEXED
            for place, segment in enumerate(segments):
                if segment is None:
                    segments[place] = self._encode_unseen(fields[place])
        serialized = b"".join(segments)[:-1]  # type: ignore[arg-type] # no None is left
        encoded: Fields = [(SERIALIZED, serialized), FROM_ORIGIN]
        encoded += [field for field in fields if field[0] == _LENGTH]
        return ResponseHead(status_code, encoded, never_indexed)

    def _encode_unseen(self, field: Field) -> bytes:
        """Encode a field, with the separator after it; empty for a name that backends may not send."""
        name, value = field
        size_bytes = 2 * (len(name) + len(value))
        segment = self._segments.revive(field, size_bytes)
        if segment is None:
            if name.startswith(RESERVED_PREFIXES):
                return b""
            encode_name = _base64_name if len(name) <= MAX_KEPT_NAME_BYTES else _base64
            segment = b"%b:%b;" % (encode_name(name), _base64(value))
            if size_bytes <= 2 * MAX_CACHED_FIELD_BYTES and name not in UNCACHED_NAMES:
                self._segments.add(field, segment, size_bytes)
        return segment


def _as_it_is(head: ResponseHead) -> ResponseHead:
    """Mark a head as encoded already. For constants, as it then refers to itself and is never freed."""
    head.onward = head
    return head


FAILURE_HEAD: Final = _as_it_is(ResponseHead(502, [FROM_CONNECTOR, _NO_BODY]))
"""For requests that no backend has answered, and for streams that we refuse; it ends the stream."""

CONTROL_HEAD: Final = _as_it_is(ResponseHead(200, [(b"content-type", b"application/octet-stream")]))
"""The head of the control stream."""

CONFIGURATION_HEAD: Final = _as_it_is(ResponseHead(200, [(b"content-type", b"application/json")]))
"""The head of the answer to a pushed configuration."""


def _base64(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False).rstrip(b"=")


# Fields whose values are always new still have few distinct names.
_base64_name = lru_cache(maxsize=1024)(_base64)
