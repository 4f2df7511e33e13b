"""Each of the 256 bytes in each place of the grammar (RFC 9112; RFC 9110, 5 and 6.5.1): taken, or refused."""

import string
from collections.abc import Callable, Iterable

import pytest

from proxy.h1 import (
    Caches,
    ClientConnection,
    DataReceived,
    Event,
    LocalProtocolError,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
    TrailersReceived,
)
from proxy.h1.grammar import permitted_trailers
from proxy.heads import Fields, RequestHead, ResponseHead
from tests.proxy.h1.transcripts import transcript

DIGITS = frozenset(string.digits.encode())
ALNUM = frozenset((string.ascii_letters + string.digits).encode())
TCHAR = ALNUM | frozenset(b"!#$%&'*+-.^_`|~")
VALUE = frozenset(range(256)) - frozenset(range(0x20)) - {0x7F} | {0x09}
VISIBLE = frozenset(range(0x21, 0x7F))
HOST = ALNUM | frozenset(b"-._~%")
HEX = frozenset(string.hexdigits.encode())
HEX_DIGITS = frozenset(bytes((digit,)) for digit in HEX)
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def taken(is_taken: Callable[[bytes], bool]) -> frozenset[int]:
    return frozenset(byte for byte in range(256) if is_taken(bytes((byte,))))


def of_server(raw: bytes) -> list[Event]:
    return read(lambda: ServerConnection(Caches()), raw)


def asking() -> ClientConnection:
    client = ClientConnection(Caches())
    client.send_request(RequestHead(b"GET", b"http", b"a", b"/", []), True)
    return client


def of_client(raw: bytes) -> list[Event]:
    return read(asking, raw)


def read(made: Callable[[], ServerConnection | ClientConnection], raw: bytes) -> list[Event]:
    """The events of `raw` in one piece, which are those of its bytes one by one."""
    bytewise, codec = made(), made()
    pieces = [event for byte in raw for event in bytewise.receive(bytes((byte,)))]
    events = codec.receive(raw)
    assert transcript(events) == transcript(pieces)
    return events


def request(raw: bytes) -> RequestHead | None:
    event = of_server(raw)[-1]
    return event.head if isinstance(event, RequestReceived) else None


def response(raw: bytes) -> ResponseHead | None:
    event = of_client(raw)[0]
    return event.head if isinstance(event, ResponseReceived) else None


def trailers(events: list[Event]) -> Fields:
    return events[-1].fields if isinstance(events[-1], TrailersReceived) else []


def has(head: RequestHead | ResponseHead | None, name: bytes, value: bytes) -> bool:
    return head is not None and head.fields == [(name.lower(), value)]


def is_size(events_of: Callable[[bytes], list[Event]], head: bytes, digit: bytes) -> bool:
    body = b"x" * int(digit, 16) if digit in HEX_DIGITS else b"x"
    last = b"\r\n0\r\n\r\n" if body else b"\r\n"
    return getattr(events_of(head + digit + b"\r\n" + body + last)[-1], "end_stream", False)


