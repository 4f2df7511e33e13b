"""Bodies that share a connection slower than they are, over sockets, to an independent client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from h2.settings import SettingCodes

from proxy.doors.h2connection import H2Connection
from proxy.doors.h2stream import H2Stream
from proxy.doors.turns import FULL_BYTES, QUANTUM_BYTES, ROUND_BYTES, Turns
from proxy.heads import ResponseHead
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.rig import WAIT_S, Rig, serving

MIB = 1024 * 1024
BODY_BYTES = 2 * MIB
KERNEL_BYTES = 64 * 1024


@pytest.fixture
def rig() -> Iterator[Rig]:
    with serving() as rig:
        yield rig.open_plain(send_buffer_bytes=KERNEL_BYTES)


@pytest.fixture
def client(rig: Rig) -> Iterator[H2Client]:
    with wide_client(rig.connect()) as client:
        yield client


def wide_client(sock: socket.socket) -> H2Client:
    """Whose windows let everything through; it reads when it is told to."""
    client = H2Client(sock)
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
    client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
    client.get("/hello")
    return client


def connection_of(rig: Rig) -> H2Connection:
    (connection,) = rig.call(lambda: [*rig.doors._registry])
    assert isinstance(connection, H2Connection)
    return connection


def ask_for_downloads(rig: Rig, client: H2Client, count: int, *, among: int = 0) -> list[int]:
    """The socket is full, and all of them have more, `among` with those that were asked for before."""
    downloads = [client.ask(f"/bulk/{BODY_BYTES}") for _ in range(count)]
    turns = connection_of(rig).turns
    rig.wait_for(lambda: len(turns.waiting) == (among or count), "a full socket")
    return downloads


def test_little_output_is_queued_however_many_streams_have_data(rig: Rig, client: H2Client) -> None:
    ask_for_downloads(rig, client, 20)
    transport = connection_of(rig)._transport
    # Heads and frames come on top of bodies.
    assert rig.call(lambda: transport.queued_bytes) < FULL_BYTES + ROUND_BYTES + 20 * 1024


def test_a_small_response_is_queued_although_downloads_have_filled_the_queue() -> None:
    with serving() as rig, socket.socket() as sock:
        rig.open_plain(send_buffer_bytes=1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.settimeout(WAIT_S)
        sock.connect(("127.0.0.1", rig.port))
        client = wide_client(sock)
        # The first gets all it may while it is alone, and the others the rest, or their shares.
        ask_for_downloads(rig, client, 1)
        ask_for_downloads(rig, client, 3, among=4)
        transport = connection_of(rig)._transport
        assert rig.call(lambda: transport.queued_bytes) >= FULL_BYTES
        client.ask("/hello")
        *_, small = (rig.services.begun.get(timeout=WAIT_S) for _ in range(1 + 4 + 1))
        assert small.head.path == b"/hello"
        rig.wait_for(lambda: small.is_over, "its end, while nobody reads")


def test_a_later_request_is_answered_before_earlier_downloads_end(rig: Rig, client: H2Client) -> None:
    downloads = ask_for_downloads(rig, client, 4)
    late = client.ask("/bulk/100000")

    assert len(client.answer(late).body) == 100_000
    assert sum(len(client.answers[each].body) for each in downloads) < 2 * BODY_BYTES
    for each in downloads:
        assert len(client.answer(each).body) == BODY_BYTES


def test_downloads_get_similar_shares(rig: Rig, client: H2Client) -> None:
    downloads = ask_for_downloads(rig, client, 4)
    client.answer(downloads[0])
    assert min(len(client.answers[each].body) for each in downloads) > BODY_BYTES // 2


def test_a_stream_that_has_sent_its_share_of_a_round_has_to_wait(rig: Rig, client: H2Client) -> None:
    ask_for_downloads(rig, client, 4)
    turns = connection_of(rig).turns

    def room_before_and_after_it_is_used() -> tuple[int, int]:
        stream_id, stream = next(iter(turns.waiting.items()))
        turns.forget(stream_id)
        stream.round_number = -1  # it has sent nothing in this round
        room_bytes = turns.room_for(stream)
        turns.sent(stream, room_bytes)
        return room_bytes, turns.room_for(stream)

    assert rig.call(room_before_and_after_it_is_used) == (QUANTUM_BYTES, 0)


def held_streams(rig: Rig, client: H2Client, count: int) -> list[H2Stream]:
    """Nothing of their responses has been sent."""
    connection = connection_of(rig)
    for _ in range(count):
        client.ask("/hold")
    rig.wait_for(lambda: connection.stream_count == count, "their requests")
    return rig.call(lambda: [*connection._streams.values()])


def test_what_has_been_handed_over_takes_room_until_the_socket_has_it(rig: Rig, client: H2Client) -> None:
    begun, other = held_streams(rig, client, 2)
    turns = connection_of(rig).turns
    body_bytes = 2 * QUANTUM_BYTES

    def room_before_and_after_a_response() -> tuple[int, int]:
        room_bytes = turns.room_for(other)
        begun.send_response(ResponseHead(200, []), bytes(body_bytes))
        return room_bytes, turns.room_for(other)

    assert rig.call(room_before_and_after_a_response) == (FULL_BYTES, FULL_BYTES - body_bytes)
    rig.wait_for(lambda: turns.room_for(other) == FULL_BYTES, "an empty queue")


def test_a_round_is_over_when_its_streams_have_handed_over_its_size(rig: Rig, client: H2Client) -> None:
    streams = held_streams(rig, client, 3 * ROUND_BYTES // QUANTUM_BYTES)
    connection = connection_of(rig)

    def shares_of_a_round() -> list[int]:
        def send(stream: H2Stream) -> None:
            shares.append(turns.room_for(stream))
            turns.sent(stream, shares[-1])

        shares: list[int] = []
        turns = Turns(rig.loop, connection._codec, connection._transport, send)
        turns.is_narrow = True
        for stream in streams:
            turns.wait(stream)
        turns.on_drained()
        turns.close()
        return shares

    assert rig.call(shares_of_a_round) == [QUANTUM_BYTES] * (ROUND_BYTES // QUANTUM_BYTES)


def test_a_download_makes_progress_although_output_is_flushed_in_every_turn_of_the_loop() -> None:
    with serving() as rig, wide_client(rig.connect()) as client:
        transport, is_over = connection_of(rig)._transport, threading.Event()

        def speak() -> None:
            transport.flush_later()
            if not is_over.is_set():
                rig.loop.call_soon(speak)

        rig.call(speak)
        try:
            assert len(client.get(f"/bulk/{2 * BODY_BYTES}").body) == 2 * BODY_BYTES
        finally:
            is_over.set()


def test_what_others_send_is_no_progress_of_a_stream_that_does_not_wait_for_its_turn(
    rig: Rig, client: H2Client
) -> None:
    (download,) = ask_for_downloads(rig, client, 1)
    turns = connection_of(rig).turns
    other = client.ask("/hold")

    assert rig.call(lambda: (turns.progress_of(download) is None, turns.progress_of(other) is None)) == (False, True)


def test_a_cancelled_download_leaves_its_turn_to_the_others(rig: Rig, client: H2Client) -> None:
    downloads = ask_for_downloads(rig, client, 4)
    turns = connection_of(rig).turns
    for each in downloads[1:]:
        client.h2.reset_stream(each)
    client.flush()
    for _ in downloads[1:]:
        rig.services.gone.get(timeout=WAIT_S)

    assert len(client.answer(downloads[0]).body) == BODY_BYTES
    rig.wait_for(lambda: not turns.waiting, "nobody who waits")


def test_a_window_that_closes_while_others_wait_for_their_turns_stops_only_its_stream(rig: Rig) -> None:
    with H2Client(rig.connect(), gives_credit=False) as client:
        client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
        client.get("/hello")
        narrow = [client.ask(f"/bulk/{BODY_BYTES}") for _ in range(3)]
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
        wide = client.ask(f"/bulk/{BODY_BYTES}")
        client.h2.increment_flow_control_window(BODY_BYTES, wide)
        client.flush()

        assert len(client.answer(wide).body) == BODY_BYTES
        assert [len(client.answers[each].body) for each in narrow] == 3 * [65_535]
        for each in narrow:
            client.h2.increment_flow_control_window(BODY_BYTES, each)
        client.flush()
        assert [len(client.answer(each).body) for each in narrow] == 3 * [BODY_BYTES]


@pytest.fixture
def thin(rig: Rig) -> Iterator[H2Client]:
    """Two downloads are on their way to it, of which it takes little at a time."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        sock.settimeout(WAIT_S)
        sock.connect(("127.0.0.1", rig.port))
        client = wide_client(sock)
        for _ in range(2):
            client.ask(f"/bulk/{20 * MIB}")
        wait_until_stuck(rig)
        yield client


