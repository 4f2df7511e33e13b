"""When a call is repeated, after how long, and which other calls wait too. The only retry policy of these stores.

GET, PUT and DELETE may be repeated. After a broken connection or a 5xx they are, a few times, with full jitter. After a
timeout they are not: more work does not help a controller that hangs, and the time is nearly used up. A POST is
repeated only if the controller certainly did not act on it: after 429, or without a connection. Otherwise it is
`Unclear`, and the store finds out by listing.

A 429 concerns all calls: it closes a gate that all threads of the store pass before each call.
"""

import itertools
import threading
import time
from collections.abc import Callable

import backoff

from daemonkit.retryafter import retry_after_s
from daemonkit.waits import doubling
from dnswebhook.deadline import Deadline
from dnswebhook.errors import RateLimited, StoreError
from dnswebhook.stores.unifi import replies
from dnswebhook.stores.unifi.transport import NoReply, NoTimeLeft, Reply, Request

MAX_ATTEMPTS = 4
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 2.0
MIN_RATE_PAUSE_S = 0.1
"""Applies even after `Retry-After: 0`."""
MAX_RATE_PAUSE_S = 3600.0
"""A controller whose clock is years off must not stop us for years."""
_STATUS_GATEWAY_TIMEOUT = 504
"""The application behind the front end may still be working, as after a timeout of our own."""


class Unclear(Exception):
    """A POST may or may not have been carried out; `error` is what to raise if its row cannot be found."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class RateGate:
    """Closed for a while after a 429; open otherwise."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._opens_at = 0.0

    def close_for(self, seconds: float) -> None:
        with self._lock:
            self._opens_at = max(self._opens_at, self._clock() + seconds)

    def pass_through(self, deadline: Deadline) -> None:
        """Wait until the gate is open; raises RateLimited if that takes longer than the deadline allows."""
        while (closed_s := self._opens_at - self._clock()) > 0:
            if not deadline.wait(closed_s):
                raise RateLimited(f"the controller asked to pause for another {closed_s:.1f} s", closed_s)


class RetryPolicy:
    def __init__(self, on_rate_limited: Callable[[], None]) -> None:
        self._gate = RateGate()
        self._on_rate_limited = on_rate_limited

    def send(self, request: Request, exchange: Callable[[], Reply], deadline: Deadline) -> Reply:
        """The first reply that is neither 429 nor 5xx; raises StoreError, or Unclear for a POST."""
        pauses = doubling(FIRST_PAUSE_S, MAX_PAUSE_S)
        error: StoreError | None = None
        for attempt in itertools.count(1):
            self._gate.pass_through(deadline)
            try:
                reply = exchange()
            except NoTimeLeft as late:
                raise error or late.error from late  # an earlier failure is the better reason
            except NoReply as failure:
                if failure.was_sent and not request.is_idempotent:
                    failure.error.is_pending = True
                    raise Unclear(failure.error) from failure
                if not failure.is_repeatable:
                    raise failure.error from failure
                error = failure.error
            else:
                if reply.status_code == 429:
                    self._slow_down(reply, backoff.full_jitter(next(pauses)), attempt, deadline)
                    continue
                if reply.status_code < 500:
                    return reply
                error = replies.server_failure(reply)
                if not request.is_idempotent:
                    error.is_pending = reply.status_code == _STATUS_GATEWAY_TIMEOUT
                    raise Unclear(error)
            if attempt >= MAX_ATTEMPTS or not deadline.wait(backoff.full_jitter(next(pauses))):
                raise error
        raise AssertionError("unreachable: the loop above has no end")

    def _slow_down(self, reply: Reply, default_s: float, attempt: int, deadline: Deadline) -> None:
        self._on_rate_limited()
        asked_s = retry_after_s(reply.headers)
        pause_s = min(max(default_s if asked_s is None else asked_s, MIN_RATE_PAUSE_S), MAX_RATE_PAUSE_S)
        self._gate.close_for(pause_s)
        if attempt >= MAX_ATTEMPTS or pause_s >= deadline.remaining_s:
            raise RateLimited(f"{replies.described(reply)}; asked to pause for {pause_s:.1f} s", pause_s)
