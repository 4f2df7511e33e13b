"""What the store contract promises, over both APIs against the simulated controller."""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import pytest

from dnswebhook.deadline import Deadline
from dnswebhook.errors import AlreadyExists, NotFound, Overlaps, RecordError, StoreUnreachable, UpdateUnsupported
from dnswebhook.model import Listing, Origin, Record, RecordSpec
from dnswebhook.stores.unifi.integration import OVERLAP_PAUSE_S
from dnswebhook.stores.unifi.store import UnifiStore
from dnswebhook.stores.unifi.writes import PUT_PAUSE_S
from tests.dnswebhook.stores.unifi.conftest import OpenStore
from tests.support.controller import Controller, Hang, PutRefusal, Reply, faults
from tests.support.controller.answers import integration_error, v2_error

SPECS = [
    RecordSpec("app.example.com", "A", "192.0.2.10", 300),
    RecordSpec("app.example.com", "A", "192.0.2.11", 300),
    RecordSpec("app.example.com", "AAAA", "2001:db8::1"),
    RecordSpec("*.wild.example.com", "A", "192.0.2.12"),
    RecordSpec("www.example.com", "CNAME", "app.example.com", 60),
    RecordSpec("a-app.example.com", "TXT", '"heritage=external-dns,external-dns/owner=me"'),
    RecordSpec("plain.example.com", "TXT", "v=spf1"),
    RecordSpec("example.com", "MX", "10 mail.example.com"),
    RecordSpec("_sip._tcp.example.com", "SRV", "1 2 5060 sip.example.com."),
]
A, NEW_A = SPECS[0], RecordSpec("app.example.com", "A", "192.0.2.99", 60)


