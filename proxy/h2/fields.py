"""Validate fields and heads (RFC 9113, 8.2 and 8.3; RFC 8441), once per field and once per head.

`classify` checks a field by itself; its verdict is cached beside the decoded field, so a field that repeats costs
nothing. `FieldBlock` is a decoded block in which the fields that matter for the head are already sorted out;
`request_head`, `response_head` and `trailers` check the fields in combination. Stricter than the RFC where a looser
proxy would let something through to an HTTP/1.1 backend: names are tokens, values hold no control characters but tabs.
Whitespace around a value is a flaw: the decoder may strip it, the encoder refuses to send it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.heads import (
    CONTROLS,
    LENGTH,
    MAX_KEPT_NAME_BYTES,
    NONE_NEVER_INDEXED,
    TOKEN,
    Field,
    Fields,
    NeverIndexedField,
    RequestHead,
    ResponseHead,
)

# Kinds of fields. From METHOD on they are pseudo-header fields.
ORDINARY, CONTENT_LENGTH, HOST, FLAWED, METHOD, SCHEME, PATH, AUTHORITY, PROTOCOL, STATUS = range(10)
FIRST_PSEUDO = METHOD
KINDS = STATUS + 1

Entry = tuple[int, Field]
"""A kind and a field; for FLAWED the field's value is the reason."""

NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
PSEUDO = {
    b":method": (METHOD, TOKEN),
    b":scheme": (SCHEME, re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*")),
    b":path": (PATH, re.compile(rb"/[^\x00-\x20#\x7f]*|\*")),
    # RFC 3986 reg-name or IP-literal, not empty (RFC 9110, 4.2.1), and port; no user information (RFC 9113, 8.3.1).
    # Empty as a whole counts as absent.
    b":authority": (
        AUTHORITY,
        re.compile(rb"(?:(?:[A-Za-z0-9\-._~%!$&'()*+,;=]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?)?"),
    ),
    b":protocol": (PROTOCOL, TOKEN),
    b":status": (STATUS, re.compile(rb"[1-9][0-9][0-9]")),
}
AUTHORITY_VALUE = PSEUDO[b":authority"][1]
CONNECTION_SPECIFIC = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))

_SPECIAL_NAMES = CONNECTION_SPECIFIC | {b"content-length", b"host", b"te"}
_MARKED = bytes(0 if byte in CONTROLS else byte for byte in range(256))
"""Translates what no value may hold to NUL: looking for that takes a quarter of the time that deleting would."""


class Malformed(Exception):
    """The reason why a message is malformed (RFC 9113, 8.1.1): a stream error of type PROTOCOL_ERROR."""


class FieldBlock:
    """One decoded field block: ordinary fields in order (content-length among them), and the special values by kind.

    `flaw` is the first reason why the block makes no valid head, `flawed` the number of reasons found.
    """

    __slots__ = ("fields", "flaw", "flawed", "never_indexed", "size_bytes", "special")

    def __init__(self) -> None:
        self.fields: Fields = []
        self.special: list[bytes | None] = [None] * KINDS
        self.flaw: str | None = None
        self.flawed = 0
        self.never_indexed: frozenset[bytes] = NONE_NEVER_INDEXED
        # As MAX_HEADER_LIST_SIZE counts; 0 if it is known to be small.
        self.size_bytes = 0

    def add(self, entry: Entry) -> None:
        """Add a field that is not ORDINARY."""
        kind, field = entry
        value = field[1]
        if kind == FLAWED:
            self._blame(value.decode("ascii", "replace"))
            return
        if self.special[kind] is not None:
            self._blame(f"field {field[0].decode()} twice in a head")
        if kind >= FIRST_PSEUDO:
            if self.fields or self.special[HOST] is not None:
                self._blame(f"pseudo-header field {field[0].decode()} after an ordinary field")
        elif kind == CONTENT_LENGTH:
            self.fields.append(field)
        self.special[kind] = value

    def _blame(self, flaw: str) -> None:
        self.flaw = self.flaw or flaw
        self.flawed += 1


def classify(field: Field) -> Entry:
    name, value = field
    if len(name) <= MAX_KEPT_NAME_BYTES and is_plain(name) and _is_value(value):
        return ORDINARY, field
    return _classify_by_name(field)


@lru_cache(maxsize=1024)
def is_plain(name: bytes) -> bool:
    """Whether fields of this name have no special meaning to a head. Cached: few names are in use, even if values are
    new in each request."""
    return bool(NAME.fullmatch(name)) and name not in _SPECIAL_NAMES