PLACES: dict[str, tuple[Callable[[bytes], bool], Iterable[int]]] = {
    "the first of a method": (lambda b: request(b + b"E / HTTP/1.1\r\nHost: a\r\n\r\n") is not None, TCHAR),
    "in a method": (lambda b: request(b"A%bC / HTTP/1.1\r\nHost: a\r\n\r\n" % b) is not None, TCHAR),
    "in a path": (lambda b: request(b"GET /a%bb HTTP/1.1\r\nHost: a\r\n\r\n" % b) is not None, VISIBLE - {0x23}),
    "in a query": (lambda b: request(b"GET /?%b HTTP/1.1\r\nHost: a\r\n\r\n" % b) is not None, VISIBLE - {0x23}),
    "the major version": (lambda b: request(b"GET / HTTP/%b.1\r\nHost: a\r\n\r\n" % b) is not None, b"1"),
    "the minor version": (lambda b: request(b"GET / HTTP/1.%b\r\nHost: a\r\n\r\n" % b) is not None, b"01"),
    "in a host": (lambda b: request(b"GET / HTTP/1.1\r\nHost: a%bb\r\n\r\n" % b) is not None, HOST),
    "in an IP literal": (
        lambda b: request(b"GET / HTTP/1.1\r\nHost: [a%bb]\r\n\r\n" % b) is not None,
        HEX | frozenset(b":."),
    ),
    "in a port": (lambda b: request(b"GET / HTTP/1.1\r\nHost: a:1%b\r\n\r\n" % b) is not None, DIGITS | {0x09, 0x20}),
    "in the authority of a target": (
        lambda b: getattr(request(b"GET http://a%bb/ HTTP/1.1\r\nHost: a\r\n\r\n" % b), "path", b"") == b"/",
        HOST,
    ),
    "in a field name": (
        lambda b: has(request(b"GET / HTTP/1.1\r\nHost: a\r\nX%bY: v\r\n\r\n" % b), b"x%by" % b, b"v"),
        TCHAR,
    ),
    "the first of a field name": (
        lambda b: has(request(b"GET / HTTP/1.1\r\nHost: a\r\n%b: v\r\n\r\n" % b), b, b"v"),
        TCHAR,
    ),
    "in a value": (
        lambda b: has(request(b"GET / HTTP/1.1\r\nHost: a\r\nX: a%bb\r\n\r\n" % b), b"x", b"a%bb" % b),
        VALUE,
    ),
    "the only one of a value": (
        lambda b: has(request(b"GET / HTTP/1.1\r\nHost: a\r\nX:%b\r\n\r\n" % b), b"x", b.strip(b" \t")),
        VALUE,
    ),
    "in a protocol": (
        lambda b: (
            getattr(
                request(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: a%bc\r\n\r\n" % b),
                "protocol",
                None,
            )
            is not None
        ),
        TCHAR | {0x2F},
    ),
    "in the version of a protocol": (
        lambda b: (
            getattr(
                request(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: a/%b1\r\n\r\n" % b),
                "protocol",
                None,
            )
            is not None
        ),
        TCHAR,
    ),
    "in a length": (
        lambda b: request(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1%b1\r\n\r\n" % b) is not None,
        DIGITS,
    ),
    "a chunk size": (lambda b: is_size(of_server, CHUNKED, b), HEX),
    "a chunk extension": (lambda b: of_server(CHUNKED + b"1;a%bb\r\nx" % b)[-1].__class__ is DataReceived, VALUE),
    "in a trailer's name": (
        lambda b: trailers(of_server(CHUNKED + b"0\r\nX%bY: v\r\n\r\n" % b)) == [(b"x%by" % b.lower(), b"v")],
        TCHAR,
    ),
    "in a trailer's value": (
        lambda b: trailers(of_server(CHUNKED + b"0\r\nX: a%bb\r\n\r\n" % b)) == [(b"x", b"a%bb" % b)],
        VALUE,
    ),
    "the minor version of a response": (lambda b: response(b"HTTP/1.%b 204 x\r\n\r\n" % b) is not None, b"01"),
    "the first of a status code": (lambda b: response(b"HTTP/1.1 %b04 x\r\n\r\n" % b) is not None, b"23456789"),
    "the second of a status code": (lambda b: response(b"HTTP/1.1 2%b4 x\r\n\r\n" % b) is not None, DIGITS),
    "the third of a status code": (lambda b: response(b"HTTP/1.1 30%b x\r\n\r\n" % b) is not None, DIGITS),
    "in a reason": (lambda b: response(b"HTTP/1.1 204 a%bb\r\n\r\n" % b) is not None, VALUE),
    "in a response field's name": (
        lambda b: has(response(b"HTTP/1.1 204 x\r\nX%bY: v\r\n\r\n" % b), b"x%by" % b, b"v"),
        TCHAR,
    ),
    "in a response field's name before a space": (
        lambda b: has(response(b"HTTP/1.1 204 x\r\nX%bY : v\r\n\r\n" % b), b"x%by" % b, b"v"),
        TCHAR,
    ),
    "in a response field's value": (
        lambda b: has(response(b"HTTP/1.1 204 x\r\nX: a%bb\r\n\r\n" % b), b"x", b"a%bb" % b),
        VALUE,
    ),
    "a chunk size of a response": (lambda b: is_size(of_client, ANSWER, b), HEX),
    "behind a chunk size of a response": (
        lambda b: of_client(ANSWER + b"1%b;\r\nx" % b)[-1].__class__ is DataReceived,
        HEX | frozenset(b" \t;"),
    ),
    "a chunk extension of a response": (
        lambda b: of_client(ANSWER + b"1;a%bb\r\nx" % b)[-1].__class__ is DataReceived,
        VALUE,
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_byte_is_taken_where_the_grammar_has_it_and_nowhere_else(place: str) -> None:
    is_taken, wanted = PLACES[place]

    assert taken(is_taken) == frozenset(wanted)


@pytest.mark.parametrize(
    "start",
    [CHUNKED + b"1;a", CHUNKED + b"12", CHUNKED + b"0\r\nX: a", b"GET / HTTP/1.1\r\nHost: a\r\nX: a"],
    ids=["a chunk extension", "a chunk size", "a trailer", "a field"],
)
def test_a_byte_that_no_line_may_hold_is_refused_before_the_line_ends_or_with_it(start: bytes) -> None:
    for byte in (0x00, 0x08, 0x0A, 0x0B, 0x0C, 0x1F, 0x7F):
        server = ServerConnection(Caches())
        server.receive(start)
        server.receive(bytes((byte,)))
        server.receive(b"\r\n\r\n")

        assert server.should_close or not server.wants_data


def sendable(send: Callable[[bytes], None]) -> frozenset[int]:
    def is_sent(byte: bytes) -> bool:
        try:
            send(byte)
        except LocalProtocolError:
            return False
        return True

    return taken(is_sent)


def ask(head: RequestHead) -> None:
    ClientConnection(Caches()).send_request(head, True)


def answer(fields: Fields) -> None:
    server = ServerConnection(Caches())
    server.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    server.send_headers(ResponseHead(200, fields), True)


SENT: dict[str, tuple[Callable[[bytes], None], Iterable[int]]] = {
    "a method": (lambda b: ask(RequestHead(b"A%bC" % b, b"http", b"a", b"/", [])), TCHAR),
    "a path": (
        lambda b: ask(RequestHead(b"GET", b"http", b"a", b"/" + b, [])),
        frozenset(range(0x21, 256)) - {0x7F},
    ),
    "an authority": (lambda b: ask(RequestHead(b"GET", b"http", b"a%bb" % b, b"/", [])), HOST),
    "a protocol": (lambda b: ask(RequestHead(b"GET", b"http", b"a", b"/", [], b"a%bc" % b)), TCHAR | {0x2F}),
    "the name of a request field": (lambda b: ask(RequestHead(b"GET", b"http", b"a", b"/", [(b"x" + b, b"")])), TCHAR),
    "the value of a request field": (lambda b: ask(RequestHead(b"GET", b"http", b"a", b"/", [(b"x", b)])), VALUE),
    "the name of a response field": (lambda b: answer([(b"x" + b, b"")]), TCHAR),
    "the value of a response field": (lambda b: answer([(b"x", b)]), VALUE),
}


@pytest.mark.parametrize("place", SENT)
def test_a_byte_is_sent_only_where_the_grammar_has_it(place: str) -> None:
    send, wanted = SENT[place]

    assert sendable(send) == frozenset(wanted)


def test_fields_of_a_connection_are_written_by_the_codec_alone() -> None:
    for name in b"connection host keep-alive proxy-connection transfer-encoding upgrade".split():
        with pytest.raises(LocalProtocolError):
            answer([(name, b"x")])


def test_fields_that_frame_route_or_authenticate_are_never_trailers() -> None:
    forbidden = (
        b"authorization cache-control connection content-encoding content-length content-range content-type cookie"
        b" expect host if-match if-none-match if-range keep-alive max-forwards pragma proxy-authenticate"
        b" proxy-authorization proxy-connection range realm set-cookie te trailer transfer-encoding upgrade"
        b" www-authenticate"
    ).split()

    assert permitted_trailers([(name, b"x") for name in [*forbidden, b"etag", b"grpc-status"]]) == [
        (b"etag", b"x"),
        (b"grpc-status", b"x"),
    ]
    for name in (b"content-length", b"host", b"transfer-encoding"):
        assert trailers(of_server(CHUNKED + b"0\r\nX: y\r\n%b: x\r\n\r\n" % name)) == []


@pytest.mark.parametrize("coding", b"gzip x-gzip deflate compress x-compress GZip".split())
def test_a_known_coding_before_chunked_is_not_implemented_and_others_are_malformed(coding: bytes) -> None:
    head = CHUNKED.removesuffix(b"chunked\r\n\r\n")

    for codings, status_code in ((coding + b", chunked", 501), (b"x" + coding * 2 + b", chunked", 400)):
        assert [status_code] == [getattr(event, "status_code", 0) for event in of_server(head + codings + b"\r\n\r\n")]
