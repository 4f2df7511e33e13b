"""Requests of clients as the server role reads them; each sample whole, byte by byte, and cut in the middle."""

import tracemalloc

import pytest

from proxy.h1 import (
    NOT_HTTP,
    Caches,
    ConnectionTerminated,
    Limits,
    LocalProtocolError,
    RequestReceived,
    ServerConnection,
)
from proxy.heads import ResponseHead
from tests.proxy.h1.transcripts import END, Line, receive_in_pieces, request, three_ways, transcript

GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_HEAD = request(b"POST", b"a.example", b"/", [(b"transfer-encoding", b"chunked")])

SAMPLES: dict[str, tuple[bytes, list[Line]]] = {
    "small": (GET, [request(b"GET", b"a.example", b"/"), END]),
    "fields keep their order and values, names are lower case": (
        b"GET /p?q=%41 HTTP/1.1\r\nX-B: 2\r\nHost: a.example:8080\r\nX-A:  one two \r\nX-B:\r\n\r\n",
        [request(b"GET", b"a.example:8080", b"/p?q=%41", [(b"x-b", b"2"), (b"x-a", b"one two"), (b"x-b", b"")]), END],
    ),
    "an empty line before it": (b"\r\n" + GET, [request(b"GET", b"a.example", b"/"), END]),
    "the last port": (b"GET / HTTP/1.1\r\nHost: a:65535\r\n\r\n", [request(b"GET", b"a:65535", b"/"), END]),
    "an IPv6 host": (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", [request(b"GET", b"[::1]:80", b"/"), END]),
    "HTTP/1.0 without a host": (b"GET / HTTP/1.0\r\n\r\n", [request(b"GET", b"", b"/"), END]),
    "absolute-form": (
        b"GET HTTP://b.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n",
        [request(b"GET", b"b.example", b"/?q"), END],
    ),
    "absolute-form without a path": (
        b"GET http://b.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        [request(b"GET", b"b.example", b"/"), END],
    ),
    "HTTP/1.0 with an expectation, which it does not have": (
        b"GET / HTTP/1.0\r\nExpect: x\r\n\r\n",
        [request(b"GET", b"", b"/", [(b"expect", b"x")]), END],
    ),
    "absolute-form of https with a path": (
        b"GET https://b.example:443/x?q HTTP/1.1\r\nHost: a.example\r\n\r\n",
        [request(b"GET", b"b.example:443", b"/x?q"), END],
    ),
    "asterisk-form": (b"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", [request(b"OPTIONS", b"a.example", b"*"), END]),
    "asterisk-form from absolute-form": (
        b"OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        [request(b"OPTIONS", b"a.example", b"*"), END],
    ),
    "absolute-form that asks for the options of a query": (
        b"OPTIONS http://a.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n",
        [request(b"OPTIONS", b"a.example", b"/?q"), END],
    ),
    "a body of known length": (
        b"PUT /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello",
        [request(b"PUT", b"a.example", b"/x", [(b"content-length", b"5")]), ("data", b"hello"), END],
    ),
    "a method of no list": (
        b"LIST /x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        [request(b"LIST", b"a.example", b"/x"), END],
    ),
    "one in lower case, with a body": (
        b"get /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello",
        [request(b"get", b"a.example", b"/x", [(b"content-length", b"5")]), ("data", b"hello"), END],
    ),
    "a method of streaming media": (
        b"SETUP /x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        [request(b"SETUP", b"a.example", b"/x"), END],
    ),
    "a body in chunks": (
        CHUNKED + b"5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
        [CHUNKED_HEAD, ("data", b"hello0123456789"), END],
    ),
    "an empty body in chunks": (CHUNKED + b"0\r\n\r\n", [CHUNKED_HEAD, END]),
    "trailers": (
        CHUNKED + b"1\r\nx\r\n0\r\nX-Sum: 1 \r\ngrpc-status:0\r\n\r\n",
        [CHUNKED_HEAD, ("data", b"x"), ("trailers", [(b"x-sum", b"1"), (b"grpc-status", b"0")])],
    ),
    "trailers that direct": (
        CHUNKED + b"1\r\nx\r\n0\r\nCookie: a=b\r\nX-Sum: 1\r\nAuthorization: x\r\n\r\n",
        [CHUNKED_HEAD, ("data", b"x"), ("trailers", [(b"x-sum", b"1")])],
    ),
    "an offer of a protocol that we do not switch to": (
        b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        [request(b"GET", b"a.example", b"/", [(b"connection", b"Upgrade"), (b"upgrade", b"h2c")]), END],
    ),
    "an upgrade without an offer": (
        b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\r\n",
        [request(b"GET", b"a.example", b"/", [(b"connection", b"Upgrade")]), END],
    ),
    "HTTP/2 with prior knowledge": (
        b"PRI * HTTP/2.0\r\n\r\n",
        [("http2", b"PRI * HTTP/2.0\r\n\r\n")],
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[bytes, int]] = {
    "TLS on a port without": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
    "a path beyond ASCII": (b"GET /ger\xc3\xa4te HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "a query beyond ASCII": (b"GET /?q=\xc3\xa4 HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "* with GET": (b"GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "an absolute-form target of another scheme": (b"GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "a scheme that begins like https": (b"GET httpss://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "an absolute-form target without a host": (b"GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "a port beyond 65535": (b"GET / HTTP/1.1\r\nHost: a.example:65536\r\n\r\n", 400),
    "a fragment behind an absolute-form target": (b"GET http://a.example/x#y HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "a length of 19 digits": (b"PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000000000000000\r\n\r\n", 400),
    "two hosts in HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: a.example\r\nHost: b.example\r\n\r\n", 400),
    "two expectations": (
        b"GET / HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\n",
        417,
    ),
    "HTTP/0.9": (b"GET / HTTP/0.9\r\nHost: a.example\r\n\r\n", 505),
    "HTTP/3.0 and a bare LF": (b"GET / HTTP/3.0\r\nHost: a.example\r\nX: y\n\r\n\r\n", 400),
    "HTTP/3.0": (b"GET / HTTP/3.0\r\nHost: a.example\r\n\r\n", 505),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", 505),
    "a method of no list and a bare LF": (b"FOO / HTTP/1.1\r\nHost: a.example\r\nX: y\n\r\n\r\n", 400),
    "a method of no list and a flaw in its fields": (b"FOO / HTTP/1.1\r\nHost: a.example\r\nX : y\r\n\r\n", 400),
    "a method that is no token": (b"FO(O / HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "the method of HTTP/2's preface": (b"PRI / HTTP/1.1\r\nHost: a.example\r\n\r\n", 400),
    "an HTTP/2 preface without a host among later requests": (
        NEXT.replace(b"GET /next HTTP/1.1", b"PRI * HTTP/2.0"),
        505,
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_request_reads_the_same_however_it_is_cut(name: str) -> None:
    raw, wanted = SAMPLES[name]

    for cuts in three_ways(raw):
        assert wanted == receive_in_pieces(ServerConnection(Caches()), raw, cuts)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_request_reads_the_same_if_only_its_first_bytes_come_one_by_one(name: str) -> None:
    raw, wanted = SAMPLES[name]

    for single in range(1, len(raw)):
        assert wanted == receive_in_pieces(ServerConnection(Caches()), raw, list(range(1, single)))


@pytest.mark.parametrize("name", [name for name in SAMPLES if "HTTP/2" not in name and "1.0" not in name])
def test_what_follows_a_request_is_held_until_the_response_has_been_sent(name: str) -> None:
    raw, wanted = SAMPLES[name]
    server = ServerConnection(Caches())

    assert wanted == transcript(server.receive(raw + NEXT))
    assert len(NEXT) == server.held_bytes
    assert transcript(server.receive(b"")) == []

    server.send_headers(ResponseHead(204, []), True)

    assert [request(b"GET", b"a.example", b"/next"), END] == transcript(server.receive(b""))


@pytest.mark.parametrize("name", [name for name in SAMPLES if "HTTP/2" not in name and "1.0" not in name])
def test_the_end_of_a_request_is_found_wherever_pipelined_input_is_cut(name: str) -> None:
    raw, wanted = SAMPLES[name]

    for cut in range(1, len(raw)):
        server = ServerConnection(Caches())
        assert wanted == receive_in_pieces(server, raw + NEXT, [cut])
        server.send_headers(ResponseHead(204, []), True)
        assert [request(b"GET", b"a.example", b"/next"), END] == transcript(server.receive(b""))


@pytest.mark.parametrize("size_bytes", [5, 5_000])
def test_a_body_read_together_with_the_next_request_ends_at_its_length(size_bytes: int) -> None:
    server = ServerConnection(Caches())
    body = b"x" * size_bytes
    server.receive(b"PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: %d\r\n\r\n" % size_bytes)

    assert [("data", body), END] == transcript(server.receive(body + NEXT))
    server.send_headers(ResponseHead(204, []), True)

    assert [request(b"GET", b"a.example", b"/next"), END] == transcript(server.receive(b""))


@pytest.mark.parametrize(
    ("raw", "protocol"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n", b"websocket"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nUpgrade: x\r\n\r\n", b"websocket"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nUpgrade: WebSocket\r\n\r\n", b"websocket"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c, websocket\r\n\r\n", b"websocket"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", None),
        (b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", None),
        (b"GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\n", None),
    ],
    ids=[
        "WebSocket",
        "another HTTP",
        "two offers",
        "two offers, WebSocket last",
        "a list of two",
        "no connection option",
        "POST",
        "HTTP/1.0",
        "a body",
    ],
)
def test_a_websocket_upgrade_is_requested_by_get_without_a_body(raw: bytes, protocol: bytes | None) -> None:
    (event,) = ServerConnection(Caches()).receive(raw)

    assert isinstance(event, RequestReceived)
    assert protocol == event.head.protocol


@pytest.mark.parametrize(
    ("method", "offer", "protocol"),
    [
        (b"GET", b"DERP", b"DERP"),
        (b"POST", b"tailscale-control-protocol", b"tailscale-control-protocol"),
        (b"POST", b"SPDY/3.1", b"SPDY/3.1"),
        (b"PUT", b"DERP", None),
        (b"OPTIONS", b"TLS/1.0", None),
        (b"GET", b"TLS/1.2", None),
        (b"GET", b"HTTP/2.0", None),
        (b"GET", b"H2C", None),
        (b"POST", b"h2c-16", None),
        (b"GET", b"DERP, alpn", None),
        (b"POST", b"DERP, websocket", None),
        (b"GET", b"DERP/", None),
        (b"GET", b"", None),
        (b"GET", b"caf\xe9", None),
    ],
)
def test_an_upgrade_to_any_one_protocol_is_requested_by_get_or_post_except_to_http_and_tls(
    method: bytes, offer: bytes, protocol: bytes | None
) -> None:
    raw = b"%b / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: %b\r\n\r\n" % (method, offer)

    (event,) = ServerConnection(Caches()).receive(raw)

    assert isinstance(event, RequestReceived)
    assert protocol == event.head.protocol


@pytest.mark.parametrize(
    ("framing", "protocol"),
    [
        (b"Content-Length: 2", b"tcp"),
        (b"Transfer-Encoding: chunked", None),
        (b"Content-Length: 2\r\nExpect: 100-continue", None),
    ],
    ids=["a length", "chunks", "on demand"],
)
def test_an_upgrade_request_may_have_a_body_with_content_length_and_without_expect(
    framing: bytes, protocol: bytes | None
) -> None:
    raw = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: tcp\r\n%b\r\n\r\n" % framing

    (event,) = ServerConnection(Caches()).receive(raw)

    assert isinstance(event, RequestReceived)
    assert (event.head.protocol, event.end_stream) == (protocol, False)


def test_bytes_after_the_body_of_an_upgrade_request_belong_to_the_new_protocol() -> None:
    server = ServerConnection(Caches())
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n"
    seen = transcript(server.receive(head + b"hiGET / HTTP/1.1"))
    assert [line[:2] for line in seen[1:]] == [("data", b"hi"), END]

    server.send_headers(ResponseHead(101, []))

    assert [line[:2] for line in transcript(server.receive(b""))] == [("data", b"GET / HTTP/1.1")]


@pytest.mark.parametrize(
    ("connection", "is_kept"), [(b"", False), (b"Connection: keep-alive\r\n", True), (b"Connection: x\r\n", False)]
)
def test_an_http_10_connection_is_kept_open_after_a_body_only_with_keep_alive(connection: bytes, is_kept: bool) -> None:
    server = ServerConnection(Caches())
    server.receive(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n" + connection + b"\r\nhi")

    server.send_headers(ResponseHead(204, []), True)

    assert is_kept != server.should_close


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_request_ends_the_connection_with_the_status_code_to_answer(name: str) -> None:
    raw, status_code = REFUSED[name]

    for cuts in three_ways(raw):
        server = ServerConnection(Caches())

        assert [("terminated", status_code)] == receive_in_pieces(server, raw, cuts)
        assert (False, 0) == (server.wants_data, server.held_bytes)
        assert server.receive(GET) == []

        server.send_headers(ResponseHead(status_code, []), True)

        assert server.data_to_send().endswith(b"Content-Length: 0\r\nConnection: close\r\n\r\n")
        assert server.should_close


def test_an_http2_client_is_handed_over_with_all_it_has_sent() -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00"

    assert [("http2", preface)] == transcript(ServerConnection(Caches()).receive(preface))


def test_an_http2_preface_after_a_request_is_refused() -> None:
    server = ServerConnection(Caches())
    server.receive(GET + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    server.send_headers(ResponseHead(204, []), True)

    assert [("terminated", 505)] == transcript(server.receive(b""))


def test_a_client_that_waits_for_100_gets_it() -> None:
    server = ServerConnection(Caches())
    head = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n"

    (event,) = server.receive(head)
    assert isinstance(event, RequestReceived)
    server.send_headers(ResponseHead(100, []))

    assert server.data_to_send() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert [("data", b"hi"), END] == transcript(server.receive(b"hi"))


def test_an_empty_expect_field_is_ignored() -> None:
    server = ServerConnection(Caches())

    (event,) = server.receive(b"POST / HTTP/1.1\r\nHost: a.example\r\nExpect:\r\nContent-Length: 2\r\n\r\n")

    assert isinstance(event, RequestReceived)


def test_no_100_is_sent_to_an_http_10_client() -> None:
    server = ServerConnection(Caches())

    (event,) = server.receive(b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert isinstance(event, RequestReceived)
    assert event.is_http_10
    server.send_headers(ResponseHead(100, []))

    assert not server.data_to_send()


@pytest.mark.parametrize(
    ("limits", "raw", "status_code"),
    [
        (Limits(max_request_line_bytes=30), b"GET /" + b"a" * 40 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (Limits(max_head_bytes=60), b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40 + b"\r\n\r\n", 431),
        (Limits(max_fields=2), b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\nX: b\r\n\r\n", 431),
        (Limits(max_chunk_line_bytes=20), CHUNKED + b"1;" + b"a" * 20 + b"\r\nx\r\n", 400),
        (Limits(max_chunk_extension_bytes=8), CHUNKED + b"1;abcd\r\nx\r\n" * 2, 400),
        (Limits(max_trailer_bytes=20), CHUNKED + b"0\r\nX: " + b"a" * 20 + b"\r\n\r\n", 431),
        (Limits(max_fields=2), CHUNKED + b"0\r\na: 1\r\nb: 1\r\nc: 1\r\n\r\n", 431),
    ],
)
def test_exceeding_a_limit_is_answered_with_its_own_status_code(limits: Limits, raw: bytes, status_code: int) -> None:
    for cuts in three_ways(raw):
        seen = receive_in_pieces(ServerConnection(Caches(), limits=limits), raw, cuts)

        assert ("terminated", status_code) == seen[-1]


@pytest.mark.parametrize("flaw", [b"X: y\n", b"X: y\rz", b"X: y\r\nZ: w\n"])
def test_a_trailer_line_with_a_bare_line_end_is_refused_at_once(flaw: bytes) -> None:
    for cuts in three_ways(CHUNKED + b"0\r\n" + flaw):
        seen = receive_in_pieces(ServerConnection(Caches()), CHUNKED + b"0\r\n" + flaw, cuts)

        assert [CHUNKED_HEAD, ("terminated", 400)] == seen


@pytest.mark.parametrize(
    "start",
    [b"GET / HTTP/1.1\r\nX: a", CHUNKED + b"0\r\nX: a", CHUNKED + b"1;a"],
    ids=["a head", "a trailer", "a chunk"],
)
def test_a_carriage_return_is_refused_with_the_byte_behind_it(start: bytes) -> None:
    server = ServerConnection(Caches())

    assert ("terminated", 400) not in transcript(server.receive(start + b"\r"))
    assert [("terminated", 400)] == transcript(server.receive(b"b"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b" x: y", "folded field line, want each field on one line"),
        (b"\tx: y", "folded field line, want each field on one line"),
        (b"x", "field line without a colon"),
        (b"x : y", "field name b'x ', want a token right before the colon"),
        (b": y", "field name b'', want a token right before the colon"),
        (b"x: \0", "value of field b'x' contains a control character"),
    ],
)
def test_a_trailer_is_refused_with_what_is_wrong_with_it(line: bytes, reason: str) -> None:
    terminated = ServerConnection(Caches()).receive(CHUNKED + b"0\r\n" + line + b"\r\n\r\n")[-1]

    assert isinstance(terminated, ConnectionTerminated)
    assert (400, reason) == (terminated.status_code, terminated.reason)


def test_a_trailer_is_refused_in_time_linear_in_its_length() -> None:
    """In quadratic time this test would not end, and a worker would keep all other connections waiting."""
    server = ServerConnection(Caches(), limits=Limits(max_trailer_bytes=1 << 20))

    seen = transcript(server.receive(CHUNKED + b"0\r\nX:" + b" " * 1_000_000 + b"\0\r\n\r\n"))

    assert [CHUNKED_HEAD, ("terminated", 400)] == seen


def test_a_request_exactly_at_its_limits_is_accepted_and_one_over_is_not() -> None:
    raw = b"GET /" + b"a" * 10 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    line = raw.index(b"\r\n")
    for limits, is_taken in (
        (Limits(max_request_line_bytes=line, max_head_bytes=len(raw), max_fields=1), True),
        (Limits(max_request_line_bytes=line - 1), False),
        (Limits(max_head_bytes=len(raw) - 1), False),
    ):
        for cuts in three_ways(raw):
            seen = receive_in_pieces(ServerConnection(Caches(), limits=limits), raw, cuts)

            assert is_taken == (seen[-1] == END)


@pytest.mark.parametrize(
    ("limit", "least"),
    [
        ("max_chunk_line_bytes", len(b"1;abc\r\n")),
        ("max_chunk_extension_bytes", len(b";abc;abc")),
        ("max_trailer_bytes", len(b"X: 1\r\nY: 2\r\n\r\n")),
        ("max_fields", 2),
    ],
)
def test_chunks_and_trailers_exactly_at_their_limits_are_accepted_and_over_them_are_not(limit: str, least: int) -> None:
    raw = CHUNKED + b"1;abc\r\nx\r\n1;abc\r\ny\r\n0\r\nX: 1\r\nY: 2\r\n\r\n"
    for most, is_taken in ((least, True), (least - 1, False)):
        for cuts in three_ways(raw):
            seen = receive_in_pieces(ServerConnection(Caches(), limits=Limits(**{limit: most})), raw, cuts)

            assert is_taken == (seen[-1] == ("trailers", [(b"x", b"1"), (b"y", b"2")]))


def test_limits_of_heads_change_for_what_is_received_from_then_on() -> None:
    server = ServerConnection(Caches())
    server.receive(GET)
    server.send_headers(ResponseHead(204, []), True)
    for limits, status_code in (
        (Limits(max_request_line_bytes=len("GET / HTTP/1.1")), 414),
        (Limits(max_head_bytes=37), 431),
    ):
        narrowed = ServerConnection(Caches())
        narrowed.limit_heads(limits)

        assert [("terminated", status_code)] == transcript(narrowed.receive(NEXT))

    server.limit_heads(Limits(max_request_line_bytes=len("GET / HTTP/1.1"), max_head_bytes=len(GET)))
    assert [request(b"GET", b"a.example", b"/"), END] == transcript(server.receive(GET))
    server.send_headers(ResponseHead(204, []), True)
    assert [("terminated", 414)] == transcript(server.receive(NEXT))


def test_reading_stops_when_a_client_pipelines_too_much() -> None:
    server = ServerConnection(Caches(), limits=Limits(max_pipelined_bytes=100))
    server.receive(GET)
    while server.wants_data:
        server.receive(NEXT)

    assert 100 <= server.held_bytes < 100 + len(NEXT)
    with pytest.raises(LocalProtocolError):
        server.receive(NEXT)


def test_pipelined_requests_are_read_one_by_one_without_copying_the_rest_each_time() -> None:
    count = 500
    server = ServerConnection(Caches())
    pieces = b"".join(b"GET /%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % number for number in range(count))

    tracemalloc.start()
    seen = transcript(server.receive(pieces))
    for _ in range(count - 1):
        server.send_headers(ResponseHead(204, []), True)
        tracemalloc.reset_peak()
        before_bytes, _ = tracemalloc.get_traced_memory()
        events = server.receive(b"")
        _, peak_bytes = tracemalloc.get_traced_memory()
        if server.held_bytes > len(pieces) * 0.6:
            assert peak_bytes - before_bytes < len(pieces) / 4
        seen += transcript(events)
    tracemalloc.stop()

    assert [b"/%d" % number for number in range(count)] == [line[3] for line in seen if line[0] == "request"]
    assert server.held_bytes == 0


def test_what_is_pipelined_in_several_pieces_is_joined_in_order() -> None:
    raw = b"".join(b"GET /%d HTTP/1.1\r\nHost: a.example\r\n\r\n" % number for number in range(9))
    for size in range(1, 120, 7):
        server = ServerConnection(Caches())
        seen = receive_in_pieces(server, raw, list(range(size, len(raw), size)))
        while server.has_pipelined:
            server.send_headers(ResponseHead(204, []), True)
            seen += transcript(server.receive(b""))

        assert [b"/%d" % number for number in range(9)] == [line[3] for line in seen if line[0] == "request"]


def test_many_tiny_chunks_are_joined_into_one_event() -> None:
    server = ServerConnection(Caches())
    server.receive(CHUNKED)

    events = server.receive(b"2\r\nab\r\n" * 40_000)

    assert [("data", b"ab" * 40_000)] == transcript(events)
    assert len(events) == 1


@pytest.mark.parametrize(("name", "chunks"), [("a body in chunks", 3), ("an empty body in chunks", 1), ("trailers", 2)])
def test_a_caller_takes_a_body_a_chunk_at_a_time_and_in_order(name: str, chunks: int) -> None:
    raw, wanted = SAMPLES[name]
    server = ServerConnection(Caches())

    events, calls = server.receive(raw + NEXT, 1), 1
    while server.has_unread:
        assert not server.wants_data
        events += server.receive(b"", 1)
        calls += 1

    assert wanted == transcript(events)
    assert calls == chunks
    assert len(NEXT) == server.held_bytes


def test_a_continued_chunk_counts_like_a_new_one() -> None:
    server = ServerConnection(Caches())
    server.receive(CHUNKED + b"2\r\na")

    taken = [server.receive(b"b\r\n1\r\nc\r\n1\r\nd\r\n", 2), server.receive(b"", 2)]

    assert [[("data", b"bc")], [("data", b"d")]] == [transcript(events) for events in taken]


def test_chunks_that_were_not_taken_are_not_lost_at_the_end_of_input() -> None:
    server = ServerConnection(Caches())
    first = server.receive(CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", 1)

    assert [CHUNKED_HEAD, ("data", b"ab"), END] == transcript(first + server.receive_eof())


def test_later_chunks_are_read_after_those_not_yet_taken() -> None:
    server = ServerConnection(Caches())
    first = server.receive(CHUNKED + b"1\r\na\r\n1\r\nb\r\n", 1)

    assert [CHUNKED_HEAD, ("data", b"abc")] == transcript(first + server.receive(b"1\r\nc\r\n"))
    assert (False, True) == (server.has_unread, server.wants_data)


def test_a_chunk_size_line_that_is_too_long_is_refused_before_its_end() -> None:
    server = ServerConnection(Caches(), limits=Limits(max_chunk_line_bytes=20))
    server.receive(CHUNKED + b"1;" + b"a" * 18)

    assert [("terminated", 400)] == transcript(server.receive(b"a"))


@pytest.mark.parametrize("raw", [b"GET / HT", CHUNKED + b"5\r\nhe", CHUNKED + b"0\r\n"])
def test_an_eof_before_the_end_of_a_request_is_400(raw: bytes) -> None:
    server = ServerConnection(Caches())
    server.receive(raw)

    assert [("terminated", 400)] == transcript(server.receive_eof())


def test_a_client_that_half_closes_still_gets_all_its_responses() -> None:
    server = ServerConnection(Caches())
    server.receive(GET + NEXT)
    assert server.receive_eof() == []
    server.send_headers(ResponseHead(204, []), True)
    assert b"close" not in server.data_to_send()

    assert [request(b"GET", b"a.example", b"/next"), END] == transcript(server.receive(b""))

    server.send_headers(ResponseHead(204, []), True)
    assert b"Connection: close" in server.data_to_send()
    assert server.should_close


def test_an_eof_between_requests_gives_no_event_and_closes() -> None:
    server = ServerConnection(Caches())
    assert (0, True, True, False) == (server.held_bytes, server.is_idle, server.wants_data, server.has_pipelined)

    assert server.receive_eof() == []
    assert server.should_close


@pytest.mark.parametrize("raw", [b"INVALID CONNECTION PREFACE\r\n\r\n", b"EHLO a.example\r\n\r\n", b"QUIT\r\n\r\n"])
def test_input_that_is_not_http_gets_no_response(raw: bytes) -> None:
    for cuts in three_ways(raw):
        assert [("terminated", NOT_HTTP)] == receive_in_pieces(ServerConnection(Caches()), raw, cuts)
