"""One courier for each target that should hold something now."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.tunnelgw.deliver.test_courier import WAIT_S, Doorstep, Parcel
from tunnelgw.deliver.courier import Undelivered
from tunnelgw.deliver.couriers import Couriers


class Street:
    """Targets by number, and the couriers that serve them."""

    def __init__(self) -> None:
        self.houses: dict[str, Doorstep] = {}
        self.news = threading.Condition()
        self.crashes: list[BaseException] = []
        self.couriers: Couriers[str, Parcel] = Couriers(
            self.build, self.on_news, self.crashes.append, visit_every_s=3600.0
        )

    def build(self, key: str) -> Doorstep:
        return self.houses.setdefault(key, Doorstep())

    def on_news(self) -> None:
        with self.news:
            self.news.notify_all()

    def wait_for_held(self, wanted: dict[str, str]) -> None:
        def held() -> dict[str, str]:
            return {key: receipt.held for key, receipt in self.couriers.receipts().items()}

        with self.news:
            assert self.news.wait_for(lambda: held() == wanted, WAIT_S), held()


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
        row.couriers.send({"a": Parcel("one"), "b": Parcel("two")})

        row.wait_for_held({"a": "one", "b": "two"})


def test_a_target_that_hangs_delays_nobody_else() -> None:
    with street() as row:
        row.build("slow").open.clear()
        row.build("down").failures = [Undelivered("down", retry_after_s=600)]

        row.couriers.send({"slow": Parcel("one"), "down": Parcel("one"), "fine": Parcel("one")})

        row.houses["slow"].wait_for(1)
        row.wait_for_held({"fine": "one", "down": ""})


def test_a_target_that_is_gone_is_served_and_told_of_no_more() -> None:
    with street() as row:
        row.couriers.send({"a": Parcel("one"), "b": Parcel("one")})
        row.wait_for_held({"a": "one", "b": "one"})

        row.couriers.send({"a": Parcel("two")})

        row.wait_for_held({"a": "two"})
        assert row.houses["b"].is_closed.wait(WAIT_S)
        assert row.houses["b"].brought == ["one"]


def test_a_target_that_comes_back_is_served_anew() -> None:
    with street() as row:
        row.couriers.send({"a": Parcel("one")})
        row.wait_for_held({"a": "one"})
        row.couriers.send({})
        assert row.houses.pop("a").is_closed.wait(WAIT_S)

        row.couriers.send({"a": Parcel("one")})

        row.wait_for_held({"a": "one"})
        assert row.houses["a"].brought == ["one"]
