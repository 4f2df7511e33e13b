"""What has gone wrong with a watch since it last went well, and how long to wait because of that."""

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
    """Times are the caller's, of one monotonic clock, in seconds."""

    def __init__(self, first_wait_s: float, longest_wait_s: float) -> None:
        self._first_wait_s = first_wait_s
        self._longest_wait_s = longest_wait_s
        self._limits = self._new_limits()
        self.cause: Restart | None = None
        """Of the last restart; None: something has gone well since then."""
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
        """Let the limit of waits begin at its lowest again."""
        self._limits = self._new_limits()

    def next_limit_s(self) -> float:
        """The longest next wait; twice the one before, up to a limit."""
        return next(self._limits)

    def next_wait_s(self) -> float:
        """A random time up to that."""
        return backoff.full_jitter(self.next_limit_s())

    def is_forbidden_for(self, time_s: float, now_s: float) -> bool:
        """Whether a permission has been missing for so long, without anything else in between."""
        return now_s - self._forbidden_since_s >= time_s

    def _new_limits(self) -> Iterator[float]:
        return doubling(self._first_wait_s, self._longest_wait_s)
