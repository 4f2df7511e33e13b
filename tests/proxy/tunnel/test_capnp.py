"""The encoding by itself: any bytes give a message or one exception, after bounded work."""

import tracemalloc
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tunnel.capnp import (
    MAX_MESSAGE_BYTES,
    MAX_SEGMENTS,
    Capability,
    MalformedMessage,
    MessageReader,
    PointerList,
    Scalars,
    Struct,
    StructList,
    Value,
    decode,
    encode,
    text,
)
from tests.proxy.tunnel import vectors
from tests.support.edge.farpointers import encode_scattered

WORDS = st.integers(0, 3).flatmap(lambda count: st.binary(min_size=8 * count, max_size=8 * count))


def struct_lists(values: st.SearchStrategy[Value | None]) -> st.SearchStrategy[StructList]:
    def of_shape(shape: tuple[int, int]) -> st.SearchStrategy[StructList]:
        data_words, pointer_count = shape
        items = st.builds(
            Struct,
            st.binary(min_size=8 * data_words, max_size=8 * data_words),
            st.tuples(*[values] * pointer_count),
        )
        lists = st.lists(items, max_size=3).map(tuple)
        return lists.map(lambda found: StructList(data_words, pointer_count, found))

    return st.tuples(st.integers(0, 2), st.integers(0, 2)).flatmap(of_shape)


def nested(values: st.SearchStrategy[Value | None]) -> st.SearchStrategy[Value | None]:
    pointers = st.lists(values, max_size=3).map(tuple)
    return st.one_of(st.builds(Struct, WORDS, pointers), st.builds(PointerList, pointers), struct_lists(values))


VALUES: st.SearchStrategy[Value | None] = st.recursive(
    st.one_of(
        st.none(),
        st.binary(max_size=20),
        st.builds(Capability, st.integers(0, 2**32 - 1)),
        st.binary(max_size=3).map(lambda raw: Scalars(3, len(raw), raw * 2)),
    ),
    nested,
    max_leaves=20,
)
ROOTS = st.builds(Struct, WORDS, st.lists(VALUES, max_size=4).map(tuple))


