"""Windows for bodies: small at first, wider for streams that drain, and never all of the pool for those that do not."""

import heapq
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.h2 import Caches, Connection, DataReceived, ErrorCode, Settings, StreamReset, frames
from proxy.h2.windows import Pool, StreamWindow
from proxy.heads import ResponseHead
from proxy.tunnel.edgehttp import SETTINGS as EDGE_SETTINGS
from tests.proxy.h2.wire import POST, PREFACE_AND_SETTINGS, SETTINGS_ACK, data, headers, new_server, sent_frames

KIB = 1 << 10
MIB = 1 << 20
FIRST_BYTES = 16 * KIB
WIDEST_BYTES = MIB
POOL_BYTES = 16 * MIB


OPEN = headers(1, POST, frames.END_HEADERS)


class Peer:
    """Sends on one stream as much as its window allows; knows only the credit that it has received."""

    def __init__(self, pool: Pool) -> None:
        self.window = StreamWindow(pool)
        self.sendable_bytes = pool.first_bytes

    def send(self, size_bytes: int) -> None:
        taken_bytes = min(size_bytes, self.sendable_bytes)
        self.sendable_bytes -= taken_bytes
        self.window.take(taken_bytes, 1)

    def drain(self, size_bytes: int) -> None:
        increment = self.window.drain(min(size_bytes, self.window.held))
        assert increment >= 0
        self.sendable_bytes += increment

    def turn(self) -> None:
        """A round trip of a body that is consumed as it arrives."""
        in_flight_bytes = self.sendable_bytes
        for _ in range(8):
            self.send(in_flight_bytes // 8)
            self.drain(self.window.held)
        self.send(in_flight_bytes % 8)
        self.drain(self.window.held)

    def stand_still(self) -> None:
        self.send(self.sendable_bytes)

    def check(self, pool: Pool) -> None:
        window = self.window
        assert min(window.available, window.held, window.returnable) >= 0
        assert window.available + window.held + window.returnable == window.size_bytes
        assert self.sendable_bytes == window.available
        assert pool.first_bytes <= window.size_bytes <= pool.max_bytes


def new_pool() -> Pool:
    return Pool(FIRST_BYTES, WIDEST_BYTES, POOL_BYTES)


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "drain", "turn", "close"]), st.integers(0, 11), st.integers(0, 2 * MIB)),
    max_size=80,
)


@given(STEPS, st.integers(1, 70_000), st.integers(0, 3 * MIB), st.integers(0, 8 * MIB))
def test_windows_are_never_overdrawn_and_grow_only_from_the_pool(
    steps: list[tuple[str, int, int]], first_bytes: int, widest_bytes: int, pool_bytes: int
) -> None:
    pool = Pool(first_bytes, widest_bytes, pool_bytes)
    peers = [Peer(pool) for _ in range(12)]
    for what, index, size_bytes in steps:
        peer = peers[index]
        before = [each.window.size_bytes for each in peers]
        match what:
            case "send":
                peer.send(size_bytes)
            case "drain":
                peer.drain(size_bytes)
            case "turn":
                peer.turn()
            case _:
                peer.window.close()
                peers[index] = Peer(pool)
        for each in peers:
            each.check(pool)
        assert pool.free_bytes >= 0
        assert pool.free_bytes + sum(each.window.size_bytes - first_bytes for each in peers) == pool_bytes
        # A window changes only when its own stream drains.
        changed = [i for i, each in enumerate(peers) if each.window.size_bytes != before[i]]
        assert changed in ([], [index])
        assert what != "send" or not changed
    for peer in peers:
        peer.drain(peer.window.held)
        assert peer.sendable_bytes > 0


def test_a_stream_that_drains_has_the_widest_window_after_a_round_trip() -> None:
    peer = Peer(new_pool())

    peer.turn()

    assert peer.window.size_bytes == WIDEST_BYTES
    assert peer.sendable_bytes >= WIDEST_BYTES // 2


