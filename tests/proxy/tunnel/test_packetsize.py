"""When the edge is dialled with smaller packets, and when no longer."""

import pytest

from proxy.tunnel.packetsize import BlackHole, PacketSize


def test_connections_that_end_for_other_reasons_do_not_reduce_the_packet_size() -> None:
    size = PacketSize()

    assert not any(size.ended(BlackHole.NO, float(now_s), was_small=False) for now_s in range(0, 900, 30))
    assert not size.is_small


def test_packets_become_small_once_full_ones_do_not_reach_the_edge_and_it_is_reported_once() -> None:
    size = PacketSize()

    assert size.ended(BlackHole.YES, 0.0, was_small=False)
    assert size.is_small
    assert not size.ended(BlackHole.YES, 1.0, was_small=False), "another that was dialled before"
    assert size.is_small


def test_small_packets_that_do_not_help_are_given_up_and_tried_again_without_a_report() -> None:
    size = PacketSize()
    size.ended(BlackHole.YES, 0.0, was_small=False)

    assert not size.ended(BlackHole.YES, 20.0, was_small=True)
    assert not size.is_small
    assert not size.ended(BlackHole.YES, 40.0, was_small=False)
    assert size.is_small


def test_small_packets_stay_when_their_connections_end_for_other_reasons() -> None:
    size = PacketSize()
    size.ended(BlackHole.YES, 0.0, was_small=False)

    size.ended(BlackHole.NO, 1e6, was_small=True)
    size.ended(BlackHole.PERHAPS, 2e6, was_small=True)

    assert size.is_small


@pytest.mark.parametrize(
    ("ends_at_s", "is_small"),
    [([100], False), ([100, 104, 109, 114], False), ([100, 120], True), ([100, 300], False), ([100, 300, 330], True)],
    ids=["one", "one cut", "one after the other", "seldom", "after others"],
)
def test_an_ending_that_may_be_an_outage_reduces_the_packet_size_when_it_is_repeated_soon(
    ends_at_s: list[float], is_small: bool
) -> None:
    size = PacketSize()

    for now_s in ends_at_s:
        size.ended(BlackHole.PERHAPS, now_s, was_small=False)

    assert size.is_small == is_small
