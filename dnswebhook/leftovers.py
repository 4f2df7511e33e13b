"""What earlier applies may have left behind: noted before they write, and removed before the next listing is answered.

    begin           before the writes of an apply: notes all that it could leave behind
    conclude        after them: what is settled, what may still appear, what the store may list again
    settled_listing the listing for external-dns, after leftovers have been removed

What `notes` and `removals` decide is carried out here. One thread at a time may call.
"""

from collections.abc import Callable, Collection, Iterable, Set

from daemonkit.causes import forget_frames
from daemonkit.logs import get_logger
from dnswebhook.apply import Outcome, Report, writes_of
from dnswebhook.deadline import Deadline
from dnswebhook.errors import NotFound, StoreError
from dnswebhook.journal import Journal
from dnswebhook.metrics import Metrics
from dnswebhook.model import Changes, Listing, Record, RecordSpec
from dnswebhook.notes import IsDesired, Note, awaited, awaited_if_unlisted, done, extended, settle, unsettled
from dnswebhook.operations import Plan
from dnswebhook.ownership import owner_in
from dnswebhook.removals import ConfirmedRemovals
from dnswebhook.stores.base import Store

log = get_logger(__name__)


class Leftovers:
    def __init__(
        self,
        store: Store,
        journal: Journal,
        metrics: Metrics,
        is_desired: IsDesired,
        is_protected: Callable[[str], bool],
    ) -> None:
        """`is_protected`: whether we must not touch a name."""
        self._store = store
        self._journal = journal
        self._metrics = metrics
        self._is_desired = is_desired
        self._is_protected = is_protected
        self._written: dict[tuple[str, str], Note] = {}
        """Ownership records, by name and text, that complete applies have added since the last listing."""
        self._confirmed = ConfirmedRemovals()
        self._generation = 0
        """`Listing.generation` of the last listing."""
        self._contested: frozenset[Note] = frozenset()
        """`Settlement.contested` of the last listing, so that each is logged once."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What earlier applies have left open."""
        return self._journal.notes

    def list_records(self, deadline: Deadline) -> Listing:
        """The store's listing, with all that was left behind. Raises StoreError."""
        self._journal.look_again()
        listing = self._store.list_records(deadline)
        if listing.generation != self._generation:
            # The store was replaced. Its rows are older, or somebody else's, and our notes are not about them: acting
            # on a note could remove an ownership record that is in use.
            self._generation = listing.generation
            self._written = {}
            self._journal.replace(())
        return listing

    def forget_asked(self, changes: Changes, told: Collection[Record] | None) -> None:
        """See `ConfirmedRemovals.forget_asked`."""
        self._confirmed.forget_asked(changes, told)

    def begin(self, plan: Plan, listing: Listing) -> None:
        """The plan is about to be carried out; it was made for this listing."""
        writes = [write for strand in plan.strands for step in strand.steps for write in writes_of(step.operation)]
        added = [spec for verb, spec in writes if verb != "delete"]
        self._journal.replace(unsettled(self._journal.notes, listing.records))
        self._journal.add((*extended(self._journal.notes, added), *plan.notes))

    def conclude(self, plan: Plan, report: Report, pending: Set[RecordSpec]) -> None:
        """`pending`: records whose create had no clear result, so that they may still appear."""
        self._journal.add(awaited(self._journal.notes, pending))
        if self._store.capabilities().has_lasting_ids:
            self._confirmed.add(report.removed, plan.notes)
        if report.is_complete and not plan.refusals:  # what was not done because of a refusal also stays noted
            settled = set(plan.notes)
            left = [each for each in self._journal.notes if each.waits or each not in settled]
            self._journal.replace(tuple(done(each) if each in settled else each for each in left))
            self._remember_written(plan.notes)

    def _remember_written(self, notes: Iterable[Note]) -> None:
        for note in notes:
            key = (note.name, note.value)
            self._written.pop(key, None)
            if not (note.is_leaving or note.is_staying or note.successor) and owner_in(note.value):
                self._written[key] = done(note)

    def settled_listing(self, deadline: Deadline, *, is_dry_run: bool) -> Listing:
        """A listing after removal of what earlier applies left behind, without what external-dns must not see.

        `is_dry_run`: nothing is removed. Raises StoreError.
        """
        listing = self.list_records(deadline)
        self._confirmed.follow(listing.records, self._is_desired)
        if not (self._written or self._journal.notes or self._confirmed) or is_dry_run:
            return listing
        written = awaited_if_unlisted(self._written.values(), listing.records)
        open_notes = {(note.name, note.value): note for note in (*written, *self._journal.notes)}
        noted = [
            note
            for note in open_notes.values()
            # Patterns may have been added since the note was written.
            if not (self._is_protected(note.name) or self._is_protected(note.owned.name))
        ]
        settlement = settle(noted, listing.records, self._is_desired)
        contested = {*settlement.contested}
        remove = dict.fromkeys((*settlement.remove, *self._confirmed))
        untold = {*settlement.claims, *self._confirmed.ownership_records}  # even if they stay for now
        untold |= self._remove(remove, deadline)
        if remove and not deadline.has_passed:  # if removing took too long, the first listing is the answer
            generation = listing.generation
            listing = self.list_records(deadline)
            # Settled again: a record may have gone in between and left its ownership record behind.
            noted = noted if listing.generation == generation else []
            settlement = settle(noted, listing.records, self._is_desired)
            untold.update(settlement.claims)
            contested.update(settlement.contested)
        self._written = {}
        self._journal.replace(settlement.open)
        self._tell_contested(frozenset(contested))
        if not remove:
            return listing
        return Listing(tuple(row for row in listing.records if row not in untold), listing.generation)

    def _remove(self, rows: Iterable[Record], deadline: Deadline) -> set[Record]:
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
