"""The counts of workers, as they report them on request."""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, Report, sealed_file
from proxy.stats import RouteStats, Stats
from proxy.supervisor import fleet as fleets
from proxy.supervisor import slot as slots
from proxy.supervisor.certificates import ApiCertificate
from proxy.supervisor.configuration import Configuration
from proxy.supervisor.departed import LINGER_S
from proxy.supervisor.metrics import ProxyCollector
from proxy.supervisor.sockets import ListeningSockets
from proxy.supervisor.totals import Totals
from tests.proxy.site import eventually
from tests.proxy.supervisor import fleets as workers
from tests.proxy.supervisor.playedworker import WAIT_S, PlayedWorker, fleet_of
from tests.support.limits import out_of_descriptors


class TellsOfWaits(threading.Condition):
    def __init__(self, told: queue.SimpleQueue[object]) -> None:
        super().__init__()
        self._told = told

    def wait(self, timeout: float | None = None) -> bool:
        self._told.put("waits")
        return super().wait(timeout)


def test_a_scrape_does_not_use_a_report_that_was_requested_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """That report may be older than events that this scrape's client has seen."""
    monkeypatch.setattr(fleets, "_REPORT_S", WAIT_S)
    worker = PlayedWorker()
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots
        fleet._news = slot._news = TellsOfWaits(told)

        def ask() -> None:
            fleet.refresh()
            told.put(fleet.total().swaps)

        slot.report()
        threading.Thread(target=ask, daemon=True).start()
        assert told.get(timeout=WAIT_S) == "waits"
        worker.hears(Report)
        worker.hears(Report)
        worker.reports(1)
        assert told.get(timeout=WAIT_S) == "waits"
        worker.reports(2)
        assert told.get(timeout=WAIT_S) == 2


def no_memory(*_: object, **__: object) -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Nothing more can be mapped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mmap, "mmap", no_memory)
        yield


@pytest.mark.parametrize("lack", [out_of_memory, out_of_descriptors])
def test_a_report_that_cannot_be_mapped_harms_neither_supervisor_nor_worker(
    lack: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots
        descriptor = sealed_file("test", msgspec.msgpack.encode(Stats(swaps=1)))
        with lack():
            worker.reports_with(descriptor)
            eventually(lambda: slot.reports == 1, "the report, less its numbers")
            assert (fleet.total().swaps, slot.cpu_s) == (0, 3.0)
        worker.reports_with(descriptor)
        eventually(lambda: slot.reports == 2, "the next report")
        os.close(descriptor)

        assert fleet.total().swaps == 1
        assert not worker.is_killed


class EndsWhenRead(Totals):
    """The totals of a worker that dies while they are read, one after another."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end = end

    @property
    def table_version(self) -> int:
        self._end()
        return 0


def test_the_cpu_time_of_a_worker_that_dies_during_a_scrape_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # It answers no more.
    monkeypatch.setattr(fleets, "_REPORT_S", 0.0)
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots
        is_dead = threading.Event()

        def end() -> None:
            slot.end()
            assert is_dead.wait(WAIT_S)

        slot.report()
        worker.hears(Report)
        worker.reports(0, cpu_s=5.0)
        eventually(lambda: slot.reports == 1, "the report")
        slot.on_change = lambda _slot: is_dead.set()
        slot.totals = EndsWhenRead(end)
        families = ProxyCollector(fleet, Configuration(fleet, ListeningSockets(1), None), ApiCertificate()).collect()
        (cpu,) = (family for family in families if family.name == "tunnelgw_proxy_worker_cpu_seconds")
        assert [sample.value for sample in cpu.samples] == [5.0]


class Looks(threading.Event):
    """Lets the watch take `count` looks."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.fixture
def after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message from any worker for an hour, and none arrives at once."""
    monkeypatch.setattr(fleets, "_REPORT_S", 0.0)
    monkeypatch.setattr(fleets, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3600.0))


def test_a_report_that_a_worker_owed_when_it_died_is_not_waited_for_from_its_successor() -> None:
    """Each scrape would be late from then on, and show the counts of the one before."""
    with workers.fleet_of({}) as fleet:
        (slot,) = fleet.slots
        pid = slot.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: " T " in Path(f"/proc/{pid}/stat").read_text(), "a worker that is paused")
        owed = slot.report()
        assert owed > slot.reports
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: slot.is_running and slot.pid != pid, "its successor")

        asked = slot.report()
        eventually(lambda: slot.reports >= asked, "the successor's report")


@pytest.mark.usefixtures("after_a_pause")
def test_a_worker_that_was_paused_with_its_supervisor_is_not_killed_before_it_can_answer() -> None:
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots

        def has_reported(count: int) -> bool:
            return slot.reports == count

        for round_number in range(1, 3):
            for _ in range(fleets.STANDSTILL_LOOKS - 1):
                fleet.watch(Looks(1))
                worker.hears(Report)
            assert not worker.is_killed
            worker.reports(0)
            eventually(partial(has_reported, round_number), "the report")


@pytest.mark.usefixtures("after_a_pause")
def test_a_worker_that_answers_none_of_the_looks_is_killed() -> None:
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        fleet.watch(Looks(fleets.STANDSTILL_LOOKS))
        assert worker.is_killed


@pytest.mark.usefixtures("after_a_pause")
def test_the_successor_of_a_silent_worker_that_dies_before_it_is_killed_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, successor = PlayedWorker(), PlayedWorker()
    worker.pid, successor.pid = 1, 2
    monkeypatch.setattr(slots, "WorkerProcess", lambda _jit: successor)

    class Dying(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "worker hangs, killing it":
                worker.kill()
                successor.hears(Begin)

    dying = Dying()
    fleets_log = logging.getLogger("proxy.supervisor.fleet")
    fleets_log.addHandler(dying)
    try:
        with fleet_of(worker) as fleet:
            fleet.watch(Looks(fleets.STANDSTILL_LOOKS))
            assert not successor.is_killed
            assert fleet.slots[0].pid == successor.pid
    finally:
        fleets_log.removeHandler(dying)


def test_a_worker_silent_for_20_seconds_is_not_killed_however_many_looks_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(fleets, "_REPORT_S", 0.0)
    monkeypatch.setattr(fleets, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        clock[0] = fleet.slots[0].heard_s + 20.0
        fleet.watch(Looks(fleets.STANDSTILL_LOOKS + 2))
        assert not worker.is_killed
        clock[0] += 0.1
        fleet.watch(Looks(1))
        assert worker.is_killed


def test_a_fleet_drops_a_route_that_none_of_its_workers_counts_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(fleets, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    fleet = fleets.Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))])
    (slot,) = fleet.slots
    slot.totals.update(Stats(routes={"shop": RouteStats(), "gone": RouteStats()}))
    slot.totals.update(Stats(routes={"shop": RouteStats()}))

    fleet.watch(Looks(1))
    clock[0] += LINGER_S
    assert set(fleet.total().routes) == {"shop", "gone"}
    fleet.watch(Looks(1))

    assert set(fleet.total().routes) == {"shop"}
