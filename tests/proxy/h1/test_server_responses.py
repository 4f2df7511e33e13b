"""Responses as the server role writes them: framing, connection options, and what it refuses to send."""

from collections.abc import Callable

import pytest

from proxy.h1 import Caches, LocalProtocolError, ServerConnection
from proxy.heads import Fields, ResponseHead
from tests.proxy.h1.transcripts import END, request, transcript

GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: x, Close\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\n\r\n"
OLD_KEPT = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
WEBSOCKET = b"GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
LENGTH: Fields = [(b"content-length", b"5")]


def asked(raw: bytes) -> ServerConnection:
    server = ServerConnection(Caches())
    server.receive(raw)
    return server


@pytest.mark.parametrize(
    ("raw", "fields", "wanted", "is_kept"),
    [
        (GET, LENGTH, b"Content-Length: 5\r\n\r\nhello", True),
        (GET, [], b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", True),
        (CLOSE, LENGTH, b"Content-Length: 5\r\nConnection: close\r\n\r\nhello", False),
        (CLOSE, [], b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n", False),
        (OLD, LENGTH, b"Content-Length: 5\r\nConnection: close\r\n\r\nhello", False),
        (OLD, [], b"Connection: close\r\n\r\nhello", False),
        (OLD_KEPT, LENGTH, b"Content-Length: 5\r\nConnection: keep-alive\r\n\r\nhello", True),
        (OLD_KEPT, [], b"Connection: close\r\n\r\nhello", False),
        (HEAD, LENGTH, b"Content-Length: 5\r\n\r\n", True),
        (HEAD, [], b"\r\n", True),
    ],
)
def test_a_body_is_framed_for_the_client_that_asked(raw: bytes, fields: Fields, wanted: bytes, is_kept: bool) -> None:
    server = asked(raw)

    server.send_headers(ResponseHead(200, fields))
    server.send_data(b"hello", True)

    assert b"HTTP/1.1 200 OK\r\n" + wanted == server.data_to_send()
    assert is_kept == (not server.should_close) == server.is_idle


@pytest.mark.parametrize(
    ("status_code", "fields", "wanted"),
    [
        (200, [], b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (204, [], b"HTTP/1.1 204 No Content\r\n\r\n"),
        (204, [(b"content-length", b"0")], b"HTTP/1.1 204 No Content\r\n\r\n"),
        (
            204,
            [(b"allow", b"PUT"), (b"content-length", b"0"), (b"vary", b"*")],
            b"HTTP/1.1 204 No Content\r\nAllow: PUT\r\nVary: *\r\n\r\n",
        ),
        (304, LENGTH, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        (599, [], b"HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_a_response_without_a_body_has_content_length_0_where_allowed(
    status_code: int, fields: Fields, wanted: bytes
) -> None:
    server = asked(GET)

    server.send_headers(ResponseHead(status_code, fields), True)

    assert wanted == server.data_to_send()
    assert server.is_idle


def test_trailers_are_sent_after_a_chunked_body_and_dropped_after_any_other() -> None:
    chunked, with_length = asked(GET), asked(GET)
    chunked.send_headers(ResponseHead(200, []))
    with_length.send_headers(ResponseHead(200, [(b"content-length", b"0")]))
    for server in (chunked, with_length):
        server.data_to_send()
        server.send_trailers([(b"grpc-status", b"0")])

    assert chunked.data_to_send() == b"0\r\nGrpc-Status: 0\r\n\r\n"
    assert with_length.data_to_send() == b""


@pytest.mark.parametrize("name", [b"content-length", b"authorization", b"set-cookie", b"if-match", b"trailer"])
def test_a_field_that_no_recipient_may_believe_there_is_never_sent_as_a_trailer(name: bytes) -> None:
    server = asked(GET)
    server.send_headers(ResponseHead(200, []))
    server.data_to_send()

    with pytest.raises(LocalProtocolError, match="cannot be sent as a trailer"):
        server.send_trailers([(b"x", b"y"), (name, b"1")])

    assert not server.data_to_send()


def test_body_data_is_sent_without_a_copy() -> None:
    server = asked(GET)
    server.send_headers(ResponseHead(200, [(b"content-length", b"100000")]))
    data = memoryview(bytes(100_000))

    server.send_data(data, True)

    assert server.buffers_to_send()[-1] is data


def test_a_final_response_follows_early_hints() -> None:
    server = asked(GET)

    server.send_headers(ResponseHead(103, [(b"link", b"</a.css>")]))
    server.send_headers(ResponseHead(200, []), True)

    assert server.data_to_send() == (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    )


def test_a_websocket_receives_bytes_that_arrived_before_its_101() -> None:
    server = asked(WEBSOCKET + b"\x81\x00")

    server.send_headers(ResponseHead(101, [(b"sec-websocket-accept", b"x")]))
    server.send_data(b"\x89\x00")

    assert server.data_to_send() == (
        b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n"
        b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n\x89\x00"
    )
    assert [("data", b"\x81\x00")] == transcript(server.receive(b""))
    assert server.wants_data
    assert [("data", b"GET / HTTP/1.1\r\n\r\n")] == transcript(server.receive(b"GET / HTTP/1.1\r\n\r\n"))
    assert [END] == transcript(server.receive_eof())
    assert not server.should_close

    server.send_data(b"", True)

    assert server.should_close


def test_a_websocket_may_follow_a_request_with_a_body() -> None:
    server = asked(b"PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nhi" + WEBSOCKET)
    server.send_headers(ResponseHead(204, []), True)
    server.receive(b"")

    server.send_headers(ResponseHead(101, []))

    assert [("data", b"\x81\x00")] == transcript(server.receive(b"\x81\x00"))
    with pytest.raises(LocalProtocolError):
        server.send_headers(ResponseHead(200, []))


def test_a_websocket_that_is_refused_leaves_an_ordinary_connection() -> None:
    server = asked(WEBSOCKET + GET)

    server.send_headers(ResponseHead(403, []), True)

    assert [request(b"GET", b"a.example", b"/"), END] == transcript(server.receive(b""))


def test_a_response_instead_of_100_closes_the_connection() -> None:
    server = asked(UPLOAD)

    server.send_headers(ResponseHead(413, []), True)

    assert b"Connection: close" in server.data_to_send()
    assert server.should_close


def test_a_response_before_the_end_of_a_body_that_got_100_closes_the_connection() -> None:
    server = asked(UPLOAD)
    server.send_headers(ResponseHead(100, []))
    server.receive(b"he")

    server.send_headers(ResponseHead(200, []), True)

    assert server.should_close
    assert server.receive(b"llo" + GET) == []


def test_a_response_that_ends_before_the_body_announces_the_close() -> None:
    server = asked(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhe")

    server.send_headers(ResponseHead(429, []), True)

    assert server.data_to_send() == b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert server.should_close


@pytest.mark.parametrize("rest", [b"", b"llo"])
def test_a_response_that_begins_before_the_end_of_the_body_announces_the_close(rest: bytes) -> None:
    """Otherwise the client would send its next request into the close."""
    server = asked(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhe")

    server.send_headers(ResponseHead(200, LENGTH))
    server.receive(rest)
    server.send_data(b"hello", True)

    assert server.data_to_send().endswith(b"\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    assert server.should_close


def test_a_body_that_breaks_after_its_response_has_begun_gets_no_second_response() -> None:
    server = asked(b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n")
    server.send_headers(ResponseHead(200, LENGTH))

    assert [("terminated", 400)] == transcript(server.receive(b"zz\r\n"))

    with pytest.raises(LocalProtocolError, match="response head while the rest of a response"):
        server.send_headers(ResponseHead(400, []), True)
    server.send_data(b"hello", True)
    assert server.should_close
    assert server.data_to_send() == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


def test_an_error_response_to_garbage_has_a_body_even_after_a_head_request() -> None:
    server = asked(HEAD + b"\x16\x03")
    server.send_headers(ResponseHead(200, []), True)
    assert [("terminated", 400)] == transcript(server.receive(b""))
    server.data_to_send()

    server.send_headers(ResponseHead(400, LENGTH))
    server.send_data(b"hello", True)

    assert server.data_to_send().endswith(b"Content-Length: 5\r\nConnection: close\r\n\r\nhello")


def test_draining_lets_the_running_response_end_and_is_immediate_when_idle() -> None:
    running, idle = asked(GET), ServerConnection(Caches())
    running.drain()
    idle.drain()
    assert not running.should_close
    assert idle.should_close

    running.send_headers(ResponseHead(200, []), True)

    assert b"Connection: close" in running.data_to_send()
    assert running.should_close


def test_a_request_that_was_pipelined_before_the_drain_is_the_last_that_is_answered() -> None:
    server = asked(GET + GET + GET)
    server.send_headers(ResponseHead(204, []), True)

    server.drain()

    assert [request(b"GET", b"a.example", b"/"), END] == transcript(server.receive(b""))
    server.data_to_send()
    server.send_headers(ResponseHead(204, []), True)
    assert server.data_to_send() == b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    assert (True, []) == (server.should_close, server.receive(b""))


def test_a_request_that_has_half_arrived_is_still_answered_while_draining() -> None:
    server = asked(GET[:10])
    server.drain()

    assert [request(b"GET", b"a.example", b"/"), END] == transcript(server.receive(GET[10:]))


@pytest.mark.parametrize(
    "field",
    [
        (b"x", b"a\r\nb: c"),
        (b"x", b"a\nb"),
        (b"x", b"\0"),
        (b"x y", b"a"),
        (b"", b"a"),
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"+1"),
    ],
)
def test_a_field_that_could_change_the_framing_is_never_sent(field: tuple[bytes, bytes]) -> None:
    server = asked(GET)

    for _ in range(2):
        with pytest.raises(LocalProtocolError):
            server.send_headers(ResponseHead(200, [field]))

    assert not server.data_to_send()


def test_a_second_final_response_head_is_refused() -> None:
    server = asked(GET)
    server.send_headers(ResponseHead(200, LENGTH))
    server.data_to_send()

    with pytest.raises(LocalProtocolError):
        server.send_headers(ResponseHead(200, LENGTH))
    assert not server.data_to_send()


def test_a_body_that_does_not_match_its_content_length_is_refused() -> None:
    server = asked(GET)
    server.send_headers(ResponseHead(200, LENGTH))
    server.send_data(b"hel")
    sent = server.data_to_send()
    calls: list[Callable[[], None]] = [
        lambda: server.send_data(b"lo!"),
        lambda: server.send_data(b"l", True),
        lambda: server.send_data(b"", True),
        lambda: server.send_trailers([]),
    ]
    for call in calls:
        with pytest.raises(LocalProtocolError):
            call()

    assert sent.endswith(b"hel")
    assert not server.data_to_send()


@pytest.mark.parametrize(
    ("raw", "head", "end_stream"),
    [
        (b"", ResponseHead(200, []), True),
        (GET, ResponseHead(101, []), False),
        (GET, ResponseHead(103, []), True),
        (GET, ResponseHead(99, []), True),
        (GET, ResponseHead(1000, []), True),
        (GET, ResponseHead(200, LENGTH), True),
        (GET, ResponseHead(200, LENGTH * 2), False),
        (GET, ResponseHead(103, LENGTH), False),
    ],
)
def test_an_invalid_or_unexpected_response_head_is_refused(raw: bytes, head: ResponseHead, end_stream: bool) -> None:
    server = asked(raw)

    with pytest.raises(LocalProtocolError):
        server.send_headers(head, end_stream)

    assert not server.data_to_send()


def test_a_body_tells_when_it_has_reached_its_announced_length() -> None:
    with_length, chunked = asked(GET), asked(GET)
    assert not with_length.is_length_reached
    with_length.send_headers(ResponseHead(200, LENGTH))
    chunked.send_headers(ResponseHead(200, []))

    seen = [with_length.is_length_reached]
    for piece in (b"hel", b"lo", b""):
        with_length.send_data(piece, not piece)
        chunked.send_data(piece)
        seen.append(with_length.is_length_reached)
        assert not chunked.is_length_reached

    assert seen == [False, False, True, False]


def test_nothing_can_be_sent_after_the_end_of_a_response() -> None:
    server = asked(GET)
    server.send_headers(ResponseHead(200, []), True)
    calls: list[Callable[[], None]] = [
        lambda: server.send_data(b"", True),
        lambda: server.send_data(b"x"),
        lambda: server.send_trailers([]),
    ]
    for call in calls:
        with pytest.raises(LocalProtocolError):
            call()


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        (b"content-type", b"Content-Type"),
        (b"content-length", b"Content-Length"),
        (b"etag", b"ETag"),
        (b"www-authenticate", b"WWW-Authenticate"),
        (b"sec-websocket-accept", b"Sec-WebSocket-Accept"),
        (b"dav", b"DAV"),
        (b"icy-metaint", b"icy-metaint"),
        (b"ice-audio-info", b"ice-audio-info"),
        (b"x-amz-meta-my-key", b"x-amz-meta-my-key"),
        (b"x-goog-meta-my-key", b"x-goog-meta-my-key"),
        (b"x-ms-meta-my-key", b"x-ms-meta-my-key"),
        (b"x_y.z", b"X_y.z"),
        (b"x" * 65 + b"-y", b"X" + b"x" * 64 + b"-Y"),
    ],
)
def test_response_field_names_are_written_in_the_usual_http_11_spelling(name: bytes, spelling: bytes) -> None:
    """Clients of some devices compare them case-sensitively, those of object stores read keys of metadata in them."""
    caches = Caches()
    for _ in range(4):
        server = ServerConnection(caches)
        server.receive(GET)
        server.send_headers(ResponseHead(304, [(name, b"0")]), True)
        assert b"HTTP/1.1 304 Not Modified\r\n%b: 0\r\n\r\n" % spelling == server.data_to_send()
