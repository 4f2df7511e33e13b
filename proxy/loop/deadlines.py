"""Deadlines: times at which something is called, cheap to move.

Most deadlines of a proxy never expire: a request ends, an idle connection gets its next one. So moving a deadline to a
later time only sets an attribute, and its entry in the heap is corrected when the earlier time has come.
"""

import heapq
import math
from collections.abc import Callable, Iterator

_NEVER_S = math.inf
_MIN_STALE = 1000
"""How many outdated entries the heap may hold before it is cleaned."""


class Deadlines:
    """The deadlines of one loop. Times are in seconds of its clock."""

    __slots__ = ("_count", "_heap", "_stale")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        """Numbers the entries, so that entries of the same time stay in order."""
        self._stale = 0
        """How many entries of the heap are outdated."""

    def next_s(self) -> float | None:
        """When to call `due` next; None: not before another deadline is set."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> Iterator[Callable[[], None]]:
        """Yield the calls that are due, in the order of their times. Their deadlines are no longer set.

        Make each call before asking for the next: a deadline that an earlier call clears or cancels is left out, and
        one set by such a call waits for the next time, even if it is due.
        """
        last_number = self._count
        later: list[tuple[float, int, Deadline]] = []
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            entry = heapq.heappop(heap)
            _, number, deadline = entry
            if number > last_number and number == deadline.entry:
                later.append(entry)
            elif number != deadline.entry:
                self._stale -= 1
            else:
                deadline.entry = 0
                if deadline.at_s > now_s:
                    if deadline.at_s != _NEVER_S:
                        self.arm(deadline)
                elif deadline.callback is not None:
                    deadline.at_s = _NEVER_S
                    yield deadline.callback
                    heap = self._heap
        for entry in later:
            heapq.heappush(self._heap, entry)

    def arm(self, deadline: "Deadline") -> None:
        if deadline.entry:
            self.forget(deadline)
        self._count += 1
        deadline.entry = self._count
        deadline.armed_s = deadline.at_s
        heapq.heappush(self._heap, (deadline.at_s, self._count, deadline))

    def forget(self, deadline: "Deadline") -> None:
        """Invalidate its entry."""
        deadline.entry = 0
        self._stale += 1
        if self._stale > _MIN_STALE and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].entry]
            heapq.heapify(self._heap)
            self._stale = 0


class Deadline:
    """One deadline, to be set and cleared any number of times, and cancelled when its owner is gone."""

    __slots__ = ("_deadlines", "armed_s", "at_s", "callback", "entry")

    def __init__(self, deadlines: Deadlines, callback: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self.callback: Callable[[], None] | None = callback
        self.at_s = _NEVER_S
        """When to call `callback`; infinity if not set."""
        self.entry = 0
        """The number of its valid entry in the heap, or 0."""
        self.armed_s = _NEVER_S
        """The time of that entry, never later than `at_s`."""

    def set(self, at_s: float) -> None:
        """Replaces an earlier setting."""
        self.at_s = at_s
        if (not self.entry or at_s < self.armed_s) and self.callback is not None and at_s != _NEVER_S:
            self._deadlines.arm(self)

    def clear(self) -> None:
        self.at_s = _NEVER_S

    def cancel(self) -> None:
        """Never call again, and drop the reference to the callback."""
        self.at_s = _NEVER_S
        self.callback = None
        if self.entry:
            self._deadlines.forget(self)
