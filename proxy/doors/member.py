"""The interface between a door and its connections, whatever protocol they speak."""

import math
from typing import Final, Protocol

from proxy.stats import RefusalCause

BUSY: Final = math.inf
"""`idle_since_s` of a connection that is in use."""


class Member(Protocol):
    """A client's connection, from the moment it was accepted."""

    @property
    def idle_since_s(self) -> float:
        """Since when no request has been running on it, by the loop's clock; BUSY while one is."""

    @property
    def is_sending(self) -> bool:
        """The socket has not yet taken the end of the last answer."""

    def drain(self) -> None:
        """Finish what runs, take nothing new, then close."""

    def evict(self) -> None:
        """It is idle, has nothing to send, and its place is needed: close at once, without waiting for the peer."""

    def abort(self, reason: str) -> None:
        """Close at once; `reason` is for the log of running exchanges."""


class Keeper(Protocol):
    """Who keeps account of connections: a door, or the tunnel."""

    def forget(self, member: Member) -> None:
        """It is closed; called exactly once."""

    def refused(self, cause: RefusalCause, detail: str) -> None:
        """The client was turned down; `detail` is for the log."""
