"""Carries out a plan against a store: strands in parallel, the steps of each strand in order.

A failed step stops only the steps that need it. A failure that every record would share (the controller does not
respond, refuses the credentials or asks us to slow down; the deadline has passed; the process is stopping) ends the
whole run: what was not tried is reported as such, and the next pass of external-dns plans anew.

What counts is the state of the store afterwards: "already exists" on create and "not found" on delete are successes.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from daemonkit.causes import forget_frames
from daemonkit.logs import get_logger
from dnswebhook.canonical import host_of
from dnswebhook.deadline import Deadline
from dnswebhook.errors import (
    AlreadyExists,
    CredentialsRefused,
    NotFound,
    Overlaps,
    RateLimited,
    StoreError,
    StoreTimeout,
    UpdateUnsupported,
)
from dnswebhook.model import Record, RecordSpec
from dnswebhook.operations import Create, CreateTogether, Delete, Operation, Plan, Step, Strand, Switch, Update
from dnswebhook.stores.base import Store
from dnswebhook.writers import Writers

log = get_logger(__name__)

MAX_SYSTEMIC_FAILURES = 20
"""After this many failures in a row that are not a record's own fault, the rest is not tried in this call."""
PUT_BACK_GRACE_S = 2.0
"""Beyond the deadline of the call, which leaves 3 s until external-dns gives up."""


class Outcome(StrEnum):
    """What became of one write. A closed set: each value is a metric label."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    LEFT_OUT = "left_out"
    """A step that this one needs has failed or was left out."""
    NOT_TRIED = "not_tried"
    """The run ended before this step's turn."""
    DRY_RUN = "dry_run"


class Failure(msgspec.Struct, frozen=True):
    name: str
    type: str
    error: StoreError


class Report(msgspec.Struct):
    """What a run did. `counts`: the number of writes by verb (`create`, `update`, `delete`) and outcome."""

    counts: Counter[tuple[str, Outcome]]
    failures: list[Failure]
    removed: list[Record]
    """Rows whose removal the store has confirmed; those of one strand in the order of its steps."""
    was_cut_short: bool = False
    """The deadline passed, or the process was stopping."""

    def total(self, outcome: Outcome) -> int:
        return sum(count for (_, counted), count in self.counts.items() if counted is outcome)

    @property
    def totals(self) -> list[tuple[Outcome, int]]:
        return [(outcome, self.total(outcome)) for outcome in Outcome]

    @property
    def total_done(self) -> int:
        return self.total(Outcome.APPLIED) + self.total(Outcome.UNCHANGED)

    @property
    def is_complete(self) -> bool:
        return not self.failures and not self.total(Outcome.LEFT_OUT) and not self.total(Outcome.NOT_TRIED)


def _may_follow(step: Step, succeeded: Sequence[bool]) -> bool:
    one_of = step.needs_one_of
    return all(succeeded[index] for index in step.needs) and (not one_of or any(succeeded[index] for index in one_of))


def dry_run(plan: Plan) -> Report:
    """Log and count what would be written, without writing."""
    report = Report(Counter(), [], [])
    for strand in plan.strands:
        for step in strand.steps:
            for verb, spec in writes_of(step.operation):
                log.info("dry run", operation=verb, name=spec.name, type=spec.type, value=spec.value, ttl_s=spec.ttl_s)
                report.counts[verb, Outcome.DRY_RUN] += 1
    return report


def writes_of(operation: Operation) -> list[tuple[str, RecordSpec]]:
    """The single writes of an operation, as verb and content."""
    match operation:
        case Create(spec):
            return [("create", spec)]
        case CreateTogether(specs):
            return [("create", spec) for spec in specs]
        case Update(_, spec):
            return [("update", spec)]
        case Delete(record):
            return [("delete", record.spec)]
        case Switch(remove, add):
            return [("delete", record.spec) for record in remove] + [("create", spec) for spec in add]


