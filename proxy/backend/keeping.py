"""How long a connection to a backend is kept. Pure: times are passed in.

A connection older than MAX_AGE_S gets no more requests, so that new addresses of a name come into use. An HTTP/2
connection is also checked every SILENCE_S, or more often if the idle timeout is shorter. It is closed after the idle
timeout without requests. It is pinged if requests are running and nothing has been received for SILENCE_S, and given up
if nothing is received for another SILENCE_S.

HTTP/1.1 backends may announce their idle timeout (`Keep-Alive: timeout=5`, as Node.js does). A POST that crosses with
the backend's close is lost, since a proxy must not retry it, so we close first.

A connection that answers only PINGs is pinged rarely. gRPC servers count PINGs that follow the previous one within five
minutes, and at the third they close the connection with all its calls (`too_many_pings`). Each frame of a response
resets their count, and the first PING after it is not counted. So our PINGs are PINGS_APART_S apart. A second one may
be sent sooner if a request has been sent meanwhile, as the host may be gone. At most two are then counted, since the
first may cross with a response.
"""

from enum import Enum
from typing import Final

MAX_AGE_S: Final = 600.0
SILENCE_S: Final = 15.0
PINGS_APART_S: Final = 310.0
_CLOSE_PINGS: Final = 2
_MARGIN_S: Final = 1.0


def usable_s(timeout_s: int) -> float:
    """How long after a response a connection may get requests if its backend keeps it for `timeout_s`.

    The margin covers the round trip and delays on either side. A timeout of one or two seconds is halved. 0, which
    backends send for timeouts below a second, leaves nothing.
    """
    return timeout_s - _MARGIN_S if timeout_s > 2 * _MARGIN_S else timeout_s / 2


class Sign(Enum):
    """The result of `Keeping.look`."""

    ALIVE = "alive"
    SILENT = "silent"
    """To be pinged."""
    DEAD = "dead"
    UNUSED = "unused"


class Keeping:
    """How long to keep one HTTP/2 connection."""

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
        """Set by the link when the last request ends."""
        self.is_heard = True
        """Set by the link when anything is received."""
        self.has_answered = False
        """Set by the link when part of a response is received."""
        self.has_asked = False
        """Set by the link when part of a request is sent."""
        self._silent_since_s = now_s
        """Since when nothing has been received although requests were running."""
        self._is_pinged = False
        """A PING was sent, and nothing has been received since."""
        self._pinged_s = now_s
        self._pings = 0
        """PINGs since part of a response was last received."""

    def look(self, now_s: float, *, is_used: bool, idle_timeout_s: float) -> Sign:
        """Check the connection. `idle_timeout_s` 0 means no limit."""
        if not is_used and idle_timeout_s and now_s >= self.unused_since_s + idle_timeout_s:
            return Sign.UNUSED
        if self.has_answered:
            self.has_answered = False
            self._pings = 0
        if self.is_heard or not is_used:
            self.is_heard = self._is_pinged = False
            self._silent_since_s = now_s
            return Sign.ALIVE
        # With a short idle timeout, checks are less than SILENCE_S apart.
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
