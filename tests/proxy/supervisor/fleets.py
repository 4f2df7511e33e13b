"""A fleet without a proxy around it: real workers, started and ended as the supervisor does it."""

import contextlib
import threading
from collections.abc import Iterator, Mapping

from proxy.accesslog import AccessLogSettings
from proxy.control import Begin
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.workerprocess import WorkerProcess
from tests.proxy.site import DEADLINE_S


@contextlib.contextmanager
def fleet_of(first: Mapping[int, WorkerProcess], jit: bool | None = None) -> Iterator[Fleet]:
    """One worker, running."""
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))], first, jit)
    thread = threading.Thread(target=fleet.slots[0].run, daemon=True)
    thread.start()
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
