"""The life of a daemon process: ordered start, signals, drain within a grace period, ordered stop, exit code.

    start parts in order -> sd_notify READY -> wait -> first SIGTERM or SIGINT: readiness false, `stop` set,
    sd_notify STOPPING -> drain parts in reverse -> stop them in reverse -> exit code 0

A part is a `Service` (something that serves) or a named thread. If a thread ends before `stop` is set, by returning or
raising, the process ends too: the stack is logged and the exit code is 1. A second signal ends the process at once with
exit code 1. If a part cannot start, one ERROR line `exiting` is logged and the exit code is 1.

`run` must be called in the main thread. Signals are received by a separate thread: Python runs handlers only in the
main thread, so a signal that arrives just before that thread begins to wait would go unnoticed until the wait is over.
The signals are blocked in every thread, and child processes inherit the mask.
"""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from daemonkit import __version__
from daemonkit.logs import Logger
from daemonkit.systemd import Notifier

EXIT_STOPPED = 0
EXIT_FATAL = 1

_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})

# After a fatal error, running work gets a moment, not the whole grace period, so that the supervisor can restart us.
_FATAL_GRACE_PERIOD_S = 5.0
_LAST_JOIN_S = 1.0


class StartFailed(Exception):
    """A part cannot start, for a reason that an operator can fix; the message names it."""


def no_thread(error: RuntimeError) -> StartFailed:
    """Converts the error that `Thread.start` raises if the process hits its thread limit or lacks memory for a thread.

    Docker before 20.10.10 refuses clone3, which current C libraries use to create every thread.
    """
    remedy = "raise the limit of tasks (TasksMax in a unit), or free memory; a container needs Docker 20.10.10 or newer"
    return StartFailed(f"{error}: {remedy}")


def start_thread(thread: threading.Thread) -> None:
    """Raises StartFailed if no thread can be created."""
    try:
        thread.start()
    except RuntimeError as error:
        raise no_thread(error) from error


class Service(Protocol):
    """Something that serves from `start` to `stop`."""

    def start(self) -> None:
        """Bind and begin to serve; returns when ready. Raises OSError or StartFailed if that is impossible."""

    def drain(self, deadline_s: float) -> None:
        """Accept no new work and finish what is running; returns by `deadline_s` (monotonic clock) at the latest."""

    def stop(self) -> None:
        """Release everything, finished or not. May be called after a failed `start`, and a second time."""


class _Event(Enum):
    STOP_SIGNAL = "stop signal"
    FATAL = "fatal"
    """A thread ended, or `Daemon.fail` was called."""


