"""Encoding field blocks: another implementation reads what we meant, and nothing invalid is ever sent."""

import tracemalloc

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from proxy.h2 import LocalProtocolError
from proxy.h2.fieldcache import BlockDecoder, make_cache
from proxy.h2.fieldlines import BlockEncoder, LineCache, encode_integer
from proxy.h2.fields import request_head, response_head
from proxy.heads import Field, RequestHead, ResponseHead
from tests.proxy.h2.wire import get_head

RESERVED = {b"host", b"te", b"connection", b"content-length", b"upgrade", b"keep-alive", b"proxy-connection"}
NAMES: st.SearchStrategy[bytes] = st.from_regex(rb"[a-z][a-z0-9\-]{0,20}", fullmatch=True)
NAMES = NAMES.filter(lambda name: name not in RESERVED)
VALUES = st.from_regex(rb"([!-~\x80-\xff]([ -~]{0,200}[!-~])?)?", fullmatch=True)


def encoder() -> BlockEncoder:
    return BlockEncoder(LineCache())


def read(block: bytes) -> list[Field]:
    return [(bytes(name), bytes(value)) for name, value in Decoder().decode(block, raw=True)]


@pytest.mark.parametrize(
    ("value", "prefix_bits", "encoded"),
    [(10, 5, b"\x0a"), (1337, 5, b"\x1f\x9a\x0a"), (42, 8, b"\x2a"), (127, 7, b"\x7f\x00"), (255, 7, b"\x7f\x80\x01")],
    ids=["C.1.1", "C.1.2", "C.1.3", "the least that needs two bytes", "the least that needs three"],
)
def test_integers_are_encoded_as_in_the_rfc(value: int, prefix_bits: int, encoded: bytes) -> None:
    assert encoded == encode_integer(value, prefix_bits, 0)


def test_a_request_is_read_by_another_implementation() -> None:
    head = get_head(b"/a?b", (b"accept", b"*/*"), (b"cookie", b"a=1"), (b"cookie", b"b=2"))

    assert [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/a?b"),
        (b":authority", b"a.example"),
        (b"accept", b"*/*"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
    ] == read(encoder().request(head))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_encoded_fields_decode_to_the_same_with_a_cold_and_a_warm_cache(fields: list[Field]) -> None:
    ours, decoder = encoder(), BlockDecoder(make_cache(), 65_536)
    decoder.settings_acknowledged()
    for _ in range(2):
        head = response_head(decoder.decode(ours.response(ResponseHead(204, fields))))

        assert (204, fields) == (head.status_code, head.fields)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(RequestHead(b"CONNECT", b"", b"a.example:443", b"", []), id="CONNECT"),
        pytest.param(
            RequestHead(b"CONNECT", b"https", b"a.example", b"/chat", [], protocol=b"websocket"), id="extended CONNECT"
        ),
        pytest.param(RequestHead(b"OPTIONS", b"http", b"", b"*", [(b"accept", b"*/*")]), id="asterisk, no authority"),
    ],
)
def test_the_forms_of_a_request_survive_both_ways(head: RequestHead) -> None:
    decoded = request_head(BlockDecoder(make_cache(), 65_536).decode(encoder().request(head)), True)

    assert [head.method, head.scheme, head.authority, head.path, head.protocol, head.fields] == [
        decoded.method,
        decoded.scheme,
        decoded.authority,
        decoded.path,
        decoded.protocol,
        decoded.fields,
    ]


def test_only_the_first_block_empties_the_table() -> None:
    ours = encoder()
    first, second = ours.response(ResponseHead(200, [])), ours.response(ResponseHead(200, []))

    assert (b"\x20\x88", b"\x88") == (first, second)


def test_credentials_and_fields_received_as_never_indexed_are_sent_as_never_indexed() -> None:
    fields = [(b"authorization", b"t"), (b"x-pin", b"1"), (b"accept", b"*/*")]
    for _ in range(2):
        block = encoder().response(ResponseHead(200, fields, frozenset((b"x-pin",))))
        indexable = {bytes(field[0]): field.indexable for field in Decoder().decode(block, raw=True)}

        assert {b":status": True, b"authorization": False, b"x-pin": False, b"accept": True} == indexable


def test_pseudo_header_fields_received_as_never_indexed_are_sent_as_such_and_not_cached() -> None:
    """Also those that the static table has with their value."""
    names = frozenset((b":path", b":status"))
    cache = LineCache()
    for _ in range(3):
        ours = BlockEncoder(cache)
        request = RequestHead(b"GET", b"https", b"a.example", b"/", [], never_indexed=names)
        blocks = ours.request(request), ours.response(ResponseHead(200, [], names))
        fields = [field for block in blocks for field in Decoder().decode(block, raw=True)]

        assert {*names} == {bytes(field[0]) for field in fields if not field.indexable}
    assert (b":path", b"/") not in cache.pseudo.young


