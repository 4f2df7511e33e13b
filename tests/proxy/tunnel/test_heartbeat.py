"""An edge that answers no PING is dead, unless the PING has not reached it yet."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator

import pytest

from proxy import h2
from proxy.tunnel.heartbeat import PING_PERIOD_S, Heartbeat
from proxy.tunnel.link import LINGER_S
from proxy.tunnel.orders import Registered
from proxy.tunnel.packetsize import BlackHole
from proxy.tunnel.wirebytes import WireBytes
from tests.proxy.site import eventually
from tests.proxy.tunnel.narrowline import NarrowLine
from tests.proxy.tunnel.rig import Rig
from tests.support.edge.behaviour import Behaviour
from tests.support.edge.edge import Edge
from tests.support.edge.ledger import Record
from tests.support.ports import LOOPBACK

BODY_BYTES = 32 << 20
WIDE = h2.Settings(stream_window_bytes=2 * BODY_BYTES, connection_window_bytes=2 * BODY_BYTES)
MUCH_BYTES = 1 << 20


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Edge() as edge, Rig(edge) as rig:
        edge.behave(Behaviour(h2_settings=WIDE))
        yield rig


@pytest.fixture
def line(rig: Rig) -> Iterator[NarrowLine]:
    """Filled by a download, with the next PING behind that."""
    with NarrowLine(rig.edge.addresses[0]) as line:
        rig.wait_for(Registered, rig.dial(line.address))
        settle(rig)
        yield line


def settle(rig: Rig) -> Record:
    """Waits until the PING at the start of the connection has been answered."""
    (record,) = rig.edge.wait_for_registered(1)
    rig.edge.ping(record)
    rig.edge.ping(record)
    return record


def assert_given_up(rig: Rig) -> None:
    """At the next look, or at the one after if the kernel was late to report earlier progress."""
    for _ in range(3):
        rig.pass_time(PING_PERIOD_S)
    assert "answered no PING" in rig.wait_for_end(1).error


def test_the_round_trip_time_is_the_shortest_that_was_measured() -> None:
    with socket.socket() as sock:
        heartbeat = Heartbeat(WireBytes(sock))
        assert heartbeat.round_trip_s == math.inf

        for asked_at_s, answered_at_s in [(0.0, 0.25), (10.0, 10.125), (20.0, 27.0)]:
            heartbeat.asked(asked_at_s)
            heartbeat.answered(answered_at_s)
        assert heartbeat.answered(30.0) is None

    assert heartbeat.round_trip_s == 0.125


def test_what_moved_before_a_ping_does_not_show_that_its_edge_is_alive() -> None:
    """Such as the TLS handshake and the registration, before the first one."""
    with socket.create_server((LOOPBACK, 0)) as listening, socket.create_connection(listening.getsockname()) as ours:
        edge, _ = listening.accept()
        with edge:
            for sender, reader in [(ours, edge), (edge, ours)]:
                sender.sendall(b"earlier")
                reader.recv(7, socket.MSG_WAITALL)
            kernel = WireBytes(ours)
            eventually(lambda: kernel.growth() == (0, 0) and not kernel.has_more, "all of it is acknowledged")
            heartbeat = Heartbeat(WireBytes(ours))

            heartbeat.asked(0.0)
            ends = heartbeat.end()

    assert "answered no PING" in ends
    assert not heartbeat.is_heard


def test_a_connection_whose_edge_acknowledges_data_before_the_ping_is_kept(rig: Rig, line: NarrowLine) -> None:
    line.hold()
    call = rig.edge.call(f"/bulk/{BODY_BYTES}")
    rig.services.begun.get(timeout=20)
    rig.pass_time(PING_PERIOD_S)
    for _ in range(4):
        line.take(MUCH_BYTES)
        rig.pass_time(PING_PERIOD_S)
    assert [type(report) for report in rig.reports] == [Registered]

    line.take()
    assert len(call.read_all()) == BODY_BYTES
    assert rig.edge.call("/hello").read_all() == b"hello\n"


def test_a_connection_whose_edge_acknowledges_nothing_more_is_closed(rig: Rig, line: NarrowLine) -> None:
    line.hold()
    rig.edge.call(f"/bulk/{BODY_BYTES}")
    rig.services.begun.get(timeout=20)
    rig.pass_time(PING_PERIOD_S)
    line.take(MUCH_BYTES)
    rig.pass_time(PING_PERIOD_S)
    assert [type(report) for report in rig.reports] == [Registered]
    assert_given_up(rig)


def test_a_connection_whose_edge_received_the_ping_and_does_not_answer_is_closed_at_once(rig: Rig) -> None:
    rig.register()
    record = settle(rig)
    rig.edge.stop_reading(record)
    rig.pass_time(PING_PERIOD_S)
    assert [type(report) for report in rig.reports] == [Registered]
    assert_given_up(rig)


def test_an_edge_that_still_sends_uploads_is_not_dead_however_late_its_answer(rig: Rig) -> None:
    rig.register()
    record = settle(rig)
    rig.edge.stop_reading(record)
    rig.pass_time(PING_PERIOD_S)
    call = rig.edge.call("/hold", "POST", end_stream=False)
    call.send(b"upload", waits=False)
    rig.services.begun.get(timeout=20)
    rig.pass_time(PING_PERIOD_S)
    assert [type(report) for report in rig.reports] == [Registered]
    assert_given_up(rig)


def test_a_connection_whose_edge_sends_but_receives_nothing_is_closed(rig: Rig, line: NarrowLine) -> None:
    """As on a path that loses full-size packets without an ICMP error."""
    line.lose()
    rig.pass_time(PING_PERIOD_S)
    line.wait_until_repeated(3)
    while len(rig.reports) == 1:  # one more round if earlier data was acknowledged late
        rig.edge.call("/hello")
        rig.services.begun.get(timeout=20)
        rig.pass_time(PING_PERIOD_S)
    end = rig.wait_for_end(1)
    assert "nothing that was sent has reached the edge" in end.error
    assert end.black_hole is BlackHole.NO, "all of it fits into a small packet"


@pytest.mark.parametrize(("still_sends", "black_hole"), [(True, BlackHole.YES), (False, BlackHole.PERHAPS)])
def test_a_large_response_that_does_not_reach_the_edge_may_be_lost_because_of_its_size(
    rig: Rig, line: NarrowLine, still_sends: bool, black_hole: BlackHole
) -> None:
    line.lose()
    rig.edge.call(f"/bulk/{MUCH_BYTES}")
    rig.services.begun.get(timeout=20)
    rig.pass_time(PING_PERIOD_S)
    line.wait_until_repeated(3)
    while len(rig.reports) == 1:
        if still_sends:
            rig.edge.call("/hello")
            rig.services.begun.get(timeout=20)
        rig.pass_time(PING_PERIOD_S)
    assert rig.wait_for_end(1).black_hole is black_hole


def test_a_withdrawn_connection_from_which_nothing_reaches_the_edge_is_closed_after_the_linger_time(
    rig: Rig, line: NarrowLine
) -> None:
    """The edge does not know of the withdrawal, and would send requests without end."""
    line.lose()
    rig.edge.call(f"/bulk/{MUCH_BYTES}")
    rig.services.begun.get(timeout=20)
    line.wait_until_repeated(3)
    rig.withdraw(1)
    rig.pass_time(LINGER_S + 1)
    rig.pass_time(1)
    assert rig.wait_for_end(1).black_hole is BlackHole.PERHAPS
    line.wait_until_closed()
