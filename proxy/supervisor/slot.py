"""The slot of one worker: starts a process, talks to it, and starts the next one when it has died.

The slot's thread executes `run`, which also reads the worker's messages; other threads hand over deployments, ask for
reports and end it. A worker that keeps dying is restarted with increasing delays. The counts of a dead worker stay in
the totals. Its listening sockets stay open in the supervisor, so that its successor serves the connections in their
queues. If there seems to be no successor, `on_failing` directs new connections to the other workers.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

import msgspec

from daemonkit.logs import get_logger
from daemonkit.waits import doubling
from proxy.control import (
    Begin,
    Cut,
    Drain,
    Incomplete,
    Missed,
    OfEdge,
    Ready,
    Refused,
    Report,
    Snapshot,
    Taken,
    ToEdge,
    mapped,
    sealed_file,
)
from proxy.stats import Stats
from proxy.supervisor.delivery import Delivery
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.totals import Totals
from proxy.supervisor.workerprocess import WorkerProcess
from proxy.tunnel.orders import EdgeOrder, EdgeReport

log = get_logger(__name__)
quiet_log = log.every(10.0)

# Made before any threads start: while msgspec analyses a type in one thread, others that use the type would crash.
_decode_stats = msgspec.msgpack.Decoder(Stats).decode

STABLE_S = 10.0
"""A worker that dies before it has run this long counts as a failed start."""
FAILING_STARTS = 3
"""After this many failed starts in a row, a worker counts as unable to start."""
_FIRST_WAIT_S = 0.1
_MAX_WAIT_S = 5.0
"""Short, since there may be no other worker to serve; a start costs a fifth of a second of CPU."""
_REAP_S = 5.0


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """For the next attempt to start."""
    ENDED = "ended"


class Slot:
    def __init__(
        self,
        begin: Begin,
        news: threading.Condition,
        first: WorkerProcess | None = None,
        jit: bool | None = None,
    ) -> None:
        """`news` guards the state of all slots that other threads read, and is notified of changes. `first` is a
        process that is already running, with the JIT as in `jit`."""
        self.index = begin.index
        self.state = State.STARTING
        self.failed_starts = 0
        """In a row."""
        self.restarts = 0
        self.taken = 0
        """The generation in use."""
        self.refused = 0
        """The generation that the worker could not use."""
        self.heard_s = time.monotonic()
        self.looks = 0
        """How often the fleet's watch has checked since `heard_s`."""
        self.reports = 0
        """Snapshots received."""
        self.usage: Snapshot | None = None
        self._dead_cpu_s = 0.0
        """CPU time of ended processes."""
        self.totals = Totals()
        self.on_failing: Callable[[int], None] = lambda _index: None
        """Called in the slot's thread, with the index, after every failed start from FAILING_STARTS on."""
        self.on_edge: Callable[[Slot, EdgeReport], None] = lambda _slot, _report: None
        """Called in the slot's thread with the worker's reports about its edge connections."""
        self.on_change: Callable[[Slot], None] = lambda _slot: None
        """Called in the slot's thread when the worker has started, has taken or refused a document, or has ended."""
        self.jit = jit
        """For the next process; see `WorkerProcess`."""
        self._begin = begin
        self._news = news
        self._sending = threading.Lock()
        """Guards the attributes below."""
        self._process: WorkerProcess | None = None
        self._delivery: Delivery
        """Delivers to the process."""
        self._first = first
        self._reports_asked = 0
        """How many snapshots were requested. Each request gets one answer, in order, so this compares with
        `reports`."""
        self._wanted: Deployment | None = None
        self._ending = threading.Event()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None else None

    @property
    def cpu_s(self) -> float:
        """CPU time of all processes so far."""
        with self._news:
            return self._dead_cpu_s + (self.usage.cpu_s if self.usage is not None else 0.0)

    @property
    def is_running(self) -> bool:
        """The worker has started, and is alive as far as known."""
        return self.state is State.RUNNING and self._process is not None

    @property
    def is_taking(self) -> bool:
        """The worker will soon serve its first document."""
        return self.state is State.RUNNING and self._wanted is not None and not self.taken and not self.refused

    # -- the slot's own thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Thread target: keep a process running until `drain`, `cut` or `end`."""
        waits = doubling(_FIRST_WAIT_S, _MAX_WAIT_S)
        while not self._ending.is_set():
            began_s = time.monotonic()
            how = self._live()
            if self._ending.is_set():
                break
            ran_s = time.monotonic() - began_s
            if ran_s >= STABLE_S:
                waits = doubling(_FIRST_WAIT_S, _MAX_WAIT_S)
            wait_s = next(waits)
            with self._news:
                self.failed_starts = 0 if ran_s >= STABLE_S else self.failed_starts + 1
                self.restarts += 1
                self.state = State.WAITING
                self._news.notify_all()
            log.error(
                "worker died, starting another", error=how, worker=self.index, ran_s=round(ran_s, 1), delay_s=wait_s
            )
            if self.failed_starts >= FAILING_STARTS:
                self.on_failing(self.index)
            self._ending.wait(wait_s)
        with self._news:
            self.state = State.ENDED
            self._news.notify_all()

    def _live(self) -> str:
        """Run one process from start to end; returns how it ended."""
        try:
            process, self._first = self._first or WorkerProcess(self.jit), None
        except OSError as error:
            return f"cannot start a process: {error}"
        with self._news:
            self.state = State.STARTING
            self._hear()
        with self._sending:
            self._process = process
            self._delivery = Delivery(process.channel, self.index)
            self._reports_asked = self.reports
            with self._or_killed(process):
                process.channel.send(self._begin)
            if self._ending.is_set():
                process.channel.hang_up()
        try:
            self._listen(process)
        finally:
            with self._sending:
                self._process = None
                process.channel.close()
            if not process.wait(_REAP_S):
                process.kill()
                process.wait(_REAP_S)
            with self._news:
                self.taken = self.refused = 0
                self._dead_cpu_s += self.usage.cpu_s if self.usage is not None else 0.0
                self.usage = None
                self.totals.retire()
                self._news.notify_all()
            self.on_change(self)
        if process.crashed and self.jit and not self._ending.is_set():
            self.jit = False
            log.error("worker crashed with the JIT, its successors run without it", worker=self.index)
        return process.ending()

    def _listen(self, process: WorkerProcess) -> None:
        while True:
            try:
                received = process.channel.receive()
            except Incomplete as error:
                self._say_missing(error)
                self._note(error.message, None, process)
                continue
            except OSError as error:
                log.error("control channel failed, killing the worker", error=error, worker=self.index)
                process.kill()
                return
            if received is None:
                return
            message, descriptors = received
            self._note(message, self._content_of(descriptors), process)

    def _hear(self) -> None:
        self.heard_s, self.looks = time.monotonic(), 0

    def _content_of(self, descriptors: list[int]) -> memoryview | None:
        """The memory file that came with a message; None if there was none, or no memory for it."""
        try:
            return mapped(descriptors[0]) if descriptors else None
        except OSError as error:
            self._say_missing(error)
            return None

    def _say_missing(self, error: OSError) -> None:
        """The supervisor lacks descriptors or memory. The worker is not to blame and carries on; its numbers are then
        out of date."""
        quiet_log.error("no descriptor or memory to receive a worker's message", error=error, worker=self.index)

    def _note(self, message: object, content: memoryview | None, process: WorkerProcess) -> None:
        if isinstance(message, OfEdge):
            self.on_edge(self, message.report)
            return
        stats = _decode_stats(content) if content is not None else None
        with self._news:
            self._hear()
            match message:
                case Ready():
                    self.state = State.RUNNING
                case Taken(generation):
                    self.taken = generation
                case Refused(generation, since=0):
                    self.refused = generation
                case Snapshot():
                    self.usage = message
                    self.reports += 1
                    if stats is not None:
                        self.totals.update(stats)
            self._news.notify_all()
        if isinstance(message, Ready):
            log.info("worker started", worker=self.index, pid=process.pid)
            with self._sending, self._or_killed(process):
                self._delivery.open()
                self._delivery.hand_over(self._wanted)
        if isinstance(message, Refused) and message.since:
            with self._sending, self._or_killed(process):
                self._delivery.hand_over_whole(self._wanted)
        if isinstance(message, Missed):
            with self._sending:
                self._delivery.note_missed(message.doors)
        if isinstance(message, Ready | Taken | Refused):
            self.on_change(self)

    # -- other threads -----------------------------------------------------------------------------------------------

    def deploy(self, deployment: Deployment) -> None:
        """Give a deployment to the running worker and its successors."""
        with self._sending:
            self._wanted = deployment
            if self._process is not None:
                with self._or_killed(self._process):
                    self._delivery.hand_over(deployment)

    def withhold(self) -> None:
        """Stop handing the deployment over, since its sockets are about to be closed."""
        with self._sending:
            self._wanted = None

    def report(self) -> int:
        """Ask for a snapshot. It has arrived once `reports` reaches the returned number."""
        with self._sending:
            process = self._process
            if process is not None:
                self._reports_asked += 1
                with self._or_killed(process):
                    # A deployment that could not be handed over before.
                    self._delivery.hand_over(self._wanted)
                    process.channel.send(Report())
            return self._reports_asked

    def order(self, order: EdgeOrder, content: bytes | None = None) -> int | None:
        """Send an order about edge connections. Returns the worker's pid; None if it has died.

        Raises OSError if there is no descriptor or memory for `content`.
        """
        descriptors = [sealed_file("tunnelgw-proxy-edge", content)] if content is not None else []
        try:
            return self._send(ToEdge(order), descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def drain(self) -> None:
        """Have the worker finish running requests; no successor is started from now on."""
        self._ending.set()
        self._send(Drain())

    def cut(self) -> None:
        """Have the worker reset running requests and end."""
        self._ending.set()
        self._send(Cut())

    def end(self) -> None:
        """Kill the process; no successor is started."""
        self._ending.set()
        with self._sending:
            if self._process is not None:
                self._process.channel.hang_up()
                self._process.kill()

    def kill(self, pid: int | None) -> None:
        """Kill the process with this pid, to be replaced by a new one; do nothing if it has been already."""
        with self._sending:
            if self._process is not None and self._process.pid == pid:
                self._process.kill()

    def _send(self, message: ToEdge | Drain | Cut, descriptors: Sequence[int] = ()) -> int | None:
        with self._sending:
            process = self._process
            if process is None:
                return None
            with self._or_killed(process):
                process.channel.send(message, descriptors)
            return process.pid

    @contextlib.contextmanager
    def _or_killed(self, process: WorkerProcess) -> Iterator[None]:
        """Kill the worker if it accepts no messages: it hangs or has just died, and will be replaced."""
        try:
            yield
        except OSError as error:
            log.warning("worker does not accept messages, killing it", error=error, worker=self.index, pid=process.pid)
            process.kill()
