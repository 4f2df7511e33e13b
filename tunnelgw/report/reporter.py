"""Decides which statuses have to be written now; what they say is decided by `updates`.

    what a turn changed + receipts -> objects that need a new status -> (held back until the status is true and a rush
    of edits is over) -> the status queue

Only the reconciler's thread calls this module.
"""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from tunnelgw.deliver.receipts import Receipt
from tunnelgw.metrics import Metrics
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.report.deliveries import Outcomes, is_silent
from tunnelgw.report.events import WarningEvents, has_lasted
from tunnelgw.report.firstwords import FirstWords
from tunnelgw.report.holdback import HoldBack
from tunnelgw.report.rush import Rush
from tunnelgw.report.situation import Situation
from tunnelgw.report.updates import StatusUpdates, way_of
from tunnelgw.sources.tables import Unreadable
from tunnelgw.status.compose import StatusUpdate
from tunnelgw.translate.verdicts import GatewayVerdict, ObjectId


class UpdateQueue(Protocol):
    """Writes statuses; for each object only the newest update counts."""

    @property
    def depth(self) -> int:
        """How many updates are waiting."""

    def want(self, updates: Mapping[ObjectId, StatusUpdate | None]) -> None:
        """Add or replace updates; None: the object is gone."""

    def forget(self) -> None:
        """Drop all updates."""


class Reporter:
    def __init__(self, outcomes: Outcomes, status_queue: UpdateQueue, events: WarningEvents, metrics: Metrics) -> None:
        self._outcomes = outcomes
        self._updates = StatusUpdates(outcomes)
        self._status_queue = status_queue
        self._events = events
        self._metrics = metrics
        self._owed = HoldBack()
        self._first = FirstWords()
        self._rush = Rush()
        self._rush_over_s = math.inf
        """When the rush ends that held statuses back in the last turn; inf: there was none."""
        self._receipts: dict[str, Receipt] = {}
        """By target, as of the last turn."""

    def owe(self, ids: Iterable[ObjectId], turn: int, planes: frozenset[str]) -> None:
        """Record that these objects may need a new status. `planes`: data planes whose documents changed in `turn`."""
        self._owed.add(ids, turn, planes, time.monotonic())

    def expect_more(self, objects: int) -> None:
        """Record that others have edited this many objects with a status, which may be the beginning of a rush."""
        self._rush.note(objects, time.monotonic())

    def wait_until_s(self, latest_s: float) -> float:
        """When to call `report` again at the latest, on the monotonic clock; not after `latest_s`."""
        return min(latest_s, self._rush_over_s) if self._owed or self._first else latest_s

    def record_unreadable(self, found: Mapping[Entry, Unreadable]) -> None:
        """`found`: all objects that are left out of snapshots now."""
        self._events.unreadable(found)

    def forget(self) -> None:
        """Another controller leads: drop all statuses that are still to be written, and the metrics of deliveries."""
        self._owed, self._first = HoldBack(), FirstWords()
        self._updates.forget()
        self._status_queue.forget()
        self._metrics.pending_statuses.set(0)
        for target in self._receipts:
            self._metrics.forget_target(target)
        self._receipts = {}

    def report(self, situation: Situation, turn: int, *, has_changed: bool) -> None:
        """Queue the statuses that are due. `has_changed`: objects have changed in this turn, not only receipts."""
        # Taken first: an answer that comes later must not release a status that does not reflect it.
        has_answered = self._outcomes.answers()
        self._record_failures(situation, self._count_receipts(situation))
        news = self._updates.news(situation, has_changed=has_changed)
        self._record_conflicts(situation.snapshot, news.conflicts)
        self._first.listen(news.answers.keys(), lambda way: is_silent(news.answers[way]))
        self.owe(news.ids, turn, frozenset())
        now_s = time.monotonic()
        over_s = self._rush.over_s(now_s)
        self._rush_over_s = over_s if over_s > now_s else math.inf
        if over_s <= now_s:
            released = {id_: way_of(situation, id_) for id_ in self._owed.release(has_answered, now_s)}
            ripe = self._first.ripe(released, self._owed, now_s)
            self._status_queue.want({id_: self._updates.update(situation, id_) for id_ in ripe})
        self._metrics.pending_statuses.set(self._status_queue.depth + len(self._owed) + len(self._first))

    def _count_receipts(self, situation: Situation) -> list[Receipt]:
        """Update the metrics of deliveries. Returns the receipts that have changed."""
        found = [receipt for plane in situation.planes for receipt in self._outcomes.proxy_receipts(plane)]
        receipts = {receipt.target: receipt for receipt in (*found, *self._outcomes.tunnel_receipts().values())}
        for target in self._receipts.keys() - receipts.keys():
            self._metrics.forget_target(target)
        for target in receipts.keys() - self._receipts.keys():
            self._metrics.begin_target(target)
        news = [receipt for target, receipt in receipts.items() if receipt != self._receipts.get(target)]
        for receipt in news:
            if not receipt.is_starting:
                outcome = "held" if receipt.is_current else "refused" if receipt.is_refusal else "failed"
                self._metrics.deliveries.labels(receipt.target, outcome).inc()
            self._metrics.delivered.labels(receipt.target).set(receipt.is_current)
            if receipt.is_current:
                self._metrics.delivered_at.labels(receipt.target).set_to_current_time()
        self._receipts = receipts
        return news

    def _record_failures(self, situation: Situation, news: Iterable[Receipt]) -> None:
        lasting = {receipt.target: receipt for receipt in news if has_lasted(receipt)}
        tunnels = self._outcomes.tunnel_receipts()
        for key, gateway in situation.snapshot.all(Kind.GATEWAY).items() if lasting else ():
            verdict = situation.translation.verdict(ObjectId(Kind.GATEWAY, key))
            if isinstance(verdict, GatewayVerdict):
                tunnel = tunnels.get(verdict.tunnel)
                behind = [*self._outcomes.proxy_receipts(verdict.data_plane), *([tunnel] if tunnel else [])]
                # From `lasting`, not from `behind`: a newer receipt may report success.
                self._events.failures(gateway, [lasting[each.target] for each in behind if each.target in lasting])

    def _record_conflicts(self, snapshot: Snapshot, conflicts: Mapping[ObjectId, str]) -> None:
        for id_, message in conflicts.items():
            route = snapshot.read(Entry(id_.kind, id_.key))
            if isinstance(route, Object):
                self._events.conflict(id_.kind, route, message)
