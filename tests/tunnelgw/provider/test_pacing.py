"""The budget of calls to the provider."""

from __future__ import annotations

from tunnelgw.provider.pacing import Pace


def test_calls_within_the_budget_do_not_wait_and_the_next_one_waits_for_the_oldest_to_expire() -> None:
    pace = Pace(max_calls=3, window_s=300)
    for now_s in (0.0, 10.0, 20.0):
        assert pace.wait_s(now_s) == 0
        pace.note_call(now_s)

    assert pace.wait_s(30.0) == 270
    assert pace.wait_s(300.0) == 0


def test_a_block_holds_until_its_time_and_a_shorter_one_does_not_end_it() -> None:
    pace = Pace()
    pace.block(100.0)
    pace.block(50.0)

    assert pace.wait_s(40.0) == 60
    assert pace.wait_s(100.0) == 0