def wait_until_stuck(rig: Rig) -> None:
    turns = connection_of(rig).turns
    rig.wait_for(lambda: turns._stuck_at_s is not None, "a round that the socket has not taken")


def take_a_round(rig: Rig, client: H2Client, seconds: float) -> None:
    """As long as that it takes."""
    turns = connection_of(rig).turns
    number = turns._round_number
    rig.pass_time(seconds)
    client.read_until(lambda: turns._round_number > number)
    wait_until_stuck(rig)


def unsent_bytes(rig: Rig) -> int:
    """What the kernel may have of it that the network has not taken."""
    sock = connection_of(rig)._transport._sock
    return rig.call(lambda: sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT))


def test_on_a_slow_link_little_output_is_queued_before_a_small_response(rig: Rig, thin: H2Client) -> None:
    for _ in range(4):
        take_a_round(rig, thin, 1)

    # A round or two may have gone at once since, and rounds grow with that.
    transport = connection_of(rig)._transport
    assert rig.call(lambda: transport.queued_bytes) < ROUND_BYTES
    assert unsent_bytes(rig) < ROUND_BYTES


def test_rounds_grow_again_when_the_link_is_fast(rig: Rig, thin: H2Client) -> None:
    for _ in range(4):
        take_a_round(rig, thin, 1)
    thin.read_until(lambda: unsent_bytes(rig) == ROUND_BYTES)


def test_a_link_that_was_interrupted_once_does_not_stay_narrow(rig: Rig, thin: H2Client) -> None:
    take_a_round(rig, thin, 60)
    assert unsent_bytes(rig) < ROUND_BYTES
    thin.read_until(lambda: unsent_bytes(rig) == ROUND_BYTES)
