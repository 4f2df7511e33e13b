"""A plan on its way into a store: what one failure stops and what it does not, and when a run ends early."""

import contextlib
import math
import threading
from collections.abc import Iterator

import msgspec
import pytest

from dnswebhook.apply import MAX_SYSTEMIC_FAILURES, Outcome, Report, Run, dry_run, writes_of
from dnswebhook.deadline import Deadline
from dnswebhook.errors import (
    CredentialsRefused,
    RateLimited,
    RecordError,
    StoreError,
    StoreFailed,
    StoreTimeout,
    StoreUnreachable,
)
from dnswebhook.model import Record, RecordSpec
from dnswebhook.operations import Create, CreateTogether, Delete, Operation, Plan, Step, Strand, Switch, Update
from dnswebhook.writers import Writers
from tests.support.memory_store import CAPABILITIES, WAIT_S, MemoryStore

A = RecordSpec("app.example.com", "A", "192.0.2.1", 300)
CNAME = RecordSpec("app.example.com", "CNAME", "host.example.net")
TXT = RecordSpec("a-app.example.com", "TXT", '"heritage=external-dns"')
ROW_A = Record("1", "app.example.com", "A", "192.0.2.1", 300)
ROW_CNAME = Record("2", "app.example.com", "CNAME", "old.example.net")


def host(number: int) -> RecordSpec:
    return RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1")


def strand(*steps: Step | Operation) -> Strand:
    return Strand("strand", tuple(step if isinstance(step, Step) else Step(step) for step in steps))


@pytest.fixture
def writers() -> Iterator[Writers]:
    with contextlib.closing(Writers(4)) as four:
        yield four


@pytest.fixture
def lone_writer() -> Iterator[Writers]:
    """Strands run one after the other."""
    with contextlib.closing(Writers(1)) as one:
        yield one


def executed(store: MemoryStore, writers: Writers, *strands: Strand) -> Report:
    return Run(store, Deadline.after(WAIT_S), writers).execute(Plan(strands))


def counted(report: Report) -> dict[tuple[str, str], int]:
    return {(verb, outcome.value): count for (verb, outcome), count in report.counts.items() if count}


def test_every_write_is_made_and_counted(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_A)

    report = executed(store, writers, strand(Create(TXT)), strand(Update(ROW_A, A)), strand(Create(host(1))))

    assert {("create", "applied"): 2, ("update", "applied"): 1} == counted(report)
    assert report.is_complete
    assert 3 == report.total_done


@pytest.mark.parametrize(("failing", "outcome"), [(1, "applied"), (2, "left_out")])
def test_a_step_that_needs_one_of_others_is_left_out_when_all_of_them_failed(
    writers: Writers, failing: int, outcome: str
) -> None:
    store = MemoryStore.holding(ROW_A)
    for number in range(failing):
        store.fail("create", RecordError("refused"), name=host(number).name)

    report = executed(
        store, writers, strand(Create(host(0)), Create(host(1)), Step(Delete(ROW_A), needs_one_of=(0, 1)))
    )

    assert 1 == counted(report)["delete", outcome]


def test_a_step_that_needs_a_failed_one_is_left_out_with_the_steps_that_need_it(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_CNAME)
    store.fail("create", RecordError("refused"), name=TXT.name)

    report = executed(
        store,
        writers,
        strand(Create(TXT), Step(Create(A), needs=(0,)), Step(Switch((ROW_CNAME,), (host(1), host(2))), needs=(1,))),
    )

    assert ["create"] == store.verbs
    assert {
        ("create", "failed"): 1,
        ("create", "left_out"): 3,
        ("delete", "left_out"): 1,
    } == counted(report)
    assert not report.is_complete


def test_one_failing_name_does_not_stop_the_others(writers: Writers) -> None:
    store = MemoryStore()
    store.fail("create", RecordError("refused"), name="host-3.example.com")

    report = executed(store, writers, *(strand(Create(host(number))) for number in range(10)))

    assert 9 == len(store.live)
    assert ["host-3.example.com"] == [failure.name for failure in report.failures]
    assert {("create", "applied"): 9, ("create", "failed"): 1} == counted(report)


def test_creating_an_existing_row_and_deleting_a_missing_one_are_successes(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_A)

    report = executed(store, writers, strand(Create(A), Delete(ROW_CNAME), Step(Create(host(1)), needs=(0, 1))))

    assert {("create", "unchanged"): 1, ("delete", "unchanged"): 1, ("create", "applied"): 1} == counted(report)
    assert report.is_complete


