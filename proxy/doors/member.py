"""The interface between a door and its connections, whatever protocol they speak."""

import errno
import math
from typing import Final, Protocol

from proxy.stats import RefusalCause

BUSY: Final = math.inf
"""`idle_since_s` of a connection that is in use."""
UNWATCHED: Final = frozenset((errno.ENOSPC, errno.ENOMEM))
"""Why the kernel does not watch a new connection: a limit of watches, no memory."""


class Member(Protocol):
    """A client's connection, from the moment it was accepted."""

    @property
    def idle_since_s(self) -> float:
        """Since when no request has been running, by the loop's clock; BUSY while one is."""

    @property
    def is_sending(self) -> bool:
        """The socket has not yet taken the end of the last answer."""

    def drain(self) -> None:
        """Finish running requests, accept no new ones, then close."""

    def evict(self) -> None:
        """Close at once, without waiting for the peer: it is idle, has nothing to send, and its place is needed."""

    def abort(self, reason: str) -> None:
        """Close at once; `reason` is for the log of running exchanges."""


class Keeper(Protocol):
    """Counts connections: a door, or the tunnel."""

    def forget(self, member: Member) -> None:
        """`member` is closed. Called exactly once."""

    def refused(self, cause: RefusalCause, detail: str) -> None:
        """The client was refused; `detail` is for the log."""
