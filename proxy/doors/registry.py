"""All client connections of a worker, and which one makes room when there are too many.

The document sets the limit. At the limit, the connection that has been idle longest gives way to a new one. If all are
in use, which includes those whose client has not yet taken the end of a response, the new one is refused. Connections
are not kept sorted for that: idle ones are searched for when a place is needed, some dozens at a time. Listening
sockets that are about to close are kept here too, since they still accept clients.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from proxy.doors.acceptor import Acceptor
from proxy.doors.member import BUSY, Member

_CANDIDATES: Final = 64
_RESCAN_S: Final = 0.1
"""The shortest time between a search that found no idle connection and the next."""


class Registry:
    def __init__(self, on_empty: Callable[[], None]) -> None:
        self.max_connections = 0
        """From the document. Before there is one, no client is accepted."""
        self._finishing: set[Acceptor] = set()
        self._on_empty = on_empty
        self._members: set[Member] = set()
        self._candidates: deque[tuple[Member, float]] = deque()
        self._next_scan_s = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """Over a copy, so members may leave meanwhile."""
        return iter(tuple(self._members))

    def add(self, member: Member) -> None:
        self._members.add(member)

    def remove(self, member: Member) -> None:
        self._members.discard(member)
        if self.is_empty:
            self._on_empty()

    @property
    def is_empty(self) -> bool:
        """There are no connections, and no listening sockets that still accept some."""
        return not self._members and not self._finishing

    def finish(self, acceptor: Acceptor) -> None:
        """Close the listening socket once all clients that have begun a TCP handshake are accepted."""

        def closed() -> None:
            self._finishing.discard(acceptor)
            if self.is_empty:
                self._on_empty()

        self._finishing.add(acceptor)
        acceptor.finish(closed)

    def abort(self) -> None:
        """Close the listening sockets that are about to close at once."""
        for acceptor in tuple(self._finishing):
            acceptor.close()

    def replace(self, member: Member, successor: Member) -> None:
        self._members.discard(member)
        self._members.add(successor)

    def make_room(self, now_s: float) -> bool:
        """Whether there is room for one more connection; an idle one may have been closed for it."""
        return len(self._members) < self.max_connections or self.evict(now_s)

    def evict(self, now_s: float) -> bool:
        """Close the connection that has been idle longest. Returns False if all are in use."""
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
