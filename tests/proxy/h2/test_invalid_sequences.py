"""Protocol violations of a peer, by section of RFC 9113, with the error that each causes.

A connection error shows as `ConnectionTerminated` and a GOAWAY, a stream error as RST_STREAM with a live connection.
"""

import pytest

from proxy.h2 import Caches, Connection, ConnectionTerminated, DataReceived, ErrorCode, RequestRejected, frames
from proxy.heads import ResponseHead
from tests.proxy.h2.wire import GET, POST, data, headers, literal, new_client, new_server, response, sent_frames
from tests.proxy.h2.wire import get_head as get

E = ErrorCode
frame = frames.encode_frame
HEADERS, END_HEADERS, END_STREAM = frames.HEADERS, frames.END_HEADERS, frames.END_STREAM
OPEN = headers(1, POST, END_HEADERS)
ENDED = headers(1, GET)
RST = frames.encode_rst_stream(1, E.CANCEL)
OTHER_KINDS = [kind for kind in range(10) if kind != frames.SETTINGS]


def priority(stream_id: int, depends_on: int) -> bytes:
    return frame(frames.PRIORITY, 0, stream_id, depends_on.to_bytes(4, "big") + b"\0")


def request_with(*fields: tuple[bytes, bytes], without: bytes = b"") -> bytes:
    return headers(1, [*(field for field in GET if field[0] != without), *fields])


