"""Threads that write statuses, so that a slow API server delays nothing else.

For each object only the newest wish counts. What could not be written is tried again later; what was changed by
somebody else meanwhile comes back by itself, with the object's new version.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import backoff

from daemonkit.logs import get_logger
from tunnelgw.sources.writing import Outcome, Writer
from tunnelgw.status.compose import Author, Wish, compose
from tunnelgw.status.conditions import Outdated
from tunnelgw.translate.verdicts import ObjectId

log = get_logger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
UNCHANGED = "unchanged"


class StatusDesk:
    """`observe` is told each outcome by kind. `may_write` is false where another controller leads."""

    def __init__(
        self,
        writer: Writer,
        author: Author,
        stop: threading.Event,
        may_write: Callable[[], bool],
        observe: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._author = author
        self._stop = stop
        self._may_write = may_write
        self._observe = observe
        self._clock = clock
        self._changed = threading.Condition()
        self._wishes: dict[ObjectId, Wish] = {}
        """In the order in which they were wanted."""
        self._not_before_s: dict[ObjectId, float] = {}
        self._failures: dict[ObjectId, int] = {}
        self._in_hand: set[ObjectId] = set()
        """So that no two threads write one object at a time."""

    @property
    def depth(self) -> int:
        """How many wishes wait."""
        return len(self._wishes)

    def want(self, wishes: dict[ObjectId, Wish]) -> None:
        with self._changed:
            self._wishes.update(wishes)
            self._changed.notify_all()

    def wake(self) -> None:
        """`stop` was set, or we lead now."""
        with self._changed:
            self._changed.notify_all()

    def run(self) -> None:
        """Of each writing thread: until `stop` is set."""
        while (taken := self._next()) is not None:
            id_, wish = taken
            try:
                outcome = self._carry_out(id_, wish)
            finally:
                with self._changed:
                    self._in_hand.discard(id_)
                    self._changed.notify_all()
            self._observe(id_.kind, outcome)

    def _next(self) -> tuple[ObjectId, Wish] | None:
        with self._changed:
            while not self._stop.is_set():
                wait_s: float | None = None
                if self._may_write():
                    now_s = self._clock()
                    for id_, wish in self._wishes.items():
                        if id_ in self._in_hand:
                            continue
                        due_s = self._not_before_s.get(id_, 0.0) - now_s
                        if due_s <= 0:
                            del self._wishes[id_]
                            self._in_hand.add(id_)
                            return id_, wish
                        wait_s = due_s if wait_s is None else min(wait_s, due_s)
                self._changed.wait(wait_s)
        return None

    def _carry_out(self, id_: ObjectId, wish: Wish) -> str:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            status = compose(wish, self._author, now)
        except Outdated:
            return Outcome.CONFLICT  # the object's newer version is on its way to us
        if status is None:
            self._forget_failures(id_)
            return UNCHANGED
        written = self._writer.write(id_.kind, wish.item, status)
        if written.outcome is Outcome.FAILED:
            self._again(id_, wish, written.error)
        else:
            self._forget_failures(id_)
        if written.outcome is Outcome.INVALID:
            log.error("status refused", error=written.error, kind=str(id_.kind), name=str(id_.key))
        return written.outcome

    def _again(self, id_: ObjectId, wish: Wish, error: str) -> None:
        with self._changed:
            failures = self._failures[id_] = self._failures.get(id_, 0) + 1
            pause_s = backoff.full_jitter(min(FIRST_PAUSE_S * 2.0 ** min(failures, 10), MAX_PAUSE_S))
            self._not_before_s[id_] = self._clock() + pause_s
            self._wishes.setdefault(id_, wish)
        log.warning(
            "status could not be written, retrying",
            error=error,
            kind=str(id_.kind),
            name=str(id_.key),
            attempt=failures,
            delay_s=pause_s,
        )

    def _forget_failures(self, id_: ObjectId) -> None:
        with self._changed:
            self._failures.pop(id_, None)
            self._not_before_s.pop(id_, None)
