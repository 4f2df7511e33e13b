"""Stalled uploads on a connection to the edge: their memory is bounded, and they block no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.tunnel.edgehttp import SETTINGS
from tests.proxy.tunnel.rig import Rig
from tests.support.edge.call import Call
from tests.support.edge.edge import Edge
from tests.support.edge.ledger import Record

MIB = 1 << 20
STANDING = 150
LONGER_THAN_TESTS_S = 600.0


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Edge() as edge, Rig(edge) as rig:
        rig.register()
        yield rig


def upload(rig: Rig, path: str) -> Call:
    return rig.edge.call(path, "POST", end_stream=False)


def settle(rig: Rig, record: Record) -> None:
    """Waits until all that the windows allow has arrived: the second round trip uses up credit still in transit."""
    for _ in range(3):
        rig.edge.ping(record)


@pytest.mark.parametrize("drained_bytes", [0, MIB], ids=["from the start", "after a while"])
def test_stalled_uploads_block_no_other_however_many_they_are(rig: Rig, drained_bytes: int) -> None:
    (record,) = rig.edge.wait_for_registered(1)
    standing = []
    for _ in range(STANDING):
        call = upload(rig, f"/stall/{drained_bytes}")
        if drained_bytes:
            call.send(bytes(drained_bytes))
        call.send(bytes(2 * MIB), waits=False)
        standing.append(call)
    settle(rig, record)
    held = rig.call(lambda: sum(each.received_bytes for each in rig.services.held)) - STANDING * drained_bytes
    assert held >= STANDING * SETTINGS.stream_window_bytes // 2
    assert held <= STANDING * SETTINGS.stream_window_bytes + SETTINGS.window_pool_bytes

    for _ in range(50):
        small = upload(rig, "/count")
        small.send(bytes(SETTINGS.stream_window_bytes), True)
        assert small.read_all() == b"%d bytes, trailers []\n" % SETTINGS.stream_window_bytes
    large = upload(rig, "/count")
    large.send(bytes(16 * MIB), True)
    assert large.read_all() == b"%d bytes, trailers []\n" % (16 * MIB)
    assert rig.edge.call("/hello").read_all() == b"hello\n"
    assert rig.call(lambda: sum(each.received_bytes for each in rig.services.held)) == held + STANDING * drained_bytes


def test_a_slow_upload_keeps_a_small_window(rig: Rig) -> None:
    (record,) = rig.edge.wait_for_registered(1)
    pieces, piece_bytes = 32, SETTINGS.stream_window_bytes
    call = upload(rig, f"/stall/{pieces * piece_bytes}")
    for _ in range(pieces):
        call.send(bytes(piece_bytes))
        rig.edge.ping(record)
        rig.pass_time(0.5)

    call.send(bytes(2 * SETTINGS.max_stream_window_bytes), waits=False)
    settle(rig, record)

    assert received(rig) - pieces * piece_bytes <= 2 * SETTINGS.stream_window_bytes


def received(rig: Rig) -> int:
    return rig.call(lambda: sum(each.received_bytes for each in rig.services.held))


def test_an_upload_that_is_answered_early_is_stopped_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.doors.rests.REST_S", LONGER_THAN_TESTS_S)
    (record,) = rig.edge.wait_for_registered(1)
    call = upload(rig, "/early")

    assert call.read_all() == b"too much\n"
    rig.edge.wait_for(lambda: record.streams == 0, "the end of its stream")
