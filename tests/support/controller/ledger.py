"""What was asked of the simulator: call counters, the number of parallel writes, and the last calls in order."""

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
    """With identifiers replaced by `{id}` and the site by `{site}`."""
    status: int
    """0 where no answer left: reset, hang that ended, closed."""
    name: str = ""


class Ledger:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writes_now = 0
        self.calls: Counter[tuple[str, Operation, int]] = Counter()
        """By API (`v2`, `integration`, `session`, `other`), operation and status."""
        self.log: deque[Call] = deque(maxlen=LOG_LENGTH)
        self.max_parallel_writes = 0

    def note(self, api: str, operation: Operation, call: Call) -> None:
        with self._lock:
            self.calls[api, operation, call.status] += 1
            self.log.append(call)

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
        """Calls that match what is given."""
        with self._lock:
            return sum(
                calls
                for (its_api, its_operation, its_status), calls in self.calls.items()
                if operation in (None, its_operation) and api in (None, its_api) and status in (None, its_status)
            )

    @property
    def writes(self) -> dict[Operation, int]:
        """Calls that asked for a write, refused ones included."""
        return {operation: self.count(operation) for operation in sorted(WRITES)}

    def reset(self) -> None:
        with self._lock:
            self.calls.clear()
            self.log.clear()
            self.max_parallel_writes = 0
