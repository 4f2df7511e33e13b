"""The kinds of the edge's streams, and how their requests arrived."""

import pytest

from proxy.heads import Fields, RequestHead
from proxy.routing import TUNNEL_HTTP, TUNNEL_HTTPS
from proxy.tunnel.streams import MAX_ARRIVALS, Entrance, StreamKind, is_bodiless

UPGRADE = b"cf-cloudflared-proxy-connection-upgrade"
SOURCE = b"cf-cloudflared-proxy-src"
EDGE_ADDRESS = "198.51.100.1"


def head_of(*fields: tuple[bytes, bytes], method: bytes = b"GET", scheme: bytes = b"http") -> RequestHead:
    return RequestHead(method, scheme, b"app.example.com", b"/a?b", list(fields))


KINDS = {
    "no field of the edge": ([], StreamKind.HTTP),
    "a configuration": ([(UPGRADE, b"update-configuration")], StreamKind.CONFIGURATION),
    "a websocket": ([(UPGRADE, b"websocket")], StreamKind.WEBSOCKET),
    "a TCP stream": ([(SOURCE, b"1.2.3.4")], StreamKind.TCP),
    "a control stream": ([(UPGRADE, b"control-stream")], StreamKind.CONTROL),
    "configuration before TCP": ([(SOURCE, b"x"), (UPGRADE, b"update-configuration")], StreamKind.CONFIGURATION),
    "websocket before TCP": ([(SOURCE, b"x"), (UPGRADE, b"websocket")], StreamKind.WEBSOCKET),
    "TCP before control": ([(UPGRADE, b"control-stream"), (SOURCE, b"x")], StreamKind.TCP),
    "an empty source": ([(SOURCE, b"")], StreamKind.HTTP),
    "values match exactly": ([(UPGRADE, b"Websocket")], StreamKind.HTTP),
    "an unknown value": ([(UPGRADE, b"h2c")], StreamKind.HTTP),
    "the first of two values": ([(UPGRADE, b"other"), (UPGRADE, b"websocket")], StreamKind.HTTP),
    "the first of two values, the other way": ([(UPGRADE, b"websocket"), (UPGRADE, b"x")], StreamKind.WEBSOCKET),
}


@pytest.mark.parametrize(("fields", "kind"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"CONNECT"])
def test_the_kind_of_a_stream_depends_on_the_fields_of_the_edge_only(
    fields: Fields, kind: StreamKind, method: bytes
) -> None:
    assert kind is Entrance(EDGE_ADDRESS).admit(head_of(*fields, method=method))[0]


def test_fields_between_edge_and_connector_are_removed() -> None:
    kept = [(b"accept", b"*/*"), (b"cf-ray", b"1"), (b"cf-connecting-ip", b"192.0.2.7"), (b"cookie", b"a=1")]
    head = head_of((UPGRADE, b"other"), kept[0], (SOURCE, b""), kept[1], (b"cf-trace-id", b"1:2:3:4"), *kept[2:])

    assert StreamKind.HTTP is Entrance(EDGE_ADDRESS).admit(head)[0]
    assert kept == head.fields


@pytest.mark.parametrize("name", [UPGRADE, SOURCE, b"cf-trace-id"])
def test_a_single_field_between_edge_and_connector_is_removed(name: bytes) -> None:
    head = head_of((name, b"1"))
    Entrance(EDGE_ADDRESS).admit(head)

    assert [] == head.fields


def test_a_plain_request_passes_as_it_is() -> None:
    fields = [(b"accept-language", b"de"), (b"x-forwarded-for", b"192.0.2.7"), (b"x-forwarded-proto", b"https")]
    head = head_of(*fields, method=b"PUT", scheme=b"http")
    Entrance(EDGE_ADDRESS).admit(head)

    assert fields == head.fields
    assert (b"PUT", b"app.example.com", b"/a?b", None) == (head.method, head.authority, head.path, head.protocol)


