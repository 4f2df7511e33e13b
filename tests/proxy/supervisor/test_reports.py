"""What workers have counted, as they report it when they are asked."""

from __future__ import annotations

import os
import queue
import threading

import msgspec
import pytest

from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, Channel, FromWorker, Ready, Report, Snapshot, ToWorker, channel_pair, sealed_file
from proxy.stats import Stats
from proxy.supervisor import fleet as fleets
from proxy.supervisor.fleet import Fleet

WAIT_S = 30.0


class PlayedWorker:
    """In the place of a `WorkerProcess`: the test says what it says."""

    pid = 0

    def __init__(self) -> None:
        ours, theirs = channel_pair()
        theirs.settimeout(WAIT_S)
        self.channel = Channel[FromWorker](ours, FromWorker)
        self._theirs = Channel[ToWorker](theirs, ToWorker)

    def hears(self, kind: type[ToWorker]) -> None:
        received = self._theirs.receive()
        assert received is not None
        assert isinstance(received[0], kind)

    def says(self, message: FromWorker) -> None:
        self._theirs.send(message)

    def reports(self, swaps: int) -> None:
        descriptor = sealed_file("test", msgspec.msgpack.encode(Stats(swaps=swaps)))
        self._theirs.send(Snapshot(0.0, 0, 0), [descriptor])
        os.close(descriptor)

    def kill(self) -> None:
        self._theirs.close()

    def wait(self, _timeout_s: float) -> bool:
        return True

    def ending(self) -> str:
        return "ended"


class TellsOfWaits(threading.Condition):
    def __init__(self, told: queue.SimpleQueue[object]) -> None:
        super().__init__()
        self._told = told

    def wait(self, timeout: float | None = None) -> bool:
        self._told.put("waits")
        return super().wait(timeout)


def test_who_asks_for_numbers_does_not_get_those_of_a_question_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have been counted before what this one has seen happen."""
    monkeypatch.setattr(fleets, "_REPORT_S", WAIT_S)
    worker = PlayedWorker()
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))], {0: worker})  # type: ignore[dict-item]
    (slot,) = fleet.slots
    living = threading.Thread(target=slot.run, daemon=True)
    living.start()
    worker.hears(Begin)
    worker.says(Ready())
    fleet.start()
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    fleet._news = slot._news = TellsOfWaits(told)

    def ask() -> None:
        fleet.refresh()
        told.put(fleet.total().swaps)

    slot.report()
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert told.get(timeout=WAIT_S) == "waits"
    worker.hears(Report)
    worker.hears(Report)
    worker.reports(1)
    assert told.get(timeout=WAIT_S) == "waits"
    worker.reports(2)
    assert told.get(timeout=WAIT_S) == 2

    slot.end()
    living.join(WAIT_S)
    assert not living.is_alive()