def test_an_update_of_a_row_that_is_gone_creates_it(writers: Writers) -> None:
    store = MemoryStore()

    report = executed(store, writers, strand(Update(ROW_A, A)))

    assert {(A.name, A.type, A.value)} == store.live
    assert report.is_complete


def test_an_update_of_a_cname_that_is_gone_creates_none_since_another_one_may_exist(writers: Writers) -> None:
    store = MemoryStore()

    report = executed(store, writers, strand(Update(ROW_CNAME, CNAME)))

    assert ["update"] == store.verbs
    assert [CNAME.name] == [failure.name for failure in report.failures]
    assert {("update", "failed"): 1} == counted(report)


def test_where_rows_cannot_be_updated_the_new_value_is_created_before_the_old_one_is_deleted(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_A, can_update=False)

    report = executed(store, writers, strand(Update(ROW_A, RecordSpec(A.name, "A", "192.0.2.2"))))

    assert ["update", "create", "delete"] == store.verbs
    assert {(A.name, "A", "192.0.2.2")} == store.live
    assert {("create", "applied"): 1, ("delete", "applied"): 1} == counted(report)


def test_an_old_value_stays_when_its_successor_cannot_be_added(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_A, can_update=False)
    store.fail("create", RecordError("refused"))

    executed(store, writers, strand(Update(ROW_A, RecordSpec(A.name, "A", "192.0.2.2"))))

    assert {(A.name, "A", A.value)} == store.live
    assert ["update", "create"] == store.verbs


@pytest.mark.parametrize(
    ("row", "spec"),
    [
        pytest.param(ROW_CNAME, CNAME, id="another CNAME target"),
        pytest.param(ROW_A, RecordSpec(A.name, "A", A.value, 60), id="another TTL of one value"),
        pytest.param(
            Record("7", A.name, "MX", "10 mail.example.com"),
            RecordSpec(A.name, "MX", "20 mail.example.com"),
            id="another preference of one host",
        ),
    ],
)
def test_a_value_that_cannot_coexist_with_its_successor_is_deleted_first(
    row: Record, spec: RecordSpec, writers: Writers
) -> None:
    store = MemoryStore.holding(row, can_update=False)

    report = executed(store, writers, strand(Update(row, spec)))

    assert ["update", "delete", "create"] == store.verbs
    assert [spec] == [held.spec for held in store.rows.values()]
    assert report.is_complete


def test_a_cname_is_put_back_when_its_successor_is_refused(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_CNAME, can_update=False)
    store.fail("create", RecordError("refused"), value=CNAME.value)

    report = executed(store, writers, strand(Update(ROW_CNAME, CNAME)))

    assert {(ROW_CNAME.name, "CNAME", ROW_CNAME.value)} == store.live
    assert not report.is_complete


def test_an_old_value_is_deleted_when_somebody_has_added_the_wanted_one_meanwhile(writers: Writers) -> None:
    wanted = Record("9", "app.example.com", "A", "192.0.2.2")
    store = MemoryStore.holding(ROW_A, wanted)

    report = executed(store, writers, strand(Update(ROW_A, wanted.spec)))

    assert {(wanted.name, "A", wanted.value)} == store.live
    assert report.is_complete


def test_a_switch_removes_everything_then_adds_everything(writers: Writers) -> None:
    other = Record("3", "app.example.com", "A", "192.0.2.3")
    store = MemoryStore.holding(ROW_A, other)

    report = executed(store, writers, strand(Switch((ROW_A, other), (CNAME,))))

    assert ["delete", "delete", "create"] == store.verbs
    assert {(CNAME.name, CNAME.type, CNAME.value)} == store.live
    assert report.is_complete
    assert [ROW_A, other] == report.removed


def test_a_switch_that_could_create_nothing_puts_everything_back(writers: Writers) -> None:
    other = Record("3", "app.example.com", "A", "192.0.2.3")
    store = MemoryStore.holding(ROW_A, other)
    store.fail("create", RecordError("refused"), value=CNAME.value)

    report = executed(store, writers, strand(Switch((ROW_A, other), (CNAME,))))

    assert {(A.name, "A", A.value), (A.name, "A", other.value)} == store.live
    assert [] == report.removed


