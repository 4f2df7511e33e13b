"""Our server codec against our client codec over a fake link: what one sends is what the other reports."""

from collections.abc import Callable

import pytest

from proxy.h2 import (
    Caches,
    Connection,
    DataReceived,
    ErrorCode,
    Event,
    GoawayReceived,
    InformationalReceived,
    Limits,
    LocalProtocolError,
    PingAcked,
    RequestReceived,
    RequestRejected,
    RequestTooLarge,
    ResponseReceived,
    Settings,
    SettingsChanged,
    StreamReset,
    TrailersReceived,
    frames,
)
from proxy.heads import Fields, NeverIndexedField, RequestHead, ResponseHead
from tests.proxy.h2.wire import (
    GET,
    POST,
    data,
    flow,
    get_head,
    headers,
    literal,
    new_client,
    new_server,
    response,
    sent_frames,
)


class Link:
    """Both codecs after their handshake, and the events that each has reported since."""

    def __init__(self, server_settings: Settings | None = None, client_settings: Settings | None = None) -> None:
        self.server = Connection.server(Caches(), server_settings)
        self.client = Connection.client(Caches(), client_settings)
        self.at_server: list[Event] = []
        self.at_client: list[Event] = []
        self.exchange()
        self.at_server.clear()
        self.at_client.clear()

    def exchange(self) -> None:
        flow(self.client, self.server, self.at_client, self.at_server)

    def request(self, head: RequestHead | None = None, *, end_stream: bool = True) -> int:
        stream_id = self.client.open_stream(head or get_head(), end_stream)
        self.exchange()
        return stream_id


def trailers_of(event: Event) -> Fields:
    assert isinstance(event, TrailersReceived)
    return event.fields


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_the_handshake_ends_with_both_sides_settings_in_force() -> None:
    server, client = Connection.server(Caches(), Settings(max_concurrent_streams=7)), Connection.client(Caches())
    at_server: list[Event] = []
    at_client: list[Event] = []

    flow(client, server, at_client, at_server)

    assert ([SettingsChanged], [SettingsChanged]) == (kinds(at_server), kinds(at_client))
    assert (7, True) == (client.openable, client.peer.is_extended_connect_enabled)


def test_a_request_with_body_and_trailers_is_answered_in_kind() -> None:
    link = Link()
    head = RequestHead(b"POST", b"https", b"a.example", b"/x?y", [(b"te", b"trailers"), (b"content-length", b"5")])

    stream_id = link.request(head, end_stream=False)
    assert 5 == link.client.send_data(stream_id, b"hello")
    link.client.send_trailers(stream_id, [(b"x-sum", b"1")])
    link.exchange()
    link.server.send_headers(stream_id, ResponseHead(103, [(b"link", b"</a>")]))
    link.server.send_headers(stream_id, ResponseHead(200, [(b"content-type", b"text/plain")]))
    link.server.send_data(stream_id, memoryview(b"hi"))
    link.server.send_trailers(stream_id, [(b"grpc-status", b"0")])
    link.exchange()

    request, data, trailers = link.at_server
    assert isinstance(request, RequestReceived)
    assert (b"POST", b"https", b"a.example", b"/x?y") == (
        request.head.method,
        request.head.scheme,
        request.head.authority,
        request.head.path,
    )
    assert (head.fields, False) == (request.head.fields, request.end_stream)
    assert isinstance(data, DataReceived)
    assert isinstance(trailers, TrailersReceived)
    assert (b"hello", [(b"x-sum", b"1")]) == (bytes(data.data), trailers.fields)
    interim, final, body, end = link.at_client
    assert isinstance(interim, InformationalReceived)
    assert isinstance(final, ResponseReceived)
    assert isinstance(body, DataReceived)
    assert isinstance(end, TrailersReceived)
    assert (103, 200, b"hi", [(b"grpc-status", b"0")]) == (
        interim.head.status_code,
        final.head.status_code,
        bytes(body.data),
        end.fields,
    )
    assert (0, 0) == (link.server.stream_count, link.client.stream_count)


def test_an_empty_data_frame_may_end_a_body() -> None:
    link = Link()
    stream_id = link.request(end_stream=False)

    link.client.end_stream(stream_id)
    link.exchange()

    end = link.at_server[-1]
    assert isinstance(end, DataReceived)
    assert (b"", True) == (end.data, end.end_stream)


