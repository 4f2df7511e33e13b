"""A worker whose messages the test sends, and a fleet of it alone."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, Channel, FromWorker, Ready, Snapshot, ToWorker, channel_pair, sealed_file
from proxy.stats import Stats
from proxy.supervisor.fleet import Fleet

WAIT_S = 30.0

T = TypeVar("T", bound=ToWorker)


class PlayedWorker:
    """In the place of a `WorkerProcess`: the test sends its messages."""

    pid = 0
    crashed = False

    def __init__(self) -> None:
        ours, theirs = channel_pair()
        theirs.settimeout(WAIT_S)
        self.channel = Channel[FromWorker](ours, FromWorker)
        self._theirs = Channel[ToWorker](theirs, ToWorker)
        self.is_killed = False

    def hears(self, kind: type[T]) -> T:
        received = self._theirs.receive()
        assert received is not None
        message, descriptors = received
        for descriptor in descriptors:
            os.close(descriptor)
        assert isinstance(message, kind)
        return message

    def says(self, message: FromWorker) -> None:
        self._theirs.send(message)

    def reports(self, swaps: int, cpu_s: float = 0.0) -> None:
        descriptor = sealed_file("test", msgspec.msgpack.encode(Stats(swaps=swaps)))
        self.reports_with(descriptor, cpu_s)
        os.close(descriptor)

    def reports_with(self, descriptor: int, cpu_s: float = 3.0) -> None:
        self._theirs.send(Snapshot(cpu_s, 0, 0), [descriptor])

    def kill(self) -> None:
        self.is_killed = True
        self._theirs.close()

    def close(self) -> None:
        """Both ends; for one that no fleet has taken."""
        self.channel.close()
        self._theirs.close()

    def wait(self, _timeout_s: float) -> bool:
        return True

    def ending(self) -> str:
        return "ended"


@contextlib.contextmanager
def begun_fleet_of(*workers: PlayedWorker) -> Iterator[Fleet]:
    """A fleet of these workers, which have not reported yet that they are ready."""
    begins = [Begin(index, "error", "json", AccessLogSettings("off", 1.0)) for index in range(len(workers))]
    fleet = Fleet(begins, dict(enumerate(workers)))  # type: ignore[arg-type]
    living = [threading.Thread(target=slot.run, daemon=True) for slot in fleet.slots]
    for thread in living:
        thread.start()
    try:
        for worker in workers:
            worker.hears(Begin)
        yield fleet
    finally:
        for slot, thread in zip(fleet.slots, living, strict=True):
            slot.end()
            thread.join(WAIT_S)
            assert not thread.is_alive()


@contextlib.contextmanager
def fleet_of(*workers: PlayedWorker) -> Iterator[Fleet]:
    """A fleet of these workers, which are ready."""
    with begun_fleet_of(*workers) as fleet:
        for worker in workers:
            worker.says(Ready())
        fleet.start()
        yield fleet