@pytest.mark.parametrize("is_pending", [False, True])
def test_a_switch_puts_nothing_back_when_its_record_may_still_be_created(is_pending: bool, writers: Writers) -> None:
    store = MemoryStore.holding(ROW_CNAME)
    error = StoreTimeout("slow")
    error.is_pending = is_pending
    store.fail("create", error, value=A.value)

    report = executed(store, writers, strand(Switch((ROW_CNAME,), (A,)), Step(Delete(ROW_A), needs=(0,))))

    assert store.live == (set() if is_pending else {(ROW_CNAME.name, "CNAME", ROW_CNAME.value)})
    assert 1 == report.counts["delete", Outcome.LEFT_OUT]


def test_an_address_is_put_back_even_when_its_new_ttl_may_still_be_written(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_A, can_update=False)
    error = StoreTimeout("slow")
    error.is_pending = True
    store.fail("create", error, times=1)

    executed(store, writers, strand(Update(ROW_A, RecordSpec(A.name, "A", A.value, 60))))

    assert {(A.name, "A", A.value)} == store.live


def test_a_row_that_was_to_get_a_new_ttl_is_not_reported_as_removed(writers: Writers) -> None:
    """The store may have kept it although it has confirmed the removal: its value is still wanted."""
    store = MemoryStore.holding(ROW_A, can_update=False)
    store.ignore(A.name)

    report = executed(store, writers, strand(Update(ROW_A, RecordSpec(A.name, "A", A.value, 60))))

    assert [] == report.removed


def test_an_address_removed_meanwhile_is_created_with_its_new_ttl_beside_other_addresses(writers: Writers) -> None:
    other = Record("3", A.name, "A", "192.0.2.3")
    store = MemoryStore.holding(other, can_update=False)

    report = executed(store, writers, strand(Update(ROW_A, RecordSpec(A.name, "A", A.value, 60))))

    assert {(A.name, "A", A.value), (A.name, "A", other.value)} == store.live
    assert report.is_complete


@pytest.mark.parametrize("is_exchanged", [False, True])
def test_a_switch_whose_row_was_removed_meanwhile_creates_only_at_an_empty_name(
    is_exchanged: bool, writers: Writers
) -> None:
    other = Record("7", ROW_CNAME.name, "CNAME", "theirs.example.net")
    store = MemoryStore.holding(*([other] if is_exchanged else []))

    report = executed(store, writers, strand(Switch((ROW_CNAME,), (CNAME,))))

    assert store.live == {(CNAME.name, "CNAME", other.value if is_exchanged else CNAME.value)}
    assert report.is_complete is not is_exchanged
    assert ("create" in store.verbs) is not is_exchanged


OVERLAPPING = msgspec.structs.replace(CAPABILITIES, may_accept_overlaps=True)


@pytest.mark.parametrize(
    ("held", "add"), [((ROW_CNAME,), A), ((ROW_A,), CNAME), ((ROW_CNAME,), CNAME)], ids=["from", "to", "another"]
)
@pytest.mark.parametrize("times", [0, 1, math.inf], ids=["done", "confirmed once", "confirmed always"])
def test_nothing_is_added_beside_a_cname_whose_removal_was_only_confirmed(
    held: tuple[Record, ...], add: RecordSpec, times: float, writers: Writers
) -> None:
    """Old firmware would accept it, and no resolver starts with it."""
    store = MemoryStore.holding(*held, limits=OVERLAPPING)
    store.ignore(add.name, times=times)

    report = executed(store, writers, strand(Switch(held, (add,))))

    stays = times == math.inf
    assert store.live == {(row.name, row.type, row.value) for row in (held if stays else (add,))}
    assert ("create" in store.verbs) is not stays
    assert store.listings == (times > 0)
    assert ["still there" in str(failure.error) for failure in report.failures] == [True] * stays


def test_nothing_is_added_beside_a_cname_when_the_store_does_not_say_again_that_it_is_gone(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_CNAME, limits=OVERLAPPING)
    store.ignore(ROW_CNAME.name, times=1)
    store.fail("delete", StoreTimeout("no answer"), times=1)

    report = executed(store, writers, strand(Switch((ROW_CNAME,), (A,))))

    assert store.verbs == ["delete", "delete"]
    assert ["still there" in str(failure.error) for failure in report.failures] == [True]


