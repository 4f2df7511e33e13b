"""Decoding: from the segments of one message to the tree below its root (Cap'n Proto encoding, "Pointers").

The sender may be hostile. Decoding follows all pointers eagerly, checks that each stays within its segment, and counts
every word that it reaches. Honest messages refer to each word once, so a message that refers to the same words
repeatedly, or in a cycle, is rejected after work in proportion to its size. Nesting depth is bounded too.
"""

from collections.abc import Sequence
from typing import Final

from proxy.tunnel.capnp.encoding import BYTES, COMPOSITE, FAR, LIST, OTHER, POINTERS, STRUCT
from proxy.tunnel.capnp.errors import MalformedMessage
from proxy.tunnel.capnp.values import WORD_BYTES, Capability, PointerList, Scalars, Struct, StructList, Value

MAX_DEPTH: Final = 64
SPARE_WORDS: Final = 64
"""Words that may be reached beyond the size of the message: lists of empty structs take no space but have items."""
_ELEMENT_BITS: Final = (0, 1, 8, 16, 32, 64)
_MAX_OFFSET: Final = 1 << 29

Place = tuple[bytes, int]
"""A segment and a byte offset in it."""


def decode(segments: Sequence[bytes]) -> Struct:
    """The root of the message. Raises MalformedMessage."""
    root = _Decoder(segments).value(segments[0], 0, 0) if segments else None
    if not isinstance(root, Struct):
        raise MalformedMessage(f"message with {'no' if root is None else 'another'} root, want a struct")
    return root


class _Decoder:
    def __init__(self, segments: Sequence[bytes]) -> None:
        self._segments = segments
        self._words_left = sum(map(len, segments)) // WORD_BYTES + SPARE_WORDS

    def value(self, segment: bytes, at: int, depth: int) -> Value | None:
        """The value that the pointer at `at` refers to; None for the null pointer."""
        word = self._word(segment, at)
        if not word:
            return None
        if depth > MAX_DEPTH:
            raise MalformedMessage(f"values nested more than {MAX_DEPTH} deep")
        base = at + WORD_BYTES
        if word & 3 == FAR:
            segment, base, word = self._landing(word)
        kind = word & 3
        if kind == OTHER:
            if word & 0xFFFFFFFF != OTHER:
                raise MalformedMessage("pointer of an unknown kind")
            return Capability(word >> 32)
        start = base + _offset(word) * WORD_BYTES
        if kind == STRUCT:
            return self._struct(segment, start, word >> 32 & 0xFFFF, word >> 48, depth)
        if kind == LIST:
            return self._list((segment, start), word >> 32 & 7, word >> 35, depth)
        raise MalformedMessage("far pointer that leads to a far pointer")

    def _landing(self, word: int) -> tuple[bytes, int, int]:
        """Resolve a far pointer: the segment, the byte that offsets count from, and the pointer found there."""
        segment, at = self._far(word)
        landing = self._word(segment, at)
        if not word & 4:
            return segment, at + WORD_BYTES, landing
        if landing & 7 != FAR:
            raise MalformedMessage("double-far pointer whose landing pad is not a far pointer")
        tag = self._word(segment, at + WORD_BYTES)
        segment, start = self._far(landing)
        return segment, start, tag

    def _far(self, word: int) -> Place:
        segment_id = word >> 32
        if segment_id >= len(self._segments):
            raise MalformedMessage(f"far pointer into segment {segment_id} of {len(self._segments)}")
        return self._segments[segment_id], (word >> 3 & 0x1FFFFFFF) * WORD_BYTES

    def _struct(self, segment: bytes, start: int, data_words: int, pointer_count: int, depth: int) -> Struct:
        self._charge(segment, start, data_words + pointer_count)
        return self._sections(segment, start, data_words, pointer_count, depth)

    def _sections(self, segment: bytes, start: int, data_words: int, pointer_count: int, depth: int) -> Struct:
        pointers_start = start + data_words * WORD_BYTES
        return Struct(
            segment[start:pointers_start],
            self._pointers(segment, pointers_start, pointer_count, depth),
        )

    def _pointers(self, segment: bytes, start: int, count: int, depth: int) -> tuple[Value | None, ...]:
        return tuple(self.value(segment, start + index * WORD_BYTES, depth + 1) for index in range(count))

    def _list(self, place: Place, element_code: int, count: int, depth: int) -> Value:
        segment, start = place
        if element_code == COMPOSITE:
            return self._structs(segment, start, count, depth)
        if element_code == POINTERS:
            self._charge(segment, start, count)
            return PointerList(self._pointers(segment, start, count, depth))
        size_bytes = (count * _ELEMENT_BITS[element_code] + 7) // 8
        self._charge(segment, start, -(-size_bytes // WORD_BYTES))
        content = segment[start : start + size_bytes]
        return content if element_code == BYTES else Scalars(element_code, count, content)

    def _structs(self, segment: bytes, start: int, word_count: int, depth: int) -> StructList:
        self._charge(segment, start, word_count + 1)
        tag = self._word(segment, start)
        if tag & 3 != STRUCT:
            raise MalformedMessage("list of structs without a struct tag")
        count, data_words, pointer_count = (tag & 0xFFFFFFFF) >> 2, tag >> 32 & 0xFFFF, tag >> 48
        item_words = data_words + pointer_count
        if count * item_words > word_count:
            raise MalformedMessage(f"list of {count} structs of {item_words} words in {word_count} words")
        if not item_words:
            self._spend(count)
        first = start + WORD_BYTES
        items = (
            self._sections(segment, first + index * item_words * WORD_BYTES, data_words, pointer_count, depth)
            for index in range(count)
        )
        return StructList(data_words, pointer_count, tuple(items))

    def _charge(self, segment: bytes, start: int, word_count: int) -> None:
        """Check that the words are within the segment, and count them."""
        if start < 0 or start + word_count * WORD_BYTES > len(segment):
            raise MalformedMessage(f"pointer to {word_count} words that reach beyond their segment")
        self._spend(word_count)

    def _spend(self, word_count: int) -> None:
        self._words_left -= word_count
        if self._words_left < 0:
            raise MalformedMessage("pointers that lead to the same words too often")

    @staticmethod
    def _word(segment: bytes, at: int) -> int:
        raw = segment[at : at + WORD_BYTES]
        if len(raw) != WORD_BYTES:
            raise MalformedMessage("pointer outside its segment")
        return int.from_bytes(raw, "little")


def _offset(word: int) -> int:
    """Signed, in words."""
    offset = (word & 0xFFFFFFFF) >> 2
    return offset - 2 * _MAX_OFFSET if offset >= _MAX_OFFSET else offset