def test_the_answer_to_head_may_name_a_length_and_have_no_body() -> None:
    link = Link()
    stream_id = link.request(RequestHead(b"HEAD", b"https", b"a.example", b"/", []))

    link.server.send_headers(stream_id, ResponseHead(200, [(b"content-length", b"99")]), end_stream=True)
    link.exchange()

    assert [ResponseReceived] == kinds(link.at_client)
    assert 0 == link.client.stream_count


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("status_code", [200, 204, 304])
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_response_is_whole_with_its_head_if_no_body_can_follow_and_the_request_is_sent(
    method: bytes, status_code: int, is_sent: bool
) -> None:
    """Its stream may last, since some servers end it later or never."""
    link = Link()
    stream_id = link.request(RequestHead(method, b"https", b"a.example", b"/", []), end_stream=is_sent)
    assert not link.client.is_whole(stream_id)

    link.server.send_headers(stream_id, ResponseHead(status_code, []))
    link.exchange()

    can_have_body = method == b"GET" and status_code == 200
    head = link.at_client[-1]
    assert isinstance(head, ResponseReceived)
    assert (False, is_sent and not can_have_body) == (head.end_stream, head.is_whole)
    assert head.is_whole == link.client.is_whole(stream_id)

    if not is_sent:
        link.client.end_stream(stream_id)
        assert can_have_body != link.client.is_whole(stream_id)
    link.exchange()
    link.server.end_stream(stream_id)
    link.exchange()
    assert not link.client.is_whole(stream_id)


def test_a_response_that_ends_with_its_head_is_whole_and_a_tunnel_is_not() -> None:
    link = Link()
    ended, tunnel = link.request(), link.request(RequestHead(b"CONNECT", b"", b"a.example", b"", []), end_stream=False)
    link.server.send_headers(ended, ResponseHead(200, []), end_stream=True)
    link.server.send_headers(tunnel, ResponseHead(204, []))
    link.client.end_stream(tunnel)
    link.exchange()

    assert [True, False] == [event.is_whole for event in link.at_client if isinstance(event, ResponseReceived)]
    assert not link.client.is_whole(tunnel)


def test_extended_connect_opens_a_stream_that_both_write_to() -> None:
    link = Link()
    head = RequestHead(b"CONNECT", b"https", b"a.example", b"/chat", [], protocol=b"websocket")

    stream_id = link.request(head, end_stream=False)
    link.server.send_headers(stream_id, ResponseHead(200, []))
    link.server.send_data(stream_id, b"from server")
    link.client.send_data(stream_id, b"from client")
    link.exchange()

    request, data = link.at_server
    assert isinstance(request, RequestReceived)
    assert isinstance(data, DataReceived)
    assert (b"websocket", b"/chat", b"from client") == (request.head.protocol, request.head.path, data.data)
    assert isinstance(link.at_client[-1], DataReceived)


@pytest.mark.parametrize(("status_code", "is_whole"), [(200, True), (299, True), (300, False), (403, False)])
def test_content_length_in_a_connect_response_counts_only_outside_2xx(status_code: int, is_whole: bool) -> None:
    """RFC 9110, 9.3.6: a client ignores it in a 2xx response, after which the stream is a tunnel."""
    link = Link()
    head = RequestHead(b"CONNECT", b"https", b"a.example", b"/chat", [], protocol=b"websocket")

    stream_id = link.request(head, end_stream=False)
    link.server.send_headers(stream_id, ResponseHead(status_code, [(b"content-length", b"0")]))
    link.server.send_data(stream_id, b"hello")
    link.exchange()

    assert [ResponseReceived, DataReceived if is_whole else StreamReset] == kinds(link.at_client)


_HANDSHAKE = (b"x-handshake", b"websocket")
_NO_BODY = (b"content-length", b"0")


@pytest.mark.parametrize(
    "head",
    [
        RequestHead(b"CONNECT", b"https", b"a.example", b"/chat", [_NO_BODY], protocol=b"websocket"),
        RequestHead(b"GET", b"https", b"a.example", b"/chat", [_HANDSHAKE, _NO_BODY]),
    ],
    ids=["extended CONNECT", "the peer's own"],
)
def test_data_may_follow_a_handshake_with_content_length_0_before_its_response(head: RequestHead) -> None:
    link = Link(Settings(handshake=_HANDSHAKE))

    stream_id = link.request(head, end_stream=False)
    link.client.send_data(stream_id, b"hello")
    link.exchange()

    assert [RequestReceived, DataReceived] == kinds(link.at_server)


@pytest.mark.parametrize("status_code", [200, 299])
@pytest.mark.parametrize("is_of_client", [True, False], ids=["of the client", "of the server"])
def test_a_headers_frame_on_a_tunnel_is_a_stream_error(status_code: int, is_of_client: bool) -> None:
    """RFC 9113, 8.5."""
    link = Link()
    head = RequestHead(b"CONNECT", b"https", b"a.example", b"/chat", [], protocol=b"websocket")
    stream_id = link.request(head, end_stream=False)
    link.server.send_headers(stream_id, ResponseHead(status_code, []))
    link.exchange()
    sender, receiver = (link.client, link.server) if is_of_client else (link.server, link.client)
    sender.send_trailers(stream_id, [(b"x", b"y")])
    events = receiver.receive(sender.data_to_send(), 0.0)

    assert [StreamReset] == kinds(events)
    assert isinstance(events[0], StreamReset)
    assert events[0].error_code is ErrorCode.PROTOCOL_ERROR
    assert frames.RST_STREAM in [frame.kind for frame in sent_frames(receiver.data_to_send())]


