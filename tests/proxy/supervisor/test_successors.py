"""What the successor of a worker inherits, and what not: delays, missed looks, requests without an answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from daemonkit.logformat import line_of
from proxy.control import Begin, Ready, Report
from proxy.supervisor import fleet as fleets
from proxy.supervisor import slot as slots
from tests.proxy.site import eventually
from tests.proxy.supervisor.playedworker import PlayedWorker, fleet_of


@pytest.fixture
def successors(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PlayedWorker]]:
    """The processes that are started from now on, one after another."""
    workers = [PlayedWorker() for _ in range(4)]
    coming: Iterator[PlayedWorker] = iter(workers)
    monkeypatch.setattr(slots, "WorkerProcess", lambda _jit: next(coming))
    yield workers
    for worker in workers:
        worker.close()


def test_a_successor_of_an_unresponsive_worker_has_the_full_number_of_looks(
    successors: list[PlayedWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "_REPORT_S", 0.0)
    # As after a pause: no message from any worker for an hour.
    monkeypatch.setattr(fleets, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3600.0))
    worker, successor = PlayedWorker(), successors[0]
    with fleet_of(worker) as fleet:
        for _ in range(fleets.STANDSTILL_LOOKS):
            fleet.watch(OneLook())
        assert worker.is_killed
        successor.hears(Begin)

        for _ in range(fleets.STANDSTILL_LOOKS - 1):
            fleet.watch(OneLook())
        assert not successor.is_killed
        fleet.watch(OneLook())
        assert successor.is_killed


class OneLook(threading.Event):
    def __init__(self) -> None:
        super().__init__()
        self._is_taken = False

    def wait(self, timeout: float | None = None) -> bool:
        before, self._is_taken = self._is_taken, True
        return before


def test_unanswered_report_requests_of_a_dead_worker_are_not_waited_for(successors: list[PlayedWorker]) -> None:
    worker, successor = PlayedWorker(), successors[0]
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots
        for _ in range(3):
            slot.report()
        worker.kill()
        successor.hears(Begin)
        successor.says(Ready())
        eventually(lambda: slot.is_running, "the successor")

        asked = slot.report()
        successor.hears(Report)
        successor.reports(1)

        eventually(lambda: slot.reports >= asked, "the answer")


def test_a_worker_that_closes_its_channel_and_does_not_exit_is_killed_before_its_successor_starts(
    successors: list[PlayedWorker],
) -> None:
    """Its listening sockets would go on taking their share of the connections."""

    class HangsAtItsEnd(PlayedWorker):
        def wait(self, _timeout_s: float) -> bool:
            return self.is_killed

    worker = HangsAtItsEnd()
    with fleet_of(worker):
        worker.channel.hang_up()
        successors[0].hears(Begin)

        assert worker.is_killed


def test_a_successor_that_starts_during_a_drain_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, successor = PlayedWorker(), PlayedWorker()
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots

        def start(_jit: bool | None) -> PlayedWorker:
            slot.drain()
            return successor

        monkeypatch.setattr(slots, "WorkerProcess", start)
        worker.kill()

        eventually(lambda: slot.state is slots.State.ENDED, "its end")
    successor.close()


@pytest.mark.parametrize(("stable_s", "waits_s"), [(0.0, [0.1, 0.1, 0.1]), (3600.0, [0.1, 0.2, 0.4])])
def test_the_restart_delay_is_reset_after_a_worker_was_stable(
    successors: list[PlayedWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stable_s: float,
    waits_s: list[float],
) -> None:
    monkeypatch.setattr(slots, "STABLE_S", stable_s)
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots
        withdrawn: list[int] = []
        slot.on_failing = withdrawn.append
        for before, after in zip((worker, *successors), successors[:3], strict=False):
            before.kill()
            after.hears(Begin)

    deaths = [line for line in map(line_of, caplog.records) if line["msg"] == "worker died, starting another"]
    assert [line["delay_s"] for line in deaths] == waits_s
    assert withdrawn == ([] if stable_s == 0.0 else [0])
