"""What has gone wrong with a watch since it last worked, and how long to wait because of that."""

import math
from collections.abc import Iterator
from enum import StrEnum

import backoff

from daemonkit.waits import doubling


class Restart(StrEnum):
    """Why a watch was restarted; a closed set, for metrics."""

    DISCONNECTED = "disconnected"
    EXPIRED = "expired"
    FORBIDDEN = "forbidden"
    """A permission is missing: a person must act."""
    REFUSED = "refused"
    REMOVED = "removed"


class Setbacks:
    """All times come from the caller, in seconds of one monotonic clock."""

    def __init__(self, first_wait_s: float, longest_wait_s: float) -> None:
        self._first_wait_s = first_wait_s
        self._longest_wait_s = longest_wait_s
        self._limits = self._new_limits()
        self.cause: Restart | None = None
        """The cause of the last restart; None: the watch has worked since then."""
        self._forbidden_since_s = math.inf

    def add(self, cause: Restart, now_s: float) -> None:
        if cause in (Restart.REFUSED, Restart.FORBIDDEN) and self.cause is Restart.DISCONNECTED:
            self.wait_briefly()  # the server can be reached again
        self.cause = cause
        self._forbidden_since_s = min(self._forbidden_since_s, now_s) if cause is Restart.FORBIDDEN else math.inf

    def clear(self) -> None:
        self.wait_briefly()
        self.cause, self._forbidden_since_s = None, math.inf

    def wait_briefly(self) -> None:
        """Reset the limit of waits to its lowest value."""
        self._limits = self._new_limits()

    def next_limit_s(self) -> float:
        """The limit for the next wait: twice the previous one, up to a maximum."""
        return next(self._limits)

    def next_wait_s(self) -> float:
        """A random time up to that limit."""
        return backoff.full_jitter(self.next_limit_s())

    def is_forbidden_for(self, time_s: float, now_s: float) -> bool:
        """Whether a permission has been missing for this long, with nothing else in between."""
        return now_s - self._forbidden_since_s >= time_s

    def _new_limits(self) -> Iterator[float]:
        return doubling(self._first_wait_s, self._longest_wait_s)
