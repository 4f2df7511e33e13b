"""Listings that are asked for at the same time share work, without anyone getting an answer older than his question.

A listing under way may have passed the row that the asker has just written, so it cannot serve whoever comes later: all
who come meanwhile share the *next* one. At most one flight is under way and one is waiting, however many ask, which
also bounds the memory that ten listings at once take.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError, StoreTimeout

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.landed = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None


class SharedFlights(Generic[T]):
    def __init__(self, fly: Callable[[Deadline], T]) -> None:
        self._fly = fly
        self._lock = threading.Lock()
        self._under_way: _Flight[T] | None = None
        self._next: _Flight[T] | None = None

    def join(self, deadline: Deadline) -> T:
        """The result of a flight that starts after this call; raises what it raised, or StoreTimeout."""
        while True:
            with self._lock:
                flight, before = self._next, self._under_way
                is_pilot = flight is None
                if flight is None:
                    flight = _Flight()
                    if before is None:
                        self._under_way = flight
                    else:
                        self._next = flight
            if is_pilot:
                return self._pilot(flight, before, deadline)
            if not flight.landed.wait(max(deadline.remaining_s, 0)):
                raise StoreTimeout("another thread's listing did not end in time")
            if flight.result is not None:
                return flight.result
            # The pilot may have had less time than we have: then try again.
            if not isinstance(flight.error, StoreTimeout) or deadline.has_passed:
                raise _own_copy(flight.error)

    def _pilot(self, flight: _Flight[T], before: _Flight[T] | None, deadline: Deadline) -> T:
        try:
            if before is not None:
                self._await_turn(flight, before, deadline)
            flight.result = self._fly(deadline)
        except BaseException as error:
            flight.error = error
            raise
        finally:
            self._land(flight)
        return flight.result

    def _await_turn(self, flight: _Flight[T], before: _Flight[T], deadline: Deadline) -> None:
        if not before.landed.wait(max(deadline.remaining_s, 0)):
            raise StoreTimeout("the listing before this one did not end in time")
        with self._lock:
            self._under_way, self._next = flight, None

    def _land(self, flight: _Flight[T]) -> None:
        with self._lock:
            if self._under_way is flight:
                self._under_way = None
            if self._next is flight:
                self._next = None
        flight.landed.set()


def _own_copy(error: BaseException | None) -> BaseException:
    """An exception object belongs to the thread that raised it; passengers raise one of the same class."""
    if not isinstance(error, StoreError):
        return StoreTimeout(f"another thread's listing failed: {error}")
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error
    return twin