def test_what_a_switch_removed_is_put_back_when_nothing_can_tell_whether_it_is_gone(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_CNAME, limits=OVERLAPPING)
    store.ignore(ROW_CNAME.name)
    store.fail("list", StoreUnreachable("away"))

    executed(store, writers, strand(Switch((ROW_CNAME,), (A,))))

    assert store.live == {(ROW_CNAME.name, "CNAME", ROW_CNAME.value)}
    assert store.verbs == ["delete", "delete", "create"]
    assert store.calls[-1] == ("create", ROW_CNAME.name, "CNAME", ROW_CNAME.value)


def test_a_name_with_only_a_disabled_row_counts_as_empty(writers: Writers) -> None:
    store = MemoryStore.holding(Record("7", ROW_CNAME.name, "MX", "10 mail.example.net", is_enabled=False))

    executed(store, writers, strand(Switch((ROW_CNAME,), (A,))))

    assert store.live == {(A.name, "A", A.value)}


def test_a_switch_whose_row_is_gone_creates_nothing_when_the_listing_fails_and_reports_the_error(
    writers: Writers,
) -> None:
    """A delete of ours whose answer was lost may have removed it: that somebody changed the name would be a guess."""
    store = MemoryStore()
    store.fail("list", StoreUnreachable("away"))

    report = executed(store, writers, strand(Switch((ROW_CNAME,), (CNAME,))))

    assert store.live == set()
    assert [("away", True)] == [(str(failure.error), failure.error.is_systemic) for failure in report.failures]


def test_a_switch_that_created_something_puts_nothing_back(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_CNAME)
    aaaa = RecordSpec("app.example.com", "AAAA", "2001:db8::1")
    store.fail("create", RecordError("refused"), value=aaaa.value)

    report = executed(store, writers, strand(Switch((ROW_CNAME,), (A, aaaa))))

    assert {(A.name, "A", A.value)} == store.live
    assert not report.is_complete


def test_a_switch_whose_removal_fails_adds_nothing_and_puts_back_what_it_removed(writers: Writers) -> None:
    others = [Record(str(number), "app.example.com", "A", f"192.0.2.{number}") for number in (3, 4)]
    store = MemoryStore.holding(ROW_A, *others)
    store.fail("delete", RecordError("refused"), value="192.0.2.3")

    report = executed(store, writers, strand(Switch((ROW_A, *others), (CNAME,))))

    assert {(A.name, "A", f"192.0.2.{number}") for number in (1, 3, 4)} == store.live
    expected = {
        ("delete", "applied"): 1,
        ("delete", "failed"): 1,
        ("delete", "left_out"): 1,
        ("create", "left_out"): 1,
        ("create", "applied"): 1,
    }
    assert expected == counted(report)


TEXTS = tuple(RecordSpec("text.example.com", "TXT", value) for value in ("one", "two", "three", "four"))


def test_values_created_together_are_all_created(writers: Writers) -> None:
    store = MemoryStore()

    report = executed(store, writers, strand(CreateTogether(TEXTS), Step(Create(host(1)), needs=(0,))))

    assert {(spec.name, spec.type, spec.value) for spec in (*TEXTS, host(1))} == store.live
    assert {("create", "applied"): 5} == counted(report)
    assert report.is_complete


def test_of_values_created_together_only_the_new_ones_are_removed_again_when_one_fails(
    writers: Writers,
) -> None:
    store = MemoryStore.holding(Record("9", "text.example.com", "TXT", "one"))
    store.fail("create", RecordError("refused"), value="three")

    report = executed(store, writers, strand(CreateTogether(TEXTS), Step(Create(host(1)), needs=(0,))))

    assert {("text.example.com", "TXT", "one")} == store.live
    assert [("create", "one"), ("create", "two"), ("create", "three"), ("delete", "two")] == [
        (operation, value) for operation, _, _, value in store.calls
    ]
    assert {
        ("create", "unchanged"): 1,
        ("create", "applied"): 1,
        ("create", "failed"): 1,
        ("create", "left_out"): 2,
        ("delete", "applied"): 1,
    } == counted(report)
    assert not report.is_complete


class LateStore(MemoryStore):
    """Refuses every call whose deadline has passed; `deadline` passes while `late_value` is being added."""

    late_value = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.now_s = 0.0
        self.deadline = Deadline(1.0, threading.Event(), lambda: self.now_s)

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        if spec.value == self.late_value:
            self.now_s = 2.0
        self._require_time(deadline)
        return super().create(spec, deadline)

    def delete(self, record: Record, deadline: Deadline) -> None:
        self._require_time(deadline)
        super().delete(record, deadline)

    @staticmethod
    def _require_time(deadline: Deadline) -> None:
        if deadline.has_passed:
            raise StoreTimeout("no time left")


