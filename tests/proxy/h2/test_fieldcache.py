"""Decoding field blocks: RFC 7541 appendix C, the step from stateful to stateless, the cache, and hostile blocks."""

import time
from collections.abc import Callable

import pytest
from hpack import Decoder, HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.h2.errors import ErrorCode, RemoteProtocolError
from proxy.h2.fieldcache import MAX_CACHED_FIELDS, BlockDecoder, FieldCache, make_cache
from proxy.h2.fieldlines import encode_integer
from proxy.h2.fields import AUTHORITY, METHOD, PATH, SCHEME, STATUS, FieldBlock
from proxy.heads import Field
from tests.proxy.h2.wire import GET, honouring_encoder, literal

MAX_LIST_BYTES = 65_536

# (blocks of one connection, with what each holds), from RFC 7541, C.3 to C.6.
DATE = b"Mon, 21 Oct 2013 20:13:21 GMT"
C3 = ["828684410f7777772e6578616d706c652e636f6d", "828684be58086e6f2d6361636865"]
C3.append("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565")
C5 = (
    "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
    "6e1768747470733a2f2f7777772e6578616d706c652e636f6d"
)
C4 = ["828684418cf1e3c2e5f23a6ba0ab90f4ff", "828684be5886a8eb10649cbf"]
C4.append("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")


def stateful() -> BlockDecoder:
    return BlockDecoder(make_cache(), MAX_LIST_BYTES)


def stateless(cache: FieldCache | None = None) -> BlockDecoder:
    decoder = BlockDecoder(make_cache() if cache is None else cache, MAX_LIST_BYTES)
    decoder.settings_acknowledged()
    decoder.decode(b"\x20")
    assert decoder.is_stateless
    return decoder


def pseudo(block: FieldBlock) -> list[bytes | None]:
    return [block.special[kind] for kind in (METHOD, SCHEME, PATH, AUTHORITY)]


@pytest.mark.parametrize("blocks", [C3, C4], ids=["C.3, without Huffman", "C.4, with Huffman"])
def test_the_request_examples_of_the_rfc_are_decoded_with_their_table(blocks: list[str]) -> None:
    decoder = stateful()

    first, second, third = (decoder.decode(bytes.fromhex(block)) for block in blocks)

    assert [b"GET", b"http", b"/", b"www.example.com"] == pseudo(first)
    assert ([b"GET", b"http", b"/", b"www.example.com"], [(b"cache-control", b"no-cache")]) == (
        pseudo(second),
        second.fields,
    )
    assert [b"GET", b"https", b"/index.html", b"www.example.com"] == pseudo(third)
    assert [(b"custom-key", b"custom-value")] == third.fields


@pytest.mark.parametrize(
    "block",
    [
        C5,
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    ],
    ids=["C.5, without Huffman", "C.6, with Huffman"],
)
@pytest.mark.parametrize("make", [stateful, stateless])
def test_the_first_response_example_of_the_rfc_is_decoded_with_and_without_state(
    make: Callable[[], BlockDecoder], block: str
) -> None:
    decoded = make().decode(bytes.fromhex(block))

    assert b"302" == decoded.special[STATUS]
    assert [
        (b"cache-control", b"private"),
        (b"date", DATE),
        (b"location", b"https://www.example.com"),
    ] == decoded.fields


@pytest.mark.parametrize(
    ("block", "field", "is_never_indexed"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (b"custom-key", b"custom-header"), False),
        ("100870617373776f726406736563726574", (b"password", b"secret"), True),
    ],
    ids=["C.2.1", "C.2.3"],
)
def test_literal_examples_of_the_rfc_are_decoded_without_state(
    block: str, field: tuple[bytes, bytes], is_never_indexed: bool
) -> None:
    for _ in range(2):
        decoded = stateless().decode(bytes.fromhex(block))

        assert [field] == decoded.fields
        assert ({field[0]} if is_never_indexed else set()) == decoded.never_indexed


