"""The fault switches of the simulated controller, seen from the client's side of the socket."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import formatdate

import pytest
import requests

from tests.support.controller import (
    Controller,
    Hang,
    Huge,
    Operation,
    Reply,
    Reset,
    Slow,
    Truncate,
    faults,
)
from tests.support_tests.callers import TIMEOUT_S, Caller, a_record


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def keys(controller: Controller) -> list[str]:
    return [row.key for row in controller.rows()]


def test_any_answer_can_be_given_before_anything_is_stored(caller: Caller) -> None:
    caller.controller.fault(
        Reply(status=418, body="short", content_type="text/plain", headers=(("X-Mood", "bad"),)), on="create"
    )

    answer = caller.v2("POST", content=a_record())

    assert (answer.status_code, answer.text, answer.headers["X-Mood"]) == (418, "short", "bad")
    assert keys(caller.controller) == []
    assert caller.v2("GET").status_code == 200


def test_an_answer_can_hide_that_the_row_was_stored(caller: Caller) -> None:
    caller.controller.fault(faults.bad_gateway(after_commit=True), on="create")

    assert caller.v2("POST", content=a_record()).status_code == 502
    assert keys(caller.controller) == ["app.example.com"]


def test_a_fault_strikes_from_the_nth_matching_call_on_and_only_count_times(caller: Caller) -> None:
    fault = caller.controller.fault(faults.unavailable(), on="list", nth=2, count=2)

    statuses = [caller.v2("GET").status_code for _ in range(5)]

    assert statuses == [200, 503, 503, 200, 200]
    assert (fault.strikes, fault.is_spent) == (2, True)


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("list", [500, 200, 200, 200]),
        ("create", [200, 500, 200, 200]),
        ("update", [200, 200, 500, 200]),
        ("delete", [200, 200, 200, 500]),
        ("write", [200, 500, 500, 500]),
        ("any", [500, 500, 500, 500]),
    ],
)
def test_a_fault_strikes_only_its_operations(caller: Caller, on: str, expected: list[int]) -> None:
    row = caller.controller.add_row("old.example.com", "A", "192.0.2.1")
    caller.controller.fault(Reply(status=500), on=on)

    statuses = [
        caller.v2("GET").status_code,
        caller.v2("POST", content=a_record()).status_code,
        caller.v2("PUT", f"/{row.id}", a_record("old.example.com")).status_code,
        caller.v2("DELETE", f"/{row.id}").status_code,
    ]

    assert statuses == expected


def test_a_fault_can_be_limited_to_names_and_to_one_api(caller: Caller) -> None:
    controller = caller.controller
    row = controller.add_row("a.example.com", "A", "192.0.2.1")
    by_pattern = controller.fault(Reply(status=500), on="delete", name="a.*")
    assert caller.v2("DELETE", f"/{row.id}").status_code == 500
    controller.faults.remove(by_pattern)
    controller.fault(Reply(status=500), on="create", predicate=lambda name: name.startswith("b."))
    controller.fault(Reply(status=500), on="list", api="integration")

    assert caller.v2("POST", content=a_record("b.example.com")).status_code == 500
    assert caller.v2("POST", content=a_record("c.example.com")).status_code == 200
    assert (caller.v2("GET").status_code, caller.policies("GET").status_code) == (200, 500)


def test_an_unknown_operation_is_refused_at_once(controller: Controller) -> None:
    with pytest.raises(ValueError, match="fault on 'creat', want any, write or one of"):
        controller.fault(Reset(), on="creat")


@pytest.mark.parametrize("retry_after", ["7", formatdate(1_900_000_000, usegmt=True)])
def test_too_many_requests_carries_either_form_of_retry_after(caller: Caller, retry_after: str) -> None:
    caller.controller.fault(faults.rate_limited(retry_after))

    answer = caller.policies("GET")

    assert (answer.status_code, answer.headers["Retry-After"]) == (429, retry_after)
    assert answer.json()["code"] == "api.rate-limit.exceeded"


def test_bodies_can_be_objects_empty_garbage_or_html(caller: Caller) -> None:
    for reply in (faults.object_instead_of_array(), faults.empty_body(), faults.garbage(), faults.html_page()):
        caller.controller.fault(reply, on="list", count=1)

    answers = [caller.v2("GET") for _ in range(4)]

    assert [answer.status_code for answer in answers] == [200] * 4
    assert isinstance(answers[0].json(), dict)
    assert answers[1].content == b""
    for answer in answers[1:]:
        with pytest.raises(requests.JSONDecodeError):
            answer.json()


def test_a_truncated_answer_ends_before_its_declared_length(caller: Caller) -> None:
    caller.controller.add_row("app.example.com", "A", "192.0.2.1")
    caller.controller.fault(Truncate(), on="list", count=1)

    with pytest.raises(requests.exceptions.ChunkedEncodingError, match="IncompleteRead"):
        caller.v2("GET")
    assert len(caller.v2("GET").json()) == 1


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_reset_comes_before_or_after_the_row_is_stored(caller: Caller, after_commit: bool) -> None:
    caller.controller.fault(Reset(after_commit=after_commit), on="create", count=1)

    with pytest.raises(requests.ConnectionError, match="reset by peer"):
        caller.v2("POST", content=a_record())
    assert keys(caller.controller) == (["app.example.com"] if after_commit else [])
    assert caller.controller.calls.count(Operation.CREATE, status=0) == 1


def test_a_hanging_call_continues_when_released(caller: Caller, pool: ThreadPoolExecutor) -> None:
    fault = caller.controller.fault(Hang(), on="create", count=1)
    waiting: Future[requests.Response] = pool.submit(caller.v2, "POST", "", a_record())
    fault.wait_for_strikes()
    before = keys(caller.controller)

    caller.controller.release_hangs()

    assert waiting.result(TIMEOUT_S).status_code == 200
    assert (before, keys(caller.controller)) == ([], ["app.example.com"])


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_caller_that_gives_up_ends_the_hang(controller: Controller, after_commit: bool) -> None:
    controller.fault(Hang(after_commit=after_commit), on="create", count=1)

    with pytest.raises(requests.Timeout), requests.Session() as session:
        session.post(controller.v2_url, json=a_record(), headers={"X-API-KEY": controller.api_key}, timeout=0.05)

    controller.calls.wait_for("create")
    assert controller.calls.count("create", status=0) == 1
    assert keys(controller) == (["app.example.com"] if after_commit else [])


def test_stopping_ends_hanging_calls(controller: Controller, caller: Caller, pool: ThreadPoolExecutor) -> None:
    fault = controller.fault(Hang(), on="list")
    waiting = pool.submit(caller.v2, "GET")
    fault.wait_for_strikes()

    controller.stop()

    assert isinstance(waiting.exception(TIMEOUT_S), requests.ConnectionError)


def test_a_slow_call_is_answered_late(caller: Caller) -> None:
    caller.controller.fault(Slow(delay_s=0.1), on="list")

    answer = caller.v2("GET")

    assert answer.status_code == 200
    assert answer.elapsed.total_seconds() >= 0.1


def test_a_slow_call_is_carried_out_although_the_caller_gave_up(controller: Controller) -> None:
    slow = controller.fault(Slow(delay_s=0.2), on="create", count=1)
    path = controller.v2_url.removeprefix(controller.url)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", controller.port, TIMEOUT_S)) as caller:
        caller.request("POST", path, json.dumps(a_record()), {"X-API-KEY": controller.api_key})
        slow.wait_for_strikes()
    controller.calls.wait_for("create")

    assert keys(controller) == ["app.example.com"]


def test_a_huge_answer_has_the_given_length(caller: Caller) -> None:
    caller.controller.fault(Huge(size_bytes=3_000_000), on="list")

    assert len(caller.v2("GET").content) == 3_000_000


def test_faults_can_strike_logins_and_info(caller: Caller) -> None:
    caller.controller.fault(faults.bad_gateway(), on="login")
    caller.controller.fault(faults.unavailable(), on="info")

    assert caller.call("POST", caller.controller.login_url, {}).status_code == 502
    assert caller.call("GET", f"{caller.controller.integration_url}/info").status_code == 503


def test_latency_delays_every_call_and_parallel_writes_are_counted(
    controller: Controller, pool: ThreadPoolExecutor
) -> None:
    gate = controller.fault(Hang(), on="create", count=3)
    with Caller(controller) as caller:
        writes = [pool.submit(caller.v2, "POST", "", a_record(value=f"192.0.2.{n}")) for n in range(3)]
        gate.wait_for_strikes(3)
        controller.release_hangs()
        assert [write.result(TIMEOUT_S).status_code for write in writes] == [200] * 3
        controller.latency_s = 0.05

        assert caller.v2("GET").elapsed.total_seconds() >= 0.05
        assert controller.calls.max_parallel_writes == 3
