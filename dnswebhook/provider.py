"""The four operations of the webhook (negotiate, records, adjust, apply), built from wire, adjust, plan and store.

There is one writer: applies are serialised, and a listing waits for a running apply, so that it never shows half of
one. Every apply lists first, plans against that listing, and writes only the difference. Any thread may call.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

import msgspec

from daemonkit.causes import forget_frames
from daemonkit.logs import get_logger
from dnswebhook import wire
from dnswebhook.adjuster import Adjuster
from dnswebhook.apply import Outcome, Report, Run, dry_run, writes_of
from dnswebhook.canonical import KNOWN_TYPES
from dnswebhook.deadline import Deadline
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.errors import NotFound, RateLimited, StoreError, StoreFailed, StoreTimeout
from dnswebhook.fit import Drop
from dnswebhook.flights import Flights
from dnswebhook.journal import Journal
from dnswebhook.listings import ListingEncoder
from dnswebhook.metrics import Metrics
from dnswebhook.model import Changes, Listing, Origin, Record
from dnswebhook.notes import Note, awaited, done, extended, settle, unsettled
from dnswebhook.operations import Plan
from dnswebhook.ownership import owner_in
from dnswebhook.past import History
from dnswebhook.plan import make_plan
from dnswebhook.removals import ConfirmedRemovals
from dnswebhook.served import UNLISTED, Served
from dnswebhook.stores.base import Store
from dnswebhook.wishes import SetKey
from dnswebhook.writers import Writers

log = get_logger(__name__)

MIN_SETS_FOR_DELETE_GUARD = 20
MAX_NAMES_IN_MESSAGE = 5


class Policy(msgspec.Struct, frozen=True):
    """What the operator allows."""

    domain_filter: DomainFilter
    protected: ProtectedNames
    max_delete_share: float = 1.0
    """The largest share of user-defined record sets within the filter that one apply may delete; 1: no limit."""
    is_dry_run: bool = False
    write_parallelism: int = 5


class ApplyFailed(Exception):
    """Not everything was applied; what could be applied was."""

    def __init__(
        self, message: str, *, error: StoreError | None = None, is_partial: bool = True, was_cut_short: bool = False
    ) -> None:
        """`error`: the store's systemic error, if any. `is_partial` is False if that error alone made the call fail, or
        is a RateLimited; the client then gets the response for that error."""
        super().__init__(message)
        self.error = error
        self.is_partial = is_partial
        self.was_cut_short = was_cut_short


class DeleteGuardTripped(Exception):
    """The apply would delete more than `--max-delete-share` allows; nothing was written."""


class CallerGone(Exception):
    """The client hung up while its apply was queued; nothing was written."""


class Provider:
    def __init__(self, store: Store, policy: Policy, metrics: Metrics, journal: Journal) -> None:
        self._store = store
        self._policy = policy
        self._metrics = metrics
        self._journal = journal
        self._adjuster = Adjuster(policy.protected, self._count_drop)
        self._turn = Lock()
        self._failed: set[str] = set()
        """Names of the strands that failed in the last apply. The next apply runs them last, since they would otherwise
        take up the others' time again and again."""
        self._history = History()
        self._served: Served = UNLISTED
        """What the last listing serves, including listings made by applies. Before the first one, anything may be
        served: with `--txt-cache-interval`, external-dns need not list first after our start, and the store may have
        accepted what it sends before an upgrade."""
        self._written: dict[tuple[str, str], Note] = {}
        """Ownership records, by name and text, that complete applies have added since the last listing."""
        self._confirmed = ConfirmedRemovals()
        self._generation = 0
        """`Listing.generation` of the last listing."""
        self._contested: frozenset[Note] = frozenset()
        """`Settlement.contested` of the last listing, so that each is logged once."""
        self._flights = Flights(self._fetch_records)
        self._encoder = ListingEncoder()
        self._writers = Writers(policy.write_parallelism)
        domain_filter = policy.domain_filter
        self._negotiation = wire.encode_filter(
            domain_filter.include, domain_filter.exclude, domain_filter.regex_include, domain_filter.regex_exclude
        )

    def negotiate(self) -> bytes:
        return self._negotiation

    def records(self, deadline: Deadline, *, is_wrapped: bool) -> bytes:
        """Every record set that is served, as JSON: an object with `endpoints` if wrapped, else an array.

        Raises StoreError.
        """
        bare = self._flights.get(deadline)
        return b'{"endpoints":' + bare + b"}" if is_wrapped else bare

    def adjust(self, body: bytes) -> bytes:
        """Raises wire.WireError, or CapabilitiesUnknown while the store's limits are not known."""
        return self._adjuster.adjust(body, self._store.capabilities(), self._served)

    def apply(self, changes: Changes, deadline: Deadline, is_caller_gone: Callable[[], bool]) -> None:
        """Returns once everything requested is in the store. Raises StoreError, DeleteGuardTripped or CallerGone if
        nothing was written, otherwise ApplyFailed."""
        if changes.is_empty:
            return
        with self._in_turn(deadline):
            if is_caller_gone():
                raise CallerGone
            listing = self._list(deadline)
            self._check_generation(changes)
            self._look_at(listing)
            plan = make_plan(
                changes,
                listing.records,
                self._store.capabilities(),
                self._policy.domain_filter,
                self._policy.protected,
                self._history.begin_apply(self._journal.notes),
            )
            self._history.note_refusals(plan.refusals)
            self._note(plan)
            self._confirmed.forget_asked(changes, self._history.told)
            self._guard_against_mass_deletion(plan, listing)
            report = dry_run(plan) if self._policy.is_dry_run else self._carry_out(plan, listing, deadline)
        for (verb, outcome), count in report.counts.items():
            self._metrics.operations.labels(verb, outcome).inc(count)
        self._conclude(plan, report)
        self._metrics.last_apply.set(time.time())

    def _carry_out(self, plan: Plan, listing: Listing, deadline: Deadline) -> Report:
        writes = [write for strand in plan.strands for step in strand.steps for write in writes_of(step.operation)]
        added = [spec for verb, spec in writes if verb != "delete"]
        self._journal.replace(unsettled(self._journal.notes, listing.records))
        self._journal.add((*extended(self._journal.notes, added), *plan.notes))
        run = Run(self._store, deadline, self._writers, self._failed)
        report = run.execute(plan)
        self._failed = run.failed
        self._journal.add(awaited(self._journal.notes, run.pending))
        if self._store.capabilities().has_lasting_ids:
            self._confirmed.add(report.removed, plan.notes)
        self._history.note_removals(plan.notes)
        if report.is_complete and not plan.refusals:  # what was not done because of a refusal also stays noted
            settled = set(plan.notes)
            left = [each for each in self._journal.notes if each.waits or each not in settled]
            self._journal.replace(tuple(done(each) if each in settled else each for each in left))
            self._remember_written(plan.notes)
        return report

    def _check_generation(self, changes: Changes) -> None:
        """Refuse updates and deletions if the store was replaced since external-dns listed it (`Listing.generation`).

        The rows they name may be somebody else's in the new store. Raises StoreFailed.
        """
        if (changes.update_old or changes.delete) and not self._history.is_about(self._generation):
            raise StoreFailed("the store was replaced since it was listed; nothing was changed, the next pass lists it")

    def _remember_written(self, notes: Iterable[Note]) -> None:
        for note in notes:
            key = (note.name, note.value)
            self._written.pop(key, None)
            if not (note.is_leaving or note.is_staying or note.successor) and owner_in(note.value):
                self._written[key] = done(note)

    def close(self) -> None:
        self._writers.close()

    @contextmanager
    def _in_turn(self, deadline: Deadline) -> Iterator[None]:
        """One apply or listing at a time. Raises StoreTimeout."""
        if not self._turn.acquire(timeout=max(0.0, deadline.remaining_s)):
            raise StoreTimeout("another apply was still running at the deadline of the call")
        try:
            yield
        finally:
            self._turn.release()

    def _look_at(self, listing: Listing) -> None:
        # If the rows are the same, the old object and its index are kept.
        if self._served is UNLISTED or listing.records is not self._served.records:
            self._served = Served(listing.records)

    def _fetch_records(self, deadline: Deadline) -> bytes:
        with self._in_turn(deadline):
            listing = self._settled_listing(deadline)
            self._history.tell(listing.records, self._generation)
            self._look_at(listing)
        self._metrics.last_listing.set(time.time())
        encoded = self._encoder.encode(listing)
        for record_type in KNOWN_TYPES:
            self._metrics.records_managed.labels(record_type).set(encoded.sets_by_type[record_type])
        return encoded.body

    def _list(self, deadline: Deadline) -> Listing:
        self._journal.look_again()
        listing = self._store.list_records(deadline)
        if listing.generation != self._generation:
            # The store was replaced. Its rows are older, or somebody else's, and our notes are not about them: acting
            # on a note could remove an ownership record that is in use.
            self._generation = listing.generation
            self._written = {}
            self._journal.replace(())
        return listing

    def _settled_listing(self, deadline: Deadline) -> Listing:
        """A listing after removal of what earlier applies left behind, without what external-dns must not see."""
        listing = self._list(deadline)
        self._confirmed.follow(listing.records, self._adjuster.is_desired)
        open_notes = self._written | {(note.name, note.value): note for note in self._journal.notes}
        if not (open_notes or self._confirmed) or self._policy.is_dry_run:
            return listing
        is_protected = self._policy.protected.matches  # patterns may have been added since the note was written
        noted = [note for note in open_notes.values() if not (is_protected(note.name) or is_protected(note.owned.name))]
        settlement = settle(noted, listing.records, self._adjuster.is_desired)
        contested = {*settlement.contested}
        remove = dict.fromkeys((*settlement.remove, *self._confirmed))
        untold = {*settlement.claims, *self._confirmed.ownership_records}  # even if they stay for now
        untold |= self._remove_left_over(remove, deadline)
        generation = self._generation
        if remove and not deadline.has_passed:  # if removing took too long, the first listing is the answer
            listing = self._list(deadline)
            # Settled again: a record may have gone in between and left its ownership record behind.
            noted = noted if self._generation == generation else []
            settlement = settle(noted, listing.records, self._adjuster.is_desired)
            untold.update(settlement.claims)
            contested.update(settlement.contested)
        self._written = {}
        self._journal.replace(settlement.open)
        self._tell_contested(frozenset(contested))
        if not remove:
            return listing
        return Listing(tuple(row for row in listing.records if row not in untold))

    def _remove_left_over(self, rows: Iterable[Record], deadline: Deadline) -> set[Record]:
        """Returns those that are gone. If a removal that was confirmed before had to be repeated, that is not known
        before the next listing."""
        gone = set()
        for row in rows:
            try:
                self._store.delete(row, deadline)
            except NotFound:
                self._confirmed.forget(row)
                gone.add(row)
            except StoreError as error:
                log.warning("left-over record stays for now", error=error, name=row.name, value=row.value)
                forget_frames(error)
                if error.is_systemic:  # all others would fail as well, and the listing must be answered in time
                    break
            else:
                log.info("left-over record removed", name=row.name, value=row.value)
                self._metrics.operations.labels("delete", Outcome.APPLIED).inc()
                if row not in self._confirmed:
                    gone.add(row)
        return gone

    def _tell_contested(self, contested: frozenset[Note]) -> None:
        for note in sorted(contested - self._contested, key=lambda note: note.name):
            log.warning(
                "another external-dns has claimed the same record",
                name=note.owned.name,
                ownership_record=note.name,
                our_owner=owner_in(note.value),
            )
        self._contested = contested

    def _count_drop(self, drop: Drop) -> None:
        self._metrics.dropped_endpoints.labels(drop.reason).inc(drop.count)

    def _note(self, plan: Plan) -> None:
        for refusal in plan.refusals:
            self._metrics.refused_changes.labels(refusal.reason).inc()
            log.warning(
                "change refused", reason=refusal.reason, name=refusal.name, type=refusal.type, detail=refusal.detail
            )
        for skip in plan.skips:
            self._metrics.skipped_changes.labels(skip.reason).inc()
            log.warning("change skipped", reason=skip.reason, name=skip.name, type=skip.type, detail=skip.detail)

    def _guard_against_mass_deletion(self, plan: Plan, listing: Listing) -> None:
        share = self._policy.max_delete_share
        vanishing = self._within_filter(plan.vanishing_sets)
        if len(vanishing) <= share * MIN_SETS_FOR_DELETE_GUARD or share >= 1:
            return  # whatever the store holds
        live = self._within_filter(
            {(row.name, row.type) for row in listing.records if row.is_enabled and row.origin is Origin.USER_DEFINED}
        )
        limit = share * len(live)
        if len(live) < MIN_SETS_FOR_DELETE_GUARD or len(vanishing) <= limit:
            return
        self._metrics.delete_guard_trips.inc()
        names = ", ".join(f"{name} {record_type}" for name, record_type in vanishing[:MAX_NAMES_IN_MESSAGE])
        raise DeleteGuardTripped(
            f"refused to delete {len(vanishing)} of {len(live)} record sets ({names}, ...), nothing was "
            f"changed: --max-delete-share {share:g} allows {int(limit)}; if this is intended, raise it for one pass; "
            "otherwise check the sources of external-dns"
        )

    def _within_filter(self, sets: Iterable[SetKey]) -> list[SetKey]:
        """Omit sets outside the filter: an apply cannot delete them, and they may belong to another cluster."""
        matches = self._policy.domain_filter.matches
        return [(name, record_type) for name, record_type in sets if matches(name)]

    def _conclude(self, plan: Plan, report: Report) -> None:
        if report.is_complete and not plan.refusals:
            return
        summary = self._summary(plan, report)
        error = next((failure.error for failure in report.failures if failure.error.is_systemic), None)
        did_nothing = not report.total_done and all(failure.error.is_systemic for failure in report.failures)
        is_partial = not isinstance(error, RateLimited) and not (did_nothing and not plan.refusals)
        raise ApplyFailed(summary, error=error, is_partial=is_partial, was_cut_short=report.was_cut_short)

    @staticmethod
    def _summary(plan: Plan, report: Report) -> str:
        totals = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in report.totals if count)
        reasons = [f"{refusal.name} {refusal.type}: {refusal.detail}" for refusal in plan.refusals]
        reasons += [f"{failure.name} {failure.type}: {failure.error}" for failure in report.failures]
        shown = "; ".join(reasons[:MAX_NAMES_IN_MESSAGE])
        more = f"; and {len(reasons) - MAX_NAMES_IN_MESSAGE} more" if len(reasons) > MAX_NAMES_IN_MESSAGE else ""
        refused = f"{len(plan.refusals)} refused" if plan.refusals else ""
        counted = ", ".join(part for part in (totals, refused) if part)
        return f"{counted}: {shown}{more}" if shown else counted
