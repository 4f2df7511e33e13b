"""Couriers bring the newest parcel until it is held, each at its own pace."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import backoff
import msgspec
import pytest

from daemonkit.logformat import JsonFormatter
from tests.support.lettinggo import uncollected
from tunnelgw.deliver.courier import STARTING_S, Courier, Undelivered, Withheld
from tunnelgw.deliver.receipts import Receipt, Remark, RemarkKind

WAIT_S = 30.0


class Parcel(msgspec.Struct, frozen=True):
    digest: str


class Doorstep:
    """A target that a test commands: what the next deliveries come to, and what was brought."""

    def __init__(self) -> None:
        self.name = "doorstep"
        self.look_soon_s = math.inf
        self.failures: list[Exception] = []
        self.remarks: tuple[Remark, ...] = ()
        self.brought: list[str] = []
        self.times_s: list[float] = []
        self.open = threading.Event()
        self.open.set()
        self.is_closed = threading.Event()
        self.changed = threading.Condition()

    def deliver(self, parcel: Parcel) -> tuple[Remark, ...]:
        with self.changed:
            self.times_s.append(time.monotonic())
            self.brought.append(parcel.digest)
            self.changed.notify_all()
        self.open.wait(WAIT_S)
        if self.failures:
            failure = self.failures.pop(0)
            raise failure  # whose traceback refers to this variable, as those of libraries do
        return self.remarks

    def close(self) -> None:
        self.is_closed.set()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.brought) >= count, WAIT_S), self.brought


class Desk:
    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.crashes: list[BaseException] = []
        self.changed = threading.Condition()

    def report(self, receipt: Receipt) -> None:
        with self.changed:
            self.receipts.append(receipt)
            self.changed.notify_all()

    def wait_for_current(self, digest: str) -> Receipt:
        def newest() -> bool:
            return bool(self.receipts) and self.receipts[-1].is_current and self.receipts[-1].held == digest

        with self.changed:
            assert self.changed.wait_for(newest, WAIT_S), self.receipts
            return self.receipts[-1]


@contextmanager
def couriered(
    target: Doorstep,
    desk: Desk,
    visit_every_s: float = 3600.0,
    look_again_s: float = math.inf,
    starting_s: float = STARTING_S,
) -> Iterator[Courier[Parcel]]:
    courier = Courier(
        lambda _: target,
        desk.report,
        desk.crashes.append,
        visit_every_s=visit_every_s,
        look_again_s=look_again_s,
        starting_s=starting_s,
    )
    courier.start()
    yield courier
    courier.stop()
    target.open.set()
    assert courier.join(WAIT_S)
    assert target.is_closed.is_set()


def test_a_parcel_is_brought_once_and_receipted() -> None:
    target, desk = Doorstep(), Desk()
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    assert target.brought == ["one"]
    assert desk.receipts == [Receipt("doorstep", "one", "one")]


def test_an_equal_parcel_that_is_made_anew_waits_for_the_next_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler makes some in each turn, and each failure makes it turn."""
    monkeypatch.setattr(backoff, "full_jitter", lambda _: 3600.0)
    target, desk = Doorstep(), Desk()
    target.failures = [Undelivered("refused", is_refusal=True)]
    target.open.clear()
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        target.wait_for(1)
        courier.send(Parcel("one"))
        target.open.set()
        with desk.changed:
            assert desk.changed.wait_for(lambda: desk.receipts, WAIT_S)
        courier.send(Parcel("two"))
        desk.wait_for_current("two")

        assert target.brought == ["one", "two"]


def test_a_failed_delivery_is_retried_and_receipts_name_what_is_still_held() -> None:
    target, desk = Doorstep(), Desk()
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")
        target.failures = [Undelivered("down"), Undelivered("refused", is_refusal=True)]
        courier.send(Parcel("two"))
        desk.wait_for_current("two")

    assert desk.receipts[1:3] == [
        Receipt("doorstep", "two", "one", "down", attempts=1),
        Receipt("doorstep", "two", "one", "refused", is_refusal=True, attempts=2),
    ]
    assert not desk.receipts[1].is_current


