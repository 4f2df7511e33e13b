"""The moment by which a call must be answered, and the only way in which this package waits.

external-dns exits when a call takes 15 s, so each call gets a `Deadline` of about 12 s that is passed down to the last
socket. All waiting is on the stop event, so that shutdown ends every wait at once.
"""

import threading
import time
from collections.abc import Callable


class Deadline:
    """`at` is a time of the monotonic clock, in seconds."""

    def __init__(self, at: float, stop: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self.at = at
        self._stop = stop
        self._clock = clock

    @classmethod
    def after(cls, seconds: float, stop: threading.Event | None = None) -> "Deadline":
        return cls(time.monotonic() + seconds, stop or threading.Event())

    @property
    def remaining_s(self) -> float:
        """Seconds left; zero or less once it has passed."""
        return self.at - self._clock()

    @property
    def has_passed(self) -> bool:
        return self.remaining_s <= 0

    @property
    def is_stopping(self) -> bool:
        """The process was asked to stop: finish what is in flight, start nothing new."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`. Returns False at once if that would pass the deadline, and when the process stops."""
        if seconds >= self.remaining_s:
            return False
        return not self._stop.wait(seconds)
