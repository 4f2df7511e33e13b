"""Known attacks: each ends the connection with ENHANCE_YOUR_CALM before it costs much, and honest traffic does not."""

from collections.abc import Callable, Iterable

import pytest

from proxy.h2 import (
    Caches,
    Connection,
    ConnectionTerminated,
    ErrorCode,
    Limits,
    RequestReceived,
    RequestTooLarge,
    ResponseReceived,
    Settings,
    StreamReset,
    frames,
)
from proxy.h2.fieldlines import encode_integer
from proxy.heads import RequestHead, ResponseHead
from tests.proxy.h2.wire import (
    GET,
    POST,
    data,
    get_head,
    headers,
    literal,
    new_client,
    new_server,
    response,
    sent_frames,
)

Flood = Callable[[int], bytes]
"""So many frames of one attack."""

LIMITS = Limits(
    max_resets=50,
    max_stream_errors=50,
    max_pings=50,
    max_settings=50,
    max_empty_data=50,
    max_window_updates=50,
    max_ignored=50,
    max_dribbles=50,
    max_blocks_before_ack=50,
)
OPEN = headers(1, POST, frames.END_HEADERS)


def odd(count: int) -> Iterable[int]:
    return range(1, 2 * count + 1, 2)


def rapid_reset(count: int) -> bytes:
    return b"".join(headers(i, GET) + frames.encode_rst_stream(i, ErrorCode.CANCEL) for i in odd(count))


def made_you_reset(count: int) -> bytes:
    """Each stream is made to depend on itself."""
    return b"".join(
        headers(i, GET) + frames.encode_frame(frames.PRIORITY, 0, i, i.to_bytes(4, "big") + b"\0") for i in odd(count)
    )


def malformed(count: int) -> bytes:
    return b"".join(headers(i, GET[:2]) for i in odd(count))


def repeated(frame: bytes, before: bytes = b"") -> Flood:
    return lambda count: before + frame * count


FLOODS = [
    pytest.param(rapid_reset, "RESET", id="rapid reset"),
    pytest.param(made_you_reset, "STREAM_ERROR", id="stream errors on purpose"),
    pytest.param(malformed, "STREAM_ERROR", id="malformed requests"),
    pytest.param(repeated(frames.encode_frame(frames.PING, 0, 0, bytes(8))), "PING", id="PING"),
    pytest.param(repeated(frames.encode_settings([(4, 1)])), "SETTINGS", id="SETTINGS"),
    pytest.param(repeated(data(1, b""), OPEN), "EMPTY_DATA", id="empty DATA"),
    pytest.param(repeated(data(1, b"\0", frames.PADDED), OPEN), "EMPTY_DATA", id="DATA of padding only"),
    pytest.param(repeated(frames.encode_window_update(0, 1)), "WINDOW_UPDATE", id="WINDOW_UPDATE"),
    pytest.param(repeated(frames.encode_frame(frames.PRIORITY, 0, 1, bytes(5)), OPEN), "IGNORED", id="PRIORITY"),
    pytest.param(repeated(frames.encode_frame(99, 0, 0)), "IGNORED", id="unknown frames"),
    pytest.param(repeated(frames.encode_frame(frames.SETTINGS, 1, 0)), "IGNORED", id="acknowledgements"),
    pytest.param(repeated(frames.encode_frame(frames.PING, 1, 0, bytes(8))), "IGNORED", id="answers to no PING"),
    pytest.param(repeated(frames.encode_goaway(0, 0, b"")), "IGNORED", id="GOAWAY"),
    pytest.param(repeated(frames.encode_rst_stream(1, 8), OPEN), "IGNORED", id="resets of one stream"),
    pytest.param(repeated(data(1, b""), headers(1, GET[:2])), "IGNORED", id="DATA on a stream that we reset"),
]


def ended_by(server: Connection, raw: bytes, now_s: float = 0.0) -> ConnectionTerminated | None:
    events = server.receive(raw, now_s)
    return events[-1] if events and isinstance(events[-1], ConnectionTerminated) else None


