"""What the simulator was asked: call counters, the number of parallel writes, and the last calls in order."""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tests.support.controller.faults import WRITES, Operation

LOG_LENGTH = 2000


class Call(msgspec.Struct, frozen=True):
    method: str
    path: str
    """Identifiers are replaced by `{id}`, and the site by `{site}`."""
    status: int
    """0 if no response was sent: reset, hang that ended, closed."""
    name: str = ""


class Ledger:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._noted = threading.Condition(self._lock)
        self._calls_now = 0
        self._writes_now = 0
        self.calls: Counter[tuple[str, Operation, int]] = Counter()
        """By API (`v2`, `integration`, `session`, `other`), operation and status."""
        self.log: deque[Call] = deque(maxlen=LOG_LENGTH)
        self.max_parallel_writes = 0

    def note(self, api: str, operation: Operation, call: Call) -> None:
        with self._lock:
            self.calls[api, operation, call.status] += 1
            self.log.append(call)
            self._noted.notify_all()

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """Count a call as in progress, even while a fault holds back the response and the peer has long left."""
        with self._lock:
            self._calls_now += 1
        try:
            yield
        finally:
            with self._noted:
                self._calls_now -= 1
                self._noted.notify_all()

    def wait_until_idle(self, timeout_s: float = 30.0) -> None:
        """Return once no call is in progress: earlier calls can then no longer change or count anything."""
        with self._noted:
            if not self._noted.wait_for(lambda: self._calls_now == 0, timeout_s):
                raise TimeoutError(f"{self._calls_now} calls still in progress after {timeout_s} s")

    @contextmanager
    def parallel_write(self) -> Iterator[None]:
        with self._lock:
            self._writes_now += 1
            self.max_parallel_writes = max(self.max_parallel_writes, self._writes_now)
        try:
            yield
        finally:
            with self._lock:
                self._writes_now -= 1

    def count(
        self, operation: Operation | str | None = None, *, api: str | None = None, status: int | None = None
    ) -> int:
        """How many calls match the given criteria."""
        with self._lock:
            return sum(
                calls
                for (its_api, its_operation, its_status), calls in self.calls.items()
                if operation in (None, its_operation) and api in (None, its_api) and status in (None, its_status)
            )

    def table(self) -> dict[tuple[str, Operation, int], int]:
        """A copy of `calls`, taken at one moment."""
        with self._lock:
            return dict(self.calls)

    def wait_for(self, operation: Operation | str, calls: int = 1, timeout_s: float = 10.0) -> None:
        """Return once this many calls of this kind have been answered (or ended without a response)."""
        with self._noted:
            if not self._noted.wait_for(lambda: self.count(operation) >= calls, timeout_s):
                raise TimeoutError(f"{self.count(operation)} {operation} calls after {timeout_s} s, want {calls}")

    @property
    def writes(self) -> dict[Operation, int]:
        """Calls that requested a write, including refused ones."""
        return {operation: self.count(operation) for operation in sorted(WRITES)}

    def reset(self) -> None:
        with self._lock:
            self.calls.clear()
            self.log.clear()
            self.max_parallel_writes = 0