def test_remarks_about_what_is_held_stay_while_deliveries_fail() -> None:
    target, desk = Doorstep(), Desk()
    target.remarks = (Remark(RemarkKind.PORT, "listeners[0].port", "in use"),)
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")
        target.failures = [Undelivered("down")]
        courier.send(Parcel("two"))
        desk.wait_for_current("two")

    assert [(receipt.held, receipt.remarks) for receipt in desk.receipts] == [
        ("one", target.remarks),
        ("one", target.remarks),
        ("two", target.remarks),
    ]


def test_only_the_newest_parcel_that_was_sent_meanwhile_is_brought() -> None:
    target, desk = Doorstep(), Desk()
    target.open.clear()
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        target.wait_for(1)
        for digest in ("two", "three", "four"):
            courier.send(Parcel(digest))
        target.open.set()
        desk.wait_for_current("four")

    assert target.brought == ["one", "four"]


def test_a_withheld_parcel_is_no_failure_and_is_brought_soon(caplog: pytest.LogCaptureFixture) -> None:
    target, desk = Doorstep(), Desk()
    target.failures = [Withheld(), Withheld()]
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    assert desk.receipts == [Receipt("doorstep", "one", "one")]
    assert not caplog.records


def test_a_target_s_retry_after_delays_even_a_newer_parcel() -> None:
    target, desk = Doorstep(), Desk()
    target.failures = [Undelivered("busy", retry_after_s=0.5)]
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        target.wait_for(1)
        courier.send(Parcel("two"))
        desk.wait_for_current("two")

    assert target.brought[-1] == "two"
    assert target.times_s[1] - target.times_s[0] >= 0.5


def test_a_target_that_is_down_is_retried_at_the_visit_interval_and_one_that_refuses_less_often(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "full_jitter", lambda cap: cap / 10)  # a random pause may be close to zero
    target, desk = Doorstep(), Desk()
    target.failures = [*[Undelivered("refused", is_refusal=True)] * 3, *[Undelivered("down")] * 3]
    with couriered(target, desk, visit_every_s=1e-4) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    pauses_s = {error: [line["delay_s"] for line in lines if line["error"] == error] for error in ("down", "refused")}
    assert max(pauses_s["down"]) <= 1e-3  # as it is rounded
    assert max(pauses_s["refused"]) > 1e-3


def test_a_target_is_visited_again_without_a_newer_parcel() -> None:
    target, desk = Doorstep(), Desk()
    with couriered(target, desk, visit_every_s=0.01) as courier:
        courier.send(Parcel("one"))
        target.wait_for(3)

    assert set(target.brought) == {"one"}
    assert len(desk.receipts) == 1, "a receipt that says nothing new is not reported"


def test_a_target_is_visited_once_more_soon_after_its_first_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    for module in ("tunnelgw.deliver.courier", __name__):
        monkeypatch.setattr(f"{module}.time", clock)
    monkeypatch.setattr(backoff, "full_jitter", lambda _: 0.0)
    target, desk = Doorstep(), Desk()
    target.failures = [Undelivered("down")]
    with couriered(target, desk, look_again_s=0.5) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")
        now_s = 100.4
        courier.send(Parcel("two"))  # news come before the second look, and do not replace it
        desk.wait_for_current("two")
        now_s = 100.5
        target.wait_for(4)
        courier.send(Parcel("three"))
        target.wait_for(5)

    (look,) = [number for number in range(2, 5) if target.brought[number] == target.brought[number - 1]]
    assert target.brought[-1] == "three"
    assert target.times_s[look] - target.times_s[1] >= 0.5


def test_a_target_that_is_in_doubt_is_visited_again_soon() -> None:
    target, desk = Doorstep(), Desk()
    target.look_soon_s = 0.01
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        target.wait_for(3)

    assert set(target.brought) == {"one"}


def test_a_courier_without_a_parcel_stops() -> None:
    target, desk = Doorstep(), Desk()
    with couriered(target, desk):
        pass

    assert target.brought == []