def _is_value(value: bytes) -> bool:
    """Whether RFC 9113, 8.2.1 allows the value: no control character but the tab, no space or tab at either end."""
    return 0 not in value.translate(_MARKED) and value.strip(b" \t") == value


def are_values(values: Sequence[bytes]) -> bool:
    """The same for all values, which takes less time than one by one."""
    for value in values:
        if value.strip(b" \t") != value:
            return False
    return 0 not in b"".join(values).translate(_MARKED)


def _classify_by_name(field: Field) -> Entry:
    name, value = field
    pseudo = PSEUDO.get(name)
    if pseudo is not None:
        kind, grammar = pseudo
        return (kind, field) if grammar.fullmatch(value) else _flawed(field, f"malformed {name.decode()}")
    if not NAME.fullmatch(name):
        return _flawed(field, f"field name {name[:64]!r}, want a lower-case token")
    if not _is_value(value):
        return _flawed(
            field, f"value of field {name.decode()} contains control characters, or starts or ends with a space"
        )
    if name == b"content-length":
        return (CONTENT_LENGTH, field) if LENGTH.fullmatch(value) else _flawed(field, "content-length is not a number")
    if name == b"host":
        return (HOST, field) if AUTHORITY_VALUE.fullmatch(value) else _flawed(field, "malformed host")
    if name in CONNECTION_SPECIFIC:
        return _flawed(field, f"connection-specific field {name.decode()}")
    if name == b"te" and value.lower() != b"trailers":
        return _flawed(field, "field te, want absent or trailers")
    return ORDINARY, field


def _flawed(field: Field, reason: str) -> Entry:
    return FLAWED, (field[0], reason.encode())


def content_length(block: FieldBlock) -> int | None:
    length = block.special[CONTENT_LENGTH]
    return None if length is None else int(length)


def request_head(block: FieldBlock, is_extended_connect_allowed: bool) -> RequestHead:
    """Raises Malformed. A request without any authority gets an empty one, which the door can answer better."""
    if block.flaw is not None:
        raise Malformed(block.flaw)
    _, _, host, _, method, scheme, path, authority, protocol, status = block.special
    if method is None or status is not None:
        raise Malformed("request without :method" if method is None else "request with :status")
    if protocol is not None and not (is_extended_connect_allowed and method == b"CONNECT"):
        raise Malformed(":protocol on a request other than extended CONNECT, or where that is not enabled")
    if method == b"CONNECT" and protocol is None:
        if scheme is not None or path is not None or not authority:
            raise Malformed("CONNECT must have :authority, and neither :scheme nor :path")
        scheme = path = b""
    elif scheme is None or path is None:
        raise Malformed("request without :scheme" if scheme is None else "request without :path")
    elif path == b"*" and method != b"OPTIONS":
        raise Malformed(":path * with a method other than OPTIONS")
    never_indexed = block.never_indexed
    if host is not None:
        if not authority:
            authority = host
        elif host != authority and host.lower() != authority.lower():
            raise Malformed(":authority and host differ")
        if b"host" in never_indexed:
            # `host` is passed on as `:authority`, which must not be indexed either (RFC 7541, 7.1.3).
            never_indexed |= {b":authority"}
    return RequestHead(method, scheme, authority or b"", path, block.fields, protocol, never_indexed)


def response_head(block: FieldBlock) -> ResponseHead:
    """Raises Malformed."""
    if block.flaw is not None:
        raise Malformed(block.flaw)
    _, _, host, _, method, scheme, path, authority, protocol, status = block.special
    if status is None:
        raise Malformed("response without :status")
    if not (method is scheme is path is authority is protocol is None):
        raise Malformed("response with a pseudo-header field of requests")
    if status == b"101":
        raise Malformed("status 101, which HTTP/2 does not have")
    if host is not None:
        block.fields.append((b"host", host))
    return ResponseHead(int(status), block.fields, block.never_indexed)


def trailers(block: FieldBlock) -> Fields:
    """Raises Malformed."""
    if block.flaw is not None:
        raise Malformed(block.flaw)
    if any(value is not None for value in block.special[FIRST_PSEUDO:]):
        raise Malformed("trailers with a pseudo-header field")
    host = block.special[HOST]
    if host is not None:
        block.fields.append((b"host", host))
    secrets = block.never_indexed
    if secrets:
        return [NeverIndexedField(field) if field[0] in secrets else field for field in block.fields]
    return block.fields