class Run:
    """Carries out one plan. `execute` may be called once; strands run on the writers' threads."""

    def __init__(self, store: Store, deadline: Deadline, writers: Writers, late: Collection[str] = ()) -> None:
        """`late`: names whose strands failed in the previous run; they start after all others."""
        self.failed: set[str] = set()
        """The value of `late` for the next run."""
        self.pending: set[RecordSpec] = set()
        """Records whose create had no clear result: they may still appear."""
        self._store = store
        self._deadline = deadline
        self._writers = writers
        self._late = late
        self._lock = threading.Lock()
        self._report = Report(Counter(), [], [])
        self._failures_in_a_row = 0
        self._is_over = False

    def execute(self, plan: Plan) -> Report:
        """Returns once no write is in progress any more."""
        # Short strands first: a few names with hundreds of values each would use up every call until its deadline.
        strands = sorted(plan.strands, key=lambda strand: (strand.name in self._late, len(strand.steps)))
        self._writers.for_each(strands, self._run_strand)
        return self._report

    def _run_strand(self, strand: Strand) -> None:
        succeeded: list[bool] = []
        has_failed = False
        for step in strand.steps:
            if not self._may_go_on():
                self._count_all(step.operation, Outcome.NOT_TRIED)
                succeeded.append(False)
            elif not _may_follow(step, succeeded):
                self._count_all(step.operation, Outcome.LEFT_OUT)
                succeeded.append(False)
            else:
                succeeded.append(self._carry_out(step.operation))
                has_failed |= not succeeded[-1]
        if has_failed or (strand.name in self._late and not all(succeeded)):
            with self._lock:
                self.failed.add(strand.name)

    def _may_go_on(self) -> bool:
        if self._deadline.has_passed or self._deadline.is_stopping:
            with self._lock:
                self._report.was_cut_short = True
                self._is_over = True
        return not self._is_over

    def _carry_out(self, operation: Operation) -> bool:
        match operation:
            case Create(spec):
                return self._create(spec)
            case CreateTogether(specs):
                return self._create_together(specs)
            case Update(record, spec):
                return self._update(record, spec)
            case Delete(record):
                return self._delete_for_good(record)
            case Switch(remove, add):
                return self._switch(remove, add)

    def _create(
        self,
        spec: RecordSpec,
        deadline: Deadline | None = None,
        on_added: Callable[[Record], None] = lambda _: None,
    ) -> bool:
        try:
            made = self._write("create", spec, lambda: on_added(self._store.create(spec, deadline or self._deadline)))
        except AlreadyExists:
            made = self._unchanged("create")
        return made is not Outcome.FAILED

    def _create_together(self, specs: tuple[RecordSpec, ...]) -> bool:
        """Create all rows or none: if one cannot be added, remove the others again, except rows that existed before."""
        added: list[Record] = []
        for index, spec in enumerate(specs):
            if not self._create(spec, on_added=added.append):
                self._count("create", Outcome.LEFT_OUT, len(specs) - index - 1)
                grace = Deadline.after(PUT_BACK_GRACE_S)  # half of a set that is not removed now would stay for ever
                for record in added:
                    self._delete(record, grace)
                return False
        return True

    def _delete(self, record: Record, deadline: Deadline | None = None) -> Outcome:
        """APPLIED, FAILED, or UNCHANGED if the row was not found."""
        try:
            return self._write("delete", record.spec, lambda: self._store.delete(record, deadline or self._deadline))
        except NotFound:
            return self._unchanged("delete")

    def _delete_for_good(self, record: Record) -> bool:
        outcome = self._delete(record)
        self._note_removed({record: outcome})
        return outcome is not Outcome.FAILED

    def _note_removed(self, outcomes: Mapping[Record, Outcome]) -> None:
        with self._lock:
            self._report.removed += [record for record, outcome in outcomes.items() if outcome is Outcome.APPLIED]

    def _update(self, record: Record, spec: RecordSpec) -> bool:
        try:
            made = self._write("update", spec, lambda: self._store.update(record, spec, self._deadline))
        except (UpdateUnsupported, AlreadyExists):  # AlreadyExists: somebody added the desired value since the listing
            return self._replace(record, spec)
        except NotFound as gone:  # somebody removed the row since the listing
            if spec.type != "CNAME":
                return self._create(spec)
            self._failed("update", spec, gone)  # and may have added another CNAME, which only a listing would show
            return False
        return made is Outcome.APPLIED

    def _replace(self, record: Record, spec: RecordSpec) -> bool:
        """For a store that cannot change a row: add the new one and then remove the old one, or the other way round if
        they cannot coexist."""
        host = host_of(spec.type, spec.value)
        is_same_host = bool(host) and host == host_of(record.type, record.value)
        if spec.type == "CNAME" or spec.value == record.value or is_same_host:
            return self._switch((record,), (spec,))
        return self._create(spec) and self._delete_for_good(record)

    def _switch(self, remove: tuple[Record, ...], add: tuple[RecordSpec, ...]) -> bool:
        has_cname = "CNAME" in (remove[0].type, add[0].type)
        removed: dict[Record, Outcome] = {}
        for index, record in enumerate(remove):
            outcome = self._delete(record)
            if outcome is Outcome.FAILED:
                self._put_back(removed)
                self._count("delete", Outcome.LEFT_OUT, len(remove) - index - 1)
                self._count("create", Outcome.LEFT_OUT, len(add))
                return False
            removed[record] = outcome
        has_gone = Outcome.UNCHANGED in removed.values()
        if has_cname and (has_gone or not self._are_gone(remove)) and (obstacle := self._obstacle(add[0].name, remove)):
            for spec in add:
                self._failed("create", spec, obstacle)
            if not has_gone and not isinstance(obstacle, Overlaps):
                self._put_back(removed)
            return False
        added = [self._create(spec) for spec in add]
        if added and not any(added):
            if has_cname and not self.pending.isdisjoint(add):  # it may still appear, and a CNAME must stand alone
                log.warning("not put back, since its replacement may still appear", name=add[0].name)
            else:
                self._put_back(removed)
                return False
        values = {spec.value for spec in add}  # rows that only get another TTL are still desired
        self._note_removed({record: outcome for record, outcome in removed.items() if record.value not in values})
        return all(added)

    def _are_gone(self, rows: Iterable[Record]) -> bool:
        """Whether removed rows are certainly gone, if the store would accept a CNAME beside them.

        A console that is starting may confirm a removal that it has not carried out. To ask once more is cheaper than a
        listing for each name: it does not find the row any more.
        """
        if not self._store.capabilities().may_accept_overlaps:
            return True
        for record in rows:
            try:
                self._store.delete(record, self._deadline)
            except NotFound:
                continue
            except StoreError as error:
                forget_frames(error)
            return False
        return True

    def _obstacle(self, name: str, removed: Collection[Record]) -> StoreError | None:
        """Why nothing can be added to a name where a row to be removed was not found, or may still be there; None if
        something can be added.

        A row that was not found we have removed ourselves, in a delete that was retried, or somebody else has, who may
        have added others.
        """
        try:
            rows = self._store.list_records(self._deadline).records
        except StoreError as error:
            return error
        there = [row for row in rows if row.name == name and row.is_enabled]
        if not there:
            return None
        for row in there:
            if row in removed:
                return Overlaps(f"the removal of {row.type} {row.value!r} was confirmed, but it is still there")
        return Overlaps(f"somebody changed {name} since it was listed")

    def _put_back(self, removed: Iterable[Record]) -> None:
        """Nothing could be added in place of the removed rows: the name must not stay empty until the next pass."""
        grace = Deadline.after(PUT_BACK_GRACE_S)  # even when the call's own time is up, or the process is stopping
        for record in removed:
            self._create(record.spec, grace)

    def _write(self, verb: str, spec: RecordSpec, call: Callable[[], object]) -> Outcome:
        """Make one write; returns APPLIED or FAILED. Raises AlreadyExists, NotFound and UpdateUnsupported, whose
        meaning depends on the caller."""
        try:
            call()
        except (AlreadyExists, NotFound, UpdateUnsupported):
            raise
        except StoreError as error:
            self._failed(verb, spec, error)
            return Outcome.FAILED
        log.info("record written", operation=verb, name=spec.name, type=spec.type, value=spec.value, ttl_s=spec.ttl_s)
        self._count(verb, Outcome.APPLIED)
        return Outcome.APPLIED

    def _unchanged(self, verb: str) -> Outcome:
        self._count(verb, Outcome.UNCHANGED)
        return Outcome.UNCHANGED

    def _failed(self, verb: str, spec: RecordSpec, error: StoreError) -> None:
        forget_frames(error)
        with self._lock:
            self._report.counts[verb, Outcome.FAILED] += 1
            self._report.failures.append(Failure(spec.name, spec.type, error))
            if error.is_pending:
                self.pending.add(spec)
            if not error.is_systemic:
                self._failures_in_a_row = 0
                return
            self._failures_in_a_row += 1
            if isinstance(error, StoreTimeout) and self._deadline.has_passed:
                self._report.was_cut_short = True
            hopeless = isinstance(error, CredentialsRefused | RateLimited)
            if hopeless or self._failures_in_a_row >= MAX_SYSTEMIC_FAILURES:
                self._is_over = True

    def _count(self, verb: str, outcome: Outcome, count: int = 1) -> None:
        with self._lock:
            self._report.counts[verb, outcome] += count
            if outcome is Outcome.APPLIED or outcome is Outcome.UNCHANGED:
                self._failures_in_a_row = 0

    def _count_all(self, operation: Operation, outcome: Outcome) -> None:
        for verb, _ in writes_of(operation):
            self._count(verb, outcome)
