"""Decode field blocks (RFC 7541) through a cache that maps the raw bytes of a field to its decoded, validated form.

We announce a header table of size 0, so every field of a block can be decoded by itself. Until the peer has seen that,
it may use its table of 4,096 bytes: blocks go through the `hpack` package until the peer has acknowledged our SETTINGS
and a block has carried its size update to 0. From then on `BlockDecoder` finds each field's extent by its length bytes
and looks up its raw bytes; only a field that is not cached is decoded. Measured: 0.3 us a field instead of 4 to 7.
New fields are cut out one by one, but their values are decoded and checked together at the end of the block: 2 us.

The cache is shared by the connections of one thread. Never-indexed fields, credentials, fields that are new in every
request, and long ones stay out of it. Cookies stay until they age out: a client sends its own with each request.
"""

from hpack import Decoder, HPACKError, OversizedHeaderListError

from proxy.h2 import huffman
from proxy.h2.errors import FieldsTooLargeError, RemoteProtocolError
from proxy.h2.fields import FIRST_PSEUDO, FLAWED, HOST, KINDS, ORDINARY, Entry, FieldBlock, are_values, classify
from proxy.h2.literals import (
    FAR,
    MAX_FAR_REST,
    NEW,
    SHAPES,
    STATIC,
    STATIC_FIELDS,
    TABLE_SIZE_ZERO,
    Opening,
    broken,
    decode_integer,
    decode_literal,
    find_end,
    is_never_indexed,
    read_opening,
)
from proxy.heads import UNCACHED_NAMES, Field
from proxy.recent import Recent

MAX_CACHED_FIELDS = 20_000
MAX_CACHED_BYTES = 16 * 1024 * 1024
MAX_CACHED_FIELD_BYTES = 1024
INITIAL_TABLE_BYTES = 4_096
# RFC 9113, 6.5.2 counts 32 bytes for each field besides name and value.
FIELD_OVERHEAD_BYTES = 32
# A field counts at most twice its encoded bytes, which is more than Huffman's shortest codes give, plus this: the size
# of the longest static field, `accept-encoding: gzip, deflate`.
_MAX_STATIC_BYTES = 28 + FIELD_OVERHEAD_BYTES


_MAX_SIZE_UPDATES = 2
"""RFC 7541, 4.2: the smallest and the last of the sizes since the previous block. They produce no field, so nothing
else bounds them."""
_TIMES_DECODED = 4
"""Lists of up to this many times our MAX_HEADER_LIST_SIZE are still decoded, to be answered with 431."""

FieldCache = Recent[bytes, Entry]

INDEXED: list[Entry | None] = [None, *(classify(field) for field in STATIC_FIELDS)]
INDEXED += [None] * (128 - len(INDEXED))

PutOff = tuple[int, Opening, bytes]
"""A field whose value is checked later, with others: its index among the fields, its opening, its raw bytes."""


def make_cache() -> FieldCache:
    return Recent(MAX_CACHED_FIELDS, MAX_CACHED_BYTES)


def _too_large(limit_bytes: int) -> FieldsTooLargeError:
    return FieldsTooLargeError(f"field list over {limit_bytes} bytes")


def _too_many_updates() -> RemoteProtocolError:
    return broken(f"more than {_MAX_SIZE_UPDATES} table size updates at the start of a field block")


def _check_size_updates(block: bytes, *, is_acknowledged: bool) -> None:
    """Check the size updates at the start of a block, of a peer that still has a table.

    Once the peer has acknowledged our limit of 0, it has to obey it. Peers that ignore the limit stay within the
    initial one, which is tolerated (h2spec wants 128 and 4,096 accepted). A table too small for a single entry can only
    be a response to our limit, and exceeds it (h2spec wants 1 refused).
    """
    pos = count = 0
    while b"\x20" <= block[pos : pos + 1] < b"\x40":
        count += 1
        if count > _MAX_SIZE_UPDATES:
            raise _too_many_updates()
        try:
            size, pos = decode_integer(block, pos, 0x1F)
        except IndexError:
            raise broken("field block ends inside a table size update") from None
        if is_acknowledged and (0 < size < FIELD_OVERHEAD_BYTES or size > INITIAL_TABLE_BYTES):
            raise broken(f"table size update to {size}, want 0")


def measured_bytes(block: FieldBlock) -> int:
    """The size of the list as MAX_HEADER_LIST_SIZE counts it, without the names of pseudo-header fields."""
    special = sum(len(value) + FIELD_OVERHEAD_BYTES for value in block.special if value is not None)
    return special + sum(len(name) + len(value) + FIELD_OVERHEAD_BYTES for name, value in block.fields)


