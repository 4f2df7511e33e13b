"""Response heads as the edge wants them: the user's fields in one field, and where the response comes from in another.

    cf-cloudflared-response-headers: base64(name) ":" base64(value) ";" ...      standard alphabet, no padding
    cf-cloudflared-response-meta: {"src":"origin"}

A head that comes again as the same object keeps what it was encoded to. For others the base64 segment of each field is
cached, as lines of field blocks are, so that a head is a join. One whose fields were all met before may well repeat, so
its serialised field may enter the cache of lines too; any other is marked as never to be indexed, which keeps it out,
and secrets with it.

`content-length` stands beside the serialised fields too, since HTTP/2 itself needs it. Trailers are not serialised:
they go out as they are. Interim responses (1xx) as well. Pure; one `ResponseHeads` a thread.
"""

from binascii import b2a_base64
from functools import lru_cache
from typing import Final

from proxy.h2.fieldcache import MAX_CACHED_BYTES, MAX_CACHED_FIELD_BYTES, MAX_CACHED_FIELDS
from proxy.h2.literals import MAX_KEPT_NAME_BYTES
from proxy.heads import UNCACHED_NAMES, Field, Fields, ResponseHead
from proxy.recent import Recent

SERIALIZED: Final = b"cf-cloudflared-response-headers"
META: Final = b"cf-cloudflared-response-meta"
FROM_ORIGIN: Final[Field] = (META, b'{"src":"origin"}')
FROM_CONNECTOR: Final[Field] = (META, b'{"src":"cloudflared"}')

RESERVED_PREFIXES: Final = (b":", b"cf-int-", b"cf-cloudflared-", b"cf-proxy-")
"""Names between connector and edge: no backend may speak them."""
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
        """A final head as it goes to the edge. 101 becomes 200: HTTP/2 has no 101, and the edge knows what it asked.

        The result stays with `head`: a backend's heads that repeat are one object.
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
        """What a backend says beside final heads, less the names that are not for it to speak."""
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
        """With the separator behind it; empty for a name that is not for the edge's clients."""
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
    """Nothing more is to be encoded. It refers to itself, so it is never let go of: for constants."""
    head.onward = head
    return head


FAILURE_HEAD: Final = _as_it_is(ResponseHead(502, [FROM_CONNECTOR, _NO_BODY]))
"""For what no backend has answered, and for streams that we refuse; the stream ends with it."""

CONTROL_HEAD: Final = _as_it_is(ResponseHead(200, [(b"content-type", b"application/octet-stream")]))
"""Of the control stream, before its first bytes."""

CONFIGURATION_HEAD: Final = _as_it_is(ResponseHead(200, [(b"content-type", b"application/json")]))
"""Of the answer to a pushed configuration."""


def _base64(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False).rstrip(b"=")


# A field that is new in each response still has one of few names.
_base64_name = lru_cache(maxsize=1024)(_base64)