def test_the_decoder_becomes_stateless_only_after_acknowledgement_and_size_update() -> None:
    updated_first, acknowledged_first = stateful(), stateful()

    updated_first.decode(b"\x20" + literal(GET))
    acknowledged_first.settings_acknowledged()
    acknowledged_first.decode(literal(GET))
    assert (False, False) == (updated_first.is_stateless, acknowledged_first.is_stateless)

    updated_first.settings_acknowledged()
    acknowledged_first.decode(b"\x20" + literal(GET))
    assert (True, True) == (updated_first.is_stateless, acknowledged_first.is_stateless)


def test_fields_indexed_before_our_settings_were_seen_are_found_until_the_table_is_emptied() -> None:
    decoder = stateful()
    decoder.decode(bytes.fromhex(C4[0]))
    decoder.settings_acknowledged()

    assert [b"GET", b"http", b"/", b"www.example.com"] == pseudo(decoder.decode(bytes.fromhex(C4[1])))


@pytest.mark.parametrize(("update", "is_accepted"), [(0, True), (1, False), (128, True), (4096, True), (4097, False)])
def test_size_updates_after_acknowledgement_are_within_the_old_limit_or_zero(update: int, is_accepted: bool) -> None:
    decoder = stateful()
    decoder.settings_acknowledged()
    block = encode_integer(update, 5, 0x20) + literal(GET)

    if is_accepted:
        assert b"/" == decoder.decode(block).special[PATH]
    else:
        with pytest.raises(RemoteProtocolError, match=f"table size update to {update}, want 0"):
            decoder.decode(block)


@pytest.mark.parametrize("is_acknowledged", [False, True])
@pytest.mark.parametrize("make", [stateful, stateless])
def test_a_block_starts_with_two_size_updates_at_most(make: Callable[[], BlockDecoder], is_acknowledged: bool) -> None:
    """Without this limit, a block of 128 KiB could hold so many that reading them takes a tenth of a second."""
    borne, refused = make(), make()
    if is_acknowledged:
        borne.settings_acknowledged()
        refused.settings_acknowledged()

    assert b"/" == borne.decode(b"\x20\x20" + literal(GET)).special[PATH]
    with pytest.raises(RemoteProtocolError, match="more than 2 table size updates") as caught:
        refused.decode(b"\x20\x20\x20" + literal(GET))
    assert (ErrorCode.COMPRESSION_ERROR, 0) == (caught.value.code, caught.value.stream_id)


FIELDS = st.tuples(
    st.sampled_from([b"accept", b"x-a", b"cookie", b"date", b"x-" + b"n" * 130]),
    st.sampled_from([b"", b"v", b"text/html", b"x" * 126, b"x" * 127, b"x" * 128, b"y" * 254, b"z" * 255, b"w" * 1500]),
)


@given(st.lists(st.lists(FIELDS, max_size=12), min_size=1, max_size=4), st.booleans())
def test_the_cache_decodes_what_the_reference_decodes(
    blocks: list[list[tuple[bytes, bytes]]], is_huffman: bool
) -> None:
    encoder, decoder = honouring_encoder(), stateless()
    for fields in blocks * 2:
        block = encoder.encode(fields, huffman=is_huffman)

        assert fields == decoder.decode(block).fields


@pytest.mark.parametrize("first", [0x00, 0x10], ids=["not indexed", "never indexed"])
def test_name_indexes_of_two_bytes_are_those_of_the_reference(first: int) -> None:
    """Most clients name the fields like this that they do not put into a table."""
    special = {28, 38, 57}  # content-length, host, transfer-encoding
    values = [b"\x02v1", b"\x82\x64\x02", b"\x7f\x01" + b"w" * 128]
    block = b"".join(
        encode_integer(index, 4, first) + value for index in range(15, 62) if index not in special for value in values
    )
    decoder = stateless()

    for _ in range(3):
        assert Decoder().decode(block, raw=True) == decoder.decode(block).fields


@pytest.mark.parametrize("is_huffman", [False, True])
@pytest.mark.parametrize("name_size", [1, 126, 127, 128, 254, 255, 400])
def test_long_names_and_values_end_where_the_reference_ends_them(name_size: int, is_huffman: bool) -> None:
    sizes = (0, 1, 126, 127, 128, 254, 255, 256, 400)
    fields = [(b"n" * name_size, b"v" * size) for size in sizes] + [(b"accept", b"v" * size) for size in sizes]
    decoder = stateless()

    for _ in range(3):
        block = honouring_encoder().encode(fields, huffman=is_huffman)
        assert fields == decoder.decode(block).fields


