"""All workers: what they should serve, whether they do, and how they end.

A `Service` of the daemon's lifecycle; each slot also has a named thread. When draining, each worker accepts queued
connections and finishes running requests; those still running at the end of the grace period are cut off.
"""

import threading
import time
from collections.abc import Mapping

from daemonkit.lifecycle import StartFailed
from daemonkit.logs import get_logger
from proxy.control import Begin
from proxy.stats import Stats
from proxy.supervisor.departed import Departed
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.slot import FAILING_STARTS, Slot, State
from proxy.supervisor.workerprocess import WorkerProcess

log = get_logger(__name__)

STANDSTILL_S = 20.0
"""A worker that has been silent for this long is killed. A PUT waits longer, for its successor."""
STANDSTILL_LOOKS = 3
"""A worker must also be silent in this many checks in a row to be killed. After a pause of the supervisor, or of the
whole host, all workers would seem silent."""
_START_S = 15.0
_REPORT_S = 1.0
_CUT_S = 2.0
"""Workers that have not reset their running requests by then are killed."""


class Fleet:
    def __init__(
        self, begins: list[Begin], first: Mapping[int, WorkerProcess] | None = None, jit: bool | None = None
    ) -> None:
        """`first`: processes that are already running, by worker index. `jit`: see `WorkerProcess`."""
        self._news = threading.Condition()
        self.slots = [Slot(begin, self._news, (first or {}).get(begin.index), jit) for begin in begins]
        self._departed = Departed()
        self._is_stopping = False

    # -- what is served ----------------------------------------------------------------------------------------------

    def deploy(self, deployment: Deployment) -> None:
        """Give a deployment to all workers, including those started later; returns before they use it."""
        for slot in self.slots:
            slot.deploy(deployment)

    def wait_until_taken(self, generation: int, timeout_s: float) -> str | None:
        """Returns None once every live worker serves that generation, otherwise a sentence about what is missing."""

        def is_settled(slot: Slot) -> bool:
            return slot.taken >= generation or slot.refused == generation or slot.state is State.WAITING

        with self._news:
            self._news.wait_for(lambda: self._is_stopping or all(map(is_settled, self.slots)), timeout_s)
            taken = [slot for slot in self.slots if slot.taken >= generation]
            missing = [slot for slot in self.slots if slot.taken < generation and slot.state is not State.WAITING]
            if taken and not missing:
                return None
            if any(slot.refused == generation for slot in missing):
                return "a worker could not use the document, which is a bug; its log has the stack"
            if not missing:
                return "no worker runs; the log says how they ended"
            late = ", ".join(str(slot.index) for slot in missing)
            return f"worker {late} has not taken the document within {timeout_s:g} s"

    def problem(self) -> str | None:
        """What is missing for readiness; None if ready."""
        with self._news:
            if self._is_stopping:
                return "stopping"
            if any(slot.failed_starts >= FAILING_STARTS and not slot.taken for slot in self.slots):
                return "a worker cannot be started"
            if not any(slot.taken for slot in self.slots):
                return "no worker serves the configuration yet"
        return None

    @property
    def is_stopping(self) -> bool:
        """The fleet is stopping, so missing workers are not a problem."""
        return self._is_stopping

    # -- numbers -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Ask all workers for a snapshot, and wait for it for a short time."""
        with self._news:
            running = [slot for slot in self.slots if slot.state is State.RUNNING]
        asked = [(slot, slot.report()) for slot in running]
        with self._news:
            self._news.wait_for(
                lambda: all(slot.reports >= number or slot.state is not State.RUNNING for slot, number in asked),
                _REPORT_S,
            )

    def total(self) -> Stats:
        total = Stats()
        with self._news:
            for slot in self.slots:
                slot.totals.add_to(total)
        return total

    def watch(self, stop: threading.Event, period_s: float = 5.0) -> None:
        """Thread target: check the workers periodically.

        This fetches their counts, since those that a worker has not reported are lost when it dies; kills workers that
        hang; and drops series that are gone.
        """
        while not stop.wait(period_s):
            with self._news:
                for slot in self.slots:
                    slot.looks += 1
            self.refresh()
            now_s = time.monotonic()
            with self._news:
                self._departed.forget([slot.totals for slot in self.slots], now_s)
            for slot in self.slots:
                pid = slot.pid  # before the rest, which a successor resets: it must not be killed for this worker
                is_silent = now_s - slot.heard_s > STANDSTILL_S and slot.looks >= STANDSTILL_LOOKS
                if is_silent and slot.state in (State.RUNNING, State.STARTING):
                    log.error("worker hangs, killing it", worker=slot.index, pid=pid)
                    slot.kill(pid)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """To be registered after the threads of the slots. Raises StartFailed if no worker starts."""

        def is_known(slot: Slot) -> bool:
            return slot.state is State.RUNNING or slot.failed_starts > 0

        with self._news:
            self._news.wait_for(lambda: all(map(is_known, self.slots)), _START_S)
            if not any(slot.state is State.RUNNING for slot in self.slots):
                if any(slot.failed_starts for slot in self.slots):
                    raise StartFailed("no worker process could be started; the lines above say how they ended")
                overload = "is this host overloaded, or the container's CPU limit too low?"
                raise StartFailed(f"no worker process was ready within {_START_S:g} s, {overload}")

    def stop_is_near(self) -> None:
        """Make readiness false."""
        with self._news:
            self._is_stopping = True
            self._news.notify_all()

    def withhold(self) -> None:
        """Keep the document from workers that do not have it yet."""
        for slot in self.slots:
            slot.withhold()

    def drain(self, deadline_s: float) -> None:
        for slot in self.slots:
            slot.drain()
        with self._news:
            self._news.wait_for(self._has_ended, max(0.0, deadline_s - time.monotonic()))

    def stop(self) -> None:
        if not self._has_ended():
            self.refresh()
            in_flight = sum(route.in_flight for route in self.total().routes.values())
            log.warning("grace period is over, aborting the remaining requests", requests=in_flight)
            for slot in self.slots:
                slot.cut()
            with self._news:
                self._news.wait_for(self._has_ended, _CUT_S)
        for slot in self.slots:
            slot.end()

    def _has_ended(self) -> bool:
        return all(slot.state is State.ENDED for slot in self.slots)
