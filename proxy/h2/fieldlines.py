"""Encode field blocks without a dynamic table: each field is a literal, whose line is cached (RFC 7541, 6.2.2).

A line is one encoded field. Most fields of most messages have been sent before, so a block is a join of cached lines.
A field that is not cached is checked before it is sent; `LocalProtocolError` names the field, never its value.
Strings are sent raw: Huffman saves a fifth of the bytes but costs the receiver more time than they do.
The first block of a connection starts with a size update to 0, so a peer that shrinks its table later finds ours empty.
"""

from collections.abc import Sequence
from functools import lru_cache

from proxy.h2.errors import LocalProtocolError
from proxy.h2.fieldcache import MAX_CACHED_BYTES, MAX_CACHED_FIELD_BYTES, MAX_CACHED_FIELDS
from proxy.h2.fields import FIRST_PSEUDO, FLAWED, are_values, classify, is_plain
from proxy.h2.literals import STATIC_FIELDS, TABLE_SIZE_ZERO
from proxy.heads import (
    MAX_KEPT_NAME_BYTES,
    UNCACHED_NAMES,
    Field,
    Fields,
    NeverIndexedField,
    RequestHead,
    ResponseHead,
)
from proxy.recent import Recent


class LineCache:
    """Pseudo-header fields have their own cache: otherwise one among the ordinary fields would be found and sent."""

    __slots__ = ("ordinary", "pseudo")

    def __init__(self) -> None:
        self.ordinary: Recent[Field, bytes] = Recent(MAX_CACHED_FIELDS, MAX_CACHED_BYTES)
        self.pseudo: Recent[Field, bytes] = Recent(MAX_CACHED_FIELDS // 4, MAX_CACHED_BYTES // 4)


# Credentials: no hop may index them (RFC 7541, 7.1.3).
NEVER_INDEXED_NAMES = frozenset((b"authorization", b"proxy-authorization"))
_LITERAL, _NEVER_INDEXED = 0x00, 0x10

_field_index: dict[Field, int] = {}
_name_index: dict[bytes, int] = {}
for _index, _field in enumerate(STATIC_FIELDS, 1):
    _field_index.setdefault(_field, _index)
    _name_index.setdefault(_field[0], _index)


def encode_integer(value: int, prefix_bits: int, flags: int) -> bytes:
    """RFC 7541, 5.1."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((flags | value,))
    encoded = bytearray((flags | limit,))
    value -= limit
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_field(field: Field, flags: int = _LITERAL) -> bytes:
    name, value = field
    index = _field_index.get(field)
    if index is not None and flags == _LITERAL:
        return bytes((0x80 | index,))
    start = _start_of(name, flags) if len(name) <= MAX_KEPT_NAME_BYTES else _start_of.__wrapped__(name, flags)
    return start + _length_of(value) + value


_SHORT_LENGTHS = tuple(bytes((length,)) for length in range(0x7F))


def _length_of(value: bytes) -> bytes:
    return _SHORT_LENGTHS[len(value)] if len(value) < 0x7F else encode_integer(len(value), 7, 0)


@lru_cache(maxsize=1024)
def _start_of(name: bytes, flags: int) -> bytes:
    """A line up to its value. Cached, since fields that are new in each message still have one of few names."""
    index = _name_index.get(name, 0)
    start = encode_integer(index, 4, flags)
    return start if index else start + encode_integer(len(name), 7, 0) + name


@lru_cache(maxsize=1024)
def _usual_start_of(name: bytes) -> tuple[bytes, bool] | None:
    """A line up to its value, and whether the line may be cached; None for a name with a special meaning to a head."""
    if not is_plain(name):
        return None
    return _start_of(name, _NEVER_INDEXED if name in NEVER_INDEXED_NAMES else _LITERAL), name not in UNCACHED_NAMES


class BlockEncoder:
    """The encoding side of one connection; the cache is shared by the connections of one thread."""

    __slots__ = ("_cache", "_find", "_find_pseudo", "_prologue")

    def __init__(self, cache: LineCache) -> None:
        self._cache = cache
        self._find = cache.ordinary.young.get
        self._find_pseudo = cache.pseudo.young.get
        self._prologue = TABLE_SIZE_ZERO

    def response(self, head: ResponseHead) -> bytes:
        block = head.block
        if block is None:
            status_code = head.status_code
            if not 100 <= status_code <= 999 or status_code == 101:
                raise LocalProtocolError(f"status code {status_code}, want 100 to 999 without 101")
            pseudo: Fields = [(b":status", b"%d" % status_code)]
            block = head.block = self._encode(pseudo, head.fields, head.never_indexed)
        return self._begun(block) if self._prologue else block

    def request(self, head: RequestHead) -> bytes:
        pseudo: Fields = [(b":method", head.method)]
        if head.method != b"CONNECT" or head.protocol is not None:
            pseudo.append((b":scheme", head.scheme))
            pseudo.append((b":path", head.path))
        if head.authority:
            pseudo.append((b":authority", head.authority))
        if head.protocol is not None:
            pseudo.append((b":protocol", head.protocol))
        block = self._encode(pseudo, head.fields, head.never_indexed)
        return self._begun(block) if self._prologue else block

    def trailers(self, fields: Fields) -> bytes:
        secrets = frozenset([field[0] for field in fields if type(field) is NeverIndexedField])
        block = self._encode([], fields, secrets)
        return self._begun(block) if self._prologue else block

    def _begun(self, block: bytes) -> bytes:
        """Begin the connection's first block with the size update."""
        block, self._prologue = self._prologue + block, b""
        return block

    def _encode(self, pseudo: Fields, fields: Fields, never_indexed: frozenset[bytes]) -> bytes:
        lines = [*map(self._find_pseudo, pseudo), *map(self._find, fields)]
        if None in lines:
            self._encode_unseen(lines, pseudo, fields, never_indexed)
        if never_indexed:
            for place, field in enumerate((*pseudo, *fields)):
                if field[0] in never_indexed:
                    _check(field, is_pseudo=place < len(pseudo))
                    lines[place] = encode_field(field, _NEVER_INDEXED)
        return b"".join(lines)  # type: ignore[arg-type] # no None is left

    def _encode_unseen(
        self, lines: list[bytes | None], pseudo: Fields, fields: Fields, never_indexed: frozenset[bytes]
    ) -> None:
        """Fill in missing lines, except those of `never_indexed`. Values of usual fields are checked together."""
        unseen: Fields = []
        values: list[bytes] = []
        first, place = len(pseudo), -1
        for _ in range(lines.count(None)):
            place = lines.index(None, place + 1)
            if place < first:
                if pseudo[place][0] not in never_indexed:
                    lines[place] = self._encode_alone(pseudo[place], self._cache.pseudo, is_pseudo=True)
                continue
            field = fields[place - first]
            name, value = field
            if name in never_indexed:
                continue
            usual = _usual_start_of(name) if len(name) <= MAX_KEPT_NAME_BYTES else None
            if usual is None:
                lines[place] = self._encode_alone(field, self._cache.ordinary, is_pseudo=False)
                continue
            lines[place] = usual[0] + _length_of(value) + value
            values.append(value)
            if usual[1]:
                unseen.append(field)
        if not are_values(values):
            for field in fields:
                _check(field, is_pseudo=False)
        if unseen:
            self._remember(unseen, self._cache.ordinary)

    def _encode_alone(self, field: Field, cache: Recent[Field, bytes], *, is_pseudo: bool) -> bytes:
        _check(field, is_pseudo)
        self._remember((field,), cache)
        return encode_field(field)

    @staticmethod
    def _remember(fields: Sequence[Field], cache: Recent[Field, bytes]) -> None:
        """Cache those that were met before."""
        for field in cache.met_before(fields):
            line = encode_field(field)
            if len(line) <= MAX_CACHED_FIELD_BYTES:
                cache.add(field, line, 2 * (len(field[0]) + len(field[1])))


def _check(field: Field, is_pseudo: bool) -> None:
    kind, judged = classify(field)
    if kind == FLAWED:
        raise LocalProtocolError(f"field {field[0][:64]!r} cannot be sent: {judged[1].decode('ascii', 'replace')}")
    if (kind >= FIRST_PSEUDO) != is_pseudo:
        raise LocalProtocolError(f"pseudo-header field {field[0][:64]!r} among the ordinary fields")
