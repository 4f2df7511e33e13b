"""Overlapping calls: applies run one after the other, each as a whole, and no listing shows half of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import pytest
from msgspec.structs import replace

from dnswebhook.model import Changes, Endpoint
from tests.support.client_model import Pass
from tests.support.client_plan import OWNER
from tests.support.client_registry import Registered, TxtRegistry
from tests.support.controller import Hang
from tests.support.daemon import Daemon
from tests.support.desired import HeldRow
from tests.support.passes import OWNER_ID, Loop, endpoint, rows_of
from tests.support.storeviews import EmbeddedView, StoreView, UnifiView

DEADLINE_S = 30.0
FOREIGN = {HeldRow("nas.lan", "A", "198.51.100.1")}
MAX_PARALLEL_WRITES = 5  # --write-parallelism

T = TypeVar("T")


class InThread(Generic[T]):
    """One call in a thread of its own; `result` waits for it, or raises what it raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._results: list[T] = []
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> T:
        self._thread.join(DEADLINE_S)
        assert not self.is_running, f"no result after {DEADLINE_S} s"
        if self._errors:
            raise self._errors[0]
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except Exception as error:
            self._errors.append(error)


def wanted(client: str, sets: int) -> list[Endpoint]:
    return [endpoint(f"{client}-{number}.example.org", "A", f"10.0.0.{number}") for number in range(sets)]


@pytest.fixture(params=["embedded", "v2", "integration"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreView]:
    view = EmbeddedView(tmp_path) if request.param == "embedded" else UnifiView(request.param, tmp_path)
    yield view
    view.close()


@pytest.fixture
def url(view: StoreView) -> Iterator[str]:
    with Daemon.dnswebhook(view.env) as daemon:
        Loop(daemon.url("api")).list_records()  # opens the embedded store
        view.add(FOREIGN)
        yield daemon.url("api")
        assert daemon.stop() == 0, daemon.tail


only_unifi = pytest.mark.parametrize("view", ["v2", "integration"], indirect=True)


def test_concurrent_applies_of_several_clients_are_all_written(view: StoreView, url: str) -> None:
    owners = ("blue", "green", "red", "white")
    together = threading.Barrier(len(owners))

    def one_pass(owner: str) -> Pass:
        loop = Loop(url, owner)
        together.wait(DEADLINE_S)
        return loop.reconcile(wanted(owner, 25))

    passes = [InThread(lambda owner=owner: one_pass(owner)) for owner in owners]  # type: ignore[misc]

    assert [len(each.result().changes.create) for each in passes] == [50] * len(owners)
    assert view.held() == FOREIGN.union(*(rows_of(wanted(owner, 25), owner) for owner in owners))
    assert all(Loop(url, owner).reconcile(wanted(owner, 25)).is_no_op for owner in owners)


@only_unifi
def test_the_writes_of_one_apply_end_before_those_of_the_next_begin(view: UnifiView, url: str) -> None:
    controller = view.controller
    hang = controller.fault(Hang(), "create", nth=5, count=1)
    first = InThread(lambda: Loop(url, "first").reconcile(wanted("first", 20)))
    hang.wait_for_strikes()
    second = InThread(lambda: Loop(url, "second").reconcile(wanted("second", 20)))
    # The other creates of the first apply go on; of its 40, one hangs, and the record that waits for it.
    controller.calls.wait_for("create", 38)
    assert not any("second" in call.name for call in controller.calls.log)

    controller.release_hangs()

    first.result()
    second.result()
    writers = ["first" if "first" in call.name else "second" for call in controller.calls.log if call.method == "POST"]
    assert writers == ["first"] * 40 + ["second"] * 40
    assert controller.calls.max_parallel_writes <= MAX_PARALLEL_WRITES
    assert view.held() == FOREIGN | rows_of(wanted("first", 20), "first") | rows_of(wanted("second", 20), "second")


@only_unifi
def test_a_listing_requested_during_an_apply_shows_all_of_it(view: UnifiView, url: str) -> None:
    hang = view.controller.fault(Hang(), "create", nth=5, count=1)
    apply = InThread(lambda: Loop(url).reconcile(wanted("app", 20)))
    hang.wait_for_strikes()
    listing = InThread(Loop(url).list_records)
    view.controller.calls.wait_for("create", 38)
    assert listing.is_running

    view.controller.release_hangs()

    apply.result()
    assert len(listing.result()) == len(FOREIGN) + 40


def test_concurrent_applies_of_the_same_record_write_it_once(view: StoreView, url: str) -> None:
    view.start_counting()
    together = threading.Barrier(4)

    def one_pass() -> Pass:
        loop = Loop(url)
        together.wait(DEADLINE_S)
        return loop.reconcile(wanted("app", 10))

    passes = [InThread(one_pass) for _ in range(4)]

    for each in passes:
        each.result()
    assert view.held() == FOREIGN | rows_of(wanted("app", 10))
    assert view.writes == 20


@pytest.mark.parametrize("is_removed", [False, True], ids=["changed", "removed"])
def test_a_value_that_somebody_adds_between_listing_and_apply_stays(
    view: StoreView, url: str, is_removed: bool
) -> None:
    old, new = (
        replace(each, labels={**each.labels, OWNER: OWNER_ID})
        for each in (
            endpoint("app.example.org", "A", "10.0.0.1", "10.0.0.2"),
            endpoint("app.example.org", "A", "10.0.0.2", "10.0.0.3"),
        )
    )
    added = {
        HeldRow("app.example.org", "A", "198.51.100.7"),
        HeldRow("a-app.example.org", "TXT", '"kept, by hand"'),
    }
    loop = Loop(url)
    loop.reconcile([old])
    planned = Changes(delete=(old,)) if is_removed else Changes(update_old=(old,), update_new=(new,))
    registered = TxtRegistry(OWNER_ID).write(planned, Registered((), frozenset()))
    view.add(added)

    loop.apply_changes(registered)

    assert view.held() == FOREIGN | added | (set() if is_removed else rows_of([new]))
