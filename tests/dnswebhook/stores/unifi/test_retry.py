import threading

import pytest
from urllib3 import HTTPHeaderDict

from dnswebhook.deadline import Deadline
from dnswebhook.errors import RateLimited, StoreTimeout, StoreUnreachable
from dnswebhook.stores.unifi.retry import MAX_ATTEMPTS, RateGate, RetryPolicy
from dnswebhook.stores.unifi.transport import NoReply, NoTimeLeft, Reply, Request


def test_an_open_gate_lets_everybody_pass() -> None:
    RateGate().pass_through(Deadline.after(0))


def test_a_gate_that_opens_after_the_deadline_refuses_at_once_and_says_when_it_opens() -> None:
    gate = RateGate(clock=lambda: 100.0)
    gate.close_for(30)

    with pytest.raises(RateLimited) as refusal:
        gate.pass_through(Deadline.after(5))

    assert refusal.value.retry_after_s == 30


def test_the_longest_of_several_pauses_counts() -> None:
    gate = RateGate(clock=lambda: 100.0)
    gate.close_for(30)
    gate.close_for(1)

    with pytest.raises(RateLimited) as refusal:
        gate.pass_through(Deadline.after(5))

    assert refusal.value.retry_after_s == 30


def test_waiting_at_the_gate_ends_when_the_process_stops() -> None:
    stop = threading.Event()
    stop.set()
    gate = RateGate()
    gate.close_for(60)

    with pytest.raises(RateLimited):
        gate.pass_through(Deadline.after(600, stop))


def test_a_controller_that_keeps_failing_is_asked_four_times() -> None:
    request = Request("GET", "/rows")
    asked: list[Reply] = []

    def exchange() -> Reply:
        asked.append(Reply(request, 500, "text/html", HTTPHeaderDict(), b""))
        return asked[-1]

    with pytest.raises(StoreUnreachable, match="answered 500"):
        RetryPolicy(lambda: None).send(request, exchange, Deadline.after(600))

    assert len(asked) == MAX_ATTEMPTS == 4


def test_the_first_failure_is_raised_when_no_time_is_left_for_another_attempt() -> None:
    request = Request("GET", "/rows")
    failures = iter(
        (NoReply(StoreUnreachable("no such name"), was_sent=False, is_repeatable=True), NoTimeLeft(request)),
    )

    def exchange() -> Reply:
        raise next(failures)

    with pytest.raises(StoreUnreachable, match="no such name"):
        RetryPolicy(lambda: None).send(request, exchange, Deadline.after(600))


def test_no_time_for_the_first_attempt_is_reported_as_such() -> None:
    request = Request("GET", "/rows")

    def exchange() -> Reply:
        raise NoTimeLeft(request)

    with pytest.raises(StoreTimeout, match="no time left for GET /rows"):
        RetryPolicy(lambda: None).send(request, exchange, Deadline.after(600))


def test_a_controller_that_keeps_answering_429_is_asked_four_times() -> None:
    request = Request("POST", "/rows")
    asked: list[Reply] = []

    def exchange() -> Reply:
        asked.append(Reply(request, 429, "", HTTPHeaderDict({"Retry-After": "0"}), b""))
        return asked[-1]

    with pytest.raises(RateLimited):
        RetryPolicy(lambda: None).send(request, exchange, Deadline.after(600))

    assert len(asked) == MAX_ATTEMPTS == 4