def test_a_websocket_becomes_a_request_to_switch_with_the_clients_own_key() -> None:
    key = (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ==")
    head = head_of((UPGRADE, b"websocket"), key, (b"sec-websocket-version", b"8"), (b"origin", b"x"), method=b"POST")
    kind, _ = Entrance(EDGE_ADDRESS).admit(head)

    assert StreamKind.WEBSOCKET is kind
    assert (b"GET", b"websocket") == (head.method, head.protocol)
    assert [key, (b"origin", b"x"), (b"sec-websocket-version", b"13")] == head.fields


DOORS = {
    "what the edge says": (b"http", b"https", TUNNEL_HTTPS),
    "what the edge says, http": (b"https", b"http", TUNNEL_HTTP),
    "in capitals": (b"http", b" HTTPS", TUNNEL_HTTPS),
    "else the scheme": (b"https", None, TUNNEL_HTTPS),
    "else the scheme, http": (b"http", None, TUNNEL_HTTP),
    "a scheme in capitals": (b"HTTPS", None, TUNNEL_HTTPS),
    "an unknown word": (b"https", b"quic", TUNNEL_HTTPS),
    "an empty one": (b"https", b"", TUNNEL_HTTPS),
    "an unknown scheme": (b"ftp", None, TUNNEL_HTTP),
}


@pytest.mark.parametrize(("scheme", "forwarded_proto", "door"), DOORS.values(), ids=DOORS)
def test_the_scheme_that_the_edge_reports_decides_the_door(
    scheme: bytes, forwarded_proto: bytes | None, door: str
) -> None:
    fields = [] if forwarded_proto is None else [(b"x-forwarded-proto", forwarded_proto)]
    head = head_of(*fields, scheme=scheme)
    _, arrival = Entrance(EDGE_ADDRESS).admit(head)

    is_secure = door == TUNNEL_HTTPS
    assert door == arrival.door
    assert (b"https" if is_secure else b"http") == arrival.scheme == head.scheme
    assert arrival.is_edge
    assert arrival.is_trusted


ADDRESSES = {
    "IPv4": (b"192.0.2.7", "192.0.2.7"),
    "the last IPv4": (b"255.255.255.255", "255.255.255.255"),
    "an octet too high": (b"192.0.2.256", EDGE_ADDRESS),
    "an octet with a zero before it": (b"192.0.2.07", EDGE_ADDRESS),
    "three octets": (b"192.0.2", EDGE_ADDRESS),
    "a line break behind it": (b"192.0.2.7\n", EDGE_ADDRESS),
    "IPv6": (b"2001:DB8:0::7", "2001:db8::7"),
    "none": (None, EDGE_ADDRESS),
    "empty": (b"", EDGE_ADDRESS),
    "no address": (b"localhost", EDGE_ADDRESS),
    "too long": (b"1" * 5000, EDGE_ADDRESS),
    "no text": (b"\xff\xfe", EDGE_ADDRESS),
}


@pytest.mark.parametrize(("said", "address"), ADDRESSES.values(), ids=ADDRESSES)
def test_the_client_address_is_a_valid_cf_connecting_ip_or_else_the_edge(said: bytes | None, address: str) -> None:
    fields = [] if said is None else [(b"cf-connecting-ip", said)]

    assert address == Entrance(EDGE_ADDRESS).admit(head_of(*fields))[1].address


def test_requests_of_one_client_and_scheme_share_their_arrival() -> None:
    entrance = Entrance(EDGE_ADDRESS)
    first, again, secure = (
        entrance.admit(head_of((b"cf-connecting-ip", b"192.0.2.7"), (b"accept", text), scheme=scheme))[1]
        for text, scheme in ((b"a", b"http"), (b"b", b"http"), (b"c", b"https"))
    )

    assert first is again
    assert first is not secure


def test_the_number_of_cached_arrivals_is_bounded() -> None:
    entrance = Entrance(EDGE_ADDRESS)
    for number in range(2 * MAX_ARRIVALS):
        entrance.admit(head_of((b"cf-connecting-ip", b"10.%d.%d.%d" % (number >> 16, number >> 8 & 255, number & 255))))

    assert 0 < entrance.known_clients <= MAX_ARRIVALS


def test_a_value_too_long_for_an_address_is_not_cached() -> None:
    entrance = Entrance(EDGE_ADDRESS)
    entrance.admit(head_of((b"cf-connecting-ip", b"1" * 5000)))

    assert entrance.known_clients == 0


def test_content_length_0_is_no_body() -> None:
    assert is_bodiless(head_of((b"a", b"b"), (b"content-length", b"0")))
    assert not is_bodiless(head_of((b"content-length", b"1")))
    assert not is_bodiless(head_of())