def _damaged(fields: list[tuple[bytes, bytes]], is_huffman: bool, place: int, patch: bytes) -> bytes:
    """A block of these fields in which `patch` replaces as many bytes."""
    block = honouring_encoder().encode(fields, huffman=is_huffman)
    start = place % len(block)
    return block[:start] + patch + block[start + len(patch) :]


DAMAGED = st.builds(
    _damaged, st.lists(FIELDS, min_size=1, max_size=3), st.booleans(), st.integers(0, 1000), st.binary(max_size=2)
)


@given(st.binary(max_size=60) | DAMAGED)
@settings(max_examples=300)
def test_stateless_decoding_of_any_bytes_agrees_with_the_reference(block: bytes) -> None:
    """The reference starts with an empty table of size 0; both give the same fields, or both refuse."""
    reference = Decoder()
    reference.max_allowed_table_size = 0
    reference.decode(b"\x20")
    expected: list[tuple[bytes, bytes]] | None
    try:
        expected = [(bytes(name), bytes(value)) for name, value in reference.decode(block, raw=True)]
    except HPACKError:
        expected = None
    if expected is None:
        with pytest.raises(RemoteProtocolError) as caught:
            stateless().decode(block)
        assert ErrorCode.COMPRESSION_ERROR == caught.value.code
        return

    decoded = stateless().decode(block)

    if decoded.flaw is None:
        # Whitespace around a value is stripped (`h2.fields`).
        told = [(name, value.strip(b" \t")) for name, value in expected]
        ordinary = [field for field in told if not field[0].startswith(b":") and field[0] != b"host"]
        assert ordinary == decoded.fields


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("80", id="index 0"),
        pytest.param("be", id="index 62, in the empty table"),
        pytest.param("ff00", id="index 127, in two bytes"),
        pytest.param("7e0161", id="name index 62"),
        pytest.param("0f2f0161", id="name index 62, in two bytes"),
        pytest.param("0f", id="ends inside a name index"),
        pytest.param("04", id="ends before the value"),
        pytest.param("0405616263", id="ends inside the value"),
        pytest.param("4f920000", id="ends far inside the value"),
        pytest.param("0f019200", id="ends inside the value behind a name index in two bytes"),
        pytest.param("008221ff92ff", id="ends inside the value behind a name"),
        pytest.param("00", id="ends before the name"),
        pytest.param("000361", id="ends inside the name"),
        pytest.param("04ff", id="ends inside the length"),
        pytest.param("047fffffffffffff7f", id="length beyond 28 bits"),
        pytest.param("0481ff", id="Huffman padding of eight bits"),
        pytest.param("8220", id="size update after a field"),
        pytest.param("b920", id="size update after a field that HTTP/2 has not"),
        pytest.param("21", id="size update to 1"),
        pytest.param("3fe11f", id="size update to 4096"),
        pytest.param("3f000178", id="size update to 31, which would be a field if it were not one"),
    ],
)
def test_a_broken_block_is_a_compression_error_of_the_connection(block: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        stateless().decode(bytes.fromhex(block))

    assert (ErrorCode.COMPRESSION_ERROR, 0) == (caught.value.code, caught.value.stream_id)


@pytest.mark.parametrize("make", [stateful, stateless])
@pytest.mark.parametrize("opening", [b"", b"\x40\x01a"], ids=["index", "length"])
def test_an_integer_that_does_not_end_is_refused_before_it_is_summed_up(
    opening: bytes, make: Callable[[], BlockDecoder]
) -> None:
    """hpack 4.1 held a worker for 1.4 s with the longest block that is taken, 128 KiB (CVE-2026-59980)."""
    decoder = make()
    began_s = time.thread_time()

    with pytest.raises(RemoteProtocolError):
        decoder.decode(opening + b"\xff" * 4 * MAX_LIST_BYTES)

    assert time.thread_time() - began_s < 1


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        pytest.param("ff", "HPACKDecodingError", id="ends inside an index"),
        pytest.param("ffffffffffffffff", "HPACKDecodingError", id="index beyond all bounds"),
        pytest.param("40ff736563726574", "HPACKDecodingError", id="ends inside the length of a name"),
        pytest.param("40ffffffffffffffffffff736563726574", "HPACKDecodingError", id="length beyond all bounds"),
        pytest.param("be", "InvalidTableIndex", id="index of nothing"),
    ],
)
def test_a_decoding_error_reveals_neither_the_block_nor_a_memory_address(block: str, kind: str) -> None:
    """The error messages of hpack contain both, and the reason is sent as the debug data of a GOAWAY."""
    with pytest.raises(RemoteProtocolError) as caught:
        stateful().decode(bytes.fromhex(block))

    assert f"field block that cannot be decoded ({kind})" == str(caught.value)