@pytest.mark.parametrize("status_code", [300, 403])
def test_both_ends_of_a_refused_connect_may_send_trailers(status_code: int) -> None:
    link = Link()
    head = RequestHead(b"CONNECT", b"https", b"a.example", b"/chat", [], protocol=b"websocket")
    stream_id = link.request(head, end_stream=False)
    link.server.send_headers(stream_id, ResponseHead(status_code, []))
    link.client.send_trailers(stream_id, [(b"x", b"y")])
    link.exchange()
    link.server.send_trailers(stream_id, [(b"x", b"y")])
    link.exchange()

    assert [RequestReceived, TrailersReceived] == kinds(link.at_server)
    assert [ResponseReceived, TrailersReceived] == kinds(link.at_client)


def test_extended_connect_is_not_enabled_by_a_peer_that_sets_it_to_0() -> None:
    client = new_client()
    client.receive(frames.encode_settings([(8, 0)]), 0.0)

    with pytest.raises(LocalProtocolError, match="extended CONNECT"):
        client.open_stream(RequestHead(b"CONNECT", b"https", b"a.example", b"/", [], protocol=b"websocket"))


def test_extended_connect_cannot_be_sent_to_a_peer_that_has_not_enabled_it() -> None:
    link = Link(Settings(is_extended_connect_enabled=False))

    with pytest.raises(LocalProtocolError, match="extended CONNECT"):
        link.client.open_stream(RequestHead(b"CONNECT", b"https", b"a.example", b"/", [], protocol=b"websocket"))


def test_the_authority_is_the_host_field_where_there_is_no_pseudo_header_field() -> None:
    link = Link()

    link.request(RequestHead(b"GET", b"https", b"", b"/", [(b"host", b"b.example"), (b"accept", b"*/*")]))

    request = link.at_server[0]
    assert isinstance(request, RequestReceived)
    assert (b"b.example", [(b"accept", b"*/*")]) == (request.head.authority, request.head.fields)


def test_a_field_host_in_a_response_or_its_trailers_is_an_ordinary_one() -> None:
    link, fields = Link(), [(b"x", b"y"), (b"host", b"a.example")]
    stream_id = link.request()

    link.server.send_headers(stream_id, ResponseHead(200, fields))
    link.server.send_trailers(stream_id, fields)
    link.exchange()

    head, trailers = link.at_client
    assert isinstance(head, ResponseReceived)
    assert [fields, fields] == [head.head.fields, trailers_of(trailers)]


@pytest.mark.parametrize("authority", [b"[::1]", b"[2001:db8::1]:8443", b"192.0.2.1:80", b"a_b.example", b"a.example:"])
def test_an_authority_is_a_name_or_an_address_with_or_without_a_port(authority: bytes) -> None:
    server = new_server()

    (request,) = server.receive(headers(1, [*GET[:2], (b":authority", authority), GET[3]]), 0.0)

    assert isinstance(request, RequestReceived)
    assert request.head.authority == authority


def test_a_host_field_may_differ_from_the_authority_in_case() -> None:
    link = Link()

    link.request(RequestHead(b"GET", b"https", b"B.example", b"/", [(b"host", b"b.Example")]))

    request = link.at_server[0]
    assert isinstance(request, RequestReceived)
    assert b"B.example" == request.head.authority


@pytest.mark.parametrize("host", [b"a.example", b"c.example"])
def test_a_host_field_that_names_another_server_than_the_authority_is_refused(host: bytes) -> None:
    link = Link()

    link.request(RequestHead(b"GET", b"https", b"b.example", b"/", [(b"host", host)]))

    assert [RequestRejected] == kinds(link.at_server)


def test_a_head_longer_than_a_frame_is_continued() -> None:
    link = Link()
    fields = [(b"x-%d" % number, b"v" * 1000) for number in range(40)]

    # The first block of a connection empties the table of the other side, later ones begin with a field.
    for _ in range(2):
        stream_id = link.request(get_head(b"/", *fields))
        link.server.send_headers(stream_id, ResponseHead(200, fields), end_stream=True)
        link.exchange()

        request, response = link.at_server.pop(), link.at_client.pop()
        assert isinstance(request, RequestReceived)
        assert isinstance(response, ResponseReceived)
        assert (fields, fields) == (request.head.fields, response.head.fields)


