"""The four operations of the webhook (negotiate, records, adjust, apply), built from wire, adjust, plan and store.

There is one writer: applies are serialised, and a listing waits for a running apply, so that it never shows half of
one. Every apply lists first, plans against that listing, and writes only the difference. Any thread may call.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

import msgspec

from daemonkit.logs import get_logger
from dnswebhook import wire
from dnswebhook.adjuster import Adjuster
from dnswebhook.apply import Report, Run, dry_run
from dnswebhook.canonical import KNOWN_TYPES
from dnswebhook.deadline import Deadline
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.errors import RateLimited, StoreError, StoreFailed, StoreTimeout
from dnswebhook.fit import Drop
from dnswebhook.flights import Flights
from dnswebhook.journal import Journal
from dnswebhook.leftovers import Leftovers
from dnswebhook.listings import ListingEncoder
from dnswebhook.metrics import Metrics
from dnswebhook.model import Changes, Listing, Origin
from dnswebhook.operations import Plan
from dnswebhook.past import History
from dnswebhook.plan import make_plan
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

    def __init__(self, message: str, *, error: StoreError | None, is_partial: bool, was_cut_short: bool) -> None:
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
        self._leftovers = Leftovers(store, journal, metrics, self._adjuster.is_desired, policy.protected.matches)
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
            listing = self._leftovers.list_records(deadline)
            self._check_generation(changes, listing)
            self._look_at(listing)
            plan = make_plan(
                changes,
                listing.records,
                self._store.capabilities(),
                self._policy.domain_filter,
                self._policy.protected,
                self._history.begin_apply(self._leftovers.notes),
            )
            self._history.note_refusals(plan.refusals)
            self._note(plan)
            self._leftovers.forget_asked(changes, self._history.told)
            self._guard_against_mass_deletion(plan, listing)
            report = dry_run(plan) if self._policy.is_dry_run else self._carry_out(plan, listing, deadline)
        for (verb, outcome), count in report.counts.items():
            self._metrics.operations.labels(verb, outcome).inc(count)
        self._conclude(plan, report)
        self._metrics.last_apply.set(time.time())

    def _carry_out(self, plan: Plan, listing: Listing, deadline: Deadline) -> Report:
        self._leftovers.begin(plan, listing)
        run = Run(self._store, deadline, self._writers, self._failed)
        report = run.execute(plan)
        self._failed = run.failed
        self._leftovers.conclude(plan, report, run.pending)
        self._history.note_removals(plan.notes)
        return report

    def _check_generation(self, changes: Changes, listing: Listing) -> None:
        """Refuse updates and deletions if the store was replaced since external-dns listed it (`Listing.generation`).

        The rows they name may be somebody else's in the new store. Raises StoreFailed.
        """
        if (changes.update_old or changes.delete) and not self._history.is_about(listing.generation):
            raise StoreFailed("the store was replaced since it was listed; nothing was changed, the next pass lists it")

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
            listing = self._leftovers.settled_listing(deadline, is_dry_run=self._policy.is_dry_run)
            self._history.tell(listing.records, listing.generation)
            self._look_at(listing)
        self._metrics.last_listing.set(time.time())
        encoded = self._encoder.encode(listing)
        for record_type in KNOWN_TYPES:
            self._metrics.records_managed.labels(record_type).set(encoded.sets_by_type[record_type])
        return encoded.body

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
