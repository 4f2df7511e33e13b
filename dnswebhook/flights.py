"""Callers that want the same thing at the same time share one call for it.

A caller is only served by a flight that began after it asked, so the result is never older than the request. Ten
simultaneous listings thus cost two store reads and their memory, not ten.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreTimeout

T = TypeVar("T")


class Flights(Generic[T]):
    """`fetch` makes one call; it runs in the thread of the caller that leads the flight."""

    def __init__(self, fetch: Callable[[Deadline], T]) -> None:
        self._fetch = fetch
        self._landed = threading.Condition()
        self._departures = 0
        self._landings = 0
        """Flights never overlap, so one is in progress exactly while there are fewer landings than departures."""
        self._result: T | None = None
        self._error: Exception | None = None

    def get(self, deadline: Deadline) -> T:
        """The result or error of a flight that starts after this call; raises StoreTimeout if none ends in time."""
        with self._landed:
            wanted = self._departures + 1
            while self._landings < self._departures and self._landings < wanted:
                if not self._landed.wait(max(0.0, deadline.remaining_s)):
                    raise StoreTimeout("other listings were still running at the deadline of the call")
            if self._landings >= wanted:
                return self._outcome()
            self._departures += 1
        return self._lead(deadline)

    def _lead(self, deadline: Deadline) -> T:
        result: T | None = None
        error: Exception | None = None
        try:
            result = self._fetch(deadline)
        except Exception as caught:
            error = caught
        with self._landed:
            self._landings += 1
            self._result, self._error = result, error
            self._landed.notify_all()
            return self._outcome()

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # no error: fetch returned a T