def test_values_created_together_are_removed_again_after_the_deadline_when_one_is_too_late(writers: Writers) -> None:
    store = LateStore()
    store.late_value = "three"

    report = Run(store, store.deadline, writers).execute(Plan((strand(CreateTogether(TEXTS)),)))

    assert store.live == set()
    assert {("create", "applied"): 2, ("create", "failed"): 1, ("create", "left_out"): 1, ("delete", "applied"): 2} == (
        counted(report)
    )


def test_what_a_switch_removed_is_put_back_after_the_deadline(writers: Writers) -> None:
    store = LateStore(rows={ROW_CNAME.id: ROW_CNAME})
    store.late_value = A.value

    report = Run(store, store.deadline, writers).execute(Plan((strand(Switch((ROW_CNAME,), (A,))),)))

    assert store.live == {(CNAME.name, "CNAME", ROW_CNAME.value)}
    assert report.was_cut_short


def test_a_row_of_another_name_does_not_stop_a_switch(writers: Writers) -> None:
    store = MemoryStore.holding(Record("7", "other.example.com", "A", "192.0.2.9"))

    report = executed(store, writers, strand(Switch((ROW_CNAME,), (CNAME,))))

    assert (CNAME.name, "CNAME", CNAME.value) in store.live
    assert report.is_complete


def test_a_switch_whose_rows_were_there_asks_for_no_listing(writers: Writers) -> None:
    store = MemoryStore.holding(ROW_CNAME)

    executed(store, writers, strand(Switch((ROW_CNAME,), (CNAME,))))

    assert 0 == store.listings


@pytest.mark.parametrize("error", [StoreUnreachable("gone"), StoreFailed("disk full"), StoreTimeout("slow")])
def test_after_many_consecutive_systemic_failures_the_rest_is_not_tried(
    error: StoreError, lone_writer: Writers
) -> None:
    store = MemoryStore()
    store.fail("create", error)

    report = executed(store, lone_writer, *(strand(Create(host(number))) for number in range(60)))

    assert MAX_SYSTEMIC_FAILURES == len(store.calls)
    assert {
        ("create", "failed"): MAX_SYSTEMIC_FAILURES,
        ("create", "not_tried"): 60 - MAX_SYSTEMIC_FAILURES,
    } == counted(report)
    assert not report.was_cut_short


@pytest.mark.parametrize("error", [CredentialsRefused("no"), RateLimited("slow down", 60)])
def test_a_failure_that_is_sure_to_repeat_ends_the_run_at_once(error: StoreError, lone_writer: Writers) -> None:
    store = MemoryStore()
    store.fail("create", error)

    report = executed(store, lone_writer, *(strand(Create(host(number))) for number in range(20)))

    assert 1 == len(store.calls)
    assert {("create", "failed"): 1, ("create", "not_tried"): 19} == counted(report)


def test_a_success_in_between_resets_the_count_of_failures(lone_writer: Writers) -> None:
    store = MemoryStore()
    for number in range(20):
        if number % 5:
            store.fail("create", StoreUnreachable("reset"), name=f"host-{number}.example.com")

    report = executed(store, lone_writer, *(strand(Create(host(number))) for number in range(20)))

    assert 20 == len(store.calls)
    assert {("create", "applied"): 4, ("create", "failed"): 16} == counted(report)


def test_refusals_of_single_records_never_end_the_run(lone_writer: Writers) -> None:
    store = MemoryStore()
    store.fail("create", RecordError("refused"))

    executed(store, lone_writer, *(strand(Create(host(number))) for number in range(20)))

    assert 20 == len(store.calls)


def test_nothing_is_begun_after_the_deadline(writers: Writers) -> None:
    store = MemoryStore()

    report = Run(store, Deadline.after(-1), writers).execute(Plan((strand(Create(A)), strand(Create(host(1))))))

    assert [] == store.calls
    assert report.was_cut_short
    assert {("create", "not_tried"): 2} == counted(report)


