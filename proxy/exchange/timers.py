"""The time limits of an exchange, if it has any: four moments on one deadline of the loop. Infinite if not set."""

import math
from collections.abc import Callable

from proxy.loop import Loop


class Timers:
    __slots__ = ("_deadline", "attempt_s", "continue_s", "has_continued", "request_s", "retry_s")

    def __init__(self, loop: Loop, callback: Callable[[], None]) -> None:
        self._deadline = loop.deadline(callback)
        self.request_s = math.inf
        """When the whole exchange has to be over."""
        self.attempt_s = math.inf
        """When the running attempt has to be over."""
        self.retry_s = math.inf
        """When the next attempt begins."""
        self.continue_s = math.inf
        """When a client that waits for 100 (Continue) is told to go on."""
        self.has_continued = False
        """The client has been told. Some clients that get a second 100 never send their body."""

    def set(self) -> None:
        """Call after a change of any of the four."""
        self._deadline.set(min(self.request_s, self.attempt_s, self.retry_s, self.continue_s))

    def end_attempt(self) -> None:
        """The backend has done its part: the time that the client still takes does not count."""
        self.attempt_s = math.inf

    def clear(self) -> None:
        """Unset all four; they may be set again."""
        self.request_s = self.attempt_s = self.retry_s = self.continue_s = math.inf
        self._deadline.clear()

    def cancel(self) -> None:
        self._deadline.cancel()
