"""Literal fields (RFC 7541, 6.2), each by itself: how it starts, where it ends, its name and its value.

Without a dynamic table a field is self-contained: the index of a static field, or a name or its index, then the value.
A literal up to its value is its opening. Few openings are in use, so what is known about one is cached: a value that is
new in each request seldom comes with a new name.
"""

from collections.abc import Callable
from functools import lru_cache

from hpack.table import HeaderTable

from proxy.h2 import huffman
from proxy.h2.errors import ErrorCode, RemoteProtocolError
from proxy.h2.fields import ORDINARY, Entry, is_plain
from proxy.heads import MAX_KEPT_NAME_BYTES, UNCACHED_NAMES, Field

STATIC_FIELDS: tuple[Field, ...] = tuple((bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE)
_NAMES = (b"", *(name for name, _ in STATIC_FIELDS))

# How a field starts, by its first byte (RFC 7541, 6). Without a table, incremental indexing makes no difference.
NAMED, NEW, STATIC, FAR, OTHER = range(5)
# FAR is a name index of two bytes, 15 or 31 and then the rest: `accept`, `user-agent` and most others.
MAX_FAR_REST = len(STATIC_FIELDS) - 15


def _shape(first: int) -> int:
    if first >= 0x80:
        return STATIC
    index = first & 0x3F if first >= 0x40 else first & 0x0F
    if first < 0x20 and index == 0x0F:
        return FAR
    if 0x20 <= first < 0x40 or index > len(STATIC_FIELDS):
        return OTHER  # a size update, or an error
    return NAMED if index else NEW


SHAPES = bytes(_shape(first) for first in range(256))
TABLE_SIZE_ZERO = b"\x20"
"""The update with which a sender empties and gives up its table (RFC 7541, 6.3)."""

Opening = tuple[Entry, bytes, bool]
"""The entry of a field with an empty value, the name, and whether fields of this name may be cached."""


def broken(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.COMPRESSION_ERROR, reason)


def decode_integer(block: bytes, pos: int, prefix_mask: int) -> tuple[int, int]:
    """RFC 7541, 5.1; IndexError if the block ends inside it."""
    value = block[pos] & prefix_mask
    pos += 1
    if value < prefix_mask:
        return value, pos
    for shift in range(0, 28, 7):
        byte = block[pos]
        pos += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise broken("integer of more than 28 bits in a field block")


def find_end(block: bytes, pos: int) -> int:
    """Where the literal field that starts at `pos` ends, found by its lengths alone."""
    index, pos = decode_integer(block, pos, 0x3F if block[pos] >= 0x40 else 0x0F)
    for _ in range(1 if index else 2):
        length, pos = decode_integer(block, pos, 0x7F)
        pos += length
    return pos


def is_never_indexed(raw: bytes) -> bool:
    """No hop may put the field into a table (RFC 7541, 6.2.3)."""
    return raw[0] & 0xF0 == 0x10


def decode_literal(raw: bytes) -> Field:
    """`raw` is the whole field, or less if its block ends inside it."""
    index, pos = decode_integer(raw, 0, 0x3F if raw[0] >= 0x40 else 0x0F)
    if index > len(STATIC_FIELDS):
        raise broken(f"name index {index}, want at most {len(STATIC_FIELDS)}: the announced table is empty")
    name = _NAMES[index]
    if not index:
        is_short = raw[pos] & 0x7F <= MAX_KEPT_NAME_BYTES
        name, pos = _decode_string(raw, pos, _decode_name if is_short else huffman.decode)
    value, _ = _decode_string(raw, pos, huffman.decode)
    return name, value


# A field that is new in each request still has one of few names.
_decode_name = lru_cache(maxsize=1024)(huffman.decode)


def _decode_string(raw: bytes, pos: int, decode: Callable[[bytes], bytes]) -> tuple[bytes, int]:
    is_huffman = raw[pos] >= 0x80
    length, pos = decode_integer(raw, pos, 0x7F)
    string = raw[pos : pos + length]
    if len(string) != length:
        raise broken("field block ends inside a string")
    return (decode(string) if is_huffman else string), pos + length


@lru_cache(maxsize=1024)
def read_opening(opening: bytes) -> Opening | None:
    """None unless the opening is usual: complete, short, may be indexed, and its name has no special meaning to a head.

    IndexError if its block ends inside it.
    """
    shape = SHAPES[opening[0]]
    if is_never_indexed(opening):
        return None
    if shape == NAMED and len(opening) == 1:
        name = _NAMES[opening[0] & 0x3F if opening[0] >= 0x40 else opening[0]]
    elif shape == FAR and len(opening) == 2 and opening[1] <= MAX_FAR_REST:
        name = _NAMES[15 + opening[1]]
    elif shape == NEW and len(opening) == 2 + (opening[1] & 0x7F) and len(opening) <= 2 + MAX_KEPT_NAME_BYTES:
        name = huffman.decode(opening[2:]) if opening[1] >= 0x80 else opening[2:]
    else:
        return None
    return ((ORDINARY, (name, b"")), name, name not in UNCACHED_NAMES) if is_plain(name) else None
