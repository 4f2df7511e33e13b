"""Deadlines: times at which something is called, cheap to move.

Most deadlines of a proxy never come: a request ends, an idle connection gets the next one. So moving one further away
only sets an attribute, and the heap learns of it when the earlier time has come.
"""

import heapq
import math
from collections.abc import Callable

_NEVER_S = math.inf
_MIN_DEAD = 1000
"""Entries of cancelled deadlines that the heap may hold before it is cleaned."""


class Deadlines:
    """The deadlines of one loop. Times are in seconds of its clock."""

    __slots__ = ("_count", "_dead", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        """Orders entries of equal times."""
        self._dead = 0

    def next_s(self) -> float | None:
        """When to look again; None: not before another deadline is set."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> list[Callable[[], None]]:
        """The calls whose time has come, in the order of their times; they are not set any more."""
        calls: list[Callable[[], None]] = []
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            armed_s, _, deadline = heapq.heappop(heap)
            callback = deadline.callback
            if callback is None:
                self._dead -= 1
            elif deadline.armed_s == armed_s:
                deadline.armed_s = _NEVER_S
                if deadline.at_s > now_s:
                    if deadline.at_s != _NEVER_S:
                        self.arm(deadline)
                else:
                    deadline.at_s = _NEVER_S
                    calls.append(callback)
        return calls

    def arm(self, deadline: "Deadline") -> None:
        deadline.armed_s = deadline.at_s
        self._count += 1
        heapq.heappush(self._heap, (deadline.at_s, self._count, deadline))

    def forget(self) -> None:
        """A deadline with an entry was cancelled."""
        self._dead += 1
        if self._dead > _MIN_DEAD and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._dead = 0


class Deadline:
    """One deadline, to be set and cleared any number of times, and cancelled when its owner is gone."""

    __slots__ = ("_deadlines", "armed_s", "at_s", "callback")

    def __init__(self, deadlines: Deadlines, callback: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self.callback: Callable[[], None] | None = callback
        self.at_s = _NEVER_S
        """When `callback` is to be called; infinity while it is not set."""
        self.armed_s = _NEVER_S
        """The time of its valid entry in the heap, never later than `at_s`."""

    def set(self, at_s: float) -> None:
        """Replaces an earlier setting."""
        self.at_s = at_s
        if at_s < self.armed_s and self.callback is not None:
            self._deadlines.arm(self)

    def clear(self) -> None:
        self.at_s = _NEVER_S

    def cancel(self) -> None:
        """Never call, and let go of the callback's object."""
        self.at_s = _NEVER_S
        if self.callback is not None:
            self.callback = None
            if self.armed_s != _NEVER_S:
                self._deadlines.forget()
