"""Each of the 256 bytes in each place of a field block (RFC 9113, 8.2 and 8.3; RFC 8441): taken, or malformed.

Received with the table and without it, and sent.
"""

import string
from collections.abc import Callable, Iterable

import pytest

from proxy.h2 import Connection, LocalProtocolError, RequestReceived, ResponseReceived
from proxy.h2.fieldlines import BlockEncoder, LineCache
from proxy.heads import RequestHead, ResponseHead
from tests.proxy.h2.wire import GET, get_head, headers, new_client, new_server, response

DIGITS = frozenset(string.digits.encode())
LOWER = frozenset((string.ascii_lowercase + string.digits).encode())
ALNUM = frozenset((string.ascii_letters + string.digits).encode())
TCHAR = ALNUM | frozenset(b"!#$%&'*+-.^_`|~")
NAME = LOWER | frozenset(b"!#$%&'*+-.^_`|~")
VALUE = frozenset(range(256)) - frozenset(range(0x20)) - {0x7F} | {0x09}
PATH = frozenset(range(0x21, 256)) - {0x23, 0x7F}
AUTHORITY = ALNUM | frozenset(b"-._~%!$&'()*+,;=")
CONNECT = [(b":method", b"CONNECT"), *GET[1:]]

PLACES: dict[str, tuple[Callable[[bytes], list[tuple[bytes, bytes]]], Iterable[int]]] = {
    "in a method": (lambda b: [(b":method", b"A%bC" % b), *GET[1:]], TCHAR),
    "in a scheme": (lambda b: [GET[0], (b":scheme", b"a" + b), *GET[2:]], ALNUM | frozenset(b"+-.")),
    "the first of a scheme": (
        lambda b: [GET[0], (b":scheme", b), *GET[2:]],
        frozenset(string.ascii_letters.encode()),
    ),
    "in an authority": (lambda b: [*GET[:2], (b":authority", b"a%bb" % b), GET[3]], AUTHORITY),
    "in a host": (lambda b: [*GET[:2], GET[3], (b"host", b"a%bb" % b)], AUTHORITY),
    "in a path": (lambda b: [*GET[:3], (b":path", b"/a%bb" % b)], PATH),
    "the first of a path": (lambda b: [*GET[:3], (b":path", b)], b"/"),
    "in a protocol": (lambda b: [*CONNECT, (b":protocol", b"a%bc" % b)], TCHAR),
    "in a name": (lambda b: [*GET, (b"x" + b, b"")], NAME),
    "the first of a name": (lambda b: [*GET, (b + b"x", b"")], NAME),
    "in a value": (lambda b: [*GET, (b"x", b"a%bb" % b)], VALUE),
    "the only one of a value": (lambda b: [*GET, (b"x", b)], VALUE),
    "in a value of one of few names": (lambda b: [*GET, (b"te", b"trailers" + b)], b" \t"),
    "in a length": (lambda b: [*GET, (b"content-length", b"0%b0" % b)], b"0"),
}


def without_table(codec: Connection, raw: bytes) -> Connection:
    """After a block that gives the table up."""
    codec.receive(raw, 0.0)
    return codec


def emptied(raw: bytes) -> bytes:
    """The same HEADERS frame with a size update to 0 before its block."""
    size = int.from_bytes(raw[:3], "big") + 1
    return size.to_bytes(3, "big") + raw[3:9] + b"\x20" + raw[9:]


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_a_byte_is_taken_where_the_grammar_has_it_and_nowhere_else(place: str, has_table: bool) -> None:
    fields_with, wanted = PLACES[place]
    seen = set()
    for byte in range(256):
        server, stream_id = new_server(), 1
        if not has_table:
            server, stream_id = without_table(server, emptied(headers(1, GET))), 3
        (event,) = server.receive(headers(stream_id, fields_with(bytes((byte,)))), 0.0)
        if isinstance(event, RequestReceived):
            seen.add(byte)

    assert seen == set(wanted)


@pytest.mark.parametrize(
    ("status", "wanted"), [(b"%b04", b"23456789"), (b"2%b4", DIGITS), (b"30%b", DIGITS), (b"20%b0", b"")]
)
def test_a_status_code_has_three_digits(status: bytes, wanted: Iterable[int]) -> None:
    seen = set()
    for byte in range(256):
        client = new_client()
        client.open_stream(get_head(), end_stream=True)
        (event,) = client.receive(response(1, status=status % bytes((byte,))), 0.0)
        if isinstance(event, ResponseReceived):
            seen.add(byte)

    assert seen == set(wanted)


def encoded(head: RequestHead | ResponseHead) -> bytes:
    encoder = BlockEncoder(LineCache())
    return encoder.request(head) if isinstance(head, RequestHead) else encoder.response(head)


SENT: dict[str, tuple[Callable[[bytes], RequestHead | ResponseHead], Iterable[int]]] = {
    "a method": (lambda b: RequestHead(b"A%bC" % b, b"https", b"a", b"/", []), TCHAR),
    "a scheme": (lambda b: RequestHead(b"GET", b"a" + b, b"a", b"/", []), ALNUM | frozenset(b"+-.")),
    "an authority": (lambda b: RequestHead(b"GET", b"https", b"a" + b, b"/", []), AUTHORITY | {0x3A}),
    "a path": (lambda b: RequestHead(b"GET", b"https", b"a", b"/" + b, []), PATH),
    "a protocol": (lambda b: RequestHead(b"CONNECT", b"https", b"a", b"/", [], b"a" + b), TCHAR),
    "a name": (lambda b: ResponseHead(200, [(b"x" + b, b"")]), NAME),
    "a value": (lambda b: ResponseHead(200, [(b"x", b"a%bb" % b)]), VALUE),
    "the end of a value": (lambda b: ResponseHead(200, [(b"x", b"a" + b)]), VALUE - frozenset(b" \t")),
}


@pytest.mark.parametrize("place", SENT)
def test_a_byte_is_sent_only_where_the_grammar_has_it(place: str) -> None:
    head_with, wanted = SENT[place]
    seen = set()
    for byte in range(256):
        try:
            encoded(head_with(bytes((byte,))))
        except LocalProtocolError:
            continue
        seen.add(byte)

    assert seen == set(wanted)


def test_the_names_of_a_connection_are_malformed_in_both_directions() -> None:
    for name in (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"):
        (event,) = new_server().receive(headers(1, [*GET, (name, b"x")]), 0.0)
        assert not isinstance(event, RequestReceived)
        with pytest.raises(LocalProtocolError):
            encoded(ResponseHead(200, [(name, b"x")]))
