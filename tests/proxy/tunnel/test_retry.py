"""The delay between two attempts at the edge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tunnel.retry import GOOD_PERIOD_S, MAX_CAP_S, QUICK_CAP_S, Wait, Waits

ALMOST_ONE = 1 - 2**-53


def test_the_cap_starts_at_two_seconds_and_doubles_to_thirty() -> None:
    waits = Waits()

    assert [2, 4, 8, 16, 30, 30, 30] == [round(waits.next(ALMOST_ONE).delay_s, 6) for _ in range(7)]


def test_the_delay_is_random_up_to_the_cap() -> None:
    assert Wait(1, 0.0) == Waits().next(0.0)
    assert Wait(1, 1.0) == Waits().next(0.5)


def test_attempts_are_counted_from_one() -> None:
    waits = Waits()

    assert [1, 2, 3] == [waits.next(0.1).attempt for _ in range(3)]
    assert 3 == waits.attempts


def test_the_edge_may_ask_for_more_but_not_for_more_than_the_largest_cap() -> None:
    assert 5.0 == Waits().next(0.5, retry_after_s=5.0).delay_s
    assert 1.0 == Waits().next(0.5, retry_after_s=0.2).delay_s
    assert MAX_CAP_S == Waits().next(0.5, retry_after_s=3600.0).delay_s


def test_after_a_good_connection_is_lost_the_first_delay_is_short_and_the_caps_start_anew() -> None:
    waits = Waits()
    for _ in range(5):
        waits.next(0.5)
    waits.lost(GOOD_PERIOD_S)

    assert 0 == waits.attempts
    assert [QUICK_CAP_S, 2, 4] == [round(waits.next(ALMOST_ONE).delay_s, 6) for _ in range(3)]


def test_a_connection_that_is_lost_right_away_is_a_failed_attempt() -> None:
    waits = Waits()
    waits.next(0.5)
    waits.lost(GOOD_PERIOD_S - 0.1)

    assert Wait(2, 2.0) == waits.next(0.5)


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1e9), st.booleans()), max_size=20))
def test_delays_are_between_zero_and_the_largest_cap(steps: list[tuple[float, float, bool]]) -> None:
    waits = Waits()
    for chance, number, is_loss in steps:
        if is_loss:
            waits.lost(number)
        assert 0 <= waits.next(chance, number).delay_s <= MAX_CAP_S


@pytest.mark.parametrize("period_s", [0.0, GOOD_PERIOD_S, 1e6])
def test_the_delay_after_the_first_lost_registration_is_below_two_seconds(period_s: float) -> None:
    waits = Waits()
    waits.lost(period_s)

    assert waits.next(ALMOST_ONE).delay_s < 2.0