@pytest.mark.parametrize(("flood", "kind"), FLOODS)
def test_a_flood_ends_the_connection_when_it_passes_its_limit(flood: Flood, kind: str) -> None:
    assert ended_by(new_server(limits=LIMITS), flood(45)) is None

    terminated = ended_by(new_server(limits=LIMITS), flood(60))

    assert terminated is not None
    assert (ErrorCode.ENHANCE_YOUR_CALM, True) == (terminated.error_code, terminated.reason.startswith(kind))


def test_frames_up_to_the_limit_are_accepted() -> None:
    server, ping = new_server(limits=LIMITS), frames.encode_frame(frames.PING, 0, 0, bytes(8))

    assert ended_by(server, ping * 50) is None
    assert ended_by(server, ping) is not None


@pytest.mark.parametrize(("flood", "kind"), FLOODS[3:5])
def test_the_same_frames_over_a_longer_time_are_no_flood(flood: Flood, kind: str) -> None:
    server = new_server(limits=LIMITS)
    for now_s in range(0, 100, 11):
        assert ended_by(server, flood(45), float(now_s)) is None


def test_answers_to_our_own_pings_are_no_flood() -> None:
    server, answer = new_server(limits=LIMITS), frames.encode_frame(frames.PING, 1, 0, b"12345678")
    server.receive(OPEN, 0.0)
    for _ in range(100):
        server.ping(b"12345678")
    assert ended_by(server, answer * 100) is None

    terminated = ended_by(server, answer * 60)

    assert terminated is not None
    assert ErrorCode.ENHANCE_YOUR_CALM == terminated.error_code


def test_small_frames_that_windows_cause_over_a_longer_time_are_no_flood() -> None:
    server = new_server(limits=LIMITS)
    server.receive(frames.encode_settings([(4, 0)]) + headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))

    for step in range(200):
        assert ended_by(server, frames.encode_window_update(1, 1), step * 0.5) is None
        assert 1 == server.send_data(1, bytes(1000))


@pytest.mark.parametrize(("now_s", "is_flood"), [(9.0, False), (11.0, True)])
def test_data_of_earlier_offsets_no_flood_of_now(now_s: float, is_flood: bool) -> None:
    server = new_server(limits=LIMITS)
    server.receive(headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))
    for _ in range(60):
        assert 1000 == server.send_data(1, bytes(1000))

    pings = frames.encode_frame(frames.PING, 0, 0, bytes(8)) * 100

    assert is_flood == (ended_by(server, pings, now_s) is not None)


@pytest.mark.parametrize(("flood", "kind"), FLOODS[3:6])
def test_resets_of_ours_offset_only_frames_that_were_in_flight(flood: Flood, kind: str) -> None:
    server = new_server(limits=LIMITS)
    for stream_id in odd(40):
        server.receive(headers(stream_id, GET), 0.0)
        server.reset_stream(stream_id)

    terminated = ended_by(server, flood(60).replace(b"\0\0\0\x01", b"\0\0\0\x7f"))

    assert terminated is not None
    assert terminated.reason.startswith(kind)


def test_window_updates_and_pings_that_our_data_causes_are_no_flood() -> None:
    server = new_server(limits=LIMITS)
    server.receive(headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))
    ping = frames.encode_frame(frames.PING, 0, 0, bytes(8))

    for _ in range(500):
        assert 1000 == server.send_data(1, bytes(1000))
        update = frames.encode_window_update(0, 1000) + frames.encode_window_update(1, 1000)
        assert ended_by(server, update + ping) is None