def framed(*segments: bytes) -> bytes:
    head = b"".join(number.to_bytes(4, "little") for number in (len(segments) - 1, *(len(s) // 8 for s in segments)))
    return head + bytes(-len(head) % 8) + b"".join(segments)


def read(raw: bytes) -> list[Struct]:
    return list(MessageReader().receive(raw))


def word(low: int, high: int = 0) -> bytes:
    return (low & 0xFFFFFFFF).to_bytes(4, "little") + high.to_bytes(4, "little")


def struct_pointer(offset: int, data_words: int, pointer_count: int) -> bytes:
    return word(offset << 2, data_words | pointer_count << 16)


def list_pointer(offset: int, code: int, count: int) -> bytes:
    return word(offset << 2 | 1, count << 3 | code)


@given(ROOTS)
def test_what_is_written_is_read_back(root: Struct) -> None:
    assert [root] == read(encode(root))


@given(ROOTS)
def test_the_division_into_segments_makes_no_difference(root: Struct) -> None:
    assert [root] == read(encode_scattered(root))


@given(st.lists(st.sampled_from(sorted(vectors.ALL.values())), max_size=4), st.lists(st.integers(0, 900), max_size=8))
def test_the_division_of_the_stream_into_pieces_makes_no_difference(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(messages)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = MessageReader()
    pieces = [stream[start:stop] for start, stop in pairwise(edges)]

    assert read(stream) == [root for piece in pieces for root in reader.receive(piece)]
    assert not reader.has_part


@pytest.mark.parametrize("raw", vectors.ALL.values(), ids=vectors.ALL)
def test_a_message_that_arrives_byte_by_byte_is_complete_at_its_last_byte(raw: bytes) -> None:
    reader = MessageReader()

    assert not [root for i in range(len(raw) - 1) for root in reader.receive(raw[i : i + 1])]
    assert reader.has_part
    assert read(raw) == list(reader.receive(raw[-1:]))


@given(st.binary(max_size=400))
def test_any_bytes_decode_or_raise_malformed_message(raw: bytes) -> None:
    with suppress(MalformedMessage):
        read(raw)


@given(st.lists(st.binary(max_size=200).map(lambda raw: raw[: len(raw) // 8 * 8]), min_size=1, max_size=4))
def test_any_segments_decode_or_raise_malformed_message(segments: list[bytes]) -> None:
    with suppress(MalformedMessage):
        decode(segments)


@given(st.sampled_from(sorted(vectors.ALL.values())), st.data())
def test_damaged_messages_decode_or_raise_malformed_message(raw: bytes, data: st.DataObject) -> None:
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(8, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        read(bytes(damaged))


MALFORMED = {
    "no segments": ((0xFFFFFFFF).to_bytes(4, "little") + bytes(4), "segments, want at most"),
    "too many segments": (MAX_SEGMENTS.to_bytes(4, "little") + bytes(4), "message of 513 segments, want at most 512"),
    "announced too large": (word(0, 0xFFFFFFFF), "bytes, want at most 65536"),
    "empty": (framed(b""), "pointer outside its segment"),
    "null root": (framed(bytes(8)), "message with no root, want a struct"),
    "root is a list": (framed(list_pointer(0, 2, 0)), "message with another root"),
    "struct outside": (framed(struct_pointer(0, 1, 0)), "1 words that reach beyond their segment"),
    "struct before": (framed(struct_pointer(-2, 1, 0)), "words that reach beyond their segment"),
    "list outside": (
        framed(struct_pointer(0, 0, 1) + list_pointer(0, 2, 9)),
        "2 words that reach beyond their segment",
    ),
    "circle": (framed(struct_pointer(-1, 0, 1)), "nested more than 64 deep|too often"),
    "unknown segment": (framed(word(2, 7)), "far pointer into segment 7 of 1"),
    "far outside": (framed(word(9 << 3 | 2, 0)), "pointer outside its segment"),
    "far to far": (framed(word(1 << 3 | 2, 0) + word(2, 0)), "far pointer that leads to a far pointer"),
    "bad double far": (framed(word(1 << 3 | 6, 0) + bytes(16)), "landing pad is not a far pointer"),
    "bad capability": (framed(struct_pointer(0, 0, 1) + word(7, 0)), "pointer of an unknown kind"),
    "bad tag": (framed(struct_pointer(0, 0, 1) + list_pointer(0, 7, 0) + word(1, 0)), "without a struct tag"),
    "tag too large": (
        framed(struct_pointer(0, 0, 1) + list_pointer(0, 7, 1) + struct_pointer(2, 1, 0) + bytes(8)),
        "list of 2 structs of 1 words in 1 words",
    ),
    "many empty structs": (
        framed(struct_pointer(0, 0, 1) + list_pointer(0, 7, 0) + struct_pointer(0x1FFFFFFF, 0, 0)),
        "too often",
    ),
}


@pytest.mark.parametrize(("raw", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_the_error_names_what_is_wrong_with_a_message(raw: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        read(raw)


def test_a_far_pointer_may_lead_to_any_word_of_its_segment() -> None:
    far = 2 | 1 << 3 | 1 << 32  # to word 1 of segment 1
    content = (7).to_bytes(8, "little")

    assert decode([far.to_bytes(8, "little"), bytes(8) + struct_pointer(0, 1, 0) + content]) == Struct(content, ())


def test_pointers_to_the_same_words_cost_no_more_than_the_message_is_long() -> None:
    """Each of 16 levels points twice at the next: 65,536 leaves in 35 words, if all were followed."""
    levels = b"".join(struct_pointer(1, 0, 2) + struct_pointer(0, 0, 2) for _ in range(16)) + bytes(16)

    with pytest.raises(MalformedMessage, match="too often"):
        read(framed(struct_pointer(0, 0, 2) + levels))


def test_deep_values_are_refused() -> None:
    value = Struct(b"", ())
    for _ in range(70):
        value = Struct(b"", (value,))

    with pytest.raises(MalformedMessage, match="nested more than 64 deep"):
        read(encode(value))


def test_a_large_message_is_refused_before_it_is_stored() -> None:
    reader = MessageReader(max_message_bytes=1000)
    raw = encode(Struct(b"", (bytes(2000),)))

    with pytest.raises(MalformedMessage, match="message of 2024 bytes, want at most 1000"):
        list(reader.receive(raw[:8]))


def test_reading_takes_memory_in_proportion_to_the_message() -> None:
    raw = encode(Struct(b"", (PointerList((Struct(bytes(8), ()),) * 4000),)))
    assert 64_000 < len(raw) <= MAX_MESSAGE_BYTES
    tracemalloc.start()
    try:
        (root,) = read(raw)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert root.pointers
    assert peak_bytes < 20 * len(raw)


def test_values_of_another_type_than_wanted_are_malformed() -> None:
    struct = Struct(bytes(8), (b"x", PointerList((Capability(0),)), Struct(b"", ())))

    with pytest.raises(MalformedMessage, match="pointer 0 leads to a bytes, want a Struct"):
        struct.struct(0)
    with pytest.raises(MalformedMessage, match="pointer 2 leads to a Struct, want a bytes"):
        struct.octets(2)
    with pytest.raises(MalformedMessage, match="pointer 1 leads to another kind of list, want a list of texts"):
        struct.texts(1)
    with pytest.raises(MalformedMessage, match="text without a NUL at its end"):
        struct.text(0)


def test_texts_are_read_without_their_final_nul() -> None:
    struct = Struct(b"", (text("grüße"), text(""), PointerList((text("a"), None)), b"\xff\0"))

    assert ("grüße", "", ("a", ""), "\ufffd") == (struct.text(0), struct.text(1), struct.texts(2), struct.text(3))


def test_numbers_beyond_the_data_section_are_zero() -> None:
    struct = Struct(b"\xfe\xff" + bytes(5) + b"\x80", ())

    assert (0xFFFE, -2, True, 0, False) == (
        struct.unsigned(0, 2),
        struct.signed(0, 2),
        struct.bit(63),
        struct.unsigned(8, 4),
        struct.bit(64),
    )