def test_a_stop_ends_the_run_but_not_the_write_in_flight(lone_writer: Writers) -> None:
    store = MemoryStore()
    gate = store.halt("create")
    stop = threading.Event()
    reports: list[Report] = []
    run = Run(store, Deadline.after(WAIT_S, stop), lone_writer)
    plan = Plan(tuple(strand(Create(host(number))) for number in range(5)))
    runner = threading.Thread(target=lambda: reports.append(run.execute(plan)))

    runner.start()
    gate.wait_for_arrivals()
    stop.set()
    gate.open()
    runner.join(WAIT_S)

    assert {("create", "applied"): 1, ("create", "not_tried"): 4} == counted(reports[0])
    assert reports[0].was_cut_short
    assert 0 == store.in_flight


def test_no_more_writes_than_there_are_writers_are_in_flight(writers: Writers) -> None:
    store = MemoryStore()
    gate = store.halt("create")
    plan = Plan(tuple(strand(Create(host(number))) for number in range(30)))
    runner = threading.Thread(target=Run(store, Deadline.after(WAIT_S), writers).execute, args=(plan,))

    runner.start()
    gate.wait_for_arrivals(4)
    gate.open()
    runner.join(WAIT_S)

    assert 30 == len(store.live)
    assert 4 == store.max_in_flight


class Defective(MemoryStore):
    """Raises what no store may raise, for one name."""

    def create(self, spec: RecordSpec, deadline: Deadline) -> Record:
        if spec == A:
            raise ZeroDivisionError("a bug")
        return super().create(spec, deadline)


def test_a_name_of_many_values_does_not_keep_others_waiting_until_the_deadline(lone_writer: Writers) -> None:
    store = MemoryStore()
    many = strand(*(Create(RecordSpec("a.example.com", "A", f"192.0.2.{number}")) for number in range(50)))

    executed(store, lone_writer, many, strand(Create(TXT), Create(A)), strand(Create(host(1))))

    assert [host(1).name, TXT.name, A.name, "a.example.com"] == [name for _, name, _, _ in store.calls[:4]]


def test_names_that_failed_are_tried_after_all_others_until_they_succeed(lone_writer: Writers) -> None:
    store = MemoryStore()
    store.fail("create", RecordError("refused"), name=A.name)
    plan = Plan((Strand("app", (Step(Create(A)),)), Strand("two", (Step(Create(host(1))), Step(Create(host(2)))))))
    run = Run(store, Deadline.after(WAIT_S), lone_writer)

    run.execute(plan)
    assert run.failed == {"app"}
    without_time = Run(store, Deadline.after(-1), lone_writer, run.failed)
    without_time.execute(plan)
    assert without_time.failed == {"app"}  # "two" has only not been tried
    store.heal()
    store.calls.clear()
    last = Run(store, Deadline.after(WAIT_S), lone_writer, without_time.failed)
    last.execute(plan)

    assert [name for _, name, _, _ in store.calls] == [host(1).name, host(2).name, A.name]
    assert last.failed == set()


def test_even_a_bug_in_a_store_leaves_no_write_in_flight(writers: Writers) -> None:
    store = Defective()
    gate = store.halt("create")
    in_flight_at_return: list[int] = []
    run = Run(store, Deadline.after(WAIT_S), writers)

    def execute() -> None:
        with pytest.raises(ZeroDivisionError):
            run.execute(Plan((strand(Create(A)), strand(Create(host(1))))))
        in_flight_at_return.append(store.in_flight)

    runner = threading.Thread(target=execute)
    runner.start()
    gate.wait_for_arrivals()
    gate.open()
    runner.join(WAIT_S)

    assert [0] == in_flight_at_return
    assert {(host(1).name, "A", "192.0.2.1")} == store.live


def test_a_dry_run_counts_every_write_and_needs_no_store() -> None:
    plan = Plan((strand(Create(TXT), Switch((ROW_A,), (CNAME,))), strand(Update(ROW_CNAME, CNAME), Delete(ROW_A))))

    report = dry_run(plan)

    assert {("create", "dry_run"): 2, ("update", "dry_run"): 1, ("delete", "dry_run"): 2} == counted(report)
    assert report.is_complete


def test_an_operation_is_one_or_more_single_writes() -> None:
    assert [("delete", ROW_A.spec), ("create", CNAME)] == writes_of(Switch((ROW_A,), (CNAME,)))
    assert [("update", A)] == writes_of(Update(ROW_A, A))


def test_totals_name_every_outcome() -> None:
    report = dry_run(Plan(()))

    assert list(Outcome) == [outcome for outcome, _ in report.totals]
    assert 0 == report.total_done
