"""The controller's single worker: in turns, it translates what the store holds, and passes the results on.

    wait -> take -> translate -> documents to proxies -> hostnames to the provider -> statuses

A turn begins when objects have changed or receipts have come in, and does only what follows from the differences. It
never waits for others: couriers and the status queue have their own threads. The statuses of a turn are held back until
its documents have arrived, or proxies have failed to take them, so that they are true when people read them. While
another controller leads, everything is translated, but nothing is sent or written.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from daemonkit.logs import get_logger
from daemonkit.memory import spare_the_collector
from tunnelgw.deliver.targets import Discovery
from tunnelgw.deliver.wanted import Wanted
from tunnelgw.metrics import Metrics
from tunnelgw.model.kinds import STATUS_KINDS, Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.report.reporter import Reporter
from tunnelgw.report.situation import Situation
from tunnelgw.sources.store import Change, Store
from tunnelgw.sources.tables import Unreadable
from tunnelgw.translate.classes import controllers_instead
from tunnelgw.translate.pipeline import Differences, Translation
from tunnelgw.translate.verdicts import GatewayVerdict, ObjectId

log = get_logger(__name__)

STUCK_S = 60.0
_MAX_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class _ToCheck:
    """What statuses have to be checked for at the end of a turn."""

    statuses: frozenset[ObjectId] = frozenset()
    """Objects that may need another status."""
    data_planes: frozenset[str] = frozenset()
    """Those whose documents changed: the statuses are held back until these have arrived."""

    @classmethod
    def of(cls, differences: Differences) -> "_ToCheck":
        return cls(differences.verdicts, differences.data_planes)

    def __or__(self, other: "_ToCheck") -> "_ToCheck":
        return _ToCheck(self.statuses | other.statuses, self.data_planes | other.data_planes)


class Reconciler:
    """`run` is the target of a thread; only `readiness` and `liveness` may be called by others."""

    def __init__(
        self,
        store: Store,
        wanted: Wanted,
        reporter: Reporter,
        discovery: Discovery,
        *,
        leads: Callable[[], bool],
        stop: threading.Event,
        fail: Callable[[str], None],
        metrics: Metrics,
        debounce_s: float,
    ) -> None:
        """`leads`: whether we may write; wake the store when that changes. `fail` ends the process."""
        self._store = store
        self._wanted = wanted
        self._reporter = reporter
        self._unreadable: Mapping[Entry, Unreadable] = {}
        self._are_all_named = True
        self._is_leading = False
        self._discovery = discovery
        self._leads = leads
        self._stop = stop
        self._fail = fail
        self._metrics = metrics
        self._debounce_s = debounce_s
        self._foreign: tuple[str, ...] = ()
        """The controllerNames of the GatewayClasses, if none is ours."""
        self._translation: Translation | None = None
        self._unknown: frozenset[Key] = frozenset()
        """Gateways that cannot be read, but whose own proxies still serve."""
        self._number = 0
        """The number of this turn."""
        self._are_credentials_checked = False
        self._last_turn_s = time.monotonic()

    # -- health ------------------------------------------------------------------------------------------------------

    def readiness(self) -> str | None:
        if self._translation is not None:
            return None
        missing = ", ".join(sorted(self._store.unlisted))
        return f"waiting for the first listing of {missing}" if missing else "the first translation is under way"

    def liveness(self) -> str | None:
        return (
            "the reconciler has made no turn for a minute" if time.monotonic() - self._last_turn_s > STUCK_S else None
        )

    def _note_life(self) -> None:
        """A long translation that makes progress must not look stuck: after a restart it would only start over."""
        self._last_turn_s = time.monotonic()

    # -- turns -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                self._note_life()
                is_due = self._store.wait(self._reporter.wait_until_s(time.monotonic() + _MAX_WAIT_S))
                if is_due and self._debounce_s:
                    self._stop.wait(self._debounce_s)
                if self._stop.is_set():
                    break
                is_first = self._translation is None
                self._turn(is_due=is_due)
                if is_first and self._translation is not None:
                    spare_the_collector()  # most of what exists now will stay
        finally:
            self._wanted.stop(time.monotonic())

    def _turn(self, *, is_due: bool) -> None:
        started_s = time.monotonic()
        outcome = "failed"
        change = self._store.take_settled() if is_due else None
        has_changed = change is not None
        try:
            self._number += 1
            to_check = _ToCheck() if change is None else self._take(change)
            if self._translation is not None:
                self._follow_up(self._translation, to_check, has_changed=has_changed)
            outcome = "ok"
        finally:
            if has_changed:
                self._metrics.passes.labels(outcome).observe(time.monotonic() - started_s)
        if has_changed:
            self._metrics.last_pass.set_to_current_time()

    def _follow_up(self, translation: Translation, to_check: _ToCheck, *, has_changed: bool) -> None:
        if not self._leads():
            self._stand_by()
            return
        if not self._is_leading:
            self._is_leading = True
            # Another leader may have written statuses meanwhile.
            to_check |= _ToCheck.of(_everything(translation))
        self._wanted.send(time.monotonic())
        self._reporter.owe(to_check.statuses, self._number, to_check.data_planes)
        self._reporter.record_unreadable(self._unreadable)
        situation = Situation(
            translation,
            planes=self._wanted.planes,
            planes_by_tunnel=self._wanted.planes_by_tunnel,
            tunnels=self._wanted.tunnels.keys(),
            unknown=self._unknown,
            left_by=self._wanted.left_by,
        )
        self._reporter.report(situation, self._number, has_changed=has_changed)
        self._check_credentials(translation.snapshot)

    def _stand_by(self) -> None:
        self._wanted.stop(time.monotonic())
        if self._is_leading:
            self._is_leading = False
            self._reporter.forget()

    def _take(self, change: Change) -> _ToCheck:
        snapshot, is_first = change.snapshot, self._translation is None
        translation, differences = self._translate(change)
        has_doubt_changed = (change.unreadable.keys(), change.are_all_named) != (
            self._unreadable.keys(),
            self._are_all_named,
        )
        self._unreadable, self._are_all_named = change.unreadable, change.are_all_named
        self._wanted.want(translation, differences, self._number)
        if is_first:
            self._wanted.begin(snapshot)
        gateways = {id_.key for id_ in differences.verdicts if id_.kind is Kind.GATEWAY}
        self._give_addresses(translation, gateways)
        gateways.update(entry.key for entry in change.changed if entry.table is Kind.GATEWAY)
        self._wanted.find_planes_of_tunnels(translation, gateways)
        self._wanted.find_targets(
            translation,
            change.changed,
            change.unreadable.keys(),
            time.monotonic(),
            are_all_named=change.are_all_named,
        )
        to_check = _ToCheck.of(differences) | _ToCheck(_with_status((*change.changed, *change.touched)))
        if has_doubt_changed and self._find_unknown():  # if one has gone since, no verdict has changed
            to_check |= _ToCheck(_everything(translation).verdicts)
        self._count_objects()
        if is_first:
            log.info("translated for the first time", gateways=len(snapshot.all(Kind.GATEWAY)))
        if is_first or any(entry.table == Kind.GATEWAY_CLASS for entry in change.changed):
            self._say_whose_classes_there_are(snapshot)
        return to_check

    def _translate(self, change: Change) -> tuple[Translation, Differences]:
        if self._translation is None:
            self._translation = Translation(
                change.snapshot, self._discovery.controller_name, self._discovery.namespace, self._note_life
            )
            return self._translation, _everything(self._translation)
        self._reporter.expect_more(len(_with_status(change.changed)))
        return self._translation, self._translation.update(change.snapshot, change.changed)

    def _count_objects(self) -> None:
        for (kind, is_readable), count in self._store.counts().items():
            self._metrics.objects.labels(kind, "read" if is_readable else "unreadable").set(count)

    def _find_unknown(self) -> bool:
        """Update `_unknown`. Returns whether it has changed."""
        unreadable = (entry.key for entry in self._unreadable if entry.table is Kind.GATEWAY)
        before, self._unknown = self._unknown, frozenset(key for key in unreadable if self._wanted.is_served(key))
        return before != self._unknown

    def _give_addresses(self, translation: Translation, gateways: Iterable[Key]) -> None:
        for key in gateways:
            verdict = translation.verdict(ObjectId(Kind.GATEWAY, key))
            gateway = translation.snapshot.all(Kind.GATEWAY).get(key)
            if isinstance(verdict, GatewayVerdict) and gateway is not None:
                self._store.give(gateway, verdict.bound)

    def _say_whose_classes_there_are(self, snapshot: Snapshot) -> None:
        """Logged because a misspelt controllerName is an easy mistake that nothing else would show."""
        seen = controllers_instead(snapshot, self._discovery.controller_name)
        if seen and seen != self._foreign:
            wanted = self._discovery.controller_name
            log.warning("no GatewayClass is ours, see --controller-name", wanted=wanted, seen=seen)
        self._foreign = seen

    def _check_credentials(self, snapshot: Snapshot) -> None:
        """Once, at start: if the credentials of all tunnels are bad, nothing that we do later would help."""
        receipts = None if self._are_credentials_checked else self._wanted.tunnel_receipts()
        if receipts is None:
            return
        self._are_credentials_checked = True
        if not receipts or not self._wanted.depends_on_tunnels(snapshot):
            return
        if all(receipt.is_credential_problem for receipt in receipts):
            errors = "; ".join(f"{receipt.target}: {receipt.error}" for receipt in receipts)
            self._fail(f"failed to run controller: checking provider credentials: {errors}")


def _everything(translation: Translation) -> Differences:
    """Includes objects that are not ours: their statuses may still hold what we once wrote."""
    ids = (ObjectId(kind, key) for kind in STATUS_KINDS for key in translation.snapshot.all(kind))
    return Differences(frozenset(ids), frozenset(translation.documents), translation.tunnels)


def _with_status(entries: Iterable[Entry]) -> frozenset[ObjectId]:
    return frozenset(ObjectId(Kind(entry.table), entry.key) for entry in entries if entry.table in STATUS_KINDS)