def test_a_head_may_fill_its_frames_to_the_last_byte() -> None:
    link = Link()
    link.request()

    def sent(size_bytes: int) -> list[tuple[int, int]]:
        """The length and the flags of each frame of a head with so many bytes in its longest value."""
        link.client.open_stream(get_head(b"/", (b"x", b"v" * size_bytes)), end_stream=True)
        raw = link.client.data_to_send()
        link.at_server += link.server.receive(raw, 0.0)
        return [(len(frame.payload), frame.flags) for frame in sent_frames(raw)]

    first, second = sent(30_000)
    assert (16_384, frames.END_STREAM) == first
    full = sent(30_000 + 16_384 - second[0])

    assert [(16_384, frames.END_STREAM), (16_384, frames.END_HEADERS)] == full
    assert [RequestReceived] * 3 == kinds(link.at_server)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("priority", [b"", b"\x80\0\0\x07\xff"])
@pytest.mark.parametrize("is_continued", [False, True])
def test_padding_and_priority_of_a_head_are_left_out(is_padded: bool, priority: bytes, is_continued: bool) -> None:
    """A frame may hold nothing else: then the whole block is in CONTINUATION."""
    flags = frames.END_STREAM | (frames.PADDED if is_padded else 0) | (frames.PRIORITIZED if priority else 0)
    block, padding = literal(GET), b"\0\0\0" if is_padded else b""
    pad_length = bytes((len(padding),)) if is_padded else b""
    if is_continued:
        raw = frames.encode_frame(frames.HEADERS, flags, 1, pad_length + priority + padding)
        raw += frames.encode_frame(frames.CONTINUATION, frames.END_HEADERS, 1, block)
    else:
        payload = pad_length + priority + block + padding
        raw = frames.encode_frame(frames.HEADERS, flags | frames.END_HEADERS, 1, payload)

    (event,) = new_server().receive(raw, 0.0)

    assert isinstance(event, RequestReceived)
    assert (b"GET", b"a.example", b"/", []) == (
        event.head.method,
        event.head.authority,
        event.head.path,
        event.head.fields,
    )
    assert event.end_stream


def test_a_request_over_the_field_limit_can_be_answered_with_431() -> None:
    link = Link(Settings(max_header_list_bytes=4096))

    stream_id = link.request(get_head(b"/", (b"x", b"v" * 5000)), end_stream=False)
    link.server.send_headers(stream_id, ResponseHead(431, []), end_stream=True)
    link.server.reset_stream(stream_id, ErrorCode.NO_ERROR)
    link.exchange()

    too_large = link.at_server[0]
    assert isinstance(too_large, RequestTooLarge)
    assert (4096, True, b"GET") == (too_large.limit_bytes, too_large.size_bytes > 5000, too_large.method)
    answer = link.at_client[0]
    assert isinstance(answer, ResponseReceived)
    assert 431 == answer.head.status_code


def test_a_response_over_the_field_limit_is_a_stream_error() -> None:
    link = Link(client_settings=Settings(max_header_list_bytes=4096))
    stream_id = link.request()

    link.server.send_headers(stream_id, ResponseHead(200, [(b"x", b"v" * 5000)]), end_stream=True)
    link.exchange()

    reset = link.at_client[-1]
    assert isinstance(reset, StreamReset)
    assert (ErrorCode.ENHANCE_YOUR_CALM, False) == (reset.error_code, reset.by_peer)
    assert reset.are_fields_too_large
    assert not link.client.is_terminated


def test_interim_responses_up_to_the_limit_are_accepted_on_each_stream() -> None:
    client = new_client(limits=Limits(max_interim=3))
    for _ in range(2):
        stream_id = client.open_stream(get_head(), end_stream=True)
        interim = response(stream_id, status=b"103", flags=frames.END_HEADERS)

        events = client.receive(interim * 3 + response(stream_id), 0.0)

        assert [*[InformationalReceived] * 3, ResponseReceived] == kinds(events)


@pytest.mark.parametrize("by_server", [False, True], ids=["of a request", "of a response"])
def test_trailers_over_the_field_limit_are_a_stream_error(by_server: bool) -> None:
    link = Link(Settings(max_header_list_bytes=4096), Settings(max_header_list_bytes=4096))
    stream_id = link.request(end_stream=False)
    link.server.send_headers(stream_id, ResponseHead(200, []))
    sender, received = (link.server, link.at_client) if by_server else (link.client, link.at_server)

    sender.send_trailers(stream_id, [(b"x", b"v" * 5000)])
    link.exchange()

    reset = received[-1]
    assert isinstance(reset, StreamReset)
    assert (ErrorCode.ENHANCE_YOUR_CALM, False) == (reset.error_code, reset.by_peer)
    assert reset.are_fields_too_large


