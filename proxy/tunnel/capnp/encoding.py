"""Encoding: a value as a framed message of one segment (Cap'n Proto encoding, "Messages" and "Stream framing").

Objects are laid out in the order in which their pointers are met, parents first. Other writers of this protocol do the
same, so equal messages have equal bytes.
"""

from struct import Struct as Layout
from typing import Final

from proxy.tunnel.capnp.values import WORD_BYTES, Capability, PointerList, Scalars, Struct, StructList, Value

# Pointer kinds, in the two low bits.
STRUCT, LIST, FAR, OTHER = range(4)
# Element codes of lists.
BYTES, POINTERS, COMPOSITE = 2, 6, 7

_FRAME_HEAD: Final = Layout("<II")
_POINTER: Final = Layout("<iI")
_STRUCT_SIZES: Final = Layout("<iHH")
MAX_LIST_COUNT: Final = (1 << 29) - 1


def encode(root: Struct) -> bytes:
    """The framed message with this root."""
    segment = bytearray(WORD_BYTES)
    _place(segment, 0, root)
    return _FRAME_HEAD.pack(0, len(segment) // WORD_BYTES) + segment


def _place(segment: bytearray, at: int, value: Value | None) -> None:
    """Append `value` to the segment and write a pointer to it at `at`; None leaves the null pointer."""
    if isinstance(value, Struct):
        _place_struct(segment, at, value)
    elif isinstance(value, bytes):
        _place_list(segment, at, BYTES, len(value))
        _extend(segment, value)
    elif isinstance(value, PointerList):
        _place_list(segment, at, POINTERS, len(value.items))
        _place_pointers(segment, value.items)
    elif isinstance(value, StructList):
        _place_structs(segment, at, value)
    elif isinstance(value, Scalars):
        _place_list(segment, at, value.element_code, value.count)
        _extend(segment, value.data)
    elif isinstance(value, Capability):
        _POINTER.pack_into(segment, at, OTHER, value.index)


def _place_struct(segment: bytearray, at: int, value: Struct) -> None:
    data_words, pointer_count = len(value.data) // WORD_BYTES, len(value.pointers)
    # An empty struct points at its own pointer, since a zero word is the null pointer.
    offset = _offset(segment, at) if value.data or value.pointers else -1
    _STRUCT_SIZES.pack_into(segment, at, offset << 2 | STRUCT, data_words, pointer_count)
    segment += value.data
    _place_pointers(segment, value.pointers)


def _place_structs(segment: bytearray, at: int, value: StructList) -> None:
    item_words = value.data_words + value.pointer_count
    _place_list(segment, at, COMPOSITE, item_words * len(value.items))
    segment += _STRUCT_SIZES.pack(len(value.items) << 2 | STRUCT, value.data_words, value.pointer_count)
    start = len(segment)
    segment += bytes(item_words * WORD_BYTES * len(value.items))
    for item in value.items:
        pointers_start = start + value.data_words * WORD_BYTES
        segment[start : start + len(item.data)] = item.data
        for index, pointer in enumerate(item.pointers):
            _place(segment, pointers_start + index * WORD_BYTES, pointer)
        start += item_words * WORD_BYTES


def _place_list(segment: bytearray, at: int, element_code: int, count: int) -> None:
    if count > MAX_LIST_COUNT:
        raise ValueError(f"list of {count} elements, want at most {MAX_LIST_COUNT}")
    _POINTER.pack_into(segment, at, _offset(segment, at) << 2 | LIST, count << 3 | element_code)


def _place_pointers(segment: bytearray, values: tuple[Value | None, ...]) -> None:
    start = len(segment)
    segment += bytes(WORD_BYTES * len(values))
    for index, value in enumerate(values):
        _place(segment, start + index * WORD_BYTES, value)


def _offset(segment: bytearray, at: int) -> int:
    """In words, from the end of the pointer at `at` to the end of the segment."""
    return (len(segment) - at) // WORD_BYTES - 1


def _extend(segment: bytearray, content: bytes) -> None:
    segment += content
    segment += bytes(-len(content) % WORD_BYTES)