def test_rows_of_every_type_are_created_listed_and_deleted(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    created = [store.create(spec, deadline) for spec in SPECS]
    listed = store.list_records(deadline).records
    for record in listed:
        store.delete(record, deadline)

    assert [record.spec for record in created] == SPECS
    assert set(listed) == set(created)
    assert controller.rows() == []


def test_an_update_changes_the_row_in_place_with_one_write(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    record = store.create(A, deadline)
    updated = store.update(record, NEW_A, deadline)

    assert updated.id == record.id
    assert store.list_records(deadline).records == (updated,)
    assert updated.spec == NEW_A
    assert controller.calls.writes == {"create": 1, "update": 1, "delete": 0}
    assert controller.names_ever_empty == set()


def test_an_unchanged_listing_is_the_same_object_and_a_changed_one_is_not(
    store: UnifiStore, controller: Controller, deadline: Deadline
) -> None:
    for number in range(450):
        controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1")
    first = store.list_records(deadline)

    assert store.list_records(deadline) is first
    assert len({record.name for record in first.records}) == 450

    store.create(A, deadline)
    assert len(store.list_records(deadline).records) == 451


def test_the_same_row_twice_exists_already(store: UnifiStore, controller: Controller, deadline: Deadline) -> None:
    store.create(A, deadline)

    with pytest.raises(AlreadyExists, match=r"(?i)exists"):
        store.create(A, deadline)
    assert len(controller.rows()) == 1


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_cname_beside_another_record_overlaps_and_the_error_mentions_disabled_ones(
    store: UnifiStore, controller: Controller, deadline: Deadline, *, is_enabled: bool
) -> None:
    controller.add_row(A.name, A.type, A.value, enabled=is_enabled)

    with pytest.raises(Overlaps, match=r"(?i)overlap.* those that are disabled count as well"):
        store.create(RecordSpec(A.name, "CNAME", "other.example.com"), deadline)


def test_a_deleted_row_is_not_found(store: UnifiStore, deadline: Deadline) -> None:
    record = store.create(A, deadline)
    store.delete(record, deadline)

    with pytest.raises(NotFound):
        store.delete(record, deadline)
    with pytest.raises(NotFound):
        store.update(record, NEW_A, deadline)


def test_a_malformed_row_is_refused_with_the_controllers_words(store: UnifiStore, deadline: Deadline) -> None:
    with pytest.raises(RecordError) as refusal:
        store.create(RecordSpec("mapped.example.com", "AAAA", "::ffff:192.0.2.1"), deadline)

    assert not isinstance(refusal.value, AlreadyExists | Overlaps | NotFound)
    assert "400" in str(refusal.value)


def test_updating_a_row_to_an_existing_value_exists_already_and_does_not_count_as_refused_put(
    store: UnifiStore, deadline: Deadline
) -> None:
    record = store.create(A, deadline)
    store.create(RecordSpec(A.name, "A", NEW_A.value), deadline)

    with pytest.raises(AlreadyExists):
        store.update(record, NEW_A, deadline)
    assert store.update(record, RecordSpec(A.name, "A", "192.0.2.50"), deadline).value == "192.0.2.50"


ALREADY_THERE = {
    "v2": v2_error(400, "api.err.StaticDnsRecordAlreadyExists", "Record exists"),
    "integration": integration_error(400, "api.dns.policy.validation.record-already-exists", "Record exists", "/"),
}


class Clock:
    """Advances only when a test sets it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


MX = RecordSpec("example.com", "MX", "10 mail.example.com")
LIKE_MX = RecordSpec("example.com", "MX", "20 mail.example.com")


def test_a_row_that_the_controller_takes_for_another_one_is_an_error_and_does_not_count_as_existing(
    store: UnifiStore, deadline: Deadline
) -> None:
    """Both APIs compare mail exchangers by host alone. Taken for existing, the row would be sent again in each pass."""
    store.create(MX, deadline)

    with pytest.raises(RecordError, match=r"no row has the value '20 mail\.example\.com'") as refusal:
        store.create(LIKE_MX, deadline)

    assert not isinstance(refusal.value, AlreadyExists)


def test_updating_a_row_to_the_host_of_another_one_is_refused_and_does_not_count_as_refused_put(
    store: UnifiStore, deadline: Deadline
) -> None:
    store.create(MX, deadline)
    other = store.create(RecordSpec(MX.name, "MX", "20 backup.example.com"), deadline)

    with pytest.raises(RecordError, match=r"no row has the value '20 mail\.example\.com'") as refusal:
        store.update(other, LIKE_MX, deadline)

    assert not isinstance(refusal.value, AlreadyExists | UpdateUnsupported)
    assert store.update(other, RecordSpec(MX.name, "MX", "5 backup.example.com"), deadline).id == other.id


@pytest.mark.parametrize("refusal", [PutRefusal.EXISTS, PutRefusal.NOT_ALLOWED])
def test_a_controller_that_refuses_put_gets_two_attempts_and_then_none_for_a_long_time(
    controller: Controller,
    open_store: OpenStore,
    deadline: Deadline,
    caplog: pytest.LogCaptureFixture,
    refusal: PutRefusal,
) -> None:
    caplog.set_level("INFO")
    clock = Clock()
    controller.quirks.put_refusal = refusal
    store = open_store(controller, clock=clock, api="v2")
    record = store.create(A, deadline)

    for trials in (2, 2, 2):
        with pytest.raises(UpdateUnsupported, match="in place"):
            store.update(record, NEW_A, deadline)
        assert calls(controller, "update") == trials
    clock.now_s += PUT_PAUSE_S
    for trials in (4, 4):
        with pytest.raises(UpdateUnsupported, match="in place"):
            store.update(record, NEW_A, deadline)
        assert calls(controller, "update") == trials

    assert [row.value for row in controller.rows()] == [A.value]
    assert caplog.messages.count("rows cannot be changed in place here, they are replaced") == 1


def test_rows_that_differ_by_name_or_host_do_not_explain_why_put_is_refused(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    """Else no record of a controller that refuses every PUT could be changed: only the error for this one is acted
    upon, by replacing the row."""
    controller.quirks.put_refusal = PutRefusal.EXISTS
    store = open_store(controller, api="v2")
    store.create(RecordSpec(MX.name, "MX", "20 backup.example.com"), deadline)
    store.create(RecordSpec("other.example.com", "MX", "5 mail.example.com"), deadline)
    record = store.create(MX, deadline)

    with pytest.raises(UpdateUnsupported, match="in place"):
        store.update(record, RecordSpec(MX.name, "MX", "5 mail.example.com"), deadline)


def test_a_controller_that_accepts_put_after_an_upgrade_is_noticed(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    clock = Clock()
    controller.quirks.put_refusal = PutRefusal.EXISTS
    store = open_store(controller, clock=clock, api="v2")
    record = store.create(A, deadline)
    with pytest.raises(UpdateUnsupported):
        store.update(record, NEW_A, deadline)
    controller.quirks.put_refusal = PutRefusal.NONE
    with pytest.raises(UpdateUnsupported):
        store.update(record, NEW_A, deadline)

    clock.now_s += PUT_PAUSE_S

    assert store.update(record, NEW_A, deadline).spec == NEW_A
    assert store.update(record, A, deadline).spec == A


def test_only_one_of_many_updates_retries_a_put_that_is_known_to_be_refused(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    clock = Clock()
    controller.quirks.put_refusal = PutRefusal.EXISTS
    store = open_store(controller, clock=clock, api="v2")
    record = store.create(A, deadline)
    with pytest.raises(UpdateUnsupported):
        store.update(record, NEW_A, deadline)
    clock.now_s += PUT_PAUSE_S
    trial = controller.fault(Hang(), on="update", count=1)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(store.update, record, NEW_A, deadline)
        trial.wait_for_strikes()
        for _ in range(3):
            with pytest.raises(UpdateUnsupported):
                store.update(record, NEW_A, deadline)
        controller.release_hangs()
        with pytest.raises(UpdateUnsupported):
            first.result()

    assert calls(controller, "update") == 4


@pytest.mark.parametrize("status", [404, 405])
def test_a_page_of_a_restarting_console_does_not_count_as_refused_put(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int
) -> None:
    record = store.create(A, deadline)
    restarting = controller.fault(faults.html_page(status))
    with pytest.raises(StoreUnreachable):
        store.update(record, NEW_A, deadline)
    controller.faults.remove(restarting)

    assert store.update(record, NEW_A, deadline).spec == NEW_A


@pytest.mark.parametrize("status", [404, 405])
def test_a_console_that_is_up_after_one_refused_put_updates_the_row_in_place_at_once(
    store: UnifiStore, controller: Controller, deadline: Deadline, status: int
) -> None:
    """It answers the listing then, which alone would prove nothing."""
    record = store.create(A, deadline)
    controller.fault(faults.html_page(status), on="update", count=1)

    assert store.update(record, NEW_A, deadline).spec == NEW_A
    assert store.update(record, A, deadline).spec == A
    assert controller.calls.writes == {"create": 1, "update": 3, "delete": 0}
    assert controller.names_ever_empty == set()


def test_a_conflicting_row_that_is_gone_does_not_count_as_refused_put(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str
) -> None:
    record = store.create(A, deadline)
    gone = faults.reply_of(ALREADY_THERE[api])
    controller.fault(gone, on="update", count=1)

    assert store.update(record, NEW_A, deadline).spec == NEW_A


TEXT = RecordSpec("app.example.com", "TXT", "Some-Text")


def test_a_text_that_differs_from_another_row_only_in_case_is_refused_and_does_not_count_as_refused_put(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str
) -> None:
    other = store.create(TEXT, deadline)
    record = store.create(RecordSpec(TEXT.name, "TXT", "another-text"), deadline)
    taken_for_the_other = controller.fault(faults.reply_of(ALREADY_THERE[api]), on="update")

    with pytest.raises(RecordError, match="no row has the value 'some-text'") as refusal:
        store.update(record, RecordSpec(TEXT.name, "TXT", "some-text"), deadline)
    controller.faults.remove(taken_for_the_other)

    assert not isinstance(refusal.value, AlreadyExists | UpdateUnsupported)
    assert store.update(other, RecordSpec(TEXT.name, "TXT", "new-text"), deadline).id == other.id


def test_disabled_derived_and_forwarding_rows_are_told_apart(
    store: UnifiStore, controller: Controller, deadline: Deadline, api: str
) -> None:
    controller.add_row("off.example.com", "A", "192.0.2.1", enabled=False)
    controller.add_row("camera.example.com", "A", "192.0.2.2", origin="DERIVED")
    controller.add_row("corp.example.com", "NS", "192.0.2.53")
    records = {record.name: record for record in store.list_records(deadline).records}

    assert not records["off.example.com"].is_enabled
    assert "corp.example.com" not in records
    if api == "integration":
        assert records["camera.example.com"].origin is Origin.DERIVED


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_name_of_a_device_overlaps_whether_or_not_it_is_listed(
    store: UnifiStore, controller: Controller, deadline: Deadline, is_listed: bool
) -> None:
    controller.quirks.lists_derived = is_listed
    controller.add_row("camera.example.com", "A", "192.0.2.2", origin="DERIVED")

    with pytest.raises(Overlaps, match="rename its local DNS record"):
        store.create(RecordSpec("camera.example.com", "A", "192.0.2.3"), deadline)


def test_rows_in_a_shared_bucket_are_ambiguous(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    controller.quirks.shared_bucket_ids = True
    for name in ("one", "two"):
        controller.add_row(f"{name}.example.com", "A", "192.0.2.1", made_by="v2")
    controller.add_row("three.example.com", "A", "192.0.2.1", made_by="integration")
    records = open_store(controller, api="integration").list_records(deadline).records

    assert {record.name: record.origin for record in records} == {
        "one.example.com": Origin.AMBIGUOUS,
        "two.example.com": Origin.AMBIGUOUS,
        "three.example.com": Origin.USER_DEFINED,
    }


def test_a_listing_starts_again_when_rows_move_between_its_pages(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    for number in range(500):
        controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1")
    controller.quirks.page_shifts = 2
    records = open_store(controller, api="integration").list_records(deadline).records

    names = [record.name for record in records]
    assert len(names) == len(set(names))
    assert {f"host-{number}.example.com" for number in range(500)} <= set(names)


def test_a_listing_starts_again_when_a_row_is_replaced_between_its_pages(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    """Their number stays the same, and each page is full; the row that moved to the previous page would be missed."""
    rows = [controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1") for number in range(300)]
    second_page = controller.fault(Hang(), on="list", nth=2, count=1)
    store, other_admin = open_store(controller, api="integration"), open_store(controller, api="v2")

    with ThreadPoolExecutor(1) as pool:
        listing = pool.submit(store.list_records, deadline)
        second_page.wait_for_strikes()
        other_admin.delete(Record(rows[0].id, rows[0].name, "A", "192.0.2.1"), deadline)
        other_admin.create(RecordSpec("new.example.com", "A", "192.0.2.1"), deadline)
        controller.release_hangs()
        names = [record.name for record in listing.result().records]

    assert sorted(names) == sorted(["new.example.com", *(row.name for row in rows[1:])])


def test_a_listing_during_which_rows_are_replaced_every_time_fails_instead_of_missing_one(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    for number in range(300):
        controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1")
    store = open_store(controller, api="integration")
    second_page = controller.fault(Hang(), on="list", nth=2, count=1)

    def list_while_rows_are_replaced(times: int) -> Future[Listing]:
        nonlocal second_page
        listing = pool.submit(store.list_records, deadline)
        for number in range(times):
            second_page.wait_for_strikes()
            second_page = controller.fault(Hang(), on="list", nth=2, count=1)
            controller.sites["default"].store.delete(controller.rows()[0].id)
            controller.add_row(f"new-{number}.example.com", "A", "192.0.2.1")
            controller.release_hangs()
        return listing

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(StoreUnreachable, match="the rows changed during each of 5 listings"):
            list_while_rows_are_replaced(5).result()
        controller.faults.clear()
        second_page = controller.fault(Hang(), on="list", nth=2, count=1)
        listing = list_while_rows_are_replaced(1)
        controller.faults.clear()
        names = [record.name for record in listing.result().records]

    assert names == [row.name for row in controller.rows()], "the store has taken it for a matter of the controller"


@pytest.mark.parametrize(
    ("rounds_offsets", "tells_asked_offset"), [("down", True), ("down", False), ("up", True), ("up", False)]
)
def test_a_controller_that_rounds_offsets_is_listed_in_whole_pages(
    controller: Controller,
    open_store: OpenStore,
    deadline: Deadline,
    rounds_offsets: Literal["down", "up"],
    tells_asked_offset: bool,
) -> None:
    rows = [controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1") for number in range(500)]
    controller.quirks.rounds_offsets = rounds_offsets
    controller.quirks.tells_asked_offset = tells_asked_offset
    store = open_store(controller, api="integration")

    assert [record.name for record in store.list_records(deadline).records] == [row.name for row in rows]
    before = listings(controller)
    assert len(store.list_records(deadline).records) == 500
    assert listings(controller) - before == 3


def test_a_controller_that_refuses_overlapping_pages_is_listed_in_whole_pages(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    rows = [controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1") for number in range(500)]
    controller.quirks.refuses_odd_offsets = True
    store = open_store(controller, api="integration")

    assert [record.name for record in store.list_records(deadline).records] == [row.name for row in rows]
    before = listed_pages(controller)
    assert len(store.list_records(deadline).records) == 500
    assert listed_pages(controller) - before == 3
    controller.calls.wait_until_idle()
    assert controller.calls.count("list", status=400) <= 2, "an offset was refused during the second listing too"


def test_one_refused_page_does_not_end_the_overlap_for_good(
    controller: Controller, open_store: OpenStore, deadline: Deadline
) -> None:
    for number in range(300):
        controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1")
    now = [1000.0]
    store = open_store(controller, api="integration", clock=lambda: now[0])
    controller.fault(Reply(status=400, body='{"code":"api.err.Anything"}'), on="list", nth=2, count=1)
    assert len(store.list_records(deadline).records) == 300
    now[0] += OVERLAP_PAUSE_S
    second_page = controller.fault(Hang(), on="list", nth=2, count=1)

    with ThreadPoolExecutor(1) as pool:
        listing = pool.submit(store.list_records, deadline)
        second_page.wait_for_strikes()
        rows = controller.sites["default"].store
        rows.delete(controller.rows()[0].id)
        controller.add_row("new.example.com", "A", "192.0.2.1")
        controller.release_hangs()
        names = [record.name for record in listing.result().records]

    assert names == [row.name for row in controller.rows()]


def test_a_controller_that_refuses_overlapping_pages_is_asked_for_them_once_per_period(
    controller: Controller, open_store: OpenStore, deadline: Deadline, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(300):
        controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1")
    controller.quirks.refuses_odd_offsets = True
    now = [1000.0]
    store = open_store(controller, api="integration", clock=lambda: now[0])

    with caplog.at_level(logging.INFO):
        for _ in range(3):
            for _ in range(3):
                assert len(store.list_records(deadline).records) == 300
            now[0] += OVERLAP_PAUSE_S
        controller.quirks.refuses_odd_offsets = False
        store.list_records(deadline)

    assert controller.calls.count("list", status=400) == 3
    assert [entry.message for entry in caplog.records if "overlap" in entry.message] == [
        "pages of a listing cannot overlap here, rows that move between pages may be missed",
        "pages of a listing can overlap again",
    ]


def listings(controller: Controller) -> int:
    return calls(controller, "list")


def listed_pages(controller: Controller) -> int:
    """Without refused pages, which may still be on their way when another listing begins."""
    return controller.calls.count("list", status=200)


def calls(controller: Controller, operation: str) -> int:
    return sum(count for (_, called, _), count in controller.calls.calls.items() if called == operation)


@pytest.mark.parametrize(
    ("page_rows", "total", "pages"), [(1, 3, 3), (2, 2, 1), (2, 5, 4), (3, 5, 2), (3, 6, 3), (3, 7, 3), (5, 0, 1)]
)
def test_pages_may_be_as_small_as_the_controller_wants(
    controller: Controller, open_store: OpenStore, deadline: Deadline, page_rows: int, total: int, pages: int
) -> None:
    rows = [controller.add_row(f"host-{number}.example.com", "A", "192.0.2.1") for number in range(total)]
    controller.quirks.max_page_rows = page_rows

    listing = open_store(controller, api="integration").list_records(deadline)

    assert [record.name for record in listing.records] == [row.name for row in rows]
    assert listings(controller) == pages


def test_parallel_writers_and_readers_all_succeed(controller: Controller, open_store: OpenStore, api: str) -> None:
    # Eighty calls, four at a time, on a machine that may be busy: how long they take does not matter here.
    store, deadline = open_store(controller, api=api, request_timeout_s=30.0), Deadline.after(60)
    specs = [RecordSpec(f"host-{number}.example.com", "A", "192.0.2.1") for number in range(40)]

    def create_and_see(spec: RecordSpec) -> bool:
        record = store.create(spec, deadline)
        return record in store.list_records(deadline).records

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(create_and_see, specs))
    assert len(controller.rows()) == 40


def test_each_operation_is_observed_with_its_outcome(
    controller: Controller, open_store: OpenStore, deadline: Deadline, api: str
) -> None:
    seen: list[tuple[str, str]] = []
    lock = threading.Lock()

    def observe(operation: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        with lock:
            seen.append((operation, outcome))

    store = open_store(controller, observe, api=api)
    record = store.create(A, deadline)
    store.update(record, NEW_A, deadline)
    store.list_records(deadline)
    store.delete(record, deadline)
    with pytest.raises(NotFound):
        store.delete(record, deadline)

    expected = [("create", "ok"), ("update", "ok"), ("list", "ok"), ("delete", "ok"), ("delete", "not_found")]
    assert seen == expected
