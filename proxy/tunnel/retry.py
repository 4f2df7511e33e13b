"""How long to wait before dialling the edge again: full jitter with a doubling cap.

    waits = Waits()
    waits.lost(registered_for_s)            when a registered connection is gone; then, as
    wait = waits.next(random.random())      after each failed attempt

A connection that was registered for a while gets a quick first retry: most likely the edge has restarted, and has
room. One that is lost right after registering counts as a failed attempt. Pure: random numbers are passed in.
"""

from typing import Final

import msgspec

from daemonkit.waits import doubling

FIRST_CAP_S: Final = 2.0
MAX_CAP_S: Final = 30.0
QUICK_CAP_S: Final = 1.0
GOOD_PERIOD_S: Final = 10.0


class Wait(msgspec.Struct, frozen=True):
    attempt: int
    """The number of the failed attempt, from 1."""
    delay_s: float


class Waits:
    """The waits of one connection."""

    def __init__(self) -> None:
        self._attempts = 0
        self._is_quick = False
        self._caps = doubling(FIRST_CAP_S, MAX_CAP_S)

    @property
    def attempts(self) -> int:
        """Failed attempts since the connection was last registered for a while."""
        return self._attempts

    def next(self, chance: float, retry_after_s: float = 0.0) -> Wait:
        """The wait after a failed attempt. `chance` is from 0 up to 1; `retry_after_s` is the least that the edge asks
        for.

        No wait is longer than MAX_CAP_S, whatever the edge asks for.
        """
        self._attempts += 1
        delay_s = chance * (QUICK_CAP_S if self._is_quick else next(self._caps))
        self._is_quick = False
        return Wait(self._attempts, min(max(delay_s, retry_after_s), MAX_CAP_S))

    def lost(self, registered_for_s: float) -> None:
        """A connection that was registered for this long is gone; call `next` after this."""
        if registered_for_s >= GOOD_PERIOD_S:
            self._attempts = 0
            self._is_quick = True
            self._caps = doubling(FIRST_CAP_S, MAX_CAP_S)
