import pytest

from tunnelgw.sources.kubernetes.setbacks import Restart, Setbacks


def limits_s(setbacks: Setbacks, count: int) -> list[float]:
    return [setbacks.next_limit_s() for _ in range(count)]


def test_the_limit_of_waits_doubles_up_to_the_maximum() -> None:
    assert limits_s(Setbacks(0.5, 3.0), 5) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_waits_are_random_and_within_their_limits() -> None:
    setbacks = Setbacks(4.0, 4.0)

    waits_s = [setbacks.next_wait_s() for _ in range(100)]

    assert all(0.0 <= wait_s <= 4.0 for wait_s in waits_s)
    assert len(set(waits_s)) > 1


def test_waits_start_over_after_a_success() -> None:
    setbacks = Setbacks(1.0, 8.0)
    setbacks.add(Restart.REFUSED, now_s=0.0)
    assert limits_s(setbacks, 2) == [1.0, 2.0]

    setbacks.clear()

    assert setbacks.cause is None
    assert limits_s(setbacks, 2) == [1.0, 2.0]


@pytest.mark.parametrize("cause", [Restart.REFUSED, Restart.FORBIDDEN])
def test_waits_start_over_when_an_unreachable_server_refuses(cause: Restart) -> None:
    setbacks = Setbacks(1.0, 8.0)
    setbacks.add(Restart.DISCONNECTED, now_s=0.0)
    assert limits_s(setbacks, 2) == [1.0, 2.0]

    setbacks.add(cause, now_s=1.0)

    assert limits_s(setbacks, 2) == [1.0, 2.0]


@pytest.mark.parametrize("cause", Restart)
def test_waits_grow_with_any_failure_after_a_refusal(cause: Restart) -> None:
    setbacks = Setbacks(1.0, 8.0)
    setbacks.add(Restart.REFUSED, now_s=0.0)
    assert limits_s(setbacks, 2) == [1.0, 2.0]

    setbacks.add(cause, now_s=1.0)

    assert setbacks.cause is cause
    assert setbacks.next_limit_s() == 4.0


def test_a_permission_has_been_missing_since_the_first_of_consecutive_refusals() -> None:
    setbacks = Setbacks(1.0, 8.0)
    assert not setbacks.is_forbidden_for(0.0, now_s=1e9)

    setbacks.add(Restart.FORBIDDEN, now_s=10.0)
    setbacks.add(Restart.FORBIDDEN, now_s=14.0)

    assert not setbacks.is_forbidden_for(5.0, now_s=14.9)
    assert setbacks.is_forbidden_for(5.0, now_s=15.0)


@pytest.mark.parametrize("cause", [cause for cause in Restart if cause is not Restart.FORBIDDEN])
def test_another_failure_restarts_the_time_of_a_missing_permission(cause: Restart) -> None:
    setbacks = Setbacks(1.0, 8.0)
    setbacks.add(Restart.FORBIDDEN, now_s=10.0)

    setbacks.add(cause, now_s=11.0)

    assert not setbacks.is_forbidden_for(1.0, now_s=100.0)
    setbacks.add(Restart.FORBIDDEN, now_s=100.0)
    assert not setbacks.is_forbidden_for(1.0, now_s=100.5)
    assert setbacks.is_forbidden_for(1.0, now_s=101.0)


def test_a_success_ends_the_time_of_a_missing_permission() -> None:
    setbacks = Setbacks(1.0, 8.0)
    setbacks.add(Restart.FORBIDDEN, now_s=10.0)

    setbacks.clear()

    assert not setbacks.is_forbidden_for(0.0, now_s=100.0)
