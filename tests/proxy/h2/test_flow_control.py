"""Flow control both ways: windows are not overdrawn, and credit is returned only for released bytes."""

import math
import sys
from collections import deque

import pytest

from proxy.h2 import (
    Caches,
    Connection,
    ConnectionTerminated,
    DataReceived,
    ErrorCode,
    LocalProtocolError,
    Settings,
    SettingsChanged,
    StreamReset,
    WindowUpdated,
    frames,
)
from proxy.heads import ResponseHead
from tests.proxy.h2.wire import GET, POST, data, get_head, headers, new_client, new_server, sent_frames

SMALL = Settings(stream_window_bytes=1000, window_pool_bytes=0, connection_window_bytes=65_535)
OPEN = headers(1, POST, frames.END_HEADERS)


def window_updates(codec: Connection) -> list[tuple[int, int]]:
    return [
        (f.stream_id, int.from_bytes(f.payload, "big"))
        for f in sent_frames(codec.data_to_send())
        if f.kind == frames.WINDOW_UPDATE
    ]


def answering(window_bytes: int) -> Connection:
    """A server that has sent the head of its answer on stream 1, to a peer with this initial window."""
    server = new_server()
    server.receive(frames.encode_settings([(4, window_bytes)]) + headers(1, GET), 0.0)
    server.send_headers(1, ResponseHead(200, []))
    server.data_to_send()
    return server


def test_credit_comes_back_in_steps_of_half_a_window() -> None:
    server = new_server(SMALL)
    server.receive(OPEN + data(1, bytes(600)), 0.0)

    server.release(1, 499)
    assert [] == window_updates(server)
    server.release(1, 1)
    assert [(1, 500)] == window_updates(server)


def test_credit_for_a_window_of_one_byte_comes_back_with_each_byte() -> None:
    server = new_server(Settings(stream_window_bytes=1, max_stream_window_bytes=1, window_pool_bytes=0))
    server.receive(OPEN, 0.0)

    for _ in range(3):
        server.receive(data(1, b"x"), 0.0)
        server.release(1, 1)
        assert [(1, 1)] == window_updates(server)


def test_received_data_is_not_kept_once_the_caller_has_dropped_it() -> None:
    """A view keeps its whole read in memory, up to 1 MiB, which a connection would hold while it is idle."""
    server = new_server()
    read = OPEN + data(1, bytes(16_000), frames.END_STREAM)
    references = sys.getrefcount(read)

    event = server.receive(read, 0.0)[-1]
    assert isinstance(event, DataReceived)
    assert isinstance(event.data, memoryview)
    del event

    assert references == sys.getrefcount(read)


def test_no_credit_is_returned_before_data_is_released() -> None:
    server = new_server(SMALL)

    server.receive(OPEN + data(1, bytes(1000)), 0.0)

    assert [] == window_updates(server)
    reset = server.receive(data(1, b"x"), 0.0)[-1]
    assert isinstance(reset, StreamReset)
    assert (ErrorCode.FLOW_CONTROL_ERROR, False) == (reset.error_code, reset.by_peer)


def test_the_connections_window_is_announced_with_our_settings() -> None:
    connections = (
        Connection.server(Caches(), Settings(connection_window_bytes=100_000)),
        Connection.client(Caches(), Settings(connection_window_bytes=100_000)),
    )
    for connection in connections:
        assert [(0, 100_000 - 65_535)] == window_updates(connection)

    assert [] == window_updates(Connection.server(Caches(), Settings(connection_window_bytes=65_535)))


def test_data_that_overdraws_a_streams_window_is_credited_to_the_connection() -> None:
    server = new_server(SMALL)
    for stream_id in range(1, 21, 2):
        opened = headers(stream_id, POST, frames.END_HEADERS)
        reset = server.receive(opened + data(stream_id, bytes(16_000)), 0.0)[-1]
        assert isinstance(reset, StreamReset)

    # The rest is less than half of the window: credit is returned in steps of that.
    assert sum(increment for _, increment in window_updates(server)) > 10 * 16_000 - 65_535 // 2


