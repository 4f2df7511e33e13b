"""Times calls to a store, and wraps a store that does not time its own calls."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError
from dnswebhook.model import Capabilities, Listing, Record, RecordSpec
from dnswebhook.stores.base import Finding, Store

Observe = Callable[[str, str, float], None]
"""Called after each operation with its name, `ok` or the `reason` of its error, and its duration in seconds."""


@contextmanager
def observed(observe: Observe, operation: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Report to `observe` how the block ended and how long it took."""
    began_s = clock()
    outcome = StoreError.reason  # for a bug, which is not a StoreError
    try:
        yield
        outcome = "ok"
    except StoreError as error:
        outcome = error.reason
        raise
    finally:
        observe(operation, outcome, clock() - began_s)


class ObservedStore:
    def __init__(self, store: Store, observe: Observe) -> None:
        self._store = store
        self._observe = observe

    def capabilities(self) -> Capabilities:
        return self._store.capabilities()

    def list_records(self, deadline: Deadline) -> Listing:
        with observed(self._observe, "list"):
            return self._store.list_records(deadline)

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        with observed(self._observe, "create"):
            return self._store.create(spec, deadline)

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        with observed(self._observe, "update"):
            return self._store.update(record, spec, deadline)

    def delete(self, record: Record, deadline: Deadline) -> None:
        with observed(self._observe, "delete"):
            self._store.delete(record, deadline)

    def probe(self, deadline: Deadline) -> None:
        with observed(self._observe, "probe"):
            self._store.probe(deadline)

    def check(self, deadline: Deadline) -> Iterator[Finding]:
        return self._store.check(deadline)

    def close(self) -> None:
        self._store.close()
