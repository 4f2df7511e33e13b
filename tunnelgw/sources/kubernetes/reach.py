"""Whether the API server answers at all: a loss is logged once for all threads, and so is its end.

One request without an answer means nothing yet: servers restart, and the next connection may work. Threads that wait
before their next request can end the wait when the server has answered another thread.
"""

import threading
import time
from collections.abc import Callable

from daemonkit.logs import get_logger

_PATIENCE_S = 5.0
_SAY_EVERY_S = 60.0

_log = get_logger("tunnelgw.sources.kubernetes")


class Reach:
    """Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Condition()
        self._lost_s: float | None = None
        """When the first request failed since the last answer; None: none has."""
        self._told_s: float | None = None
        """When a loss was last logged, this one or an earlier one."""
        self._is_told = False
        """Whether this loss was logged."""
        self._returns = 0
        """How many times the server has answered again after a loss."""
        self._is_over = False

    def wait(self, returns: int, timeout_s: float) -> None:
        """Wait until the server has answered again after the loss of which `lost` returned this, but at most
        `timeout_s`; after `end` do not wait."""
        with self._lock:
            self._lock.wait_for(lambda: self._returns > returns or self._is_over, timeout_s)

    def end(self) -> None:
        with self._lock:
            self._is_over = True
            self._lock.notify_all()

    def answered(self) -> None:
        """Any answer from the server counts."""
        with self._lock:
            if self._lost_s is None:
                return
            away_s, was_told = self._clock() - self._lost_s, self._is_told
            self._lost_s, self._is_told = None, False
            self._returns += 1
            self._lock.notify_all()
        if was_told:
            _log.info("API server answers again", after_s=round(away_s, 1))

    def lost(self, error: Exception) -> int:
        """A request got no answer, or an incomplete one. Returns what `wait` needs to know."""
        with self._lock:
            now_s = self._clock()
            if self._lost_s is None:
                self._lost_s = now_s
            away_s, returns = now_s - self._lost_s, self._returns
            if away_s < _PATIENCE_S or (self._told_s is not None and now_s - self._told_s < _SAY_EVERY_S):
                return returns
            self._told_s, self._is_told = now_s, True
        _log.warning("API server cannot be reached, retrying", error, since_s=round(away_s, 1))
        return returns
