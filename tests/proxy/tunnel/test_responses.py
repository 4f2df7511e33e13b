"""Response heads as the edge gets them, read as an edge reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import h2
from proxy.h2 import Caches, Connection
from proxy.h2.fieldcache import MAX_CACHED_FIELD_BYTES
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.tunnel.responses import (
    CONFIGURATION_HEAD,
    CONTROL_HEAD,
    FAILURE_HEAD,
    FROM_CONNECTOR,
    FROM_ORIGIN,
    SERIALIZED,
    ResponseHeads,
)
from tests.support.edge.serialized import deserialize

META = b"cf-cloudflared-response-meta"


def serialized(*fields: tuple[bytes, bytes], status_code: int = 200) -> bytes:
    return dict(ResponseHeads().encode(ResponseHead(status_code, list(fields))).fields)[SERIALIZED]


TABLE = {
    "one": ([(b"Content-Type", b"text/plain")], b"Q29udGVudC1UeXBl:dGV4dC9wbGFpbg"),
    "two of a name": ([(b"Set-Cookie", b"a=1"), (b"Set-Cookie", b"b=2")], b"U2V0LUNvb2tpZQ:YT0x;U2V0LUNvb2tpZQ:Yj0y"),
    "an empty value": ([(b"X-Empty", b"")], b"WC1FbXB0eQ:"),
    "none": ([], b""),
}


@pytest.mark.parametrize(("fields", "wanted"), TABLE.values(), ids=TABLE)
def test_fields_are_serialised_as_the_reference_does(fields: Fields, wanted: bytes) -> None:
    assert wanted == serialized(*fields)
    assert fields == deserialize(wanted)


class Segment(bytes):
    """Counts how often it is compared."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        Segment.looks += 1
        return super().__eq__(other)

    __hash__ = bytes.__hash__