class _NamedThread:
    """A registered thread as a part of the daemon."""

    def __init__(self, name: str, target: Callable[[], object], daemon: "Daemon") -> None:
        self.name = name
        self._target = target
        self._daemon = daemon
        # A thread that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        start_thread(self._thread)

    def _run(self) -> None:
        try:
            self._target()
        except BaseException as error:
            self._daemon._thread_failed(self.name, error)
        else:
            self._daemon._thread_returned(self.name)

    def drain(self, deadline_s: float) -> None:
        """Nothing to do yet: threads end after all services have drained."""

    def stop(self) -> None:
        """Nothing to do: setting `Daemon.stop` ends the thread; see `join`."""

    def join(self, deadline_s: float) -> bool:
        """True if the thread has ended or never started."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline_s - time.monotonic()))
        return not self._thread.is_alive()


class Daemon:
    """Parts are registered with `serve` and `thread`, and start in that order when `run` is called.

    Register the health server first: it then answers "not ready" for as long as the others drain.
    """

    def __init__(self, name: str, grace_period_s: float, log: Logger) -> None:
        self.stop = threading.Event()
        """Set when the process was asked to stop; every wait in the process must end then."""
        self._name = name
        self._grace_period_s = grace_period_s
        self._log = log
        self._notifier = Notifier()
        self._parts: list[Service] = []
        self._threads: list[_NamedThread] = []
        self._on_stop: list[Callable[[], None]] = []
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._signals_seen = 0

    def serve(self, service: Service) -> None:
        """Start `service` along with the others, in registration order; stop it in reverse order."""
        self._parts.append(service)

    def thread(self, name: str, target: Callable[[], object]) -> None:
        """Run `target` in a thread of this name; it must run until `stop` is set, and return soon after."""
        part = _NamedThread(name, target, self)
        self._threads.append(part)
        self._parts.append(part)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call `callback` first when asked to stop, in registration order: here readiness turns false."""
        self._on_stop.append(callback)

    def fail(self, error: BaseException | str) -> None:
        """End the process with exit code 1, for a reason that an operator can fix. May be called from any thread."""
        self._log.error("exiting", error, daemon=self._name)
        self._events.put(_Event.FATAL)

    def run(self) -> int:
        """Run the daemon from start to stop; returns the exit code."""
        started: list[Service] = []
        try:
            self._take_signals()
            for part in self._parts:
                started.append(part)
                part.start()
        except (OSError, StartFailed) as error:
            self._log.error("exiting", error, daemon=self._name)
            self._shut_down(started, _FATAL_GRACE_PERIOD_S)
            return EXIT_FATAL
        except Exception as error:
            self._log.exception("exiting", error, daemon=self._name)
            self._shut_down(started, _FATAL_GRACE_PERIOD_S)
            return EXIT_FATAL
        self._notifier.ready()
        self._log.info("started", daemon=self._name, version=__version__)
        is_fatal = self._wait() is _Event.FATAL
        self._notifier.stopping()
        self._shut_down(started, min(self._grace_period_s, _FATAL_GRACE_PERIOD_S if is_fatal else float("inf")))
        self._log.info("stopped", daemon=self._name)
        return EXIT_FATAL if is_fatal else EXIT_STOPPED

    def _wait(self) -> _Event:
        """The main loop: notifies the watchdog while every registered thread is alive."""
        while True:
            try:
                return self._events.get(timeout=self._notifier.watchdog_interval_s)
            except queue.Empty:
                if all(thread.is_alive for thread in self._threads):
                    self._notifier.watchdog()

    def _shut_down(self, started: list[Service], grace_period_s: float) -> None:
        deadline_s = time.monotonic() + grace_period_s
        for callback in self._on_stop:
            self._guarded("stop callback failed", callback)
        self.stop.set()
        for part in reversed(started):
            self._guarded("drain failed", lambda part=part: part.drain(deadline_s))  # type: ignore[misc]
        for part in reversed(started):
            self._guarded("stop failed", part.stop)
        deadline_s = max(deadline_s, time.monotonic() + _LAST_JOIN_S)
        for thread in reversed(self._threads):
            if not thread.join(deadline_s):
                self._log.warning("thread did not end in time", thread=thread.name)

    def _guarded(self, msg: str, step: Callable[[], None]) -> None:
        """Run one step; its failure must not keep the other parts from stopping."""
        try:
            step()
        except Exception as error:
            self._log.exception(msg, error)

    def _thread_failed(self, name: str, error: BaseException) -> None:
        self._log.exception("thread failed", error, thread=name)
        self._events.put(_Event.FATAL)

    def _thread_returned(self, name: str) -> None:
        if not self.stop.is_set():
            self._log.error("thread ended unexpectedly", thread=name)
            self._events.put(_Event.FATAL)

    def _take_signals(self) -> None:
        # A terminal that closes or a pipe that breaks is no reason to stop.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        if signal.SIGHUP not in blocked:
            # If SIGHUP is blocked, something will receive it; ignoring it would discard a pending one.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        start_thread(threading.Thread(target=self._watch_signals, name="signals", daemon=True))

    def _watch_signals(self) -> None:
        while True:
            self._on_signal(signal.sigwait(_STOP_SIGNALS))

    def _on_signal(self, number: int) -> None:
        self._signals_seen += 1
        name = signal.Signals(number).name
        if self._signals_seen > 1:
            self._log.warning("second signal, exiting at once", signal=name)
            os._exit(EXIT_FATAL)
        self._log.info("stopping", signal=name, grace_period_s=self._grace_period_s)
        self._events.put(_Event.STOP_SIGNAL)