def test_a_stalled_stream_keeps_its_initial_window() -> None:
    pool = new_pool()
    peer = Peer(pool)

    peer.stand_still()
    peer.drain(FIRST_BYTES // 2 - 1)

    assert (peer.window.size_bytes, pool.free_bytes) == (FIRST_BYTES, POOL_BYTES)


def test_streams_that_stall_after_they_drained_never_use_up_the_pool() -> None:
    pool = new_pool()
    for _ in range(10_000):
        peer = Peer(pool)
        peer.turn()
        peer.stand_still()
        peer.check(pool)

    assert pool.free_bytes >= 0
    newcomer = Peer(pool)
    newcomer.turn()
    assert newcomer.sendable_bytes >= FIRST_BYTES // 2


@pytest.mark.parametrize(
    ("settings", "still", "next_kib"),
    [(Settings(), 12, 119), (Settings(), 30, 69), (EDGE_SETTINGS, 12, 428), (EDGE_SETTINGS, 30, 53)],
)
def test_stalled_streams_leave_a_new_one_the_window_that_the_manual_states(
    settings: Settings, still: int, next_kib: int
) -> None:
    pool = Pool(settings.stream_window_bytes, settings.max_stream_window_bytes, settings.window_pool_bytes)
    for _ in range(still):
        peer = Peer(pool)
        peer.turn()
        peer.stand_still()

    newcomer = Peer(pool)
    newcomer.turn()
    assert newcomer.window.size_bytes // KIB == next_kib


def test_active_streams_make_room_for_new_ones() -> None:
    pool = new_pool()
    peers: list[Peer] = []
    for _ in range(100):
        peers.append(Peer(pool))
        for peer in peers:
            peer.turn()
    for _ in range(10):
        for peer in peers:
            peer.turn()

    sizes = sorted(peer.window.size_bytes for peer in peers)
    fair_bytes = POOL_BYTES // 107
    assert sizes[0] > fair_bytes / 2
    assert sizes[-1] < 2 * fair_bytes


def test_a_stream_that_ends_returns_its_share_to_the_pool() -> None:
    pool = new_pool()
    peer = Peer(pool)
    peer.turn()
    assert pool.free_bytes == POOL_BYTES - WIDEST_BYTES + FIRST_BYTES

    peer.window.close()
    peer.window.close()

    assert pool.free_bytes == POOL_BYTES


# -- over a line -------------------------------------------------------------------------------------------------------


class Wire:
    """Carries the body of a peer that always has more to send, packet by packet, with a clock of its own."""

    def __init__(self, bytes_per_s: float, round_trip_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.distance_s = self.round_trip_s = round_trip_s
        self.now_s = 0.0

    def carry(self, peer: Peer, seconds: float) -> int:
        """Returns how many bytes have come until then, all of which were drained at once."""
        ends_at_s = self.now_s + seconds
        free_at_s, received_bytes, numbers = self.now_s, 0, itertools.count()
        coming: list[tuple[float, int, int, int]] = [(self.now_s, next(numbers), peer.sendable_bytes, 0)]
        peer.sendable_bytes = 0
        while coming and coming[0][0] <= ends_at_s:
            self.now_s, _, credit, size_bytes = heapq.heappop(coming)
            for start in range(0, credit, PACKET_BYTES):
                packet_bytes = min(PACKET_BYTES, credit - start)
                free_at_s = max(free_at_s, self.now_s) + packet_bytes / self.bytes_per_s
                heapq.heappush(coming, (free_at_s + self.distance_s / 2, next(numbers), 0, packet_bytes))
            if size_bytes:
                received_bytes += size_bytes
                peer.window.take(size_bytes, 1)
                increment = peer.window.drain(size_bytes)
                heapq.heappush(coming, (self.now_s + self.distance_s / 2, next(numbers), increment, 0))
        self.now_s = ends_at_s
        # The bytes in flight are those that the window still allows.
        peer.sendable_bytes = peer.window.available
        return received_bytes


PACKET_BYTES = 1_400
MBIT = 125_000
QUEUE_S = 0.25
RATES_MBIT = [1, 4, 8, 50]
ROUND_TRIPS_S = [0.005, 0.04, 0.15, 0.6]


def edge_pool(wire: Wire) -> Pool:
    first_bytes, widest_bytes = EDGE_SETTINGS.stream_window_bytes, EDGE_SETTINGS.max_stream_window_bytes
    pool = Pool(first_bytes, widest_bytes, EDGE_SETTINGS.window_pool_bytes)
    pool.line = wire
    return pool


@pytest.mark.parametrize("rate_mbit", RATES_MBIT)
@pytest.mark.parametrize("round_trip_s", ROUND_TRIPS_S)
def test_a_large_body_saturates_the_link_with_a_bounded_amount_in_flight(rate_mbit: int, round_trip_s: float) -> None:
    wire = Wire(rate_mbit * MBIT, round_trip_s)
    peer = Peer(edge_pool(wire))
    wire.carry(peer, 8.0)

    received_bytes = wire.carry(peer, 10.0)

    widest_bytes = EDGE_SETTINGS.max_stream_window_bytes
    assert peer.window.size_bytes <= 1.1 * wire.bytes_per_s * (QUEUE_S + 2 * round_trip_s)
    # Where the widest window is too small for the line, only half of it at a time may be announced.
    assert received_bytes >= 10.0 * min(0.9 * wire.bytes_per_s, widest_bytes / 2 / (round_trip_s + QUEUE_S / 2))


@pytest.mark.parametrize("rate_mbit", RATES_MBIT)
@pytest.mark.parametrize("round_trip_s", ROUND_TRIPS_S)
def test_a_large_body_saturates_a_link_whose_round_trip_time_is_unknown(rate_mbit: int, round_trip_s: float) -> None:
    wire = Wire(rate_mbit * MBIT, round_trip_s)
    wire.round_trip_s = math.inf
    peer = Peer(edge_pool(wire))
    wire.carry(peer, 8.0)

    received_bytes = wire.carry(peer, 10.0)

    widest_bytes = EDGE_SETTINGS.max_stream_window_bytes
    assert received_bytes >= 10.0 * min(0.9 * wire.bytes_per_s, widest_bytes / 2 / (round_trip_s + QUEUE_S / 2))
    assert peer.window.size_bytes <= 3.0 * wire.bytes_per_s


def test_the_first_step_of_the_first_body_on_a_line_makes_its_window_four_times_as_wide() -> None:
    """Nothing is known yet of how fast the line is."""
    pool = new_pool()
    pool.line = Wire(1_000_000, 0.05)
    peer = Peer(pool)

    peer.stand_still()
    peer.drain(FIRST_BYTES)

    assert peer.window.size_bytes == 4 * FIRST_BYTES


def test_windows_shrink_when_the_link_becomes_slower() -> None:
    wire = Wire(50 * MBIT, 0.04)
    pool = edge_pool(wire)
    peer = Peer(pool)
    wire.carry(peer, 3.0)
    assert peer.window.size_bytes > 50 * MBIT * QUEUE_S

    wire.bytes_per_s = 2 * MBIT
    wire.carry(peer, 30.0)

    assert peer.window.size_bytes < 2 * 2 * MBIT * QUEUE_S
    peer.window.close()
    assert pool.free_bytes == EDGE_SETTINGS.window_pool_bytes


@pytest.mark.parametrize(("rate_mbit", "most_bytes"), [(1, 64 * KIB), (50, 2 * MIB)])
def test_the_next_body_starts_with_the_window_of_the_last_one(rate_mbit: int, most_bytes: int) -> None:
    wire = Wire(rate_mbit * MBIT, 0.04)
    pool = edge_pool(wire)
    first = Peer(pool)
    wire.carry(first, 5.0)
    size_bytes = first.window.size_bytes
    first.window.close()
    assert size_bytes <= most_bytes

    second = Peer(pool)
    second.send(EDGE_SETTINGS.stream_window_bytes)
    second.drain(EDGE_SETTINGS.stream_window_bytes)

    assert second.window.size_bytes == pytest.approx(size_bytes, rel=0.1)


def test_a_burst_after_a_retransmission_does_not_widen_the_window() -> None:
    wire = Wire(MBIT, 0.04)
    peer = Peer(edge_pool(wire))
    wire.carry(peer, 5.0)
    size_bytes = peer.window.size_bytes

    for _ in range(20):
        # All that may be in flight is held back by one retransmitted packet.
        wire.now_s += peer.window.available / MBIT
        peer.send(peer.sendable_bytes)
        for _ in range(8):
            peer.drain(-(-size_bytes // 8))
        peer.drain(peer.window.held)
        assert peer.window.size_bytes <= 2 * MBIT * (QUEUE_S + 2 * wire.round_trip_s)


# -- in a connection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(), EDGE_SETTINGS], ids=["listener", "edge"])
def test_the_connections_window_has_room_for_all_that_its_streams_may_hold(settings: Settings) -> None:
    most_bytes = settings.max_concurrent_streams * settings.stream_window_bytes + settings.window_pool_bytes
    assert settings.connection_window_bytes >= most_bytes


@pytest.mark.parametrize("how", ["end", "reset", "abandon"])
def test_the_pool_is_whole_again_after_all_streams_have_ended(how: str) -> None:
    server = new_server()
    pool_bytes = server.settings.window_pool_bytes
    server.receive(OPEN, 0.0)
    for _ in range(40):
        server.receive(data(1, bytes(8_192)), 0.0)
        server.release(1, 8_192)
    assert server._pool.free_bytes < pool_bytes

    if how == "reset":
        server.receive(data(1, b"x") + frames.encode_rst_stream(1, ErrorCode.CANCEL), 0.0)
    else:
        server.receive(data(1, b"xy", frames.END_STREAM), 0.0)
        server.send_headers(1, ResponseHead(200, []), end_stream=True)
        assert server._pool.free_bytes < pool_bytes
        if how == "end":
            server.release(1, 1)
            server.release(1, 1)
        else:
            server.abandon(1)

    assert server._pool.free_bytes == pool_bytes
    assert server._receive_window.held == 0
    assert not server._table.held_by_ended


def test_an_upload_that_ends_after_its_response_returns_its_share_to_the_pool() -> None:
    server = new_server()
    server.receive(OPEN, 0.0)
    for _ in range(40):
        server.receive(data(1, bytes(8_192)), 0.0)
        server.release(1, 8_192)
    server.send_headers(1, ResponseHead(200, []), end_stream=True)
    assert server._pool.free_bytes < server.settings.window_pool_bytes

    server.receive(data(1, b"", frames.END_STREAM), 0.0)

    assert not server.is_live(1)
    assert server._pool.free_bytes == server.settings.window_pool_bytes


@pytest.mark.parametrize("is_held", [False, True], ids=["taken before its end", "taken after its end"])
def test_a_request_returns_its_share_to_the_pool_during_a_long_response(is_held: bool) -> None:
    server = new_server()
    server.receive(OPEN, 0.0)
    for _ in range(40):
        server.receive(data(1, bytes(8_192)), 0.0)
        server.release(1, 8_192)
    if is_held:
        server.receive(data(1, b"xy"), 0.0)
    server.receive(data(1, b"", frames.END_STREAM), 0.0)
    server.send_headers(1, ResponseHead(200, []))
    if is_held:
        server.release(1, 1)
        assert server._pool.free_bytes < server.settings.window_pool_bytes
        server.data_to_send()
        server.release(1, 1)
        assert not [frame for frame in sent_frames(server.data_to_send()) if frame.stream_id]

    assert server._pool.free_bytes == server.settings.window_pool_bytes
    assert server.is_live(1)


def test_padding_is_credited_but_does_not_widen_the_window() -> None:
    server = new_server()
    server.receive(OPEN, 0.0)
    padded = data(1, b"\xff" + bytes(256), frames.PADDED)

    for _ in range(300):
        events = server.receive(padded, 0.0)
        assert [DataReceived] == [type(event) for event in events]

    assert server._pool.free_bytes == server.settings.window_pool_bytes
    assert server._receive_window.held == 300


def early_server() -> Connection:
    """A server whose client has not seen its SETTINGS yet, and has sent all that it may without them."""
    server = Connection.server(Caches(), EDGE_SETTINGS)
    body = data(1, bytes(16_384)) * 3 + data(1, bytes(16_383))
    events = server.receive(PREFACE_AND_SETTINGS + OPEN + body, 0.0)
    assert [DataReceived] * 4 == [type(event) for event in events[-4:]]
    server.data_to_send()
    return server


def test_a_peer_may_use_the_default_window_before_it_has_seen_our_settings() -> None:
    server = early_server()

    reset = server.receive(data(1, b"x"), 0.0)[-1]

    assert isinstance(reset, StreamReset)
    assert reset.error_code == ErrorCode.FLOW_CONTROL_ERROR


def test_a_peer_that_has_seen_our_settings_is_held_to_their_window() -> None:
    """Its window is below zero then, and opens when so much has been released (RFC 9113, 6.9.2)."""
    server = early_server()
    window_bytes = server.settings.stream_window_bytes - 65_535
    server.receive(SETTINGS_ACK, 0.0)

    server.release(1, 65_535)
    window_bytes += sum(
        int.from_bytes(frame.payload, "big")
        for frame in sent_frames(server.data_to_send())
        if frame.kind == frames.WINDOW_UPDATE and frame.stream_id == 1
    )

    assert window_bytes >= server.settings.stream_window_bytes
    pieces = [min(16_384, window_bytes - start) for start in range(0, window_bytes, 16_384)]
    events = server.receive(b"".join(data(1, bytes(size)) for size in pieces), 0.0)
    assert [DataReceived] * len(pieces) == [type(event) for event in events]
    assert isinstance(server.receive(data(1, b"x"), 0.0)[-1], StreamReset)