@pytest.mark.parametrize("failure", [Undelivered, Withheld])
def test_a_delivery_that_fails_while_the_courier_is_stopped_leaves_no_reference_cycle(
    failure: type[Exception],
) -> None:
    target, desk = Doorstep(), Desk()
    target.open.clear()
    with uncollected() as garbage:
        target.failures = [failure("down")]
        with couriered(target, desk) as courier:
            courier.send(Parcel("one"))
            target.wait_for(1)

        assert not garbage("tunnelgw")


def test_a_failure_is_logged_once_without_repeating_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    target, desk = Doorstep(), Desk()
    failure = Undelivered("no answer from 10.0.0.1")
    failure.__cause__ = OSError("no answer from 10.0.0.1")
    target.failures = [failure]
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    (line,) = [JsonFormatter().format(record) for record in caplog.records]
    assert line.count("no answer from 10.0.0.1") == 1


def test_a_target_that_stays_down_is_logged_ever_more_rarely_and_its_return_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line a visit was 720 an hour for each proxy, seven of them in the first six seconds, and no line told that
    it was over."""
    caplog.set_level(logging.INFO)
    target, desk = Doorstep(), Desk()
    target.failures = [Undelivered("down")] * 200
    with couriered(target, desk, visit_every_s=1e-4) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    failures = [line for line in lines if line["msg"] == "delivery failed, retrying"]
    assert [line["attempt"] for line in failures[:5]] == [1, 2, 4, 8, 11]
    assert len(failures) < 14
    assert lines[-1]["msg"] == "delivered after failures"
    assert (lines[-1]["level"], lines[-1]["target"], lines[-1]["attempts"]) == ("INFO", "doorstep", 200)


def test_another_reason_for_a_failure_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    target, desk = Doorstep(), Desk()
    reasons = ["down"] * 4 + ["refused"] * 3 + ["down", "refused", "refused"]
    target.failures = [Undelivered(each) for each in reasons]
    with couriered(target, desk, visit_every_s=1e-4) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    told = [(line["attempt"], line["error"]) for line in lines if line["level"] == "WARNING"]
    assert told == [(1, "down"), (2, "down"), (4, "down"), (5, "refused"), (8, "down"), (9, "refused")]


def test_a_target_that_was_never_reachable_counts_as_starting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new proxy's address is known before it listens: that is a part of each rollout, and no failure."""
    monkeypatch.setattr(backoff, "full_jitter", lambda cap: cap)
    caplog.set_level(logging.INFO)
    target, desk = Doorstep(), Desk()
    target.failures = [Undelivered("refused", is_absent=True)] * 4
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    assert [each.is_starting for each in desk.receipts] == [True] * 4 + [False]
    assert [each.failure for each in desk.receipts] == [""] * 5
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "not there yet, trying again until it is"),
        ("INFO", "delivered after failures"),
    ]


def test_a_target_that_does_not_start_in_time_fails_and_so_does_one_that_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    absent = Undelivered("refused", is_absent=True)
    never, desk = Doorstep(), Desk()
    never.failures = [absent]
    with couriered(never, desk, starting_s=0.0) as courier:
        courier.send(Parcel("one"))
        desk.wait_for_current("one")

    spoke, other_desk = Doorstep(), Desk()
    spoke.failures = [Undelivered("answered 500"), absent]
    with couriered(spoke, other_desk) as courier:
        courier.send(Parcel("one"))
        other_desk.wait_for_current("one")

    assert [each.failure for each in desk.receipts] == ["refused", ""]
    assert [each.failure for each in other_desk.receipts] == ["answered 500", "refused", ""]
    assert len(caplog.records) == 3


def test_an_unexpected_exception_in_a_target_is_passed_on() -> None:
    target, desk = Doorstep(), Desk()
    target.failures = [ZeroDivisionError("bug")]
    with couriered(target, desk) as courier:
        courier.send(Parcel("one"))
        assert target.is_closed.wait(WAIT_S)

    assert [type(crash) for crash in desk.crashes] == [ZeroDivisionError]
