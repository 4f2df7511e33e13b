"""How long a connection to a backend is kept. Pure: times come in.

No connection gets requests when it is older than MAX_AGE_S, so that a name's new addresses come into use. One that
carries many requests is besides looked at every SILENCE_S, or more often for a shorter idle timeout: it may go when
nobody has used it for that, is pinged when requests wait on it and nothing has come for SILENCE_S, and is lost when
nothing has come for as long after that either.
"""

from enum import Enum
from typing import Final

MAX_AGE_S: Final = 600.0
SILENCE_S: Final = 15.0


class Sign(Enum):
    """What a look finds."""

    ALIVE = "alive"
    SILENT = "silent"
    """Ping it."""
    DEAD = "dead"
    UNUSED = "unused"


class Keeping:
    """Of one connection that carries many requests."""

    __slots__ = ("_pinged_s", "_silent_since_s", "is_heard", "retire_at_s", "unused_since_s")

    def __init__(self, now_s: float) -> None:
        self.retire_at_s = now_s + MAX_AGE_S
        self.unused_since_s = now_s
        """Set it when the last request ends."""
        self.is_heard = True
        """Set it when something comes."""
        self._silent_since_s = now_s
        """Nothing has come since, or nothing had to."""
        self._pinged_s: float | None = None

    def look(self, now_s: float, *, is_used: bool, idle_timeout_s: float) -> Sign:
        """`idle_timeout_s` 0: no limit."""
        if not is_used and idle_timeout_s and now_s >= self.unused_since_s + idle_timeout_s:
            return Sign.UNUSED
        if self.is_heard or not is_used:
            self.is_heard = False
            self._silent_since_s, self._pinged_s = now_s, None
            return Sign.ALIVE
        # With a short idle timeout the looks are closer together than that.
        if self._pinged_s is not None:
            return Sign.DEAD if now_s >= self._pinged_s + SILENCE_S else Sign.ALIVE
        if now_s < self._silent_since_s + SILENCE_S:
            return Sign.ALIVE
        self._pinged_s = now_s
        return Sign.SILENT

    @staticmethod
    def next_look_s(now_s: float, idle_timeout_s: float) -> float:
        return now_s + min(SILENCE_S, idle_timeout_s or SILENCE_S)