@pytest.mark.parametrize("body", [b"hello", b""])
def test_a_client_that_completes_as_many_requests_as_it_cancels_is_no_flood(body: bytes) -> None:
    server = new_server(limits=LIMITS)

    for stream_id in range(1, 2001, 4):
        server.receive(headers(stream_id, GET), 0.0)
        server.send_headers(stream_id, ResponseHead(200 if body else 204, []), end_stream=not body)
        assert len(body) == (server.send_data(stream_id, body, end_stream=True) if body else 0)
        given_up = headers(stream_id + 2, GET) + frames.encode_rst_stream(stream_id + 2, ErrorCode.CANCEL)
        assert ended_by(server, given_up) is None


def test_one_long_response_does_not_offset_a_rapid_reset() -> None:
    server = new_server(limits=LIMITS)
    server.receive(headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))

    for _ in range(60):
        assert 1000 == server.send_data(1, bytes(1000))

    terminated = ended_by(server, rapid_reset(60).removeprefix(rapid_reset(1)))
    assert terminated is not None
    assert terminated.reason.startswith("RESET")


def test_each_piece_of_a_body_of_ours_offsets_one_ping_and_no_more() -> None:
    server = new_server(limits=LIMITS)
    server.receive(headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))
    for _ in range(10):
        server.send_data(1, b"piece")
    ping = frames.encode_frame(frames.PING, 0, 0, bytes(8))

    assert ended_by(server, ping * 60) is None
    assert ended_by(server, ping) is not None


def test_window_updates_and_pings_that_our_short_responses_cause_are_no_flood() -> None:
    server = new_server(limits=LIMITS)
    one_more = frames.encode_window_update(0, 1000) + frames.encode_frame(frames.PING, 0, 0, bytes(8))

    for stream_id in odd(500):
        server.receive(headers(stream_id, GET), 0.0)
        assert 1000 == server.send_response(stream_id, ResponseHead(200, []), bytes(1000))
        assert ended_by(server, one_more) is None


def test_a_client_that_resets_a_download_for_each_late_frame_as_okhttp_does_is_no_flood() -> None:
    server = new_server(limits=LIMITS)
    for stream_id in odd(10):
        server.receive(headers(stream_id, GET), 0.0)
        server.send_headers(stream_id, ResponseHead(200, []))
        for _ in range(60):
            assert 100 == server.send_data(stream_id, bytes(100))

        assert ended_by(server, frames.encode_rst_stream(stream_id, ErrorCode.CANCEL) * 61) is None


def test_a_download_that_uses_up_each_window_is_no_flood() -> None:
    server = new_server(limits=LIMITS)
    server.receive(headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))

    for _ in range(2 * LIMITS.max_dribbles):
        taken_bytes = server.send_data(1, bytes(100_000))
        updates = (frames.encode_window_update(stream_id, taken_bytes) for stream_id in (0, 1))
        assert (taken_bytes, ended_by(server, b"".join(updates))) == (65_535, None)


def test_a_server_that_resets_many_uploads_is_no_flood() -> None:
    """It gives up what we have asked for, as when it is overloaded."""
    client = new_client(limits=LIMITS)
    for _ in range(2 * LIMITS.max_resets):
        stream_id = client.open_stream(get_head())
        assert ended_by(client, frames.encode_rst_stream(stream_id, ErrorCode.REFUSED_STREAM)) is None


def test_uploads_that_are_reset_after_their_response_are_no_flood() -> None:
    server = new_server(limits=LIMITS)
    for stream_id in odd(400):
        server.receive(headers(stream_id, POST, frames.END_HEADERS), 0.0)
        server.send_headers(stream_id, ResponseHead(403, []), end_stream=True)
        assert ended_by(server, frames.encode_rst_stream(stream_id, ErrorCode.NO_ERROR)) is None
    assert 0 == server.stream_count


def test_many_requests_that_end_in_order_are_no_flood() -> None:
    server = new_server(limits=LIMITS)
    for stream_id in odd(400):
        event = server.receive(headers(stream_id, GET), 0.0)[0]
        assert isinstance(event, RequestReceived)
        server.send_headers(stream_id, ResponseHead(204, []), end_stream=True)
    assert 0 == server.stream_count


