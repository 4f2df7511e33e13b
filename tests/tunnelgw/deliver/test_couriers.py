"""One courier for each target that should hold something now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.tunnelgw.deliver.test_courier import WAIT_S, Doorstep, Parcel
from tunnelgw.deliver.courier import Undelivered
from tunnelgw.deliver.couriers import Couriers


class House(NamedTuple):
    place: str
    owner: str = ""


A, B = House("a"), House("b")


class Street:
    """Targets by key, and the couriers that serve them."""

    def __init__(self) -> None:
        self.houses: dict[House, Doorstep] = {}
        self.is_served: dict[House, Callable[[], bool]] = {}
        self.news = threading.Condition()
        self.crashes: list[BaseException] = []
        self.couriers: Couriers[House, Parcel] = Couriers(
            self.build, self.on_news, self.crashes.append, visit_every_s=3600.0
        )

    def build(self, key: House, is_served: Callable[[], bool] = lambda: True) -> Doorstep:
        self.is_served[key] = is_served
        return self.houses.setdefault(key, Doorstep())

    def on_news(self) -> None:
        with self.news:
            self.news.notify_all()

    def wait_for_held(self, wanted: dict[House, str]) -> None:
        def held() -> dict[House, str]:
            return {key: receipt.held for key, receipt in self.couriers.receipts().items()}

        with self.news:
            assert self.news.wait_for(lambda: held() == wanted, WAIT_S), held()

    def send_until_held(self, wanted: dict[House, Parcel]) -> None:
        """As the reconciler does, after each news."""

        def is_held() -> bool:
            self.couriers.send(wanted)
            receipts = self.couriers.receipts()
            return all(key in receipts and receipts[key].held == parcel.digest for key, parcel in wanted.items())

        with self.news:
            assert self.news.wait_for(is_held, WAIT_S), self.couriers.receipts()


@contextmanager
def street() -> Iterator[Street]:
    made = Street()
    yield made
    made.couriers.stop()
    for house in made.houses.values():
        house.open.set()
    assert made.couriers.join(time.monotonic() + WAIT_S)
    assert made.crashes == []


def test_each_target_gets_its_own_parcel() -> None:
    with street() as row:
        row.couriers.send({A: Parcel("one"), B: Parcel("two")})

        row.wait_for_held({A: "one", B: "two"})


def test_a_target_that_hangs_delays_no_other() -> None:
    with street() as row:
        row.build(House("slow")).open.clear()
        row.build(House("down")).failures = [Undelivered("down", retry_after_s=600)]

        row.couriers.send(
            {
                House("slow"): Parcel("one"),
                House("down"): Parcel("one"),
                House("fine"): Parcel("one"),
            }
        )

        row.houses[House("slow")].wait_for(1)
        row.wait_for_held({House("fine"): "one", House("down"): ""})


def test_a_removed_target_is_no_longer_served_or_reported() -> None:
    with street() as row:
        row.couriers.send({A: Parcel("one"), B: Parcel("one")})
        row.wait_for_held({A: "one", B: "one"})

        row.couriers.send({A: Parcel("two")})

        row.wait_for_held({A: "two"})
        assert row.houses[B].is_closed.wait(WAIT_S)
        assert row.houses[B].brought == ["one"]


def test_a_target_that_comes_back_is_served_anew() -> None:
    with street() as row:
        row.couriers.send({A: Parcel("one")})
        row.wait_for_held({A: "one"})
        row.couriers.send({})
        assert row.houses.pop(A).is_closed.wait(WAIT_S)

        row.send_until_held({A: Parcel("one")})

        assert row.houses[A].brought == ["one"]


@pytest.mark.parametrize("successor", [House("a", "another"), A], ids=["other credentials", "lead regained"])
def test_a_new_courier_for_a_place_starts_when_the_call_of_the_former_one_has_ended(successor: House) -> None:
    with street() as row:
        former = row.build(A)
        former.open.clear()
        row.couriers.send({A: Parcel("old")})
        former.wait_for(1)
        row.couriers.send({})
        row.houses.pop(A)

        row.couriers.send({successor: Parcel("new"), B: Parcel("new")})
        row.wait_for_held({B: "new"})
        assert successor not in row.houses

        former.open.set()
        row.send_until_held({successor: Parcel("new"), B: Parcel("new")})
        assert former.is_closed.is_set()
        assert (former.brought, row.houses[successor].brought) == (["old"], ["new"])


def test_a_dismissed_courier_can_see_that_before_its_next_call() -> None:
    with street() as row:
        row.build(A).open.clear()
        row.couriers.send({A: Parcel("one")})
        row.houses[A].wait_for(1)
        is_served = row.is_served[A]
        assert is_served()

        row.couriers.send({})

        assert not is_served()


def test_what_a_dismissed_courier_still_delivers_is_not_reported() -> None:
    with street() as row:
        house = row.build(A)
        house.open.clear()
        row.couriers.send({A: Parcel("one")})
        house.wait_for(1)
        row.couriers.send({})

        house.open.set()

        assert house.is_closed.wait(WAIT_S)
        assert house.brought == ["one"]
        assert row.couriers.receipts() == {}


def test_after_a_stop_no_target_is_served_and_calls_under_way_are_awaited_until_a_deadline() -> None:
    with street() as row:
        hanging = row.build(A)
        hanging.open.clear()
        row.couriers.send({A: Parcel("one"), B: Parcel("one")})
        hanging.wait_for(1)
        row.wait_for_held({B: "one"})

        row.couriers.stop()

        assert not row.is_served[A]()
        assert row.houses[B].is_closed.wait(WAIT_S)
        assert row.couriers.receipts() == {}
        assert not row.couriers.join(time.monotonic() + 0.01)
        hanging.open.set()
        assert row.couriers.join(time.monotonic() + WAIT_S)
        assert hanging.is_closed.is_set()


def test_a_failure_of_a_dismissed_courier_is_not_logged_as_retrying(caplog: pytest.LogCaptureFixture) -> None:
    with street() as row:
        house = row.build(A)
        house.open.clear()
        house.failures = [Undelivered("down")]
        row.couriers.send({A: Parcel("one")})
        house.wait_for(1)
        row.couriers.send({})

        house.open.set()

        assert house.is_closed.wait(WAIT_S)
        assert not caplog.records


def test_a_target_whose_thread_cannot_start_is_reported_and_served_once_it_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = {A: Parcel("one"), B: Parcel("two")}
    with street() as row:
        row.send_until_held({A: Parcel("one")})
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _refuse)
            for _ in range(3):
                row.couriers.send(wanted)
            receipts = row.couriers.receipts()

            assert receipts[A].is_current
            assert "no thread can be started" in receipts[B].error
            assert receipts[B].wanted == "two"
            row.couriers.send({A: Parcel("one")})
            assert row.couriers.receipts().keys() == {A}
        row.send_until_held(wanted)

    assert [record.message for record in caplog.records] == ["target cannot be served"]


def _refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