def test_overdrawing_the_connection_window_is_a_connection_error() -> None:
    server = new_server(Settings(stream_window_bytes=1 << 20, connection_window_bytes=65_535))
    full = data(1, bytes(16_384)) * 3 + data(1, bytes(16_383))

    assert 5 == len(server.receive(OPEN + full, 0.0))
    terminated = server.receive(data(1, b"x"), 0.0)[-1]

    assert isinstance(terminated, ConnectionTerminated)
    assert ErrorCode.FLOW_CONTROL_ERROR == terminated.error_code


def test_padding_counts_against_the_window_and_is_released_automatically() -> None:
    server = new_server(SMALL)
    padded = data(1, b"\xff" + b"x" * 4 + bytes(255), frames.PADDED)

    events = server.receive(OPEN + padded * 2, 0.0)

    bodies = [bytes(event.data) for event in events if isinstance(event, DataReceived)]
    assert [b"xxxx", b"xxxx"] == bodies
    assert [(1, 512)] == window_updates(server)


def test_data_on_a_stream_that_we_reset_is_credited_to_the_connection() -> None:
    server = new_server(SMALL)
    server.receive(OPEN, 0.0)
    server.reset_stream(1)
    server.data_to_send()

    for _ in range(3):
        server.receive(data(1, bytes(16_000)), 0.0)

    assert [(0, 32_000)] == window_updates(server)


def test_stalled_streams_leave_the_rest_of_the_connection_window_to_others() -> None:
    """Credit for the others does not wait until it is half of the window, which it could never reach."""
    server = new_server(Settings(stream_window_bytes=60_000, connection_window_bytes=65_535))
    server.receive(OPEN + b"".join(data(1, bytes(15_000)) for _ in range(4)), 0.0)
    server.receive(headers(3, POST, frames.END_HEADERS), 0.0)
    left_bytes = 65_535 - 60_000

    for _ in range(100):
        events = server.receive(data(3, bytes(left_bytes)), 0.0)
        assert [DataReceived] == [type(event) for event in events]
        server.release(3, left_bytes)
        assert (0, left_bytes) in window_updates(server)


def test_pending_credit_is_sent_when_another_stream_nearly_uses_up_the_window() -> None:
    server = new_server(Settings(stream_window_bytes=60_000, connection_window_bytes=65_535))
    server.receive(OPEN + headers(3, POST, frames.END_HEADERS) + data(3, bytes(16_000)), 0.0)
    server.release(3, 16_000)
    assert [] == window_updates(server)

    server.receive(b"".join(data(1, bytes(12_000)) for _ in range(4)), 0.0)

    assert [(0, 16_000)] == window_updates(server)


@pytest.mark.parametrize("by_peer", [True, False])
def test_a_reset_gives_back_what_the_caller_held_and_a_late_release_does_nothing(by_peer: bool) -> None:
    server = new_server(Settings(stream_window_bytes=65_535, connection_window_bytes=65_535))
    server.receive(OPEN + data(1, bytes(16_384)) * 3, 0.0)

    if by_peer:
        server.receive(frames.encode_rst_stream(1, ErrorCode.CANCEL), 0.0)
    else:
        server.reset_stream(1)

    assert [(0, 49_152)] == window_updates(server)
    server.release(1, 16_384)
    assert [] == window_updates(server)


def test_a_body_may_be_released_after_its_stream_has_ended() -> None:
    client = new_client(Settings(stream_window_bytes=65_535, connection_window_bytes=65_535))
    client.open_stream(get_head(), end_stream=True)
    client.receive(headers(1, [(b":status", b"200")], frames.END_HEADERS), 0.0)
    client.receive(data(1, bytes(16_000)) * 2 + data(1, bytes(8_000), frames.END_STREAM), 0.0)
    client.data_to_send()
    assert 0 == client.stream_count

    client.release(1, 16_000)
    assert [] == window_updates(client)
    with pytest.raises(LocalProtocolError, match="want 0 to 24000"):
        client.release(1, 24_001)