def test_a_field_list_as_large_as_the_limit_is_taken() -> None:
    fields = [(b"x", b"v" * 1000)]
    request = get_head(b"/", *fields)
    pseudo = [
        (b":method", request.method),
        (b":scheme", request.scheme),
        (b":authority", request.authority),
        (b":path", b"/"),
    ]
    request_bytes, trailer_bytes = (
        sum(len(name) + len(value) + 32 for name, value in group) for group in (pseudo + fields, fields)
    )
    link = Link(Settings(max_header_list_bytes=request_bytes), Settings(max_header_list_bytes=trailer_bytes))

    stream_id = link.request(request)
    link.server.send_headers(stream_id, ResponseHead(200, []))
    link.server.send_trailers(stream_id, fields)
    link.exchange()

    assert [RequestReceived] == kinds(link.at_server)
    assert fields == trailers_of(link.at_client[-1])


def test_a_body_that_stops_short_after_the_response_began_is_passed_on_without_its_end() -> None:
    """Nobody may take it for complete, and the client still gets the response."""
    server = new_server()
    server.receive(headers(1, [*POST, (b"content-length", b"10")], frames.END_HEADERS), 0.0)
    server.send_headers(1, ResponseHead(403, []))
    server.data_to_send()

    (event,) = server.receive(data(1, b"less", frames.END_STREAM), 0.0)

    assert isinstance(event, DataReceived)
    assert (b"less", False) == (event.data, event.end_stream)
    assert 2 == server.send_data(1, b"no", end_stream=True)
    assert [(frames.DATA, frames.END_STREAM)] == [(f.kind, f.flags) for f in sent_frames(server.data_to_send())]
    assert (0, False) == (server.stream_count, server.is_terminated)


def test_a_length_of_0_is_no_body() -> None:
    link = Link()
    no_body = [(b"content-length", b"0")]

    stream_id = link.request(RequestHead(b"POST", b"https", b"a.example", b"/", no_body))
    link.server.send_headers(stream_id, ResponseHead(200, no_body), end_stream=True)
    link.exchange()

    assert [RequestReceived] == kinds(link.at_server)
    assert [ResponseReceived] == kinds(link.at_client)


def test_never_indexed_fields_stay_so_across_two_connections() -> None:
    link, onward = Link(), Link()
    for _ in range(2):
        link.request(RequestHead(b"GET", b"https", b"a.example", b"/", [(b"x-pin", b"1")], None, frozenset({b"x-pin"})))
        request = link.at_server[-1]
        assert isinstance(request, RequestReceived)

        onward.request(request.head)

        arrived = onward.at_server[-1]
        assert isinstance(arrived, RequestReceived)
        assert frozenset({b"x-pin"}) == arrived.head.never_indexed


@pytest.mark.parametrize(
    ("name", "onward_name"), [(b":path", b":path"), (b":authority", b":authority"), (b"host", b":authority")]
)
def test_never_indexed_pseudo_header_fields_stay_so_across_two_connections(name: bytes, onward_name: bytes) -> None:
    """Also where `host` goes on as `:authority`."""
    authority, fields = (b"", [(b"host", b"a.example")]) if name == b"host" else (b"a.example", [])
    link, onward = Link(), Link()
    for _ in range(3):
        link.request(RequestHead(b"GET", b"https", authority, b"/key/1", fields, None, frozenset({name})))
        request = link.at_server[-1]
        assert isinstance(request, RequestReceived)

        onward.request(request.head)

        arrived = onward.at_server[-1]
        assert isinstance(arrived, RequestReceived)
        assert frozenset({onward_name}) == arrived.head.never_indexed
        assert (b"a.example", b"/key/1") == (arrived.head.authority, arrived.head.path)


def test_never_indexed_trailers_stay_so_across_two_connections_both_ways() -> None:
    """Trailers beside them do not become never-indexed."""
    link, onward = Link(), Link()
    given = [NeverIndexedField((b"x-pin", b"1")), (b"x-sum", b"2"), (b"x-pin", b"1")]
    for _ in range(3):
        to_server = to_client = given
        for hop in (link, onward):
            stream_id = hop.request(end_stream=False)
            hop.client.send_trailers(stream_id, to_server)
            hop.server.send_headers(stream_id, ResponseHead(200, []))
            hop.server.send_trailers(stream_id, to_client)
            hop.exchange()
            to_server, to_client = trailers_of(hop.at_server[-1]), trailers_of(hop.at_client[-1])

            assert [given, given] == [to_server, to_client]
            for fields in (to_server, to_client):
                assert [True, False, True] == [isinstance(field, NeverIndexedField) for field in fields]


