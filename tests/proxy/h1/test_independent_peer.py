"""Dialogues with h11: an independent codec writes what we read and reads what we write, and agrees on what it means."""

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.h1 import Caches, ClientConnection, RequestReceived, ServerConnection
from proxy.heads import Fields, RequestHead, ResponseHead
from tests.proxy.h1.test_properties import bodies, cuts, field_lists, length_of, methods, paths, request_streams
from tests.proxy.h1.test_properties import send_body as send_own_body
from tests.proxy.h1.transcripts import END, Line, receive_in_pieces, transcript

many = settings(max_examples=200, deadline=None)
trailer_lists: st.SearchStrategy[Fields] = st.lists(
    st.tuples(st.sampled_from([b"grpc-status", b"x-sum"]), st.just(b"1 a")), max_size=2
)
CHUNKED = (b"transfer-encoding", b"chunked")


def h11_reads(peer: h11.Connection) -> list[Line]:
    """The next message as lines like ours."""
    lines: list[Line] = []
    body = b""
    while True:
        event = peer.next_event()
        if isinstance(event, h11.Request):
            lines.append(("request", event.method, event.target))
        elif isinstance(event, h11.Response):
            lines.append(("response", event.status_code))
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            if body:
                lines.append(("data", body))
            if isinstance(event, h11.EndOfMessage):
                lines.append(("trailers", list(event.headers)) if event.headers else END)
            return lines


def h11_writes(peer: h11.Connection, head: h11.Request | h11.Response, pieces: list[bytes], trailers: Fields) -> bytes:
    sent = [peer.send(head), *(peer.send(h11.Data(piece)) for piece in pieces)]
    return b"".join(part or b"" for part in [*sent, peer.send(h11.EndOfMessage(headers=trailers))])


def message(pieces: list[bytes], trailers: Fields) -> list[Line]:
    data: list[Line] = [("data", b"".join(pieces))] if pieces else []
    return [*data, ("trailers", trailers) if trailers else END]


@given(methods, paths, field_lists, bodies, trailer_lists, st.booleans(), cuts)
@many
def test_a_request_of_h11_is_read_as_it_was_meant(
    method: bytes,
    path: bytes,
    fields: Fields,
    pieces: list[bytes],
    trailers: Fields,
    is_chunked: bool,
    places: list[int],
) -> None:
    peer, server = h11.Connection(h11.CLIENT), ServerConnection(Caches())
    framing = CHUNKED if is_chunked else length_of(pieces)
    trailers = trailers if is_chunked else []
    request = h11.Request(method=method, target=path, headers=[(b"Host", b"a.example"), *fields, framing])
    raw = h11_writes(peer, request, pieces, trailers)

    head, *rest = receive_in_pieces(server, raw, [place for place in places if place < len(raw)])

    assert ("request", method, b"a.example", path, [*fields, framing]) == head
    assert message(pieces, trailers) == rest


@given(methods, paths, field_lists, bodies, trailer_lists, st.booleans())
@many
def test_h11_reads_our_requests_as_they_were_meant(
    method: bytes, path: bytes, fields: Fields, pieces: list[bytes], trailers: Fields, is_chunked: bool
) -> None:
    peer, client = h11.Connection(h11.SERVER), ClientConnection(Caches())
    trailers = trailers if is_chunked else []
    fields = fields if is_chunked else [*fields, length_of(pieces)]
    client.send_request(RequestHead(method, b"http", b"a.example", path, fields))
    send_own_body(client, pieces, trailers)

    peer.receive_data(client.data_to_send())

    assert [("request", method, path), *message(pieces, trailers)] == h11_reads(peer)


@given(
    st.integers(200, 599), field_lists, bodies, trailer_lists, st.booleans(), st.booleans(), methods | st.just(b"HEAD")
)
@many
def test_h11_reads_our_responses_as_they_were_meant_and_agrees_on_what_comes_next(
    status_code: int,
    fields: Fields,
    pieces: list[bytes],
    trailers: Fields,
    is_chunked: bool,
    closes: bool,
    method: bytes,
) -> None:
    peer, server = h11.Connection(h11.CLIENT), ServerConnection(Caches())
    options = [(b"Connection", b"close")] if closes else []
    request = h11.Request(method=method, target="/", headers=[(b"Host", b"a.example"), *options])
    server.receive(h11_writes(peer, request, [], []))
    trailers = trailers if is_chunked else []
    fields = fields if is_chunked else [*fields, length_of(pieces)]
    server.send_headers(ResponseHead(status_code, fields))
    send_own_body(server, pieces, trailers)

    peer.receive_data(server.data_to_send())

    is_bodiless = method == b"HEAD" or status_code in (204, 304)
    assert [("response", status_code), *([END] if is_bodiless else message(pieces, trailers))] == h11_reads(peer)
    assert (peer.their_state is h11.MUST_CLOSE) == closes == server.should_close


@given(st.integers(200, 599), field_lists, bodies, trailer_lists, st.sampled_from(["length", "chunks", "close"]), cuts)
@many
def test_a_response_of_h11_is_read_as_it_was_meant(
    status_code: int, fields: Fields, pieces: list[bytes], trailers: Fields, framing: str, places: list[int]
) -> None:
    if status_code in (204, 304):
        pieces, trailers, framing = [], [], "length"
    peer, client = h11.Connection(h11.SERVER), ClientConnection(Caches())
    client.send_request(RequestHead(b"GET", b"http", b"a.example", b"/", []), True)
    peer.receive_data(client.data_to_send())
    h11_reads(peer)
    trailers = trailers if framing == "chunks" else []
    framed = {"length": [length_of(pieces)], "chunks": [CHUNKED], "close": [(b"connection", b"close")]}[framing]
    raw = h11_writes(peer, h11.Response(status_code=status_code, headers=[*fields, *framed]), pieces, trailers)

    events = receive_in_pieces(client, raw, [place for place in places if place < len(raw)])

    (kind, seen_status_code, _), *rest = events
    assert ("response", status_code) == (kind, seen_status_code)
    assert client.is_reusable == (framing != "close")
    assert message(pieces, trailers) == rest


@given(request_streams)
@settings(max_examples=600, deadline=None)
def test_whatever_we_accept_as_a_complete_request_h11_reads_the_same(raw: bytes) -> None:
    server = ServerConnection(Caches())
    events = server.receive(raw)
    lines = transcript(events)
    if not (lines and lines[0][0] == "request" and lines[-1][0] in ("end", "trailers")):
        return
    assert isinstance(events[0], RequestReceived)
    peer = h11.Connection(h11.SERVER)
    # h11 does not skip an empty line before a request, although RFC 9112, 2.2 asks for it.
    peer.receive_data(raw.removeprefix(b"\r\n"))

    assert [("request", lines[0][1], lines[0][3]), *lines[1:]] == h11_reads(peer)
    assert peer.trailing_data[0] == raw[len(raw) - server.held_bytes :]