def test_an_abandoned_body_is_released_whole() -> None:
    client = new_client(Settings(stream_window_bytes=65_535, connection_window_bytes=65_535))
    client.open_stream(get_head(), end_stream=True)
    client.receive(headers(1, [(b":status", b"200")], frames.END_HEADERS), 0.0)
    client.receive(data(1, bytes(16_384)) * 2 + data(1, bytes(9_000), frames.END_STREAM), 0.0)
    client.data_to_send()

    client.abandon(1)

    assert [(0, 41_768)] == window_updates(client)


def test_a_reset_after_the_end_releases_what_is_held_of_the_body() -> None:
    client = new_client(Settings(stream_window_bytes=65_535, connection_window_bytes=65_535))
    client.open_stream(get_head(), end_stream=True)
    client.receive(headers(1, [(b":status", b"200")], frames.END_HEADERS), 0.0)
    client.receive(data(1, bytes(16_384)) * 2 + data(1, bytes(9_000), frames.END_STREAM), 0.0)
    client.data_to_send()

    client.reset_stream(1)

    assert [(frames.WINDOW_UPDATE, 0)] == [(f.kind, f.stream_id) for f in sent_frames(client.data_to_send())]


def test_more_than_was_received_cannot_be_released() -> None:
    server = new_server()
    server.receive(OPEN + data(1, b"abc"), 0.0)

    with pytest.raises(LocalProtocolError, match="4 bytes released, want 0 to 3"):
        server.release(1, 4)


def test_sending_stops_at_the_streams_window_and_goes_on_when_it_opens() -> None:
    server = answering(10)

    assert (10, 10) == (server.sendable(1), server.send_data(1, b"0123456789abc", end_stream=True))
    assert (0, 0) == (server.sendable(1), server.send_data(1, b"abc", end_stream=True))
    events = server.receive(frames.encode_window_update(1, 5), 0.0)
    assert [1] == [event.stream_id for event in events if isinstance(event, WindowUpdated)]
    assert 3 == server.send_data(1, b"abc", end_stream=True)

    sent = [(f.flags, f.payload) for f in sent_frames(server.data_to_send())]
    assert [(0, b"0123456789"), (frames.END_STREAM, b"abc")] == sent
    assert 0 == server.stream_count


def test_sending_stops_at_the_connections_window() -> None:
    server = answering(1 << 20)
    body = bytes(70_000)

    assert 65_535 == server.send_data(1, body)
    assert 0 == server.sendable(1)
    events = server.receive(frames.encode_window_update(0, 100), 0.0)

    assert [0] == [event.stream_id for event in events if isinstance(event, WindowUpdated)]
    assert 100 == server.sendable(1)
    assert {16_384, 16_383} == {len(f.payload) for f in sent_frames(server.data_to_send())}


def test_the_last_byte_of_a_window_is_used() -> None:
    server = answering(1 << 20)

    assert 65_534 == server.send_data(1, bytes(65_534))
    assert 1 == server.send_data(1, b"ab")
    events = server.receive(frames.encode_window_update(0, 1), 0.0)

    assert [0] == [event.stream_id for event in events if isinstance(event, WindowUpdated)]


def test_a_body_passes_through_a_window_of_one_byte() -> None:
    server = answering(1)

    for byte in b"abc":
        assert 1 == server.send_data(1, bytes((byte,)) + b"more")
        events = server.receive(frames.encode_window_update(1, 1), 0.0)
        assert [1] == [event.stream_id for event in events if isinstance(event, WindowUpdated)]

    assert [b"a", b"b", b"c"] == [f.payload for f in sent_frames(server.data_to_send())]