def test_either_side_resets_a_stream_and_the_other_learns_why() -> None:
    link = Link()
    first, second = link.request(end_stream=False), link.request(end_stream=False)

    link.client.reset_stream(first)
    link.server.reset_stream(second, ErrorCode.INTERNAL_ERROR)
    link.exchange()

    cancelled, failed = link.at_server[-1], link.at_client[-1]
    assert isinstance(cancelled, StreamReset)
    assert isinstance(failed, StreamReset)
    assert (first, ErrorCode.CANCEL, True) == (cancelled.stream_id, cancelled.error_code, cancelled.by_peer)
    assert (second, ErrorCode.INTERNAL_ERROR, True) == (failed.stream_id, failed.error_code, failed.by_peer)
    assert (0, 0) == (link.server.stream_count, link.client.stream_count)


def test_what_is_sent_on_a_stream_that_was_reset_is_dropped() -> None:
    link = Link()
    stream_id = link.request(end_stream=False)
    link.client.reset_stream(stream_id)
    link.exchange()

    link.server.send_headers(stream_id, ResponseHead(200, []))
    assert 0 == link.server.send_data(stream_id, b"x")
    link.server.send_trailers(stream_id, [])
    link.server.end_stream(stream_id)
    link.server.reset_stream(stream_id)

    assert b"" == link.server.data_to_send()


def test_a_stream_above_the_limit_is_refused_and_the_others_live_on() -> None:
    # The client's first requests leave before it has seen the limit.
    server, client = Connection.server(Caches(), Settings(max_concurrent_streams=1)), Connection.client(Caches())
    at_server: list[Event] = []
    at_client: list[Event] = []
    for _ in range(2):
        client.open_stream(get_head())

    flow(client, server, at_client, at_server)

    assert [SettingsChanged, RequestReceived, RequestRejected] == kinds(at_server)
    refused = at_client[-1]
    assert isinstance(refused, StreamReset)
    assert (3, ErrorCode.REFUSED_STREAM, True) == (refused.stream_id, refused.error_code, refused.by_peer)
    assert 0 == client.openable
    with pytest.raises(LocalProtocolError, match="no stream can be opened"):
        client.open_stream(get_head())


def test_a_client_opens_as_many_streams_as_the_peer_allows() -> None:
    link = Link(Settings(max_concurrent_streams=3))

    opened = []
    while link.client.openable:
        opened.append(link.request())

    assert opened == [1, 3, 5]
    assert [RequestReceived] * 3 == kinds(link.at_server)


def test_a_ping_comes_back() -> None:
    link = Link()

    link.client.ping(b"12345678")
    link.exchange()

    answer = link.at_client[0]
    assert isinstance(answer, PingAcked)
    assert b"12345678" == answer.payload


def test_a_drain_is_announced_with_these_bytes_and_a_ping_that_tells_when_the_peer_knows() -> None:
    server = new_server()

    server.drain()

    goaway = b"\0\0\x08\x07\0\0\0\0\0" + b"\x7f\xff\xff\xff\0\0\0\0"
    assert goaway + b"\0\0\x08\x06\0\0\0\0\0draining" == server.data_to_send()


def test_a_reset_is_sent_with_these_bytes() -> None:
    server = new_server()
    server.receive(headers(1, POST, frames.END_HEADERS), 0.0)

    server.reset_stream(1)

    assert b"\0\0\x04\x03\0\0\0\0\x01" + b"\0\0\0\x08" == server.data_to_send()


def test_a_drain_finishes_running_streams_and_refuses_new_ones_only_after_a_round_trip() -> None:
    link = Link()
    assert (False, False) == (link.server.is_drained, link.client.is_drained)
    running = link.request()

    link.server.drain()
    link.server.drain()
    # Sent before the client has seen the first GOAWAY: still served.
    crossing = link.client.open_stream(get_head(), end_stream=True)
    link.exchange()
    assert [running, crossing] == [event.stream_id for event in link.at_server if isinstance(event, RequestReceived)]
    assert (True, False, 0) == (link.server.is_draining, link.server.is_drained, link.client.openable)
    announced = [event.last_stream_id for event in link.at_client if isinstance(event, GoawayReceived)]
    assert [2**31 - 1, crossing] == announced
    link.server.refuse_from(2**31 - 1)
    assert [frames.GOAWAY] == [frame.kind for frame in sent_frames(link.server.data_to_send())]

    for stream_id in (running, crossing):
        link.server.send_headers(stream_id, ResponseHead(200, []), end_stream=True)
    link.exchange()
    assert (True, True) == (link.server.is_drained, link.client.is_drained)