def test_a_client_that_opens_its_window_in_tiny_increments_is_cut_off() -> None:
    server = new_server(limits=Limits(max_dribbles=50))
    server.receive(frames.encode_settings([(4, 0)]) + headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))
    one_more = frames.encode_window_update(1, 1)

    for _ in range(51):
        assert ended_by(server, one_more) is None
        assert 1 == server.send_data(1, bytes(1000))
    terminated = ended_by(server, one_more)

    assert terminated is not None
    assert terminated.reason.startswith("DRIBBLE")


def continued(fragment: bytes, count: int) -> bytes:
    head = frames.encode_frame(frames.HEADERS, 0, 1, b"")
    return head + frames.encode_frame(frames.CONTINUATION, 0, 1, fragment) * count


@pytest.mark.parametrize(
    ("raw", "are_fields_too_large"),
    [(continued(b"", 17), False), (continued(bytes(16_000), 9), True)],
    ids=["many empty ones", "more bytes than a list may have"],
)
def test_a_continuation_flood_ends_the_connection(raw: bytes, are_fields_too_large: bool) -> None:
    terminated = ended_by(new_server(), raw)

    assert terminated is not None
    assert ErrorCode.ENHANCE_YOUR_CALM == terminated.error_code
    assert are_fields_too_large is terminated.are_fields_too_large


@pytest.mark.parametrize(
    ("size_bytes", "continuations", "is_borne"),
    [(2048, 16, True), (2049, 16, False), (2048, 17, False)],
    ids=["at both limits", "a byte more", "a frame more"],
)
def test_a_field_block_is_read_up_to_its_limits(size_bytes: int, continuations: int, is_borne: bool) -> None:
    """So that a list over our MAX_HEADER_LIST_SIZE is answered."""
    server = new_server(Settings(max_header_list_bytes=1024), Limits(max_continuations=16))
    start = literal(GET) + b"\x00\x01x"
    value_bytes = size_bytes - len(start) - 3
    block = start + encode_integer(value_bytes, 7, 0) + b"y" * value_bytes
    assert size_bytes == len(block)
    raw = frames.encode_frame(frames.HEADERS, frames.END_STREAM, 1, block[:1000])
    raw += frames.encode_frame(frames.CONTINUATION, 0, 1) * (continuations - 1)
    raw += frames.encode_frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[1000:])

    events = server.receive(raw, 0.0)

    assert [RequestTooLarge if is_borne else ConnectionTerminated] == [type(event) for event in events]


def test_a_peer_that_never_acknowledges_our_settings_is_cut_off() -> None:
    server = Connection.server(Caches(), Settings(), LIMITS)
    requests = b"".join(headers(stream_id, GET) for stream_id in odd(51))

    terminated = ended_by(server, frames.PREFACE + frames.encode_settings([]) + requests)

    assert terminated is not None
    assert ErrorCode.SETTINGS_TIMEOUT == terminated.error_code


def test_a_peer_may_send_as_many_requests_as_the_limit_before_it_acknowledges_our_settings() -> None:
    server = Connection.server(Caches(), Settings(), LIMITS)
    requests = b"".join(headers(stream_id, GET) for stream_id in odd(50))

    assert ended_by(server, frames.PREFACE + frames.encode_settings([]) + requests) is None
    assert 50 == server.stream_count


def test_streams_above_the_limit_cost_nothing_but_a_refusal() -> None:
    server = new_server(Settings(max_concurrent_streams=10))

    server.receive(b"".join(headers(stream_id, GET) for stream_id in odd(100)), 0.0)

    refused = [f for f in sent_frames(server.data_to_send()) if f.kind == frames.RST_STREAM]
    assert (10, 90) == (server.stream_count, len(refused))
    assert {int(ErrorCode.REFUSED_STREAM)} == {int.from_bytes(f.payload, "big") for f in refused}