def test_the_windows_tell_when_they_let_nothing_through() -> None:
    server = answering(40_000)
    server.receive(headers(3, GET), 0.0)
    server.send_headers(3, ResponseHead(200, []))

    assert 40_000 == server.send_data(1, bytes(50_000))
    assert (True, False) == (server.awaits_credit(1), server.awaits_credit(3))
    assert (True, 25_535) == (server.has_send_window, server.send_window_bytes)

    assert 25_535 == server.send_data(3, bytes(50_000))
    assert (False, True, 0) == (server.has_send_window, server.awaits_credit(3), server.send_window_bytes)

    server.receive(frames.encode_window_update(0, 300), 0.0)
    assert (True, False, 300) == (server.has_send_window, server.awaits_credit(3), server.sendable(3))
    assert server.awaits_credit(1)

    # Credit of a byte is gathered.
    assert 300 == server.send_data(3, bytes(50_000))
    server.receive(frames.encode_window_update(0, 1), 0.0)
    assert (False, True, 1) == (server.has_send_window, server.awaits_credit(3), server.sendable(3))
    server.receive(frames.encode_window_update(0, 255), 0.0)
    assert (True, False, 256) == (server.has_send_window, server.awaits_credit(3), server.sendable(3))


def test_a_connections_window_that_is_used_up_before_anything_is_released_gets_no_credit_of_0() -> None:
    """RFC 9113, 6.9: an increment of 0 is an error, which would end the connection."""
    server = new_server(Settings(stream_window_bytes=65_535, connection_window_bytes=65_535))

    server.receive(OPEN + b"".join(data(1, bytes(size)) for size in (16_384, 16_384, 16_384, 16_383)), 0.0)

    assert [] == window_updates(server)


def test_a_connection_is_crowded_while_half_of_its_window_is_held() -> None:
    server = new_server(Settings(connection_window_bytes=65_536))
    server.receive(OPEN + data(1, bytes(16_384)) + data(1, bytes(16_383)), 0.0)
    assert not server.is_crowded

    server.receive(data(1, b"x"), 0.0)
    assert server.is_crowded

    server.receive(data(1, b"x"), 0.0)
    assert server.is_crowded

    server.release(1, 2)
    assert not server.is_crowded


def test_an_update_of_a_window_already_open_gives_no_event() -> None:
    server = answering(10)

    updates = frames.encode_window_update(1, 5) + frames.encode_window_update(0, 5)

    assert [] == server.receive(updates, 0.0)


def test_credit_for_each_frame_does_not_lead_to_frames_of_a_few_bytes() -> None:
    """gunicorn does so. A window of 65,535 leaves a byte of a piece of 64 KiB, and the credit for that byte lets
    through another one, and so on forever.
    """
    server = answering(65_535)
    body = memoryview(bytes(4_000_000))
    unread: deque[int] = deque()
    sizes = []
    rest = body[:65_536]
    position = len(rest)

    while position < len(body) or rest:
        rest = rest[server.send_data(1, rest) :]
        if not rest:
            rest = body[position : position + 65_536]
            position += len(rest)
            continue
        unread += [len(f.payload) for f in sent_frames(server.data_to_send())]
        size = unread.popleft()
        sizes.append(size)
        credit = frames.encode_window_update(0, size) + frames.encode_window_update(1, size)
        assert not any(isinstance(event, ConnectionTerminated) for event in server.receive(credit, 0.0))

    # At most the last of each piece.
    assert sum(size < 256 for size in sizes) <= math.ceil(len(body) / 65_536)


def test_credit_that_is_always_a_byte_more_than_the_rest_of_a_piece_is_no_flood() -> None:
    """lighttpd does so: 16 KiB for each 16 KiB received. Pieces are as large, but one was a byte smaller, so that a
    byte of the window is left to each of the following ones.
    """
    server = answering(65_536)
    server.receive(frames.encode_window_update(0, 1_000_000), 0.0)
    body = memoryview(bytes(16_384))
    rest = body[1:]
    moved_bytes = small_frames = unread_bytes = 0

    while moved_bytes < 64 * 1024 * 1024:
        while taken := server.send_data(1, rest):
            rest = rest[taken:] or body
        sizes = [len(f.payload) for f in sent_frames(server.data_to_send())]
        small_frames += sum(size < 256 for size in sizes)
        moved_bytes += sum(sizes)
        unread_bytes += sum(sizes)
        assert unread_bytes >= 16_384
        unread_bytes -= 16_384
        credit = frames.encode_window_update(0, 16_384) + frames.encode_window_update(1, 16_384)
        assert not any(isinstance(event, ConnectionTerminated) for event in server.receive(credit, 0.0))

    assert small_frames <= 501


