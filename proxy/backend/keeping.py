"""How long a connection to a backend is kept. Pure: times come in.

No connection gets requests when it is older than MAX_AGE_S, so that a name's new addresses come into use. One that
carries many requests is besides looked at every SILENCE_S, or more often for a shorter idle timeout: it may go when
nobody has used it for that, is pinged when requests wait on it and nothing has come for SILENCE_S, and is lost when
nothing has come for as long after that either.

Backends over HTTP/1.1 may say after how long they close a connection that nobody uses (`Keep-Alive: timeout=5`, as
Node's do). A POST that crosses with that end is lost, since nobody may repeat it; so we are the first to close.

One that answers its PINGs and nothing else is pinged seldom. Servers of gRPC count those that come within five minutes
of the one before, and with the third they end the connection and all its calls (`too_many_pings`). With each frame of
an answer they begin anew, and the first PING after that is not counted. So PINGs are PINGS_APART_S apart, but for a
second one that comes sooner where something is asked meanwhile, perhaps of a host that has gone. One that crosses with
an answer may be counted, too: that makes two.
"""

from enum import Enum
from typing import Final

MAX_AGE_S: Final = 600.0
SILENCE_S: Final = 15.0
PINGS_APART_S: Final = 310.0
_CLOSE_PINGS: Final = 2
_MARGIN_S: Final = 1.0


def usable_s(timeout_s: int) -> float:
    """How long after an answer a connection may get requests that its backend keeps for `timeout_s`.

    The margin is for the ways there and back, and for whoever is late. It leaves half of a second or two; 0 is what
    backends say that mean less than one, and leaves nothing.
    """
    return timeout_s - _MARGIN_S if timeout_s > 2 * _MARGIN_S else timeout_s / 2


class Sign(Enum):
    """What a look finds."""

    ALIVE = "alive"
    SILENT = "silent"
    """Ping it."""
    DEAD = "dead"
    UNUSED = "unused"


class Keeping:
    """Of one connection that carries many requests."""

    __slots__ = (
        "_is_pinged",
        "_pinged_s",
        "_pings",
        "_silent_since_s",
        "has_answered",
        "has_asked",
        "is_heard",
        "retire_at_s",
        "unused_since_s",
    )

    def __init__(self, now_s: float) -> None:
        self.retire_at_s = now_s + MAX_AGE_S
        self.unused_since_s = now_s
        """Set it when the last request ends."""
        self.is_heard = True
        """Set it when something comes."""
        self.has_answered = False
        """Set it when something of an answer comes."""
        self.has_asked = False
        """Set it when something of a request leaves."""
        self._silent_since_s = now_s
        """Nothing has come since, or nothing had to."""
        self._is_pinged = False
        """Nothing has come since the last one."""
        self._pinged_s = now_s
        self._pings = 0
        """Since something of an answer came."""

    def look(self, now_s: float, *, is_used: bool, idle_timeout_s: float) -> Sign:
        """`idle_timeout_s` 0: no limit."""
        if not is_used and idle_timeout_s and now_s >= self.unused_since_s + idle_timeout_s:
            return Sign.UNUSED
        if self.has_answered:
            self.has_answered = False
            self._pings = 0
        if self.is_heard or not is_used:
            self.is_heard = self._is_pinged = False
            self._silent_since_s = now_s
            return Sign.ALIVE
        # With a short idle timeout the looks are closer together than that.
        if self._is_pinged:
            return Sign.DEAD if now_s >= self._pinged_s + SILENCE_S else Sign.ALIVE
        if now_s < self._silent_since_s + SILENCE_S or not self._may_ping(now_s):
            return Sign.ALIVE
        self._pinged_s = now_s
        self._pings += 1
        self._is_pinged = True
        self.has_asked = False
        return Sign.SILENT

    def _may_ping(self, now_s: float) -> bool:
        if not self._pings or now_s >= self._pinged_s + PINGS_APART_S:
            return True
        return self.has_asked and self._pings < _CLOSE_PINGS

    @staticmethod
    def next_look_s(now_s: float, idle_timeout_s: float) -> float:
        return now_s + min(SILENCE_S, idle_timeout_s or SILENCE_S)