CONNECTION_ERRORS = [
    ("4.2 frame over MAX_FRAME_SIZE", OPEN + data(1, bytes(16_385)), E.FRAME_SIZE_ERROR),
    ("4.3 block that does not decompress", frame(HEADERS, 5, 1, b"\x80"), E.COMPRESSION_ERROR),
    ("4.3 table size of 1 after our 0 was acknowledged", frame(HEADERS, 5, 1, b"\x21"), E.COMPRESSION_ERROR),
    ("4.3 other frame inside a block", headers(1, GET, END_STREAM) + data(1, b""), E.PROTOCOL_ERROR),
    ("4.3 unknown frame inside a block", headers(1, GET, END_STREAM) + frame(99, 0, 0), E.PROTOCOL_ERROR),
    (
        "4.3 unknown frame of the stream inside its block",
        headers(1, GET, END_STREAM) + frame(99, 4, 1),
        E.PROTOCOL_ERROR,
    ),
    ("4.3 continuation of another stream", headers(1, GET, 1) + frame(9, 4, 3), E.PROTOCOL_ERROR),
    ("5.1 DATA on an idle stream", data(1, b"x"), E.PROTOCOL_ERROR),
    ("5.1 RST_STREAM on an idle stream", RST, E.PROTOCOL_ERROR),
    ("5.1 WINDOW_UPDATE on an idle stream", frames.encode_window_update(1, 1), E.PROTOCOL_ERROR),
    ("5.1.1 even stream identifier", headers(2, GET), E.PROTOCOL_ERROR),
    ("5.1.1 lower stream identifier", headers(5, GET) + headers(3, GET), E.PROTOCOL_ERROR),
    ("6.1 DATA on stream 0", data(0, b"x"), E.PROTOCOL_ERROR),
    ("6.1 padding as long as the payload", OPEN + data(1, b"\x05xxxx", frames.PADDED), E.PROTOCOL_ERROR),
    ("6.1 no pad length", OPEN + data(1, b"", frames.PADDED), E.FRAME_SIZE_ERROR),
    ("6.2 HEADERS on stream 0", headers(0, GET), E.PROTOCOL_ERROR),
    ("6.2 padding longer than the payload", frame(HEADERS, 5 | frames.PADDED, 1, b"\x40abc"), E.PROTOCOL_ERROR),
    ("6.2 no room for priority", frame(HEADERS, 5 | frames.PRIORITIZED, 1, b"\0\0\0\0"), E.FRAME_SIZE_ERROR),
    ("6.3 PRIORITY on stream 0", priority(0, 1), E.PROTOCOL_ERROR),
    ("6.3 PRIORITY of four bytes, idle", frame(frames.PRIORITY, 0, 1, bytes(4)), E.FRAME_SIZE_ERROR),
    ("6.4 RST_STREAM on stream 0", frames.encode_rst_stream(0, 0), E.PROTOCOL_ERROR),
    ("6.4 RST_STREAM of three bytes", OPEN + frame(frames.RST_STREAM, 0, 1, bytes(3)), E.FRAME_SIZE_ERROR),
    ("6.4 RST_STREAM of five bytes", OPEN + frame(frames.RST_STREAM, 0, 1, bytes(5)), E.FRAME_SIZE_ERROR),
    ("6.5 SETTINGS on a stream", frame(frames.SETTINGS, 0, 1), E.PROTOCOL_ERROR),
    ("6.5 SETTINGS of five bytes", frame(frames.SETTINGS, 0, 0, bytes(5)), E.FRAME_SIZE_ERROR),
    ("6.5 acknowledgement with payload", frame(frames.SETTINGS, 1, 0, bytes(6)), E.FRAME_SIZE_ERROR),
    ("6.5.2 ENABLE_PUSH 2", frames.encode_settings([(2, 2)]), E.PROTOCOL_ERROR),
    ("6.5.2 INITIAL_WINDOW_SIZE 2^31", frames.encode_settings([(4, 1 << 31)]), E.FLOW_CONTROL_ERROR),
    ("6.5.2 MAX_FRAME_SIZE 16383", frames.encode_settings([(5, 16_383)]), E.PROTOCOL_ERROR),
    ("6.5.2 MAX_FRAME_SIZE 2^24", frames.encode_settings([(5, 1 << 24)]), E.PROTOCOL_ERROR),
    ("RFC 8441 ENABLE_CONNECT_PROTOCOL 2", frames.encode_settings([(8, 2)]), E.PROTOCOL_ERROR),
    ("RFC 8441 extended CONNECT taken back", frames.encode_settings([(8, 1), (8, 0)]), E.PROTOCOL_ERROR),
    ("RFC 9218 NO_RFC7540_PRIORITIES 2", frames.encode_settings([(9, 2)]), E.PROTOCOL_ERROR),
    ("6.6 PUSH_PROMISE of a client", OPEN + frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), E.PROTOCOL_ERROR),
    ("6.7 PING on a stream", frame(frames.PING, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    ("6.7 PING of six bytes", frame(frames.PING, 0, 0, bytes(6)), E.FRAME_SIZE_ERROR),
    ("6.7 PING of nine bytes", frame(frames.PING, 0, 0, bytes(9)), E.FRAME_SIZE_ERROR),
    ("6.8 GOAWAY on a stream", frame(frames.GOAWAY, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    ("6.8 GOAWAY of seven bytes", frame(frames.GOAWAY, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    ("6.8 GOAWAY that rises", frames.encode_goaway(3, 0, b"") + frames.encode_goaway(5, 0, b""), E.PROTOCOL_ERROR),
    ("6.9 connection increment 0", frames.encode_window_update(0, 0), E.PROTOCOL_ERROR),
    ("6.9 WINDOW_UPDATE of three bytes", frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), E.FRAME_SIZE_ERROR),
    ("6.9 WINDOW_UPDATE of five bytes", frame(frames.WINDOW_UPDATE, 0, 0, b"\0\0\0\1\0"), E.FRAME_SIZE_ERROR),
    ("6.9.1 connection window over 2^31-1", frames.encode_window_update(0, 0x7FFFFFFF), E.FLOW_CONTROL_ERROR),
    (
        "6.9.2 settings push a stream's window over 2^31-1",
        OPEN + frames.encode_window_update(1, 0x7FFF0000) + frames.encode_settings([(4, 0x7FFFFFFF)]),
        E.FLOW_CONTROL_ERROR,
    ),
    ("6.10 CONTINUATION without HEADERS", frame(frames.CONTINUATION, 4, 1), E.PROTOCOL_ERROR),
    ("6.10 CONTINUATION after END_HEADERS", OPEN + frame(frames.CONTINUATION, 4, 1), E.PROTOCOL_ERROR),
]

STREAM_ERRORS = [
    ("5.1 DATA after END_STREAM", ENDED + data(1, b"x"), E.STREAM_CLOSED),
    ("5.1 HEADERS after END_STREAM", ENDED + headers(1, [(b"x", b"y")]), E.STREAM_CLOSED),
    ("5.1 DATA after RST_STREAM", OPEN + RST + data(1, b"x"), E.STREAM_CLOSED),
    ("5.1 HEADERS after RST_STREAM", OPEN + RST + headers(1, GET), E.STREAM_CLOSED),
    ("5.3.1 PRIORITY on itself", OPEN + priority(1, 1), E.PROTOCOL_ERROR),
    (
        "5.3.1 HEADERS that depend on themselves",
        frame(HEADERS, 37, 1, b"\0\0\0\x01\0" + literal(GET)),
        E.PROTOCOL_ERROR,
    ),
    ("6.3 PRIORITY of four bytes", OPEN + frame(frames.PRIORITY, 0, 1, bytes(4)), E.FRAME_SIZE_ERROR),
    ("6.3 PRIORITY of six bytes", OPEN + frame(frames.PRIORITY, 0, 1, bytes(6)), E.FRAME_SIZE_ERROR),
    ("6.9 stream increment 0", OPEN + frames.encode_window_update(1, 0), E.PROTOCOL_ERROR),
    ("6.9.1 stream window over 2^31-1", OPEN + frames.encode_window_update(1, 0x7FFFFFFF), E.FLOW_CONTROL_ERROR),
    ("8.1 trailers without END_STREAM", OPEN + headers(1, [(b"x", b"y")], END_HEADERS), E.PROTOCOL_ERROR),
    ("8.1 trailers with a pseudo-header field", OPEN + headers(1, [(b":path", b"/")]), E.PROTOCOL_ERROR),
    ("8.2.2 connection-specific field in trailers", OPEN + headers(1, [(b"upgrade", b"h2c")]), E.PROTOCOL_ERROR),
    ("8.1.1 content-length without a body", request_with((b"content-length", b"1")), E.PROTOCOL_ERROR),
    (
        "8.1.1 body longer than content-length",
        headers(1, [*POST, (b"content-length", b"1")], END_HEADERS) + data(1, b"xx"),
        E.PROTOCOL_ERROR,
    ),
    (
        "8.1.1 body shorter than content-length",
        headers(1, [*POST, (b"content-length", b"3")], END_HEADERS) + data(1, b"xx", END_STREAM),
        E.PROTOCOL_ERROR,
    ),
    (
        "8.1.1 body shorter than content-length, ended by trailers",
        headers(1, [*POST, (b"content-length", b"3")], END_HEADERS) + data(1, b"xx") + headers(1, [(b"x", b"y")]),
        E.PROTOCOL_ERROR,
    ),
    ("8.2 upper case", request_with((b"X-Upper", b"v")), E.PROTOCOL_ERROR),
    ("8.2.1 colon in a name", request_with((b"x:y", b"v")), E.PROTOCOL_ERROR),
    ("8.2.1 empty name", request_with((b"", b"v")), E.PROTOCOL_ERROR),
    ("8.2.1 line feed in a value", request_with((b"x", b"a\nb")), E.PROTOCOL_ERROR),
    ("8.2.1 carriage return in a value", request_with((b"x", b"a\rb")), E.PROTOCOL_ERROR),
    ("8.2.1 NUL in a value", request_with((b"x", b"a\0b")), E.PROTOCOL_ERROR),
    ("8.2.1 length starts with space", request_with((b"content-length", b" 0")), E.PROTOCOL_ERROR),
    ("8.2.2 connection", request_with((b"connection", b"close")), E.PROTOCOL_ERROR),
    ("8.2.2 keep-alive", request_with((b"keep-alive", b"1")), E.PROTOCOL_ERROR),
    ("8.2.2 proxy-connection", request_with((b"proxy-connection", b"close")), E.PROTOCOL_ERROR),
    ("8.2.2 transfer-encoding", request_with((b"transfer-encoding", b"chunked")), E.PROTOCOL_ERROR),
    ("8.2.2 upgrade", request_with((b"upgrade", b"h2c")), E.PROTOCOL_ERROR),
    ("8.2.2 te other than trailers", request_with((b"te", b"trailers, gzip")), E.PROTOCOL_ERROR),
    ("8.3 unknown pseudo-header field", request_with((b":unknown", b"x")), E.PROTOCOL_ERROR),
    ("8.3 response pseudo-header field", headers(1, [*GET, (b":status", b"200")]), E.PROTOCOL_ERROR),
    ("8.3 pseudo-header field after others", headers(1, [*GET[1:], (b"x", b"y"), GET[0]]), E.PROTOCOL_ERROR),
    ("8.3 pseudo-header field after host", headers(1, [*GET[1:], (b"host", b"a.example"), GET[0]]), E.PROTOCOL_ERROR),
    ("8.3.1 no method", request_with(without=b":method"), E.PROTOCOL_ERROR),
    ("8.3.1 no scheme", request_with(without=b":scheme"), E.PROTOCOL_ERROR),
    ("8.3.1 no path", request_with(without=b":path"), E.PROTOCOL_ERROR),
    ("8.3.1 empty path", headers(1, [*GET[:3], (b":path", b"")]), E.PROTOCOL_ERROR),
    ("8.3.1 path without slash", headers(1, [*GET[:3], (b":path", b"x")]), E.PROTOCOL_ERROR),
    ("8.3.1 path that holds another request", headers(1, [*GET[:3], (b":path", b"/ HTTP/1.1")]), E.PROTOCOL_ERROR),
    ("8.3.1 path with a fragment", headers(1, [*GET[:3], (b":path", b"/x#y")]), E.PROTOCOL_ERROR),
    ("8.3.1 query with a fragment", headers(1, [*GET[:3], (b":path", b"/?x#y")]), E.PROTOCOL_ERROR),
    ("8.3.1 asterisk on GET", headers(1, [*GET[:3], (b":path", b"*")]), E.PROTOCOL_ERROR),
    ("8.3.1 two methods", headers(1, [GET[0], *GET]), E.PROTOCOL_ERROR),
    ("8.3.1 two paths", headers(1, [GET[3], *GET]), E.PROTOCOL_ERROR),
    ("8.3.1 user information", headers(1, [*GET[:2], (b":authority", b"u@a.example"), GET[3]]), E.PROTOCOL_ERROR),
    *(
        ("8.3.1 " + text, headers(1, [*GET[:2], (b":authority", text.encode()), GET[3]]), E.PROTOCOL_ERROR)
        for text in ("[::1]x:80", "x[::1]", "[::1]8", "[a.example]", "a.example:b", "a.example:1:2", "::1", ":80", ":")
    ),
    ("8.3.1 host differs", request_with((b"host", b"b.example")), E.PROTOCOL_ERROR),
    ("8.3.1 host that is none", headers(1, [*GET[:2], GET[3], (b"host", b"a.example /x")]), E.PROTOCOL_ERROR),
    ("8.3.1 two hosts", request_with((b"host", b"a.example"), (b"host", b"a.example")), E.PROTOCOL_ERROR),
    ("8.5 CONNECT with a path", headers(1, [(b":method", b"CONNECT"), *GET[1:]], END_HEADERS), E.PROTOCOL_ERROR),
    (
        "8.5 CONNECT with a path alone",
        headers(1, [(b":method", b"CONNECT"), *GET[2:]], END_HEADERS),
        E.PROTOCOL_ERROR,
    ),
    (
        "8.5 CONNECT with a scheme alone",
        headers(1, [(b":method", b"CONNECT"), *GET[1:3]], END_HEADERS),
        E.PROTOCOL_ERROR,
    ),
    ("8.5 CONNECT without authority", headers(1, [(b":method", b"CONNECT")], END_HEADERS), E.PROTOCOL_ERROR),
    ("RFC 8441 :protocol on GET", headers(1, [*GET, (b":protocol", b"websocket")]), E.PROTOCOL_ERROR),
    ("RFC 9110 content-length twice", request_with(*[(b"content-length", b"0")] * 2), E.PROTOCOL_ERROR),
    ("RFC 9110 content-length as a list", request_with((b"content-length", b"0, 0")), E.PROTOCOL_ERROR),
    ("RFC 9110 content-length with sign", request_with((b"content-length", b"+0")), E.PROTOCOL_ERROR),
    ("RFC 9110 content-length of 19 digits", request_with((b"content-length", b"0" * 19)), E.PROTOCOL_ERROR),
]

CLIENT_CONNECTION_ERRORS = [
    ("5.1 response on an idle stream", response(3), E.PROTOCOL_ERROR),
    ("5.1 DATA on an idle stream", data(3, b"x"), E.PROTOCOL_ERROR),
    ("5.1 HEADERS on a stream that ended", response(1) + response(1), E.STREAM_CLOSED),
    ("5.1 DATA on a stream that ended", response(1) + data(1, b"x"), E.STREAM_CLOSED),
    ("5.1.1 stream of the server", response(2), E.PROTOCOL_ERROR),
    ("6.5.2 ENABLE_PUSH of a server", frames.encode_settings([(2, 1)]), E.PROTOCOL_ERROR),
    ("8.4 PUSH_PROMISE though disabled", frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\x02"), E.PROTOCOL_ERROR),
]

CLIENT_STREAM_ERRORS = [
    ("8.1 DATA before the head", data(1, b"x"), E.PROTOCOL_ERROR),
    ("8.1 interim response that ends", response(1, status=b"103"), E.PROTOCOL_ERROR),
    ("8.1 interim responses without end", response(1, status=b"103", flags=4) * 33, E.PROTOCOL_ERROR),
    (
        "8.1 interim responses larger than a field list",
        response(1, *[(b"x", b"y" * 100)] * 100, status=b"103", flags=4) * 5,
        E.PROTOCOL_ERROR,
    ),
    ("8.1 DATA after an interim response", response(1, status=b"103", flags=4) + data(1, b""), E.PROTOCOL_ERROR),
    ("8.1.1 DATA in a 204", response(1, status=b"204", flags=4) + data(1, b"x"), E.PROTOCOL_ERROR),
    ("8.1.1 DATA in a 304", response(1, status=b"304", flags=4) + data(1, b"x"), E.PROTOCOL_ERROR),
    ("8.1.1 content-length without a body", response(1, (b"content-length", b"1")), E.PROTOCOL_ERROR),
    ("8.3.2 no status", headers(1, [(b"x", b"y")]), E.PROTOCOL_ERROR),
    ("8.3.2 status of two digits", response(1, status=b"20"), E.PROTOCOL_ERROR),
    ("8.3.2 two statuses", response(1, (b":status", b"200")), E.PROTOCOL_ERROR),
    ("8.3.2 pseudo-header field of requests", headers(1, [(b":status", b"200"), (b":path", b"/")]), E.PROTOCOL_ERROR),
    ("8.6 status 101", response(1, status=b"101", flags=4), E.PROTOCOL_ERROR),
]

Case = tuple[str, bytes, ErrorCode]


def ids(cases: list[Case]) -> list[str]:
    return [case[0] for case in cases]


def client_with_request(count: int = 1) -> Connection:
    client = new_client()
    for _ in range(count):
        client.open_stream(get(), end_stream=True)
    client.data_to_send()
    return client


def on_stream_3(raw: bytes) -> bytes:
    """The same frames on stream 3 in place of 1."""
    moved = b""
    for sent in sent_frames(raw):
        payload = sent.payload
        if sent.kind == frames.PRIORITY or (sent.kind == HEADERS and sent.flags & frames.PRIORITIZED):
            payload = payload.replace(b"\0\0\0\x01", b"\0\0\0\x03", 1)
        moved += frame(sent.kind, sent.flags, 3 if sent.stream_id == 1 else sent.stream_id, payload)
    return moved


def without_table(codec: Connection) -> Connection:
    """The same after a message whose peer has given up its table, as most do: our own code decodes the next ones."""
    head = GET if codec.is_server else [(b":status", b"200")]
    codec.receive(frame(HEADERS, 5, 1, b"\x20" + literal(head)), 0.0)
    return codec


def assert_connection_error(codec: Connection, raw: bytes, code: ErrorCode) -> None:
    events = codec.receive(raw, 0.0)
    sent = sent_frames(codec.data_to_send())

    assert isinstance(events[-1], ConnectionTerminated)
    assert code == events[-1].error_code, events[-1]
    assert (frames.GOAWAY, int(code)) == (sent[-1].kind, int.from_bytes(sent[-1].payload[4:8], "big"))
    assert (True, []) == (codec.is_terminated, codec.receive(ENDED, 0.0))
    assert not codec.has_unread


def assert_stream_error(codec: Connection, raw: bytes, code: ErrorCode, stream_id: int = 1) -> None:
    codec.receive(raw, 0.0)
    sent = sent_frames(codec.data_to_send())

    assert [(stream_id, int(code))] == [
        (f.stream_id, int.from_bytes(f.payload, "big")) for f in sent if f.kind == frames.RST_STREAM
    ]
    assert (False, False) == (codec.is_terminated, codec.is_live(stream_id))
    # The connection still works.
    codec.receive(frame(frames.PING, 0, 0, b"12345678"), 0.0)
    assert [frames.PING] == [f.kind for f in sent_frames(codec.data_to_send())]


@pytest.mark.parametrize(("_name", "raw", "code"), CONNECTION_ERRORS, ids=ids(CONNECTION_ERRORS))
def test_a_client_gets_a_connection_error(_name: str, raw: bytes, code: ErrorCode) -> None:
    assert_connection_error(new_server(), raw, code)


@pytest.mark.parametrize(("_name", "raw", "code"), CONNECTION_ERRORS, ids=ids(CONNECTION_ERRORS))
def test_a_connection_error_is_the_same_byte_by_byte(_name: str, raw: bytes, code: ErrorCode) -> None:
    codec = new_server()
    events = [event for byte in raw for event in codec.receive(bytes((byte,)), 0.0)]

    assert isinstance(events[-1], ConnectionTerminated)
    assert code == events[-1].error_code


@pytest.mark.parametrize(("_name", "raw", "code"), STREAM_ERRORS, ids=ids(STREAM_ERRORS))
def test_a_client_gets_a_stream_error(_name: str, raw: bytes, code: ErrorCode) -> None:
    assert_stream_error(new_server(), raw, code)
    assert_stream_error(without_table(new_server()), on_stream_3(raw), code, 3)


@pytest.mark.parametrize(("_name", "raw", "code"), CLIENT_CONNECTION_ERRORS, ids=ids(CLIENT_CONNECTION_ERRORS))
def test_a_server_gets_a_connection_error(_name: str, raw: bytes, code: ErrorCode) -> None:
    assert_connection_error(client_with_request(), raw, code)


@pytest.mark.parametrize(("_name", "raw", "code"), CLIENT_STREAM_ERRORS, ids=ids(CLIENT_STREAM_ERRORS))
def test_a_server_gets_a_stream_error(_name: str, raw: bytes, code: ErrorCode) -> None:
    assert_stream_error(client_with_request(), raw, code)
    assert_stream_error(without_table(client_with_request(2)), on_stream_3(raw), code, 3)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        frames.PREFACE[:-1] + b"X",
        frames.PREFACE + ENDED,
        frames.PREFACE + frame(frames.SETTINGS, frames.ACK, 0),
        frames.PREFACE + frame(99, 0, 0),
        *(frames.PREFACE + frame(kind, 0, 0) for kind in OTHER_KINDS),
    ],
    ids=[
        "HTTP/1.1",
        "last byte wrong",
        "no SETTINGS first",
        "acknowledgement first",
        "unknown frame first",
        *(f"empty frame of type {kind} first" for kind in OTHER_KINDS),
    ],
)
def test_a_wrong_preface_ends_the_connection_at_once(raw: bytes) -> None:
    assert_connection_error(Connection.server(Caches()), raw, E.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("stream_id", "code"), [(1, E.PROTOCOL_ERROR), (3, E.PROTOCOL_ERROR), (5, E.STREAM_CLOSED), (7, E.STREAM_CLOSED)]
)
def test_a_stream_that_ended_and_one_that_was_skipped_have_their_own_errors(stream_id: int, code: ErrorCode) -> None:
    """RFC 9113, 5.1 and 5.1.1."""
    server = new_server()
    for live_id in (5, 7):
        server.receive(headers(live_id, GET), 0.0)
        server.send_headers(live_id, ResponseHead(204, []), end_stream=True)

    assert_connection_error(server, headers(stream_id, GET), code)


def test_the_largest_values_of_the_protocol_are_accepted() -> None:
    server = new_server()
    greatest = frames.MAX_STREAM_ID
    raw = frames.encode_settings(
        [(1, 0xFFFFFFFF), (2, 1), (3, 0), (4, greatest), (5, 0xFFFFFF), (6, 0xFFFFFFFF), (8, 1)]
    )
    raw += frames.encode_window_update(0, greatest - server.send_window_bytes)

    server.receive(raw + OPEN, 0.0)

    assert not server.is_terminated
    assert (greatest, greatest) == (server.send_window_bytes, server.sendable(1))


@pytest.mark.parametrize("cut", [0, 5, 9, 10_000, 16_392])
def test_a_frame_as_large_as_announced_is_taken_however_it_is_cut(cut: int) -> None:
    server = new_server()
    server.receive(OPEN, 0.0)
    raw = data(1, bytes(16_384))

    events = [*server.receive(raw[:cut], 0.0), *server.receive(raw[cut:], 0.0)]

    assert [16_384] == [len(event.data) for event in events if isinstance(event, DataReceived)]
    assert not server.is_terminated


@pytest.mark.parametrize("stream_id", [1, 3, 99])
@pytest.mark.parametrize("depends_on", [0, 5, frames.MAX_STREAM_ID, 1 << 31])
def test_a_priority_is_ignored_on_live_idle_and_ended_streams(stream_id: int, depends_on: int) -> None:
    server = new_server()
    server.receive(OPEN + headers(3, GET), 0.0)
    server.send_headers(3, ResponseHead(204, []), end_stream=True)
    server.data_to_send()

    assert [] == server.receive(priority(stream_id, depends_on), 0.0)
    assert (False, True, b"") == (server.is_terminated, server.is_live(1), server.data_to_send())


@pytest.mark.parametrize("status", [b"204", b"304"])
def test_a_body_where_there_can_be_none_ends_the_message_as_it_was(status: bytes) -> None:
    client = client_with_request()

    head, end = client.receive(response(1, status=status, flags=4) + data(1, b"x"), 0.0)

    assert (False, True) == (head.end_stream, end.end_stream)  # type: ignore[attr-defined]
    assert isinstance(end, DataReceived)
    assert b"" == end.data


def test_frames_in_flight_when_we_reset_the_stream_are_ignored() -> None:
    server = new_server()
    server.receive(OPEN, 0.0)
    server.reset_stream(1)
    server.data_to_send()

    late = data(1, b"x") + headers(1, [(b"x", b"y")]) + frames.encode_window_update(1, 1) + RST

    assert ([], False) == (server.receive(late, 0.0), server.is_terminated)
    assert b"" == server.data_to_send()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (request_with(without=b":method"), "request without :method"),
        (request_with(without=b":scheme"), "request without :scheme"),
        (request_with(without=b":path"), "request without :path"),
        (request_with((b":status", b"200")), "request with :status"),
    ],
)
def test_the_reason_of_a_rejected_request_names_the_field_that_is_missing_or_wrong(raw: bytes, reason: str) -> None:
    rejected = new_server().receive(raw, 0.0)[-1]

    assert isinstance(rejected, RequestRejected)
    assert reason == rejected.reason