def gathering(window_bytes: int) -> Connection:
    """`answering`, with a byte of that window left, and a peer that has given as little back."""
    server = answering(window_bytes)
    assert window_bytes == server.send_data(1, bytes(window_bytes + 1_000))
    server.receive(frames.encode_window_update(1, 1), 0.0)
    assert 0 == server.send_data(1, bytes(1_000))
    return server


def test_the_rest_of_a_piece_is_sent_when_credit_just_covers_it() -> None:
    """The peer may know how many are missing, and give no more."""
    server = gathering(2_000)

    events = server.receive(frames.encode_window_update(1, 99), 0.0)

    assert [1] == [event.stream_id for event in events if isinstance(event, WindowUpdated)]
    assert 100 == server.send_data(1, bytes(100), end_stream=True)
    assert 0 == server.stream_count


def test_small_credit_is_used_at_once_after_the_peer_made_its_windows_tiny() -> None:
    server = gathering(1_024)
    server.receive(frames.encode_window_update(1, 9), 0.0)

    events = server.receive(frames.encode_settings([(4, 1_020)]), 0.0)

    assert [0, 1] == [event.stream_id for event in events if isinstance(event, WindowUpdated)]
    assert 6 == server.send_data(1, bytes(1_000))
    server.data_to_send()
    assert server.awaits_credit(1)
    assert (0, b"") == (server.send_data(1, bytes(1_000)), server.data_to_send())


@pytest.mark.parametrize("left_bytes", [0, -5])
def test_an_end_without_data_needs_no_window(left_bytes: int) -> None:
    """The caller learns that 0 of 0 bytes were sent, and does not call again."""
    server = answering(10)
    server.send_data(1, bytes(10))
    server.receive(frames.encode_settings([(4, 10 + left_bytes)]), 0.0)
    server.data_to_send()

    assert 0 == server.send_data(1, b"", end_stream=True)
    assert [(frames.DATA, frames.END_STREAM)] == [(f.kind, f.flags) for f in sent_frames(server.data_to_send())]
    assert 0 == server.stream_count


def test_settings_may_take_a_window_below_zero_and_open_it_again() -> None:
    server = answering(100)
    server.send_data(1, bytes(60))

    server.receive(frames.encode_settings([(4, 10)]), 0.0)
    assert (0, 0) == (server.sendable(1), server.send_data(1, b"x"))
    assert [] == server.receive(frames.encode_window_update(1, 40), 0.0)
    assert [SettingsChanged] == [type(event) for event in server.receive(frames.encode_settings([(4, 20)]), 0.0)]
    events = server.receive(frames.encode_settings([(4, 30)]), 0.0)

    assert [1] == [event.stream_id for event in events if isinstance(event, WindowUpdated)]
    assert 10 == server.sendable(1)


def test_the_end_of_a_body_needs_no_window() -> None:
    server = answering(0)

    assert 0 == server.send_data(1, b"", end_stream=True)

    assert [(frames.DATA, frames.END_STREAM, b"")] == [
        (f.kind, f.flags, f.payload) for f in sent_frames(server.data_to_send())
    ]


def test_bodies_are_passed_through_without_a_copy() -> None:
    server = answering(1 << 20)
    body = bytes(16_384)

    server.send_data(1, body)

    assert any(buffer is body for buffer in server.buffers_to_send())
    received = new_server()
    read = OPEN + data(1, body)
    event = received.receive(read, 0.0)[-1]
    assert isinstance(event, DataReceived)
    assert isinstance(event.data, memoryview)
    assert event.data.obj is read