def test_the_answer_to_a_drain_that_never_was_changes_nothing() -> None:
    server = new_server()

    assert [] == server.receive(frames.encode_frame(frames.PING, frames.ACK, 0, b"draining"), 0.0)

    assert (False, False) == (server.is_draining, server.has_output)


def test_no_stream_can_be_opened_on_a_terminated_connection() -> None:
    link = Link()

    link.client.terminate()

    assert 0 == link.client.openable
    with pytest.raises(LocalProtocolError, match="no stream can be opened"):
        link.client.open_stream(get_head())


def test_nothing_follows_the_goaway_of_a_terminated_connection() -> None:
    """Neither a drain, nor credit for a body that the caller still holds, whose stream has ended."""
    server = new_server(Settings(connection_window_bytes=65_535))
    server.receive(headers(1, POST, frames.END_HEADERS), 0.0)
    server.receive(b"".join(data(1, bytes(16_000), flags) for flags in (0, 0, frames.END_STREAM)), 0.0)
    server.send_headers(1, ResponseHead(200, []), end_stream=True)

    server.receive(headers(3, POST, frames.END_HEADERS), 0.0)

    server.terminate()
    assert frames.GOAWAY == sent_frames(server.data_to_send())[-1].kind
    assert 0 == server.stream_count
    server.release(1, 48_000)
    server.drain()
    server.refuse_from(1)
    server.terminate()

    assert not server.has_output


def test_the_goaway_of_a_client_names_no_stream_since_servers_open_none() -> None:
    client = new_client()
    client.open_stream(get_head())
    client.data_to_send()

    client.terminate(ErrorCode.NO_ERROR)

    (goaway,) = sent_frames(client.data_to_send())
    assert (frames.GOAWAY, bytes(8)) == (goaway.kind, goaway.payload)


def test_requests_after_the_drain_are_refused_as_safe_to_retry_and_end_none_that_run() -> None:
    """Of a client that does not heed GOAWAY, even as many as would be a flood before it."""
    link = Link()
    running = link.request()
    link.server.drain()
    link.exchange()
    link.at_server.clear()
    later = range(running + 2, running + 2 + 2 * (Limits().max_stream_errors + 1), 2)

    link.server.receive(b"".join(headers(stream_id, GET) for stream_id in later), 0.0)

    refusals = sent_frames(link.server.data_to_send())
    assert [(frames.RST_STREAM, stream_id) for stream_id in later] == [(f.kind, f.stream_id) for f in refusals]
    assert {int(ErrorCode.REFUSED_STREAM)} == {int.from_bytes(f.payload, "big") for f in refusals}
    assert (True, 1) == (link.server.is_live(running), link.server.stream_count)


@pytest.mark.parametrize("is_drained_before", [False, True])
def test_streams_refused_from_one_on_are_safe_to_retry_and_earlier_ones_finish(is_drained_before: bool) -> None:
    """GOAWAY comes first: the client must not send them over this connection again."""
    link = Link()
    running = link.request()
    if is_drained_before:
        link.server.drain()
    refused = [link.client.open_stream(get_head()) for _ in range(2)]
    link.server.receive(link.client.data_to_send(), 0.0)

    link.server.refuse_from(refused[0])
    link.server.refuse_from(refused[1])
    link.server.drain()
    sent = link.server.data_to_send()
    kinds = [(frame.kind, frame.stream_id) for frame in sent_frames(sent) if frame.kind != frames.PING]
    announced = [(frames.GOAWAY, 0)] * (2 if is_drained_before else 1)
    assert [*announced, *((frames.RST_STREAM, stream_id) for stream_id in refused)] == kinds

    link.at_client += link.client.receive(sent, 0.0)
    link.exchange()
    goaways = [event.last_stream_id for event in link.at_client if isinstance(event, GoawayReceived)]
    assert [2**31 - 1] * is_drained_before + [running, running] == goaways
    unseen = [(event.stream_id, event.error_code) for event in link.at_client if isinstance(event, StreamReset)]
    assert [(stream_id, ErrorCode.REFUSED_STREAM) for stream_id in refused] == unseen
    assert (True, False) == (link.server.is_draining, link.server.is_drained)
    link.server.send_headers(running, ResponseHead(200, []), end_stream=True)
    link.exchange()
    assert (True, True) == (link.server.is_drained, link.client.is_drained)


def test_even_the_first_stream_can_be_refused() -> None:
    link = Link()
    first = link.request()
    link.at_client.clear()

    link.server.refuse_from(first)
    link.exchange()

    assert [0, 0] == [event.last_stream_id for event in link.at_client if isinstance(event, GoawayReceived)]
    assert link.client.is_drained


