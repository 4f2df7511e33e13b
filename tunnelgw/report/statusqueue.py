"""Threads that write statuses, so that a slow API server delays nothing else.

For each object only the newest update counts, and kinds take turns. A failed write is tried again later; if the server
is at fault, all threads pause together. After a conflict with another writer, a new update arrives with the object's
new version, and is written at once.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import backoff

from daemonkit.logs import get_logger
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.refs import ParentRef
from tunnelgw.sources.writing import Outcome, Writer, Written
from tunnelgw.status.compose import Author, StatusUpdate, compose
from tunnelgw.status.conditions import Outdated
from tunnelgw.translate.verdicts import ObjectId

log = get_logger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
MAX_COMMON_PAUSE_S = 5.0
"""The longest pause while no write succeeds: then only a few threads try, however many updates are waiting."""
RETRY_EVERY_S = 0.1
"""How often a retry may start for each kind while retries fail: thousands may wait for one missing permission."""
BRIEF_CONFLICTS = 3
"""After this many conflicts in a row the object's new version should have arrived. If it does not, for example because
the watch is broken, retries are paced: they would fail as often as the server can refuse them."""
UNCHANGED = "unchanged"


class StatusQueue:
    """`may_write` is false while another controller leads. `observe` is called with the kind and the outcome of each
    write, `on_left_out` with the parents for which a status had no room, even if there are none.
    """

    def __init__(
        self,
        writer: Writer,
        author: Author,
        *,
        stop: threading.Event,
        may_write: Callable[[], bool],
        observe: Callable[[str, str], None],
        on_left_out: Callable[[ObjectId, Object, tuple[ParentRef, ...]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._author = author
        self._stop = stop
        self._may_write = may_write
        self._observe = observe
        self._on_left_out = on_left_out
        self._clock = clock
        self._changed = threading.Condition()
        self._unpaced: dict[Kind, dict[ObjectId, StatusUpdate]] = {}
        """Updates by kind, in order of arrival; without those in `_paced`."""
        self._paced: dict[Kind, dict[ObjectId, StatusUpdate]] = {}
        """Likewise, updates whose retries are paced (see `_failed`). Kept apart, so that thousands need not be searched
        before the next retry of their kind is due."""
        self._failed: dict[ObjectId, _Failed] = {}
        self._in_hand: set[ObjectId] = set()
        """Objects that a thread is writing now: no two threads may write the same object at the same time."""
        self._unwanted: set[ObjectId] = set()
        """Members of `_in_hand` whose updates are not wanted any more: if they fail, they are not tried again."""
        self._common_failures = 0
        """The number of common pauses in a row."""
        self._paused_until_s = 0.0
        self._next_retry_s: dict[Kind, float] = {}
        """By kind, the earliest time for the next paced retry."""
        self._limited = log.every(60.0)

    @property
    def depth(self) -> int:
        """How many updates are waiting."""
        with self._changed:
            return sum(map(len, (*self._unpaced.values(), *self._paced.values())))

    def want(self, updates: Mapping[ObjectId, StatusUpdate | None]) -> None:
        """Add or replace updates. None: the object is gone, which a server that forbids us to write never tells."""
        if not updates:
            return
        with self._changed:
            for id_, update in updates.items():
                if update is None:
                    self._drop(id_)
                else:
                    self._put(id_, update)
            self._changed.notify(len(updates))

    def _put(self, id_: ObjectId, update: StatusUpdate) -> None:
        self._unwanted.discard(id_)
        failed = self._failed.get(id_)
        if failed is not None and failed.is_outdated_by(update):
            self._fail(id_, None)
        self._queue_of(id_)[id_] = update

    def _drop(self, id_: ObjectId) -> None:
        self._queue_of(id_).pop(id_, None)
        self._failed.pop(id_, None)
        if id_ in self._in_hand:
            self._unwanted.add(id_)

    def forget(self) -> None:
        """Drop all updates, also those that are being written now, if they fail."""
        with self._changed:
            self._unwanted |= self._in_hand
            self._unpaced.clear()
            self._paced.clear()
            self._failed.clear()
            self._next_retry_s.clear()

    def wake(self) -> None:
        """To be called after `stop` is set, or when we have begun to lead."""
        with self._changed:
            self._changed.notify_all()

    def run(self) -> None:
        """The target of each writing thread; runs until `stop` is set."""
        while (taken := self._next()) is not None:
            id_, update = taken
            try:
                outcome = self._carry_out(id_, update)
            finally:
                with self._changed:
                    self._in_hand.discard(id_)
                    self._unwanted.discard(id_)
                    if self.depth:
                        self._changed.notify()
            self._observe(id_.kind, outcome)

    def _next(self) -> tuple[ObjectId, StatusUpdate] | None:
        with self._changed:
            while not self._stop.is_set():
                now_s = self._clock()
                id_, wait_s = self._due(now_s)
                if id_ is not None:
                    return id_, self._take(id_, now_s)
                self._changed.wait(wait_s)
        return None

    def _due(self, now_s: float) -> tuple[ObjectId | None, float | None]:
        """An object that may be written now; without one, how long until the next; None: until something changes."""
        if now_s < self._paused_until_s:
            return None, self._paused_until_s - now_s
        if not self._may_write():
            return None, None
        next_s = math.inf
        for queue, not_before_s in self._queues():
            id_, due_s = self._first_due(queue, now_s, not_before_s)
            if id_ is not None:
                return id_, 0.0
            next_s = min(next_s, due_s)
        return None, None if next_s == math.inf else next_s - now_s

    def _queues(self) -> Iterator[tuple[Mapping[ObjectId, StatusUpdate], float]]:
        """Where to look for an update, in this order, each with the time before which nothing there is due.

        New updates come first, beginning with the kind with the fewest objects in hand: otherwise, if the server is
        slow for one kind, for example because a webhook does not answer, all threads would be busy with that kind.
        """
        busy = Counter(id_.kind for id_ in self._in_hand)
        yield from ((self._unpaced[kind], 0.0) for kind in sorted(self._unpaced, key=lambda kind: busy[kind]))
        yield from ((queue, self._next_retry_s.get(kind, 0.0)) for kind, queue in self._paced.items())

    def _first_due(
        self, queue: Mapping[ObjectId, StatusUpdate], now_s: float, not_before_s: float
    ) -> tuple[ObjectId | None, float]:
        """An object that may be written now, with its due time; None: there is none before the returned time. Nothing
        in the queue is due before `not_before_s`."""
        if not_before_s > now_s:
            return None, not_before_s if queue else math.inf
        next_s = math.inf
        for id_ in queue:
            if id_ not in self._in_hand:
                due_s = self._due_s(id_)
                if due_s <= now_s:
                    return id_, due_s
                next_s = min(next_s, due_s)
        return None, next_s

    def _due_s(self, id_: ObjectId) -> float:
        failed = self._failed.get(id_)
        return 0.0 if failed is None else failed.not_before_s

    def _queue_of(self, id_: ObjectId) -> dict[ObjectId, StatusUpdate]:
        """The queue in which an update for the object waits."""
        failed = self._failed.get(id_)
        queues = self._paced if failed is not None and failed.is_paced else self._unpaced
        return queues.setdefault(id_.kind, {})

    def _fail(self, id_: ObjectId, failed: "_Failed | None") -> None:
        """Record the object's failure; None clears it. A waiting update moves to the queue where it now belongs."""
        update = self._queue_of(id_).pop(id_, None)
        if failed is None:
            self._failed.pop(id_, None)
        else:
            self._failed[id_] = failed
        if update is not None:
            self._queue_of(id_)[id_] = update

    def _take(self, id_: ObjectId, now_s: float) -> StatusUpdate:
        update = self._queue_of(id_).pop(id_)
        if (queue := self._unpaced.pop(id_.kind, None)) is not None:
            self._unpaced[id_.kind] = queue  # moved to the end, to be looked at last
        self._in_hand.add(id_)
        if id_ in self._failed and self._failed[id_].is_paced:
            self._next_retry_s[id_.kind] = now_s + RETRY_EVERY_S
        return update

    def _carry_out(self, id_: ObjectId, update: StatusUpdate) -> str:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            status, left_out = compose(update, self._author, now)
        except Outdated as error:
            # Gateway API wants us to wait until the object catches up, which it may never do if its status came from a
            # backup.
            self._limited.warning("status left as it is", error=error, kind=str(id_.kind), name=str(id_.key))
            return Outcome.CONFLICT
        self._on_left_out(id_, update.item, left_out)
        if status is None:
            self._forget_failures(id_)
            return UNCHANGED
        written = self._writer.write(id_.kind, update.item, status)
        if written.is_general:
            self._pause(id_, update, written)
            return written.outcome
        self._end_pause()
        if written.outcome in (Outcome.FAILED, Outcome.INVALID, Outcome.CONFLICT):
            self._again(id_, update, written)
        else:
            self._forget_failures(id_)
        return written.outcome

    def _again(self, id_: ObjectId, update: StatusUpdate, written: Written) -> None:
        with self._changed:
            if id_ in self._unwanted:
                return
            attempts = self._failed[id_].attempts + 1 if id_ in self._failed else 1
            pause_s = backoff.full_jitter(min(FIRST_PAUSE_S * 2.0 ** min(attempts, 10), MAX_PAUSE_S))
            newer = self._queue_of(id_).setdefault(id_, update)
            failed = _Failed(attempts, self._clock() + pause_s, written.outcome, update)
            if not failed.is_outdated_by(newer):
                self._fail(id_, failed)
        if failed.is_paced:
            self._say_failed(id_, written, attempts, pause_s)

    def _pause(self, id_: ObjectId, update: StatusUpdate, written: Written) -> None:
        """Pause all threads. Other writes that are in progress and fail during the pause do not prolong it."""
        with self._changed:
            if id_ not in self._unwanted:
                self._queue_of(id_).setdefault(id_, update)
            now_s = self._clock()
            if now_s >= self._paused_until_s:
                self._common_failures += 1
                longest_s = min(FIRST_PAUSE_S * 2.0 ** min(self._common_failures, 10), MAX_COMMON_PAUSE_S)
                self._paused_until_s = now_s + written.retry_after_s + backoff.full_jitter(longest_s)
            attempts, pause_s = self._common_failures, self._paused_until_s - now_s
        self._say_failed(id_, written, attempts, pause_s)

    def _end_pause(self) -> None:
        with self._changed:
            self._common_failures, self._paused_until_s = 0, 0.0

    def _say_failed(self, id_: ObjectId, written: Written, attempts: int, pause_s: float) -> None:
        place = {"kind": str(id_.kind), "name": str(id_.key)}
        retry = {"attempt": attempts, "delay_s": round(pause_s, 3)}
        if written.outcome is Outcome.INVALID:
            self._limited.error("status refused, retrying", error=written.error, **place, **retry)
        else:
            self._limited.warning("status could not be written, retrying", error=written.error, **place, **retry)

    def _forget_failures(self, id_: ObjectId) -> None:
        """The write succeeded. If it had failed before, the next retry of its kind need not wait."""
        with self._changed:
            if id_ in self._failed:
                self._fail(id_, None)
                self._next_retry_s.pop(id_.kind, None)


class _Failed(NamedTuple):
    """A write that has to be tried again."""

    attempts: int
    not_before_s: float
    outcome: Outcome
    update: StatusUpdate

    @property
    def is_paced(self) -> bool:
        """False after a conflict that has not lasted, which concerns only this object: its version was not the one that
        we knew."""
        return self.outcome is not Outcome.CONFLICT or self.attempts > BRIEF_CONFLICTS

    def is_outdated_by(self, update: StatusUpdate) -> bool:
        """Whether a new update need not wait. After a conflict: if it has another version of the object. After a
        refusal of the content: if the status or its object is different now."""
        if self.outcome is Outcome.CONFLICT:
            return update.item.metadata.resource_version != self.update.item.metadata.resource_version
        return self.outcome is Outcome.INVALID and update != self.update
