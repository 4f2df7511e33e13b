"""What a door knows of its connections, whatever they speak, and what they know of it."""

import math
from typing import Final, Protocol

from proxy.stats import RefusalCause

BUSY: Final = math.inf
"""`idle_since_s` of a connection that is in use."""


class Member(Protocol):
    """A client's connection, from the moment it was accepted."""

    @property
    def idle_since_s(self) -> float:
        """Since when no request has been waiting for anything on it, by the loop's clock; BUSY while one is."""

    @property
    def is_sending(self) -> bool:
        """The end of what it has answered is still with us: the client's socket has not taken it."""

    def drain(self) -> None:
        """Finish what runs, take nothing new, then close."""

    def evict(self) -> None:
        """It is idle, sends nothing, and its place is needed: close at once, without waiting for the peer to do so."""

    def abort(self, reason: str) -> None:
        """Close at once; `reason` is for the log of running exchanges."""


class Keeper(Protocol):
    """Who keeps account of connections: a door, or the tunnel."""

    def forget(self, member: Member) -> None:
        """It is closed; called exactly once."""

    def refused(self, cause: RefusalCause, detail: str) -> None:
        """The client was turned down; `detail` is for the log."""