def test_secrets_and_fields_that_never_repeat_stay_out_of_the_cache() -> None:
    cache = make_cache()
    decoder = stateless(cache)

    for _ in range(3):
        decoder.decode(literal([(b"authorization", b"Bearer t"), (b"cf-ray", b"8f1"), (b"set-cookie", b"s=1")]))
        decoder.decode(honouring_encoder().encode([(b"authorization", b"Bearer " + b"t" * 200)])[1:])
        decoder.decode(b"\x10\x03pin\x041234")
        decoder.decode(honouring_encoder().encode([(b"x-long", b"~" * 2000)])[1:])
        decoder.decode(literal([(b"Bad Name", b"v")]))
    assert 0 == len(cache)

    for _ in range(3):
        decoder.decode(literal([(b"accept", b"*/*")]))
    assert 1 == len(cache)


def test_fields_seen_once_do_not_displace_repeated_ones_in_the_cache() -> None:
    cache = make_cache()
    decoder = stateless(cache)

    for number in range(5_000):
        decoder.decode(literal([(b"accept", b"*/*"), (b"x-once", b"%d" % number)]))

    assert literal([(b"accept", b"*/*")]) in cache.young
    assert len(cache) < 500  # one of 256 is taken for a known one by chance


def test_new_values_in_one_block_are_validated_separately() -> None:
    for value in (b"a\nb", b"a\0b", b"a\0 ", b"\t\x7f", b"\x7f"):
        cache = make_cache()
        decoder = stateless(cache)
        fields = [(b"x-first", b"first"), (b"x-bad", value), (b"x-last", b"last")]

        for _ in range(3):
            decoded = decoder.decode(honouring_encoder().encode(fields, huffman=True))

            assert "value of field x-bad contains control characters, or starts or ends with a space" == decoded.flaw
        assert value not in {kept for _, (_, kept) in cache.young.values()}


def test_the_cache_is_bounded_and_keeps_what_is_in_use() -> None:
    cache = make_cache()
    decoder = stateless(cache)
    in_use = literal([(b"accept", b"*/*")])

    for number in range(MAX_CACHED_FIELDS * 2):
        decoder.decode(literal([(b"x-flood", b"%d" % number)]))
        if number % 100 == 0:
            decoder.decode(in_use)
        assert len(cache) <= MAX_CACHED_FIELDS

    assert in_use in cache.young or in_use in cache.old


def test_a_block_of_many_short_references_is_measured_as_the_list_it_stands_for() -> None:
    decoded = stateless().decode(b"\x90" * 2000)

    assert 2000 * (len(b"accept-encoding") + len(b"gzip, deflate") + 32) == decoded.size_bytes


def test_a_bomb_of_references_into_the_table_ends_the_connection() -> None:
    decoder = stateful()
    big = b"\x40\x01a" + encode_integer(3000, 7, 0) + b"v" * 3000

    with pytest.raises(RemoteProtocolError) as caught:
        decoder.decode(big + b"\xbe" * 10_000)

    assert ErrorCode.ENHANCE_YOUR_CALM == caught.value.code


