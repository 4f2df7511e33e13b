"""Is the store usable? An independent probe runs every 15 s; its last result answers `/readyz`.

Requests for `/readyz` never probe: a client that hangs up cannot spoil the result, and a slow store cannot delay the
response. A failed call requests a probe at once. Bodies carry fixed texts; details are logged, and only when the result
changes.
"""

import threading
from collections.abc import Callable

from daemonkit.causes import forget_frames
from daemonkit.logs import get_logger
from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreError
from dnswebhook.stores.base import Store

log = get_logger(__name__)

PROBE_INTERVAL_S = 15.0
PROBE_TIMEOUT_S = 10.0
MIN_PAUSE_S = 1.0
"""Between probes after failed calls, so that a burst of failures does not cause a burst of probes."""

NOT_PROBED = "the record store has not been reached yet"
STOPPING = "shutting down"
_TEXTS = {
    "unreachable": "the record store cannot be reached",
    "timeout": "the record store does not answer in time",
    "credentials": "the record store refuses the credentials",
    "rate_limited": "the record store asks to slow down",
    "store_failed": "the record store cannot be written",
    "unknown_api": "the API of the network controller is not known yet",
}


class Readiness:
    """`run` belongs to one thread; everything else may be called from any thread."""

    def __init__(self, store: Store, stop: threading.Event, on_verdict: Callable[[bool], None]) -> None:
        self._store = store
        self._stop = stop
        self._on_verdict = on_verdict
        self._asked = threading.Event()
        self._is_woken = False
        self._concluding = threading.Lock()
        """Held while a verdict is passed on, so that the last one told is the one that counts."""
        self._problem: str | None = NOT_PROBED

    def problem(self) -> str | None:
        """None if ready, else one of a few fixed texts."""
        return STOPPING if self._stop.is_set() else self._problem

    def probe_soon(self) -> None:
        """Probe without waiting for the interval, because a call has failed."""
        self._asked.set()

    def wake(self) -> None:
        """The process is about to stop: `run` returns as soon as it does."""
        self._is_woken = True
        self._asked.set()

    def credentials_refused(self) -> None:
        """A call has failed with refused credentials: no probe is needed."""
        self._conclude("credentials", "a call was refused")

    def run(self) -> None:
        while not self._stop.is_set():
            self._probe()
            self._asked.wait(PROBE_INTERVAL_S)
            if self._asked.is_set():
                self._stop.wait(MIN_PAUSE_S)
                self._asked.clear()
                if self._is_woken:  # perhaps just before the event was cleared, and nobody sets it again
                    self._asked.set()

    def _probe(self) -> None:
        try:
            self._store.probe(Deadline.after(PROBE_TIMEOUT_S, self._stop))
        except StoreError as error:
            self._conclude(error.reason, error)
            forget_frames(error)
        else:
            self._conclude(None, None)

    def _conclude(self, reason: str | None, error: StoreError | str | None) -> None:
        problem = None if reason is None else _TEXTS.get(reason, _TEXTS["unreachable"])
        with self._concluding:
            changed, self._problem = problem != self._problem, problem
            self._on_verdict(problem is None)
            if changed and not self._stop.is_set():
                if problem is None:
                    log.info("record store is ready")
                else:
                    log.warning("record store is not ready", error=error, reason=reason)