def test_a_head_with_many_new_fields_is_scanned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An HTTP/2 backend may send 2,000; searching for each new one from the start took 80 ms."""
    encode = ResponseHeads._encode_unseen
    monkeypatch.setattr(ResponseHeads, "_encode_unseen", lambda heads, field: Segment(encode(heads, field)))
    fields = [(b"x", b"%d" % number) for number in range(1_000)]
    Segment.looks = 0

    assert fields == deserialize(serialized(*fields))
    assert Segment.looks <= len(fields)


DECODED = {
    "nothing": (b"", []),
    "separators alone": (b";", []),
    "a trailing separator": (b"YQ:Yg;", [(b"a", b"b")]),
    "an empty name": (b":Yg", [(b"", b"b")]),
}


@pytest.mark.parametrize(("raw", "fields"), DECODED.values(), ids=DECODED)
def test_the_edge_of_tests_reads_leniently_where_the_real_one_does(raw: bytes, fields: Fields) -> None:
    assert fields == deserialize(raw)


@pytest.mark.parametrize("raw", [b"YQ==:Yg", b"YQ:Yg:Yg", b"YQ", b"_-:Yg", b"YQ :Yg", b"Y:Yg"])
def test_the_edge_of_tests_is_as_strict_as_the_real_one(raw: bytes) -> None:
    with pytest.raises(ValueError, match="want"):
        deserialize(raw)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"set-cookie", b"etag", b"x-long", b"content-length", b"cf-ray", b"cf-int-x"]),
            st.binary(max_size=40) | st.just(b"v" * 2000),
        ),
        max_size=8,
    ),
    st.integers(200, 599),
)
def test_the_edge_gets_every_field_but_reserved_ones_in_order(fields: Fields, status_code: int) -> None:
    heads = ResponseHeads()
    for _ in range(2):  # the second time from the cache
        encoded = heads.encode(ResponseHead(status_code, list(fields)))
        values = dict(encoded.fields)

        assert status_code == encoded.status_code
        assert [field for field in fields if field[0] != b"cf-int-x"] == deserialize(values[SERIALIZED])
        assert FROM_ORIGIN in encoded.fields


@pytest.mark.parametrize("name", [b"cf-int-x", b"cf-cloudflared-response-meta", b"cf-proxy-x", b":status"])
def test_reserved_field_names_of_backends_are_dropped(name: bytes) -> None:
    encoded = ResponseHeads().encode(ResponseHead(200, [(name, b"x"), (b"cf-cache-status", b"HIT")]))

    assert [(b"cf-cache-status", b"HIT")] == deserialize(dict(encoded.fields)[SERIALIZED])
    assert [(META, b'{"src":"origin"}')] == encoded.fields[1:]


def test_content_length_is_sent_beside_the_serialised_fields_too() -> None:
    encoded = ResponseHeads().encode(ResponseHead(304, [(b"content-length", b"17"), (b"etag", b'"x"')]))

    assert [FROM_ORIGIN, (b"content-length", b"17")] == encoded.fields[1:]
    assert [(b"content-length", b"17"), (b"etag", b'"x"')] == deserialize(encoded.fields[0][1])


def test_a_101_becomes_200_with_the_fields_of_the_websocket_handshake() -> None:
    accept = (b"sec-websocket-accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    switch = [(b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"content-length", b"0")]
    head = ResponseHead(101, [*switch, accept, (b"sec-websocket-protocol", b"chat")])
    encoded = ResponseHeads().encode(head)

    assert 200 == encoded.status_code
    assert [FROM_ORIGIN] == encoded.fields[1:]
    assert [
        accept,
        (b"sec-websocket-protocol", b"chat"),
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
    ] == deserialize(encoded.fields[0][1])


def test_a_failure_of_the_connector_has_neither_backend_fields_nor_content() -> None:
    head = FAILURE_HEAD

    assert (502, [FROM_CONNECTOR, (b"content-length", b"0")]) == (head.status_code, head.fields)
    assert (META, b'{"src":"cloudflared"}') == FROM_CONNECTOR


def test_failures_share_one_head() -> None:
    of_an_exchange = ResponseHead(502, [(b"content-length", b"0")], is_failure=True)

    assert ResponseHeads().encode(of_an_exchange) is FAILURE_HEAD


@pytest.mark.parametrize("head", [CONTROL_HEAD, CONFIGURATION_HEAD])
def test_control_and_configuration_streams_are_answered_without_meta(head: ResponseHead) -> None:
    assert 200 == head.status_code
    assert [b"content-type"] == [name for name, _ in head.fields]


def test_the_head_crosses_http2_unchanged() -> None:
    server, client = Connection.server(Caches()), Connection.client(Caches())
    heads = ResponseHeads()
    fields = [(b"content-type", b"text/html"), (b"x-word", b"gr\xfc\xdfe"), (b"set-cookie", b"s=1" + b"x" * 30_000)]
    for _ in range(3):
        client.receive(server.data_to_send(), 0.0)
        stream_id = client.open_stream(RequestHead(b"GET", b"https", b"a.example", b"/", []), end_stream=True)
        server.receive(client.data_to_send(), 0.0)
        server.send_headers(stream_id, heads.encode(ResponseHead(200, list(fields))), end_stream=True)
        (event,) = (
            event for event in client.receive(server.data_to_send(), 0.0) if isinstance(event, h2.ResponseReceived)
        )
        assert fields == deserialize(dict(event.head.fields)[SERIALIZED])


def test_a_head_with_a_field_not_seen_before_is_never_indexed() -> None:
    heads = ResponseHeads()

    def never_indexed(field: tuple[bytes, bytes]) -> set[bytes]:
        return set(heads.encode(ResponseHead(200, [field])).never_indexed)

    assert [{SERIALIZED}, set()] == [never_indexed((b"a", b"b")) for _ in range(2)]
    assert [{SERIALIZED}, {SERIALIZED}] == [never_indexed((b"set-cookie", b"session=1")) for _ in range(2)]
    # Fields that are too long to be frequent are not cached either.
    longest, too_long = ((b"x", b"v" * size) for size in (MAX_CACHED_FIELD_BYTES - 1, MAX_CACHED_FIELD_BYTES))
    assert [{SERIALIZED}, set()] == [never_indexed(longest) for _ in range(2)]
    assert [{SERIALIZED}, {SERIALIZED}] == [never_indexed(too_long) for _ in range(2)]


def test_a_repeated_head_is_encoded_once_and_not_changed() -> None:
    head = ResponseHead(101, [(b"sec-websocket-accept", b"x")])
    first = ResponseHeads().encode(head)

    assert first is ResponseHeads().encode(head)
    assert (101, [(b"sec-websocket-accept", b"x")]) == (head.status_code, head.fields)
