"""Whether there is another attempt, and how long to wait before it, with jitter at its extremes."""

import pytest

from proxy.backend.stream import Failure, Reason
from proxy.exchange.attempts import Attempts
from proxy.routing import RetryPolicy

POLICY = RetryPolicy(100, frozenset((503,)), 0.1, True, 0)
LUCK = [0.0, 0.5, 0.999999]


@pytest.mark.parametrize("draw", LUCK)
def test_backoff_grows_with_jitter_and_stays_within_bounds(draw: float) -> None:
    attempts = Attempts(POLICY, b"GET", 1)
    waits = [attempts.after_status(503, "a", draw) for _ in range(40)]

    assert all(wait is not None and 0.1 <= wait <= 1.1 for wait in waits)
    assert waits == sorted(waits)  # type: ignore[type-var]


def test_jitter_applies_to_the_first_wait_already() -> None:
    first, last = (Attempts(POLICY, b"GET", 1).after_status(503, "a", draw) for draw in (0.0, 0.999999))

    assert first == pytest.approx(0.1)
    assert last is not None
    assert last > 0.14


def test_each_wait_is_about_twice_the_one_before_up_to_ten_times_the_first() -> None:
    attempts = Attempts(POLICY, b"GET", 1)

    waits = [attempts.after_status(503, "a", 0.5) for _ in range(6)]

    assert waits == pytest.approx([0.125, 0.175, 0.275, 0.475, 0.575, 0.575])


def test_the_retry_of_a_kept_connection_does_not_count_against_the_policy() -> None:
    attempts = Attempts(RetryPolicy(1, frozenset((503,)), 0.1, True, 0), b"GET", 1)
    broken = Failure(Reason.RESET, "", is_unprocessed=False, was_reused=True)

    assert attempts.after_failure(broken, "a", 0.0) == 0.0
    assert attempts.after_status(503, "a", 0.0) == pytest.approx(0.1)
    assert attempts.after_status(503, "a", 0.0) is None


def test_failed_addresses_are_avoided_without_duplicates_and_the_latest_comes_last() -> None:
    attempts = Attempts(POLICY, b"GET", 1)
    for address in ("a", "b", "a", ""):
        attempts.after_status(503, address, 0.0)

    assert attempts.begin(b"session").avoid == ("b", "a")
    assert attempts.begin(b"session").session_address == b"session"
    assert attempts.retries == 2


RETRIED = {
    Reason.RESOLVE: True,
    Reason.REFUSED: True,
    Reason.UNREACHABLE: True,
    Reason.CONNECT_TIMEOUT: True,
    Reason.TLS: True,
    Reason.RESET: True,
    Reason.PROTOCOL: False,
    Reason.FIELDS_TOO_LARGE: False,
    Reason.UNSENDABLE: False,
    Reason.OVERLOAD: False,
    Reason.UNHEALTHY: False,
    Reason.STOPPING: False,
}
UNSENT = {Reason.RESOLVE, Reason.REFUSED, Reason.UNREACHABLE, Reason.CONNECT_TIMEOUT, Reason.TLS}


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_either_is_retried_by_policy_or_would_fail_again(reason: Reason) -> None:
    wait_s = Attempts(POLICY, b"POST", 1).after_failure(Failure(reason, "", is_unprocessed=False), "a", 0.0)

    assert (wait_s is not None) == RETRIED[reason]


@pytest.mark.parametrize("reason", sorted(set(Reason) - UNSENT, key=str))
def test_without_a_policy_what_may_have_been_processed_is_sent_again_only_if_that_has_no_further_effect(
    reason: Reason,
) -> None:
    sent = Failure(reason, "", is_unprocessed=False, was_reused=reason is Reason.RESET)

    waits = [Attempts(None, method, 2).after_failure(sent, "a", 0.0) for method in (b"POST", b"PATCH", b"PUT")]

    assert waits == [None, None, 0.0 if reason is Reason.RESET else None]


@pytest.mark.parametrize(("is_departure", "times"), [(False, 3), (True, 10)])
def test_unprocessed_requests_are_retried_a_limited_number_of_times(is_departure: bool, times: int) -> None:
    """More often when the backend retires its connections, as each of them makes progress."""
    attempts = Attempts(None, b"POST", 1)
    unread = Failure(Reason.RESET, "", is_unprocessed=True, was_reused=is_departure)

    waits = [attempts.after_failure(unread, "a", 0.0) for _ in range(times + 1)]

    assert waits == [*times * [0.0], None]


def test_a_retry_by_policy_after_a_broken_kept_connection_needs_a_new_connection() -> None:
    attempts = Attempts(POLICY, b"POST", 1)
    broken = Failure(Reason.RESET, "", is_unprocessed=False, was_reused=True)

    assert attempts.after_failure(broken, "a", 0.0) == pytest.approx(0.1)
    assert attempts.begin(None).needs_new_connection


def test_after_a_broken_kept_connection_all_later_attempts_need_a_new_one() -> None:
    attempts = Attempts(POLICY, b"GET", 1)
    for was_reused in (True, False):
        attempts.after_failure(Failure(Reason.RESET, "", is_unprocessed=False, was_reused=was_reused), "a", 0.0)

    assert attempts.begin(None).needs_new_connection


def test_a_request_that_turns_to_another_backend_may_be_repeated_as_if_it_were_new() -> None:
    attempts = Attempts(None, b"GET", 2)
    broken = Failure(Reason.RESET, "", is_unprocessed=False, was_reused=True)
    refused = Failure(Reason.REFUSED, "", is_unprocessed=True)
    failures = (broken, refused)
    assert [attempts.after_failure(failure, "a", 0.0) for failure in failures * 2] == [0.0, 0.0, None, None]

    attempts.turn_to(b"GET", 2)

    wish = attempts.begin(None)
    assert (wish.avoid, wish.needs_new_connection) == ((), False)
    assert [attempts.after_failure(failure, "b", 0.0) for failure in failures * 2] == [0.0, 0.0, None, None]
