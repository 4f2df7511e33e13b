"""A store that times each of its calls, for stores that do not do so themselves."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError
from dnswebhook.model import Capabilities, Listing, Record, RecordSpec
from dnswebhook.stores.base import Finding, Store

Observe = Callable[[str, str, float], None]
"""Told the operation, `ok` or the error's reason, and the duration in seconds."""


class ObservedStore:
    def __init__(self, store: Store, observe: Observe) -> None:
        self._store = store
        self._observe = observe

    def capabilities(self) -> Capabilities:
        return self._store.capabilities()

    def list_records(self, deadline: Deadline) -> Listing:
        with self._timed("list"):
            return self._store.list_records(deadline)

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        with self._timed("create"):
            return self._store.create(spec, deadline)

    def update(self, record: Record, spec: RecordSpec, deadline: Deadline) -> Record:
        with self._timed("update"):
            return self._store.update(record, spec, deadline)

    def delete(self, record: Record, deadline: Deadline) -> None:
        with self._timed("delete"):
            self._store.delete(record, deadline)

    def probe(self, deadline: Deadline) -> None:
        with self._timed("probe"):
            self._store.probe(deadline)

    def check(self, deadline: Deadline) -> Iterator[Finding]:
        return self._store.check(deadline)

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        started = time.perf_counter()
        outcome = "ok"
        try:
            yield
        except StoreError as error:
            outcome = error.reason
            raise
        finally:
            self._observe(operation, outcome, time.perf_counter() - started)
