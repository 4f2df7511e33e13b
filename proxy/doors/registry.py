"""All client connections of a worker, and who makes room when there are too many.

The limit is of the document. At the limit the connection that has been idle longest gives way to a new one; where all
are in use, be it by clients that have not taken the end of a response, the new one is refused. Nothing is kept in order
for that: the idle ones are looked for when a place is needed, some dozens at a time. Sockets that finish are kept here
too, since their clients are still to come.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from proxy.doors.acceptor import Acceptor
from proxy.doors.member import BUSY, Member

_CANDIDATES: Final = 64
_RESCAN_S: Final = 0.1
"""After a look that found nobody idle."""


class Registry:
    def __init__(self, on_empty: Callable[[], None]) -> None:
        self.max_connections = 0
        """As the document says; before there is one nobody comes in."""
        self._finishing: set[Acceptor] = set()
        self._on_empty = on_empty
        self._members: set[Member] = set()
        self._candidates: deque[tuple[Member, float]] = deque()
        self._next_scan_s = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """Of those that are there now; they may leave meanwhile."""
        return iter(tuple(self._members))

    def add(self, member: Member) -> None:
        self._members.add(member)

    def remove(self, member: Member) -> None:
        self._members.discard(member)
        if self.is_empty:
            self._on_empty()

    @property
    def is_empty(self) -> bool:
        """Nobody is here, nor on the way in through a socket that finishes."""
        return not self._members and not self._finishing

    def finish(self, acceptor: Acceptor) -> None:
        """Close it when all who have begun to come are in."""

        def closed() -> None:
            self._finishing.discard(acceptor)
            if self.is_empty:
                self._on_empty()

        self._finishing.add(acceptor)
        acceptor.finish(closed)

    def abort(self) -> None:
        """Close at once the sockets that finish."""
        for acceptor in tuple(self._finishing):
            acceptor.close()

    def replace(self, member: Member, successor: Member) -> None:
        self._members.discard(member)
        self._members.add(successor)

    def make_room(self, now_s: float) -> bool:
        """Whether one more may come; an idle one may have been sent away for it."""
        return len(self._members) < self.max_connections or self.evict(now_s)

    def evict(self, now_s: float) -> bool:
        """Send away the one that has been idle longest; False when all are in use."""
        candidates = self._candidates
        while True:
            while candidates:
                member, idle_since_s = candidates.popleft()
                if member in self._members and member.idle_since_s == idle_since_s and not member.is_sending:
                    member.evict()
                    return True
            if now_s < self._next_scan_s:
                return False
            idle = [
                (member.idle_since_s, id(member), member)
                for member in self._members
                if member.idle_since_s < BUSY and not member.is_sending
            ]
            if not idle:
                self._next_scan_s = now_s + _RESCAN_S
                return False
            candidates += [(member, since_s) for since_s, _, member in heapq.nsmallest(_CANDIDATES, idle)]