class BlockDecoder:
    """The decoding side of one connection. Raises only connection errors (COMPRESSION_ERROR, ENHANCE_YOUR_CALM)."""

    __slots__ = (
        "_cache",
        "_find",
        "_hpack",
        "_huffman",
        "_huffman_strings",
        "_is_acknowledged",
        "_max_fields",
        "_max_list_bytes",
        "_never_indexed",
        "_plain",
        "_plain_strings",
    )

    def __init__(self, cache: FieldCache, max_list_bytes: int) -> None:
        """`max_list_bytes` is our MAX_HEADER_LIST_SIZE."""
        self._cache = cache
        self._find = cache.young.get
        self._hpack: Decoder | None = Decoder()
        self.limit(max_list_bytes)
        self._is_acknowledged = False
        self._huffman: list[PutOff] = []
        self._huffman_strings: list[bytes] = []
        self._plain: list[PutOff] = []
        self._plain_strings: list[bytes] = []
        self._never_indexed: set[bytes] = set()

    def limit(self, max_list_bytes: int) -> None:
        """Our MAX_HEADER_LIST_SIZE has changed."""
        self._max_list_bytes = max_list_bytes
        self._max_fields = _TIMES_DECODED * max_list_bytes // FIELD_OVERHEAD_BYTES
        if self._hpack is not None:
            self._hpack.max_header_list_size = _TIMES_DECODED * max_list_bytes

    @property
    def is_stateless(self) -> bool:
        return self._hpack is None

    def settings_acknowledged(self) -> None:
        """The peer knows our table size limit, so once its table is at 0 it stays there.

        A peer that goes on using its initial table is wrong but harmless: its blocks are decoded slowly.
        """
        self._is_acknowledged = True
        self._leave_state_behind()

    def decode(self, block: bytes) -> FieldBlock:
        if self._hpack is not None:
            return self._decode_stateful(self._hpack, block)
        decoded = FieldBlock()
        try:
            self._decode_stateless(block, decoded)
            count = len(decoded.fields) + KINDS
            is_perhaps_large = 2 * len(block) + count * _MAX_STATIC_BYTES > self._max_list_bytes
            if is_perhaps_large and count > self._max_fields:
                # Refused before the values put off are decoded.
                raise _too_large(_TIMES_DECODED * self._max_list_bytes)
            if self._huffman or self._plain:
                self._decode_put_off(decoded)
        except IndexError:
            raise broken("field block ends inside a field") from None
        if self._never_indexed:
            decoded.never_indexed = frozenset(self._never_indexed)
            self._never_indexed.clear()
        if is_perhaps_large:
            decoded.size_bytes = measured_bytes(decoded)
        return decoded

    def _decode_stateless(self, block: bytes, decoded: FieldBlock) -> None:
        """The hot path, so all that could be a function call is inlined."""
        find, shapes, special = self._find, SHAPES, decoded.special
        fields = decoded.fields
        append = fields.append
        pos, end = 0, len(block)
        entry: Entry | None
        while pos < end:
            start = pos
            first = block[pos]
            shape = shapes[first]
            if shape <= NEW:
                # A length below 127 takes one byte, so the extent is known at once.
                length = block[pos + 1] & 0x7F
                pos += 2 + length
                if shape == NEW and length < 0x7F:
                    length = block[pos] & 0x7F
                    pos += 1 + length
                if length == 0x7F:
                    pos = find_end(block, start)
                raw = block[start:pos]
                entry = find(raw) or self._decode_unseen(raw, length, decoded)
            elif shape == STATIC:
                pos += 1
                entry = INDEXED[first & 0x7F]
                if entry is None:
                    raise broken(f"field index {first & 0x7F}, want 1 to 61: the announced table is empty")
            elif shape == FAR and block[pos + 1] <= MAX_FAR_REST and block[pos + 2] & 0x7F < 0x7F:
                length = block[pos + 2] & 0x7F
                pos += 3 + length
                raw = block[start:pos]
                entry = find(raw) or self._decode_unseen(raw, length, decoded)
            else:
                entry, pos = self._decode_other(block, start, decoded)
                if entry is None:
                    continue
            kind, field = entry
            if not kind:
                append(field)
            elif kind >= FIRST_PSEUDO and not fields and special[kind] is None and special[HOST] is None:
                special[kind] = field[1]
            else:
                decoded.add(entry)
                if decoded.flawed > self._max_fields:
                    raise _too_large(_TIMES_DECODED * self._max_list_bytes)

    def _decode_other(self, block: bytes, start: int, decoded: FieldBlock) -> tuple[Entry | None, int]:
        """A long field with a name index of two bytes, or a size update, whose entry is None."""
        if 0x20 <= block[start] < 0x40:
            size, pos = decode_integer(block, start, 0x1F)
            if size or block[:start].strip(TABLE_SIZE_ZERO):
                raise broken(f"table size update to {size} in a field block, want 0 and at its start")
            # Each update before it took one byte as well.
            if start >= _MAX_SIZE_UPDATES:
                raise _too_many_updates()
            return None, pos
        pos = find_end(block, start)
        raw = block[start:pos]
        return self._find(raw) or self._decode_unseen(raw, 0x7F, decoded), pos

    def _decode_unseen(self, raw: bytes, length: int, decoded: FieldBlock) -> Entry:
        """`length` is the length of the value, or 0x7F if that is as long or longer.

        The value of a usual field is put off, to be decoded and checked with others; its entry is a placeholder.
        """
        if len(decoded.fields) > self._max_fields:
            # Checked here too, since the rest of the block might hold as many again.
            raise _too_large(_TIMES_DECODED * self._max_list_bytes)
        length_at = len(raw) - length - 1
        # If the block ends inside the field, this cuts the opening short, and `read_opening` returns None for that.
        opening = read_opening(raw[:length_at]) if length < 0x7F and length_at > 0 else None
        if opening is None:
            return self._decode_alone(raw)
        put_off = len(decoded.fields), opening, raw
        if raw[length_at] >= 0x80:
            self._huffman.append(put_off)
            self._huffman_strings.append(raw[length_at + 1 :])
        else:
            self._plain.append(put_off)
            self._plain_strings.append(raw[length_at + 1 :])
        return opening[0]

    def _decode_alone(self, raw: bytes) -> Entry:
        field = decode_literal(raw)
        entry = classify(field)
        if is_never_indexed(raw):
            self._never_indexed.add(field[0])
        elif entry[0] != FLAWED and field[0] not in UNCACHED_NAMES:
            self._remember({raw: entry})
        return self._trimmed(field) if entry[0] == FLAWED else entry

    @staticmethod
    def _trimmed(field: Field) -> Entry:
        """The entry of a flawed field without the whitespace around its value.

        RFC 9113, 8.2.1 wants such a message refused, but curl and Node send values as they are given, and other servers
        accept them, as all do over HTTP/1.1. A field that frames or routes its message stays flawed.
        """
        entry = classify((field[0], field[1].strip(b" \t")))
        return entry if entry[0] == ORDINARY else classify(field)

    def _decode_put_off(self, decoded: FieldBlock) -> None:
        put_off, values = self._plain, self._plain_strings
        self._plain, self._plain_strings = [], []
        if self._huffman:
            put_off += self._huffman
            values += huffman.decode_all(self._huffman_strings)
            self._huffman, self._huffman_strings = [], []
        are_sound = are_values(values)
        fields = decoded.fields
        unseen = {}
        for number, (place, (_, name, is_kept), raw) in enumerate(put_off):
            fields[place] = field = (name, values[number])
            if not are_sound and classify(field)[0] == FLAWED:
                kind, fields[place] = entry = self._trimmed(field)
                if kind:
                    decoded.add(entry)
            elif is_kept:
                unseen[raw] = ORDINARY, field
        if unseen:
            self._remember(unseen)

    def _remember(self, unseen: dict[bytes, Entry]) -> None:
        """Cache those that were met before."""
        for raw in self._cache.met_before(unseen):
            if len(raw) <= MAX_CACHED_FIELD_BYTES:
                self._cache.add(raw, unseen[raw], 2 * len(raw))

    def _decode_stateful(self, decoder: Decoder, block: bytes) -> FieldBlock:
        _check_size_updates(block, is_acknowledged=self._is_acknowledged)
        decoded = FieldBlock()
        try:
            fields = decoder.decode(block, raw=True)
        except OversizedHeaderListError:
            raise _too_large(decoder.max_header_list_size) from None
        except HPACKError as error:
            # The peer is told the reason, and the error's own text may quote the block or hold a memory address.
            raise broken(f"field block that cannot be decoded ({type(error).__name__})") from error
        for name, value in fields:
            field = bytes(name), bytes(value)
            entry = classify(field)
            if entry[0] == FLAWED:
                entry = self._trimmed(field)
            if entry[0]:
                decoded.add(entry)
            else:
                decoded.fields.append(entry[1])
        decoded.never_indexed = frozenset(bytes(field[0]) for field in fields if not field.indexable)
        decoded.size_bytes = measured_bytes(decoded)
        self._leave_state_behind()
        return decoded

    def _leave_state_behind(self) -> None:
        if self._is_acknowledged and self._hpack is not None and self._hpack.header_table_size == 0:
            self._hpack = None
