"""Messages as a writer makes them when it runs out of room: each object is in a segment of its own.

Every pointer is then a far pointer; half of them are double-far, with a landing pad that is not beside the object.
"""

from proxy.tunnel.capnp import PointerList, Scalars, Struct, StructList, Value, encode

WORD_BYTES = 8


def encode_scattered(root: Struct) -> bytes:
    """The same message as `encode(root)`, in as many segments as it has objects."""
    segments: list[bytearray] = [bytearray(WORD_BYTES)]
    _place(segments, 0, 0, root)
    sizes = [len(segment) // WORD_BYTES for segment in segments]
    head = b"".join(number.to_bytes(4, "little") for number in (len(segments) - 1, *sizes))
    return head + bytes(-len(head) % WORD_BYTES) + b"".join(segments)


def _place(segments: list[bytearray], segment_id: int, at: int, value: Value | None) -> None:
    """Give `value` a segment, and store a pointer to it at `at`."""
    children = _children(value)
    if children is None:
        # No object of its own: nothing, a capability, or an empty struct.
        segments[segment_id][at : at + WORD_BYTES] = _alone(value)[:WORD_BYTES]
        return
    content = bytearray(_alone(value))
    pointer, content = content[:WORD_BYTES], content[WORD_BYTES:]
    object_id = len(segments)
    if object_id % 2:
        # The landing pad precedes its object.
        segments.append(pointer + content)
        first, landing = WORD_BYTES, _far(object_id, 0, is_double=False)
    else:
        tag = bytes((pointer[0] & 3, 0, 0, 0)) + pointer[4:]
        pad = _far(object_id, 0, is_double=False) + tag
        segments.append(content)
        segments.append(bytearray(pad))
        first, landing = 0, _far(object_id + 1, 0, is_double=True)
    segments[segment_id][at : at + WORD_BYTES] = landing
    for offset, child in children:
        _place(segments, object_id, first + offset, child)


def _children(value: Value | None) -> list[tuple[int, Value | None]] | None:
    """The objects that `value` points to, by byte offset of the pointer in it; None if there is no object."""
    if isinstance(value, Struct) and (value.data or value.pointers):
        return [(len(value.data) + index * WORD_BYTES, child) for index, child in enumerate(value.pointers)]
    if isinstance(value, bytes | Scalars):
        return []
    if isinstance(value, PointerList):
        return [(index * WORD_BYTES, child) for index, child in enumerate(value.items)]
    if isinstance(value, StructList):
        item_bytes = (value.data_words + value.pointer_count) * WORD_BYTES
        return [
            (WORD_BYTES + number * item_bytes + value.data_words * WORD_BYTES + index * WORD_BYTES, child)
            for number, item in enumerate(value.items)
            for index, child in enumerate(item.pointers)
        ]
    return None


def _alone(value: Value | None) -> bytes:
    """The pointer to `value`, with offset 0, and the object without what it points to."""
    return encode(Struct(b"", (_childless(value),)))[2 * WORD_BYTES :]


def _childless(value: Value | None) -> Value | None:
    if isinstance(value, Struct):
        return Struct(value.data, (None,) * len(value.pointers))
    if isinstance(value, PointerList):
        return PointerList((None,) * len(value.items))
    if isinstance(value, StructList):
        items = tuple(Struct(item.data, (None,) * len(item.pointers)) for item in value.items)
        return StructList(value.data_words, value.pointer_count, items)
    return value


def _far(segment_id: int, word: int, *, is_double: bool) -> bytes:
    return (word << 3 | is_double << 2 | 2).to_bytes(4, "little") + segment_id.to_bytes(4, "little")