def test_a_client_that_does_not_heed_the_refusal_of_streams_is_no_flood() -> None:
    link = Link()
    running = link.request()
    link.server.refuse_from(running + 2)
    later = range(running + 2, running + 2 + 2 * (Limits().max_stream_errors + 1), 2)

    events = link.server.receive(b"".join(headers(stream_id, GET) for stream_id in later), 0.0)

    assert {RequestRejected} == set(map(type, events))
    assert (True, 1) == (link.server.is_live(running), link.server.stream_count)


def test_streams_beyond_the_last_one_of_a_goaway_are_safe_to_retry() -> None:
    link = Link()
    served = link.request()
    unseen = link.client.open_stream(get_head())
    link.client.data_to_send()

    link.server.terminate(ErrorCode.NO_ERROR, b"bye")
    link.exchange()

    goaway, reset = link.at_client
    assert isinstance(goaway, GoawayReceived)
    assert isinstance(reset, StreamReset)
    assert (served, b"bye") == (goaway.last_stream_id, goaway.debug_data)
    assert (unseen, ErrorCode.REFUSED_STREAM, True) == (reset.stream_id, reset.error_code, reset.by_peer)
    assert link.client.is_live(served)


def test_a_draining_client_sends_goaway_after_its_last_response() -> None:
    """The h2 package, as a server, answers nothing after a GOAWAY."""
    link = Link()
    running = link.request()

    link.client.drain()
    link.exchange()
    assert [RequestReceived] == kinds(link.at_server)
    assert (True, False, 0) == (link.server.is_live(running), link.server.is_draining, link.client.openable)
    link.server.send_headers(running, ResponseHead(200, []), end_stream=True)
    link.exchange()
    assert [ResponseReceived] == kinds(link.at_client)
    assert link.client.is_drained

    link.client.terminate()
    link.exchange()
    assert [GoawayReceived] == kinds(link.at_server)[1:]


Call = Callable[[Link, int], object]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda link, i: link.server.send_data(i, b"x"), "before its head"),
        (lambda link, i: link.server.end_stream(i), "before its head"),
        (lambda link, i: link.server.send_headers(99, ResponseHead(200, [])), "stream 99 was never opened"),
        (lambda link, i: link.server.reset_stream(2), "stream 2 was never opened"),
        (lambda link, i: link.server.send_headers(i, ResponseHead(101, [])), "status code 101"),
        (lambda link, i: link.server.send_headers(i, ResponseHead(100, []), True), "interim response 100"),
        (lambda link, i: link.server.open_stream(get_head()), "server role"),
        (lambda link, i: link.client.send_headers(i, ResponseHead(200, [])), "not a request of the peer"),
        (lambda link, i: link.server.ping(b"short"), "want 8 bytes"),
    ],
)
def test_calls_in_an_impossible_order_raise_local_protocol_error(call: Call, match: str) -> None:
    link = Link()
    stream_id = link.request(end_stream=False)

    with pytest.raises(LocalProtocolError, match=match):
        call(link, stream_id)

    assert (b"", b"") == (link.server.data_to_send(), link.client.data_to_send())


def test_neither_a_second_head_nor_data_after_the_end_can_be_sent() -> None:
    link = Link()
    stream_id = link.request(end_stream=False)
    link.server.send_headers(stream_id, ResponseHead(200, []))
    with pytest.raises(LocalProtocolError, match="has one"):
        link.server.send_headers(stream_id, ResponseHead(200, []))
    link.server.end_stream(stream_id)

    for call in (link.server.end_stream, lambda i: link.server.send_data(i, b"x")):
        with pytest.raises(LocalProtocolError, match="was ended by us already"):
            call(stream_id)


def test_neither_reprs_nor_events_show_field_values_or_queries() -> None:
    link = Link()

    link.request(get_head(b"/x?token=s3cret", (b"authorization", b"s3cret")))

    assert "s3cret" not in repr(link.at_server)
    assert "open, 1 streams, last 1" in repr(link.server)


@pytest.mark.parametrize("max_streams", [250, 10_000])
def test_frames_that_cross_our_resets_are_ignored_for_as_many_streams_as_may_be_open(max_streams: int) -> None:
    """The peer may have had frames in flight on each of them (RFC 9113, 5.1)."""
    server = new_server(Settings(max_concurrent_streams=max_streams))
    ids = range(1, 2 * max_streams + 1, 2)
    for stream_id in ids:
        server.receive(headers(stream_id, POST, frames.END_HEADERS), 0.0)
    for stream_id in ids:
        server.reset_stream(stream_id, ErrorCode.NO_ERROR)
    server.data_to_send()

    assert [] == server.receive(
        data(ids[0], b"late") + headers(ids[1], GET, frames.END_HEADERS | frames.END_STREAM), 0.0
    )
    assert b"" == server.data_to_send()
