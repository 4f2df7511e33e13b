"""One thread per target: sends it the newest parcel, and retries until the target holds it.

Targets never wait for each other: one that is down, slow or refusing has its own back-off. A newer parcel replaces an
older one that has not been delivered yet. A target that holds its parcel is still visited now and then, since it may
have been restarted empty, or edited by somebody else.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import backoff

from daemonkit.causes import forget_frames
from daemonkit.logs import get_logger
from daemonkit.waits import doubling
from tunnelgw.deliver.receipts import Receipt, Remark

log = get_logger(__name__)

FIRST_PAUSE_S = 0.25
MAX_PAUSE_S = 30.0
STARTING_S = 30.0
"""How long a target that was never reached counts as starting, for example a container whose image is being pulled."""
_STARTING_PAUSE_S = 1.0
_TOLD_EACH = 10
"""Of the first failures in a row, up to this many, those with news are logged; after that, one line a minute."""


class Undelivered(Exception):
    """Raised by a target; the message says what was seen and what to do."""

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 0.0,
        is_refusal: bool = False,
        is_credential_problem: bool = False,
        is_absent: bool = False,
        trace: str = "",
    ) -> None:
        """`is_absent`: as far as we can tell, nothing is there.

        `trace` identifies this attempt for the owners of the target. Only for the log, since it differs each time.
        """
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_refusal = is_refusal
        self.is_credential_problem = is_credential_problem
        self.is_absent = is_absent
        self.trace = trace


class Withheld(Exception):
    """Raised by a target if we may not write now: nothing new is known about the target."""


class Parcel(Protocol):
    @property
    def digest(self) -> str:
        """Equal digests mean equal content."""


P = TypeVar("P", bound=Parcel)
P_contra = TypeVar("P_contra", bound=Parcel, contravariant=True)


class Target(Protocol[P_contra]):
    """Used by one thread only."""

    @property
    def name(self) -> str: ...

    @property
    def look_soon_s(self) -> float:
        """How soon to visit it again after a delivery, if that is before the next regular visit; inf: no need to."""

    def deliver(self, parcel: P_contra) -> tuple[Remark, ...]:
        """Returns when the target holds the parcel, whether or not it had to be sent. Raises Undelivered, Withheld."""

    def close(self) -> None: ...


class Courier(Generic[P]):
    """`report` is called by the courier's thread after every visit that changed the receipt."""

    def __init__(
        self,
        make: Callable[[Callable[[], bool]], Target[P]],
        report: Callable[[Receipt], None],
        on_crash: Callable[[BaseException], None],
        *,
        visit_every_s: float,
        look_again_s: float,
        starting_s: float = STARTING_S,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`make` builds the target. Its argument tells whether the courier still serves the target, which must ask
        before each call.

        `look_again_s`: there is a visit this long after the first success, even if regular visits are rarer: by then,
        what somebody else had sent before has arrived.
        `on_end` is called by the courier's thread when `has_ended` has become true.
        """
        stopping = self._stopping = threading.Event()
        self.target = make(lambda: not stopping.is_set())  # without `self`, or the target would keep it after its end
        self._on_end = on_end
        self._report = report
        self._on_crash = on_crash
        self._visit_every_s = visit_every_s
        self._look_again_s = look_again_s
        self._starting_s = starting_s
        self._was_there = False
        self._changed = threading.Condition()
        self._parcel: P | None = None
        self._receipt: Receipt | None = None
        self._rare_log = log.every(60.0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"courier {self.target.name}", daemon=True)

    @property
    def has_ended(self) -> bool:
        """Whether the courier's thread has finished, so that no call is in progress any more."""
        return self._ended.is_set()

    def start(self) -> None:
        self._thread.start()

    def send(self, parcel: P) -> None:
        """Replace the parcel that the target should hold."""
        with self._changed:
            # By digest: an equal one that was made anew is no reason to call before the pause is over.
            if self._parcel is None or parcel.digest != self._parcel.digest:
                self._parcel = parcel
                self._changed.notify_all()

    def stop(self) -> None:
        """Begin no new call; one in progress finishes or times out. See `join`."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Returns whether the courier has ended."""
        return self._ended.wait(max(0.0, timeout_s))

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            self._on_crash(error)
        finally:
            self.target.close()
            self._ended.set()
            self._on_end()

    def _serve(self) -> None:
        done: P | None = None
        not_before_s = next_visit_s = 0.0
        look_again_s: float | None = None
        starting_until_s = time.monotonic() + self._starting_s
        caps = doubling(FIRST_PAUSE_S, MAX_PAUSE_S)
        while (parcel := self._next_parcel(done, not_before_s, next_visit_s)) is not None:
            try:
                remarks = self.target.deliver(parcel)
            except Withheld as reason:
                forget_frames(reason)  # they would keep the exception, and all that the target has, in memory
                next_visit_s = time.monotonic() + FIRST_PAUSE_S
            except Undelivered as failure:
                forget_frames(failure)
                if self._stopping.is_set():
                    return
                self._was_there |= not failure.is_absent
                is_starting = not self._was_there and time.monotonic() < starting_until_s
                pause_s = self._pause_s(backoff.full_jitter(next(caps)), failure, is_starting=is_starting)
                self._note_failure(parcel, failure, pause_s, is_starting=is_starting)
                not_before_s = time.monotonic() + failure.retry_after_s
                next_visit_s = time.monotonic() + pause_s
            else:
                self._was_there = True
                caps = doubling(FIRST_PAUSE_S, MAX_PAUSE_S)
                not_before_s = 0.0
                now_s = time.monotonic()
                look_again_s = now_s + self._look_again_s if look_again_s is None else look_again_s
                next_visit_s = now_s + min(self._visit_every_s, self.target.look_soon_s)
                next_visit_s = min(next_visit_s, look_again_s) if now_s < look_again_s else next_visit_s
                self._note_success(parcel, remarks)
            done = parcel

    def _next_parcel(self, done: P | None, not_before_s: float, next_visit_s: float) -> P | None:
        """Wait for the next parcel: a new one, or the last one again when its time has come. None: stopped."""
        with self._changed:
            while not self._stopping.is_set():
                due_s = not_before_s if self._parcel is not done else next_visit_s
                wait_s = due_s - time.monotonic()
                if self._parcel is not None and wait_s <= 0:
                    return self._parcel
                self._changed.wait(wait_s if self._parcel is not None else None)
            return None

    def _pause_s(self, pause_s: float, failure: Undelivered, *, is_starting: bool) -> float:
        """Except after a refusal, at most the period of visits: noticing that a target is back must not take longer
        than noticing that one was restarted."""
        longest_s = math.inf if failure.is_refusal else self._visit_every_s
        return max(min(pause_s, longest_s, _STARTING_PAUSE_S if is_starting else math.inf), failure.retry_after_s)

    def _note_success(self, parcel: P, remarks: tuple[Remark, ...]) -> None:
        if self._receipt is not None and self._receipt.attempts:
            log.info("delivered after failures", target=self.target.name, attempts=self._receipt.attempts)
        self._note(Receipt(self.target.name, parcel.digest, parcel.digest, remarks=remarks))

    def _note_failure(self, parcel: P, failure: Undelivered, pause_s: float, *, is_starting: bool) -> None:
        last = self._receipt
        attempts = last.attempts + 1 if last is not None else 1
        held, remarks = (last.held, last.remarks) if last is not None else ("", ())
        fields = {"target": self.target.name, "attempt": attempts, "delay_s": round(pause_s, 3)}
        trace = {"trace": failure.trace} if failure.trace else {}
        # The text alone, without the exception: it includes the text of the cause already.
        if not is_starting:
            # The same again is told by the 2nd, 4th and 8th failure: the first six come within seconds.
            is_news = attempts.bit_count() == 1 or last is None or last.failure != str(failure)
            if attempts > _TOLD_EACH:
                self._rare_log.warning("delivery failed, retrying", error=str(failure), **fields, **trace)
            elif is_news:
                log.warning("delivery failed, retrying", error=str(failure), **fields, **trace)
        elif attempts == 1:
            log.info("not there yet, trying again until it is", error=str(failure), target=self.target.name)
        self._note(
            Receipt(
                self.target.name,
                parcel.digest,
                held,
                str(failure),
                is_refusal=failure.is_refusal,
                is_credential_problem=failure.is_credential_problem,
                is_starting=is_starting,
                attempts=attempts,
                remarks=remarks,
            )
        )

    def _note(self, receipt: Receipt) -> None:
        if receipt != self._receipt:
            self._receipt = receipt
            self._report(receipt)