@pytest.mark.parametrize(
    "field",
    [
        pytest.param((b"X-Upper", b"v"), id="upper case"),
        pytest.param((b"bad name", b"v"), id="space in the name"),
        pytest.param((b"", b"v"), id="no name"),
        pytest.param((b"x", b"a\r\nb: c"), id="line break in the value"),
        pytest.param((b"x", b"a\0"), id="NUL in the value"),
        pytest.param((b"x", b" a"), id="space before the value"),
        pytest.param((b"connection", b"close"), id="connection"),
        pytest.param((b"transfer-encoding", b"chunked"), id="transfer-encoding"),
        pytest.param((b"te", b"gzip"), id="te"),
        pytest.param((b"content-length", b"+5"), id="content-length"),
        pytest.param((b":status", b"200"), id="pseudo-header field"),
        pytest.param((b":unknown", b"x"), id="unknown pseudo-header field"),
    ],
)
def test_a_field_that_must_not_be_sent_raises_local_protocol_error(field: Field) -> None:
    ours = encoder()
    ours.response(ResponseHead(200, []))

    for _ in range(2):
        with pytest.raises(LocalProtocolError, match=r"cannot be sent|pseudo-header field"):
            ours.response(ResponseHead(200, [field]))
        with pytest.raises(LocalProtocolError, match=r"cannot be sent|pseudo-header field"):
            ours.response(ResponseHead(200, [field], frozenset((field[0],))))


@pytest.mark.parametrize("status_code", [99, 101, 1000])
def test_a_status_code_that_http2_has_not_raises_local_protocol_error(status_code: int) -> None:
    with pytest.raises(LocalProtocolError, match="want 100 to 999 without 101"):
        encoder().response(ResponseHead(status_code, []))


@pytest.mark.parametrize("status_code", [100, 102, 199, 599, 999])
def test_any_other_status_code_of_three_digits_is_sent(status_code: int) -> None:
    block = encoder().response(ResponseHead(status_code, []))

    assert [(b":status", b"%d" % status_code)] == Decoder().decode(block, raw=True)


def test_the_error_about_a_field_does_not_reveal_its_value() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encoder().response(ResponseHead(200, [(b"authorization", b"s3cret\n")]))

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "head",
    [
        RequestHead(b"GE T", b"https", b"a.example", b"/", []),
        RequestHead(b"GET", b"https", b"a.example", b"/a b", []),
        RequestHead(b"GET", b"https", b"a.example", b"", []),
        RequestHead(b"GET", b"https", b"user@a.example", b"/", []),
        RequestHead(b"GET", b"https", b"a.example/x", b"/", []),
    ],
    ids=["method", "space in the path", "no path", "user information", "path in the authority"],
)
def test_a_request_head_that_must_not_be_sent_raises_local_protocol_error(head: RequestHead) -> None:
    with pytest.raises(LocalProtocolError):
        encoder().request(head)


def test_lines_cached_by_one_connection_serve_the_next() -> None:
    cache = LineCache()
    for _ in range(2):
        BlockEncoder(cache).response(ResponseHead(200, [(b"server", b"x")]))

    assert (b"server", b"x") in cache.ordinary.young
    assert b"\x20\x88\x0f\x27\x01x" == BlockEncoder(cache).response(ResponseHead(200, [(b"server", b"x")]))


def test_lines_used_once_do_not_displace_repeated_ones_in_the_cache() -> None:
    cache = LineCache()
    ours = BlockEncoder(cache)

    for number in range(5_000):
        ours.request(get_head(b"/%d" % number, (b"accept", b"*/*"), (b"x-once", b"%d" % number)))

    assert (b"accept", b"*/*") in cache.ordinary.young
    assert len(cache.ordinary) < 500  # one of 256 is taken for a known one by chance
    assert len(cache.pseudo) < 500


def test_long_names_leave_nothing_in_memory() -> None:
    """A thousand names of 60 KiB used to hold 60 MiB for good."""
    ours = encoder()
    ours.request(get_head(b"/", (b"x-first", b"1")))

    tracemalloc.start()
    try:
        for number in range(200):
            ours.request(get_head(b"/", (b"%0*d" % (20_000, number), b"v")))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held_bytes < 20 * 20_000


def test_secrets_and_fields_that_never_repeat_stay_out_of_the_lines() -> None:
    cache = LineCache()
    fields = [(b"authorization", b"t"), (b"x-request-id", b"1"), (b"set-cookie", b"s"), (b"x-pin", b"1")]

    for _ in range(3):
        BlockEncoder(cache).response(ResponseHead(200, fields, frozenset((b"x-pin",))))

    assert 0 == len(cache.ordinary)


def test_an_invalid_value_is_refused_among_valid_ones() -> None:
    ours = encoder()
    sound = [(b"x-%d" % number, b"v") for number in range(4)]

    for value in (b"a\nb", b"a\0", b"a ", b"\ta", b"\x7f"):
        with pytest.raises(LocalProtocolError, match="x-bad"):
            ours.response(ResponseHead(200, [*sound, (b"x-bad", value), *sound]))
