"""What holds for every input: cuts do not matter, garbage is survived, windows are never overdrawn."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.h2 import (
    Caches,
    Connection,
    ConnectionTerminated,
    DataReceived,
    Event,
    LocalProtocolError,
    RequestReceived,
    Settings,
    frames,
)
from proxy.heads import ResponseHead
from tests.proxy.h2.wire import (
    ENDS,
    GET,
    POST,
    PREFACE_AND_SETTINGS,
    SETTINGS_ACK,
    data,
    flow,
    get_head,
    headers,
    honouring_encoder,
    literal,
    new_client,
    new_server,
    response,
    sent_frames,
)

TALK = (
    PREFACE_AND_SETTINGS
    + SETTINGS_ACK
    + frames.encode_frame(frames.HEADERS, ENDS, 1, honouring_encoder().encode([*GET, (b"accept", b"*/*")]))
    + headers(3, POST, frames.END_HEADERS)
    + data(3, b"x" * 5_000)
    + frames.encode_frame(frames.PING, 0, 0, b"12345678")
    + frames.encode_frame(frames.HEADERS, frames.END_STREAM, 5, literal(GET[:2]))
    + frames.encode_frame(frames.CONTINUATION, frames.END_HEADERS, 5, literal(GET[2:]))
    + data(3, b"\x03end\0\0\0", frames.PADDED)
    + frames.encode_window_update(0, 99)
    + headers(3, [(b"x-sum", b"1")])
    + frames.encode_rst_stream(5, 8)
    + frames.encode_goaway(0, 0, b"bye")
)


def shown(events: list[Event]) -> list[str]:
    """Events with all their fields; a view compares as its bytes."""
    texts = []
    for event in events:
        if isinstance(event, DataReceived):
            texts.append(repr((event.stream_id, bytes(event.data), event.end_stream)))
        elif isinstance(event, RequestReceived):
            texts.append(repr((event, event.head.scheme, event.head.fields)))
        else:
            texts.append(repr(event))
    return texts


def heard(pieces: list[bytes]) -> tuple[list[str], bytes]:
    server = Connection.server(Caches())
    events = [event for piece in pieces for event in server.receive(piece, 0.0)]
    return shown(events), server.data_to_send()


WHOLE = heard([TALK])


def test_input_reads_the_same_byte_by_byte() -> None:
    assert WHOLE == heard([TALK[i : i + 1] for i in range(len(TALK))])
    assert 9 == len(WHOLE[0])


@given(st.lists(st.integers(0, len(TALK)), max_size=12))
def test_cuts_never_change_events_or_answers(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TALK)]

    assert WHOLE == heard([TALK[start:stop] for start, stop in pairwise(edges)])


@given(st.lists(st.integers(0, len(TALK)), max_size=4), st.integers(1, 40))
def test_input_reads_the_same_in_small_steps(cuts: list[int], max_work: int) -> None:
    server = Connection.server(Caches())
    edges = [0, *sorted(cuts), len(TALK)]
    events = [event for start, stop in pairwise(edges) for event in server.receive(TALK[start:stop], 0.0, max_work)]
    while server.has_unread:
        events += server.receive(b"", 0.0, max_work)

    assert WHOLE == (shown(events), server.data_to_send())


@given(st.integers(1, 60))
def test_an_incomplete_frame_at_the_end_changes_nothing_yet(lacking: int) -> None:
    unfinished = data(3, b"y" * 60)[:-lacking]

    assert WHOLE == heard([TALK + unfinished])


FRAMES = st.builds(
    frames.encode_frame,
    st.integers(0, 11),
    st.integers(0, 255),
    st.sampled_from([0, 0, 1, 1, 2, 3, 5, 7, 2**31 - 1]),
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([literal(GET), literal(POST), bytes(4), bytes(8), b"\0\x04\0\0\0\0", b"\x88", b"\0\0\0\x05"]),
    ),
)
RAW = st.one_of(st.lists(FRAMES, max_size=12).map(b"".join), st.binary(max_size=200))


@pytest.mark.parametrize("is_server", [True, False], ids=["server", "client"])
@given(raw=RAW, is_acknowledged=st.booleans())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_give_events_or_a_connection_error(is_server: bool, raw: bytes, is_acknowledged: bool) -> None:
    codec = Connection.server(Caches()) if is_server else Connection.client(Caches())
    if not is_server:
        codec.open_stream(get_head())
    start = PREFACE_AND_SETTINGS if is_server else frames.encode_settings([])
    codec.receive(start + SETTINGS_ACK * is_acknowledged, 0.0)
    codec.data_to_send()

    events = codec.receive(raw, 0.0)

    assert codec.is_terminated == (bool(events) and isinstance(events[-1], ConnectionTerminated))
    answers = sent_frames(codec.data_to_send())
    assert len(answers) <= len(raw) // 9 + 2
    assert codec.is_terminated == any(f.kind == frames.GOAWAY for f in answers)


SOUND_FRAMES = st.one_of(
    st.builds(headers, st.sampled_from([1, 3, 5]), st.sampled_from([GET, POST, [(b"x-sum", b"1")]]), st.integers(4, 5)),
    st.builds(data, st.sampled_from([1, 3]), st.sampled_from([b"", b"abc", b"x" * 300, b"\1ab\0"]), st.integers(0, 9)),
    st.sampled_from([response(1), response(1, (b"content-length", b"3"), flags=frames.END_HEADERS)]),
    st.sampled_from([response(1, flags=frames.END_HEADERS, status=b"103"), frames.encode_settings([(4, 1), (1, 0)])]),
)


@pytest.mark.parametrize("is_server", [True, False], ids=["server", "client"])
@given(
    raw=st.lists(SOUND_FRAMES | FRAMES, max_size=12).map(b"".join),
    cuts=st.lists(st.integers(0, 600), max_size=12),
    max_work=st.integers(1, 40),
)
def test_any_frames_read_the_same_however_they_are_cut(
    is_server: bool, raw: bytes, cuts: list[int], max_work: int
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    pieces = [raw[start:stop] for start, stop in pairwise(edges)]
    whole = read_by_one_end(is_server, [raw])

    assert whole == read_by_one_end(is_server, pieces)
    assert whole == read_by_one_end(is_server, pieces, max_work)
    assert whole == read_by_one_end(is_server, [raw[place : place + 1] for place in range(len(raw))])


def read_by_one_end(is_server: bool, pieces: list[bytes], max_work: int = 1_000_000) -> tuple[list[str], bytes]:
    """Its events after the handshake, and all that it answers; the client awaits one response."""
    codec = new_server() if is_server else new_client()
    if not is_server:
        codec.open_stream(get_head())
    events: list[Event] = []
    for piece in pieces:
        events += codec.receive(piece, 0.0, max_work)
    while codec.has_unread:
        events += codec.receive(b"", 0.0, max_work)
    return shown(events), codec.data_to_send()


@given(st.integers(0, len(TALK) - 1), st.integers(0, 255))
@settings(max_examples=300)
def test_one_wrong_byte_does_not_raise(place: int, byte: int) -> None:
    server = Connection.server(Caches())

    server.receive(TALK[:place] + bytes((byte,)) + TALK[place + 1 :], 0.0)

    assert server.stream_count <= 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 5), st.integers(0, 90_000)),
        st.tuples(st.just("release"), st.integers(0, 5), st.integers(0, 90_000)),
        st.tuples(st.just("flow"), st.just(0), st.just(0)),
        st.tuples(st.just("reset"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("window"), st.just(0), st.integers(0, 100_000)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 70_000))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_our_sending_never_overdraws_a_window(steps: list[tuple[str, int, int]], window_bytes: int) -> None:
    """The receiving codec is the judge: it ends stream or connection for a single byte too many."""
    ours = Settings(stream_window_bytes=window_bytes, connection_window_bytes=70_000)
    server, client = Connection.server(Caches()), Connection.client(Caches(), ours)
    at_server: list[Event] = []
    at_client: list[Event] = []
    streams = [client.open_stream(get_head(), end_stream=True) for _ in range(6)]
    flow(client, server, at_client, at_server)
    held = dict.fromkeys(streams, 0)
    sent = dict.fromkeys(streams, 0)
    got = dict.fromkeys(streams, 0)
    for stream_id in streams:
        server.send_headers(stream_id, ResponseHead(200, []))

    def listen() -> None:
        events: list[Event] = []
        flow(client, server, events, at_server)
        for event in events:
            if isinstance(event, DataReceived):
                held[event.stream_id] += len(event.data)
                got[event.stream_id] += len(event.data)
        assert not client.is_terminated
        assert not server.is_terminated

    for what, index, size in steps:
        stream_id = streams[index]
        if what == "send":
            room = server.sendable(stream_id)
            taken = server.send_data(stream_id, bytes(size))
            assert taken == min(room, size)
            sent[stream_id] += taken
        elif what == "release":
            released = min(size, held[stream_id])
            client.release(stream_id, released)
            held[stream_id] -= released
        elif what == "reset":
            client.reset_stream(stream_id)
            held[stream_id] = 0
        elif what == "window":
            server.receive(frames.encode_settings([(4, size)]), 0.0)
            server.receive(frames.encode_settings([(4, window_bytes)]), 0.0)
        else:
            listen()
    listen()

    live = [stream_id for stream_id in streams if client.is_live(stream_id)]
    assert {i: sent[i] for i in live} == {i: got[i] for i in live}
    # All credit returns in the end: nothing leaks from the connection's window.
    for stream_id in live:
        client.release(stream_id, held[stream_id])
        client.reset_stream(stream_id)
    listen()
    assert client._receive_window.held == 0
    assert client._receive_window.available + client._receive_window.returnable == 70_000


CALLS = ["headers", "data", "trailers", "end", "reset", "abandon", "drain", "refuse"]


@given(st.lists(st.sampled_from(CALLS), max_size=6))
def test_whatever_order_our_caller_chooses_the_peer_sees_no_error(calls: list[str]) -> None:
    """Invalid calls raise and queue nothing; what valid calls queue is accepted by the other codec."""
    server, client = Connection.server(Caches()), Connection.client(Caches())
    at_server: list[Event] = []
    at_client: list[Event] = []
    client.open_stream(get_head(), end_stream=True)
    flow(client, server, at_client, at_server)
    actions: dict[str, Callable[[], object]] = {
        "headers": lambda: server.send_headers(1, ResponseHead(200, [])),
        "data": lambda: server.send_data(1, b"x"),
        "trailers": lambda: server.send_trailers(1, [(b"a", b"b")]),
        "end": lambda: server.end_stream(1),
        "reset": lambda: server.reset_stream(1),
        "abandon": lambda: server.abandon(1),
        "drain": server.drain,
        "refuse": lambda: server.refuse_from(1),
    }
    for call in calls:
        queued = len(server._output)
        try:
            actions[call]()
        except LocalProtocolError:
            assert queued == len(server._output)

    flow(client, server, at_client, at_server)

    assert (False, False) == (server.is_terminated, client.is_terminated)
