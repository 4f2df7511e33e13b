"""Both roles under any traffic: cutting it changes nothing, and what one role writes the other reads unchanged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.h1 import Caches, ClientConnection, Limits, ServerConnection
from proxy.heads import Fields, RequestHead, ResponseHead
from tests.proxy.h1.transcripts import END, Line, receive_in_pieces, transcript

LIMITS = Limits(
    max_request_line_bytes=60,
    max_head_bytes=200,
    max_fields=6,
    max_trailer_bytes=60,
    max_chunk_line_bytes=24,
    max_chunk_extension_bytes=32,
    max_informational=2,
    max_pipelined_bytes=1 << 20,
)

cuts = st.lists(st.integers(0, 500), max_size=12)
many = settings(max_examples=300, deadline=None)

# Requests that are nearly right: mostly whole parts of the grammar, put together without care, with rubbish between.
request_parts = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST /p?q HTTP/1.1\r\n", b"HEAD / HTTP/1.0\r\n", b"GET", b" ", b"\r\n", b"\r\n\r\n",
        b"\r", b"\n", b"Host: a.example\r\n", b"Host: a.example\r\n\r\n", b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"X: y\r\n", b":",
        b"Expect: 100-continue\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"abc", b"3\r\nabc\r\n",
        b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\n", b"3;x=y\r\n", b"\0", b"\xff", b"a" * 40, b" folded\r\n",
        b"PRI * HTTP/2.0\r\n\r\n", b"ffffffffffffffff\r\n",
    ]
)  # fmt: skip
whole_requests = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n",
    ]
)
request_streams = st.lists(whole_requests | request_parts, max_size=14).map(b"".join)
response_parts = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 x\r\n\r\n", b"HTTP/1.1 100 x\r\n\r\n", b"HTTP/1.0 404 x\r\n", b"H",
        b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"\r\n", b"\r", b"\n", b"\r\n\r\n",
        b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"X: y\r\n", b":", b" ",
        b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"\0", b"a" * 70,
        b"HTTP/1.1 200 OK\n", b"X: y\n", b"\n\n", b"\n\r\n", b" folded\r\n", b"\tfolded\n", b"Content-Length : 3\r\n",
        b"3 \r\nabc\r\n", b"0\t \r\n\r\n", b"ICY 200 OK\r\n", b"I", b"CY 404 x\n",
    ]
)  # fmt: skip
response_streams = st.lists(response_parts, max_size=10).map(b"".join)


def serve(raw: bytes, places: list[int]) -> list[Line]:
    """All that is read of `raw`, and all that answers it, where each whole request is answered with 200 at once."""
    server = ServerConnection(Caches(), limits=LIMITS)
    seen: list[Line] = []
    start = 0
    for end in [*sorted(place for place in places if place < len(raw)), len(raw)]:
        events = transcript(server.receive(raw[start:end]))
        start = end
        while events:
            seen += events
            if events[0][0] == "http2":
                # From here the connection belongs to another codec, with all later bytes.
                return [*seen[:-1], ("http2", b"".join((events[0][1], raw[end:])))]  # type: ignore[arg-type]
            if not (events[-1] == END or events[-1][0] == "trailers"):
                break
            server.send_headers(ResponseHead(200, []), True)
            events = transcript(server.receive(b""))
    seen += transcript(server.receive_eof())
    return [*joined(seen), ("sent", server.data_to_send())]


def joined(lines: list[Line]) -> list[Line]:
    """Data that came in several pieces is one line."""
    result: list[Line] = []
    for line in lines:
        if line[0] == "data" and result and result[-1][0] == "data":
            result[-1] = ("data", b"".join((result[-1][1], line[1])))  # type: ignore[arg-type]
        else:
            result.append(line)
    return result


@given(request_streams, cuts)
@many
def test_requests_read_the_same_however_they_are_cut(raw: bytes, places: list[int]) -> None:
    assert serve(raw, []) == serve(raw, places)


@given(request_streams)
@many
def test_requests_read_the_same_byte_by_byte(raw: bytes) -> None:
    assert serve(raw, []) == serve(raw, list(range(1, len(raw))))


@given(response_streams, cuts, st.sampled_from([b"GET", b"HEAD"]), st.booleans())
@many
def test_responses_read_the_same_however_they_are_cut(
    raw: bytes, places: list[int], method: bytes, asks_websocket: bool
) -> None:
    def seen(at: list[int]) -> list[Line]:
        client = ClientConnection(Caches(), LIMITS)
        protocol = b"websocket" if asks_websocket and method == b"GET" else None
        client.send_request(RequestHead(method, b"http", b"a.example", b"/", [], protocol), True)
        lines = receive_in_pieces(client, raw, at)
        return joined([*lines, *transcript(client.receive_eof()), ("reusable", client.is_reusable)])

    assert seen([]) == seen([place for place in places if place < len(raw)])
    assert seen([]) == seen(list(range(1, len(raw))))


@given(st.binary(max_size=400), cuts)
@many
def test_arbitrary_bytes_never_hold_more_memory_than_the_limits(raw: bytes, places: list[int]) -> None:
    server, client = ServerConnection(Caches(), limits=LIMITS), ClientConnection(Caches(), LIMITS)
    client.send_request(RequestHead(b"GET", b"http", b"a.example", b"/", []), True)

    receive_in_pieces(server, raw, places)
    receive_in_pieces(client, raw, places)

    assert server.held_bytes <= LIMITS.max_head_bytes
    assert client.held_bytes <= LIMITS.max_head_bytes


names = st.sampled_from([b"x-a", b"accept", b"cookie", b"te", b"x_b", b"authorization"])
field_values = st.binary(max_size=20).map(lambda value: bytes(b for b in value if b >= 32 and b != 127).strip())
field_lists: st.SearchStrategy[Fields] = st.lists(st.tuples(names, field_values), max_size=4)
trailer_lists: st.SearchStrategy[Fields] = st.lists(
    st.tuples(st.sampled_from([b"grpc-status", b"x-sum"]), field_values), min_size=1, max_size=3
)
bodies = st.lists(st.binary(min_size=1, max_size=300), max_size=4)
methods = st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"QUERY"])
paths = st.text("abc/%?=&.~-", max_size=20).map(lambda text: b"/" + text.encode())


def expected_body(pieces: list[bytes], trailers: Fields | None) -> list[Line]:
    data: list[Line] = [("data", b"".join(pieces))] if pieces else []
    return [*data, ("trailers", trailers) if trailers else END]


def send_body(codec: ServerConnection | ClientConnection, pieces: list[bytes], trailers: Fields | None) -> None:
    for piece in pieces:
        codec.send_data(piece)
    if trailers:
        codec.send_trailers(trailers)
    else:
        codec.send_data(b"", True)


def said(fields: Fields) -> Fields:
    """As they are written: TE is named in a Connection field before it."""
    return [line for field in fields for line in ([(b"connection", b"te"), field] if field[0] == b"te" else [field])]


def length_of(pieces: list[bytes]) -> tuple[bytes, bytes]:
    return (b"content-length", b"%d" % sum(map(len, pieces)))


@given(methods, paths, field_lists, bodies, st.none() | trailer_lists, st.booleans(), cuts)
@many
def test_a_server_reads_what_a_client_wrote(
    method: bytes,
    path: bytes,
    fields: Fields,
    pieces: list[bytes],
    trailers: Fields | None,
    says_length: bool,
    at: list[int],
) -> None:
    if says_length and pieces:
        fields, trailers = [*fields, length_of(pieces)], None
    client, server = ClientConnection(Caches()), ServerConnection(Caches())
    client.send_request(RequestHead(method, b"http", b"a.example:81", path, fields))
    send_body(client, pieces, trailers)
    raw = client.data_to_send()

    head, *rest = receive_in_pieces(server, raw, [place for place in at if place < len(raw)])

    framing = [] if says_length and pieces else [(b"transfer-encoding", b"chunked")]
    assert ("request", method, b"a.example:81", path, [*said(fields), *framing]) == head
    assert expected_body(pieces, trailers) == rest


@given(st.integers(200, 599), field_lists, bodies, st.none() | trailer_lists, st.booleans(), cuts)
@many
def test_a_client_reads_what_a_server_wrote_and_both_can_go_on(
    status_code: int, fields: Fields, pieces: list[bytes], trailers: Fields | None, says_length: bool, at: list[int]
) -> None:
    if status_code in (204, 304):
        pieces, trailers = [], None
    if says_length and pieces:
        fields, trailers = [*fields, length_of(pieces)], None
    client, server = ClientConnection(Caches()), ServerConnection(Caches())
    for _ in range(2):
        client.send_request(RequestHead(b"GET", b"http", b"a.example", b"/", []), True)
        server.receive(client.data_to_send())
        server.send_headers(ResponseHead(status_code, fields))
        send_body(server, pieces, trailers)
        raw = server.data_to_send()

        head, *rest = receive_in_pieces(client, raw, [place for place in at if place < len(raw)])

        is_chunked = status_code not in (204, 304) and not (says_length and pieces)
        framing = [(b"transfer-encoding", b"chunked")] if is_chunked else []
        assert ("response", status_code, [*said(fields), *framing]) == head
        assert expected_body(pieces, trailers) == rest
        assert client.is_reusable
        assert server.is_idle
