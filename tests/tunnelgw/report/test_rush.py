"""When statuses wait for the end of a burst of changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelgw.report.rush import BURST, MAX_S, QUIET_S, RATE, Rush

START_S = 1_000.0


def is_on(rush: Rush, now_s: float) -> bool:
    return rush.over_s(now_s) > now_s


def test_a_single_edit_is_no_rush() -> None:
    rush = Rush()
    rush.note(1, START_S)
    assert not is_on(rush, START_S)


def test_turns_without_changes_are_no_rush() -> None:
    rush = Rush()
    for turn in range(1_000):
        rush.note(0, START_S + turn / 1_000)
    assert not is_on(rush, START_S + 1)


def test_edits_at_the_tolerated_rate_are_no_rush_however_long_they_go_on() -> None:
    rush = Rush()
    for edit in range(1_000):
        now_s = START_S + edit / RATE
        rush.note(1, now_s)
        assert not is_on(rush, now_s)


def test_many_objects_at_once_are_a_rush_that_ends_after_a_quiet_time() -> None:
    rush = Rush()
    rush.note(BURST + 1, START_S)
    assert is_on(rush, START_S)
    assert rush.over_s(START_S) == pytest.approx(START_S + QUIET_S)
    assert not is_on(rush, START_S + QUIET_S)


def test_a_rush_lasts_as_long_as_objects_change() -> None:
    rush = Rush()
    for edit in range(100):
        rush.note(1, START_S + edit / 100)
    assert is_on(rush, START_S + 0.99)
    assert not is_on(rush, START_S + 0.99 + QUIET_S)


def test_statuses_wait_no_longer_than_the_limit_for_a_rush_that_does_not_end() -> None:
    rush = Rush()
    times_s = [START_S + edit / 200 for edit in range(4_000)]
    waited_s = []
    for now_s in times_s:
        rush.note(1, now_s)
        if is_on(rush, now_s):
            waited_s.append(now_s)
    assert waited_s[-1] - waited_s[0] < MAX_S
    assert not is_on(rush, times_s[-1])


def test_the_time_limit_of_a_rush_starts_anew_after_a_long_one() -> None:
    rush = Rush()
    for edit in range(2_000):
        rush.note(1, START_S + edit / 200)
    later_s = START_S + 10 + 2 * QUIET_S
    rush.note(BURST + 1, later_s)
    assert is_on(rush, later_s)


def test_a_single_edit_soon_after_a_large_rush_is_no_rush() -> None:
    rush = Rush()
    rush.note(10_000, START_S)
    later_s = START_S + 2 * QUIET_S
    rush.note(1, later_s)
    assert not is_on(rush, later_s)


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.floats(0, 1)),
        max_size=60,
    )
)
def test_nothing_waits_longer_than_a_quiet_time_after_the_last_change(changes: list[tuple[int, float]]) -> None:
    rush, now_s = Rush(), START_S
    for objects, pause_s in changes:
        now_s += pause_s
        rush.note(objects, now_s)
        assert rush.over_s(now_s) <= now_s + QUIET_S
    assert not is_on(rush, now_s + QUIET_S)