def test_the_memory_of_resets_is_bounded() -> None:
    server = new_server(limits=Limits(max_resets=100_000))

    server.receive(rapid_reset(5_000), 0.0)

    assert (False, 0) == (server.is_terminated, server.stream_count)
    # The latest are remembered, the oldest count as ended.
    assert ended_by(server, headers(9_999, [(b"x", b"y")])) is None
    terminated = ended_by(server, headers(1, [(b"x", b"y")]))
    assert terminated is not None
    assert ErrorCode.STREAM_CLOSED == terminated.error_code


@pytest.mark.parametrize(
    "frame",
    [
        headers(1, [*GET, *[(b"x", b"")] * 300]),
        headers(1, [*GET, *[(b"x", b"y" * 120)] * 100]),
        headers(1, POST, frames.END_HEADERS) + data(1, b"x") * 200,
    ],
    ids=["fields", "long fields", "pieces of a body"],
)
def test_much_input_in_one_read_is_processed_in_steps(frame: bytes) -> None:
    server = new_server()
    events = server.receive(frame + b"".join(headers(i, GET) for i in range(3, 203, 2)), 0.0, max_work=300)

    assert server.has_unread
    steps = 1
    while server.has_unread:
        events += server.receive(b"", 0.0, max_work=300)
        steps += 1
    assert steps > 4
    assert sum(isinstance(event, RequestReceived) for event in events) == 101


def test_data_in_flight_on_streams_that_we_reset_is_no_flood() -> None:
    server = new_server(limits=LIMITS)
    for stream_id in odd(50):
        server.receive(headers(stream_id, POST, frames.END_HEADERS), 0.0)
        server.send_headers(stream_id, ResponseHead(403, []), end_stream=True)
        server.reset_stream(stream_id, ErrorCode.NO_ERROR)
        assert ended_by(server, data(stream_id, bytes(1024)) * 256) is None
    assert ended_by(server, data(1, b"rest") * 1000) is not None


def test_data_in_flight_on_streams_that_we_refuse_is_no_flood() -> None:
    """It would end the earlier requests on the connection."""
    server = new_server(limits=LIMITS)
    server.receive(b"".join(headers(stream_id, POST, frames.END_HEADERS) for stream_id in odd(3)), 0.0)
    server.refuse_from(3)
    for stream_id in (3, 5):
        assert ended_by(server, data(stream_id, bytes(1024)) * 256) is None
    assert server.is_live(1)


def test_malformed_responses_end_the_streams_of_their_requests_and_no_others() -> None:
    client = new_client(limits=LIMITS)
    patient = client.open_stream(get_head(), end_stream=True)
    for _ in range(60):
        stream_id = client.open_stream(get_head(), end_stream=True)
        too_long = response(stream_id, (b"content-length", b"1"), flags=frames.END_HEADERS) + data(stream_id, b"long")

        assert isinstance(client.receive(too_long + data(stream_id, b"rest") * 100, 0.0)[-1], StreamReset)

    last = client.receive(response(patient), 0.0)[-1]
    assert isinstance(last, ResponseReceived)
    assert last.stream_id == patient


def test_a_body_in_flight_of_a_response_that_can_have_none_is_no_flood() -> None:
    client = new_client(limits=LIMITS)
    stream_id = client.open_stream(RequestHead(b"HEAD", b"https", b"a.example", b"/", []), end_stream=True)
    body = data(stream_id, b"body") * 200

    assert ended_by(client, response(stream_id, flags=frames.END_HEADERS) + body) is None


def test_a_server_that_goes_on_after_its_own_resets_is_a_flood() -> None:
    client = new_client(limits=LIMITS)
    stream_id = client.open_stream(get_head(), end_stream=True)
    reset = frames.encode_rst_stream(stream_id, ErrorCode.CANCEL)

    terminated = ended_by(client, reset + data(stream_id, b"more") * 60)

    assert terminated is not None
    assert ErrorCode.ENHANCE_YOUR_CALM == terminated.error_code