@pytest.mark.parametrize(
    "field",
    [b"\x90", literal([(b"x", b"1")]), b"\x00\x01x\x83\xff\xfe\x1f"],
    ids=["static", "new", "new, of a code that zlib does not have"],
)
def test_a_field_list_over_four_times_the_limit_is_not_decoded(field: bytes) -> None:
    decoder = stateless()
    borne = 4 * MAX_LIST_BYTES // 32
    assert decoder.decode(field * (borne - 100)).size_bytes > MAX_LIST_BYTES

    with pytest.raises(RemoteProtocolError, match=f"field list over {4 * MAX_LIST_BYTES} bytes") as caught:
        decoder.decode(field * (borne + 1))

    assert (ErrorCode.ENHANCE_YOUR_CALM, 0) == (caught.value.code, caught.value.stream_id)


@pytest.mark.parametrize("make", [stateful, stateless])
def test_a_list_of_up_to_four_times_the_limit_is_decoded_and_measured(make: Callable[[], BlockDecoder]) -> None:
    borne = 4 * MAX_LIST_BYTES // (1 + 99 + 32)
    field = literal([(b"x", b"y" * 99)])

    assert borne * (1 + 99 + 32) == make().decode(field * borne).size_bytes


def test_nothing_is_decoded_after_new_fields_of_four_times_the_limit() -> None:
    field, inside_a_field = literal([(b"x", b"")]), b"\x00"

    with pytest.raises(RemoteProtocolError, match=f"field list over {4 * MAX_LIST_BYTES} bytes"):
        stateless().decode(field * (4 * MAX_LIST_BYTES // 32 + 2) + inside_a_field)


def test_never_indexed_names_are_reported_for_each_block_separately() -> None:
    decoder = stateless()
    secrets = [b"x-%d" % number for number in range(8_000)]

    first = decoder.decode(b"".join(b"\x10" + literal([(name, b"1")])[1:] for name in secrets))
    second = decoder.decode(b"\x10" + literal([(b"x-last", b"1")])[1:])
    third = decoder.decode(literal([(b"x-1", b"1")]))

    assert [set(secrets), {b"x-last"}, set()] == [set(each.never_indexed) for each in (first, second, third)]


@pytest.mark.parametrize(
    "field", [b"\x04\x01/", b"\x84", literal([(b"Upper", b"x")])], ids=["path", "static", "flawed"]
)
def test_a_malformed_field_list_over_four_times_the_limit_is_not_decoded(field: bytes) -> None:
    """Malformed fields are not kept, so nothing else counts them."""
    decoder = stateless()
    borne = 4 * MAX_LIST_BYTES // 32
    assert decoder.decode(field * borne).flaw is not None

    with pytest.raises(RemoteProtocolError, match=f"field list over {4 * MAX_LIST_BYTES} bytes") as caught:
        decoder.decode(field * (borne + 2))

    assert (ErrorCode.ENHANCE_YOUR_CALM, 0) == (caught.value.code, caught.value.stream_id)


SPACED = [(b"cookie", b"a=b; "), (b"user-agent", b"\tFoo/1.0 "), (b"x-new", b" "), (b"x-seldom" * 12, b" v")]


@pytest.mark.parametrize("knows_peer", [True, False], ids=["stateless", "stateful"])
def test_values_are_trimmed(knows_peer: bool) -> None:
    cache = make_cache()
    block = b"\x20" + literal([*GET, *SPACED])
    for _ in range(3):
        decoder = BlockDecoder(cache, MAX_LIST_BYTES)
        if knows_peer:
            decoder.settings_acknowledged()
            decoder.decode(b"\x20")
        decoded = decoder.decode(block)

        assert (decoded.flaw, decoded.fields) == (None, [(name, value.strip()) for name, value in SPACED])


@pytest.mark.parametrize("field", [(b":path", b"/ "), (b"content-length", b" 5"), (b"host", b"a "), (b"x", b"a\0 ")])
def test_spaces_around_values_of_framing_and_routing_fields_are_a_flaw(field: Field) -> None:
    decoder = BlockDecoder(make_cache(), MAX_LIST_BYTES)
    decoder.settings_acknowledged()
    decoder.decode(b"\x20")

    assert decoder.decode(literal([field])).flaw is not None
