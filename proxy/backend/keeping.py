"""How long a connection to a backend is kept. Pure: times come in.

No connection gets requests when it is older than MAX_AGE_S, so that a name's new addresses come into use. A connection
that carries many requests is also looked at every SILENCE_S, or more often for a shorter idle timeout. It is closed
when nobody has used it for the idle timeout. It is pinged when requests run on it and nothing has come for SILENCE_S,
and given up when nothing comes for another SILENCE_S.

Backends over HTTP/1.1 may say after how long they close a connection that nobody uses (`Keep-Alive: timeout=5`, as
Node's do). A POST that crosses with their closing is lost, since nobody may repeat it; so we close first.

A connection that answers PINGs and nothing else is pinged seldom. gRPC servers count PINGs that come within five
minutes of the one before, and at the third they end the connection with all its calls (`too_many_pings`). Each frame of
an answer resets their count, and the first PING after it is not counted. So our PINGs are PINGS_APART_S apart. A second
one may come sooner if a request has been sent meanwhile, as the host may have gone. That makes at most two that count,
since the first may cross with an answer.
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

    The margin is for the round trip and for delays on either side. Of a timeout of one or two seconds, half is left; of
    0, which backends send that mean less than a second, nothing.
    """
    return timeout_s - _MARGIN_S if timeout_s > 2 * _MARGIN_S else timeout_s / 2


class Sign(Enum):
    """What `Keeping.look` finds."""

    ALIVE = "alive"
    SILENT = "silent"
    """Ping it."""
    DEAD = "dead"
    UNUSED = "unused"


class Keeping:
    """How long to keep one connection that carries many requests."""

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
        """To be set when the last request ends."""
        self.is_heard = True
        """To be set when anything comes."""
        self.has_answered = False
        """To be set when a part of a response comes."""
        self.has_asked = False
        """To be set when a part of a request leaves."""
        self._silent_since_s = now_s
        """Since when nothing has come although something should have."""
        self._is_pinged = False
        """Nothing has come since the last PING."""
        self._pinged_s = now_s
        self._pings = 0
        """PINGs since the last part of a response came."""

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