def whole(window_bytes: int, body: bytes) -> tuple[list[tuple[int, int, int]], int]:
    """A response in one call to a peer with this initial window: its frames (kind, flags, length), and what was taken.

    Asserts that the two calls would have made the same.
    """
    outputs, taken = [], []
    for at_once in (True, False):
        server = new_server()
        server.receive(frames.encode_settings([(4, window_bytes)]) + headers(1, GET), 0.0)
        server.data_to_send()
        head = ResponseHead(200, [(b"etag", b"1")])
        if at_once:
            taken.append(server.send_response(1, head, body))
        else:
            server.send_headers(1, head)
            taken.append(server.send_data(1, body, True))
        outputs.append(server.data_to_send())
        assert server.is_live(1) is (taken[-1] < len(body))
    assert outputs[0] == outputs[1]
    assert taken[0] == taken[1]
    return [(f.kind, f.flags, len(f.payload)) for f in sent_frames(outputs[0])][1:], taken[0]


@pytest.mark.parametrize("size_bytes", [1, 4096, 4097, 16_384])
def test_a_response_in_one_call_equals_one_in_two_calls(size_bytes: int) -> None:
    assert whole(65_535, bytes(size_bytes)) == ([(frames.DATA, frames.END_STREAM, size_bytes)], size_bytes)


def test_a_response_in_one_call_is_cut_by_the_window() -> None:
    assert whole(10, bytes(11)) == ([(frames.DATA, 0, 10)], 10)
    assert whole(0, bytes(11)) == ([], 0)


def test_a_body_of_several_frames_ends_with_the_last_of_them() -> None:
    server = answering(65_535)

    assert 40_000 == server.send_data(1, bytes(40_000), end_stream=True)

    sent = [(f.kind, f.flags, len(f.payload)) for f in sent_frames(server.data_to_send())]
    assert [(frames.DATA, 0, 16_384), (frames.DATA, 0, 16_384), (frames.DATA, frames.END_STREAM, 7_232)] == sent


def test_responses_in_one_call_use_up_the_connections_window() -> None:
    server = answering(1_000)
    for stream_id in range(3, 3 + 2 * 65, 2):
        server.receive(headers(stream_id, GET), 0.0)
        assert 1_000 == server.send_response(stream_id, ResponseHead(200, []), bytes(1_000))

    assert 65_535 - 65_000 == server.sendable(1)


def test_responses_in_one_call_follow_one_another_in_the_output() -> None:
    server = new_server()
    server.receive(headers(1, GET) + headers(3, GET), 0.0)
    server.data_to_send()

    for stream_id, body in ((1, b"one"), (3, b"three")):
        server.send_response(stream_id, ResponseHead(200, []), body)

    sent = sent_frames(server.data_to_send())
    assert [(frames.HEADERS, 1), (frames.DATA, 1), (frames.HEADERS, 3), (frames.DATA, 3)] == [
        (f.kind, f.stream_id) for f in sent
    ]
    assert [b"one", b"three"] == [sent[1].payload, sent[3].payload]


def test_nothing_can_follow_a_response_in_one_call_while_its_request_goes_on() -> None:
    server = new_server()
    server.receive(OPEN, 0.0)

    server.send_response(1, ResponseHead(200, []), b"x")

    assert (True, 0) == (server.is_live(1), server.sendable(1))
    with pytest.raises(LocalProtocolError, match="ended by us already"):
        server.send_data(1, b"x")


def test_a_response_in_one_call_to_a_stream_that_is_gone_is_dropped() -> None:
    server = new_server()
    server.receive(frames.encode_settings([]) + headers(1, GET) + frames.encode_rst_stream(1, ErrorCode.CANCEL), 0.0)
    server.data_to_send()

    assert server.send_response(1, ResponseHead(200, []), b"hello") == 0
    assert server.data_to_send() == b""


def test_a_response_in_one_call_may_follow_an_interim_one_but_not_a_final_one() -> None:
    server = new_server()
    server.receive(frames.encode_settings([]) + headers(1, POST, frames.END_HEADERS), 0.0)
    server.send_headers(1, ResponseHead(103, []))
    assert server.send_response(1, ResponseHead(200, []), b"hello") == 5

    with pytest.raises(LocalProtocolError):
        server.send_response(1, ResponseHead(200, []), b"hello")
