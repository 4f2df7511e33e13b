"""How long a connection to a backend is kept. Pure: times come in.

No connection gets requests when it is older than MAX_AGE_S, so that a name's new addresses come into use. One that
carries many requests is besides looked at every SILENCE_S: it may go when nobody has used it for the idle timeout, is
pinged when requests wait on it and nothing has come, and is lost when nothing has come after that either.
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

    __slots__ = ("_is_pinged", "is_heard", "retire_at_s", "unused_since_s")

    def __init__(self, now_s: float) -> None:
        self.retire_at_s = now_s + MAX_AGE_S
        self.unused_since_s = now_s
        """Set it when the last request ends."""
        self.is_heard = True
        """Set it when something comes."""
        self._is_pinged = False

    def look(self, now_s: float, *, is_used: bool, idle_timeout_s: float) -> Sign:
        """`idle_timeout_s` 0: no limit."""
        if not is_used and idle_timeout_s and now_s >= self.unused_since_s + idle_timeout_s:
            return Sign.UNUSED
        is_silent = is_used and not self.is_heard
        if is_silent and self._is_pinged:
            return Sign.DEAD
        self.is_heard = False
        self._is_pinged = is_silent
        return Sign.SILENT if is_silent else Sign.ALIVE

    @staticmethod
    def next_look_s(now_s: float, idle_timeout_s: float) -> float:
        return now_s + min(SILENCE_S, idle_timeout_s or SILENCE_S)
