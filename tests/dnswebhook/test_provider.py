"""The four verbs on a store: turns, guards, dry run, and how failures are reported."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from dnswebhook.deadline import Deadline
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.errors import CapabilitiesUnknown, RateLimited, RecordError, StoreError, StoreTimeout, StoreUnreachable
from dnswebhook.model import Changes, Endpoint, Origin, Record
from dnswebhook.provider import ApplyFailed, CallerGone, DeleteGuardTripped
from dnswebhook.stores.unifi import integrationrows
from tests.dnswebhook.rig import Build, Rig, a, hosts, row
from tests.support.memory_store import WAIT_S
from tests.support.strategies import HERITAGE


def test_negotiation_needs_no_store(rig: Build) -> None:
    here = rig(domain_filter=DomainFilter(["example.com"]))

    assert ["example.com"] == json.loads(here.provider.negotiate())["include"]
    assert 0 == here.store.listings


def test_records_are_listed_bare_or_wrapped(rig: Build) -> None:
    here = rig(row("app.example.com"))
    bare = here.provider.records(Deadline.after(WAIT_S), is_wrapped=False)
    wrapped = here.provider.records(Deadline.after(WAIT_S), is_wrapped=True)

    assert {"endpoints": json.loads(bare)} == json.loads(wrapped)
    assert ["app.example.com"] == [endpoint["dnsName"] for endpoint in json.loads(bare)]


def test_an_empty_store_is_an_empty_list(rig: Build) -> None:
    assert b"[]" == rig().provider.records(Deadline.after(WAIT_S), is_wrapped=False)


def test_names_outside_the_filter_are_listed_nevertheless(rig: Build) -> None:
    """Ownership records of an apex lie outside it."""
    here = rig(row("a-example.com"), row("nas.lan"), domain_filter=DomainFilter(["example.com"]))

    assert {"a-example.com", "nas.lan"} == set(here.listed())


def test_a_change_is_listed_afterwards(rig: Build) -> None:
    here = rig(row("app.example.com"))
    here.listed()

    here.apply(create=[a("new.example.com")], delete=[a("app.example.com")])

    assert {"new.example.com": ["192.0.2.1"]} == here.listed()


def test_repeating_an_apply_writes_nothing(rig: Build) -> None:
    here = rig()

    for _ in range(2):
        here.apply(create=[a("app.example.com", "192.0.2.1", "192.0.2.2")])

    assert ["create", "create"] == here.store.verbs


def test_empty_changes_cause_no_listing(rig: Build) -> None:
    here = rig()

    here.apply()

    assert 0 == here.store.listings


def test_a_dry_run_answers_as_usual_and_writes_nothing(rig: Build) -> None:
    here = rig(row("app.example.com"), is_dry_run=True)

    here.apply(create=[a("new.example.com")], delete=[a("app.example.com")])

    assert [] == here.store.calls
    assert {"app.example.com": ["192.0.2.1"]} == here.listed()
    assert 1 == here.metric("dnswebhook_operations_total", operation="create", outcome="dry_run")


def test_protected_names_stay_and_the_apply_succeeds(rig: Build) -> None:
    here = rig(row("nas.lan"), protected=ProtectedNames(["*.lan"]))

    here.apply(delete=[a("nas.lan")], create=[a("app.example.com")])

    assert {"nas.lan", "app.example.com"} == set(here.listed())
    assert 1 == here.metric("dnswebhook_skipped_changes_total", reason="protected")


def test_names_outside_the_filter_are_refused_and_the_rest_is_applied(rig: Build) -> None:
    here = rig(domain_filter=DomainFilter(["example.com"]))

    with pytest.raises(ApplyFailed, match=r"1 applied, 1 refused: app\.example\.org A: .*outside the domain filter"):
        here.apply(create=[a("app.example.org"), a("app.example.com")])

    assert {"app.example.com": ["192.0.2.1"]} == here.listed()
    assert 1 == here.metric("dnswebhook_refused_changes_total", reason="outside_filter")


# The guard against mass deletion.


@pytest.mark.parametrize(("doomed", "is_refused"), [(10, False), (11, True), (20, True)])
def test_an_apply_that_deletes_more_than_the_share_writes_nothing(rig: Build, doomed: int, is_refused: bool) -> None:
    here = rig(*map(row, hosts(20)), max_delete_share=0.5)
    deletions = [a(name) for name in hosts(doomed)]

    if is_refused:
        with pytest.raises(DeleteGuardTripped, match=rf"refused to delete {doomed} of 20 .*nothing was changed.* 10;"):
            here.apply(delete=deletions, create=[a("new.example.com")])
        assert [] == here.store.calls
    else:
        here.apply(delete=deletions)
        assert doomed == len(here.store.calls)
    assert float(is_refused) == here.metric("dnswebhook_delete_guard_trips_total")


def test_a_small_store_may_be_emptied(rig: Build) -> None:
    here = rig(*map(row, hosts(19)), max_delete_share=0.5)

    here.apply(delete=[a(name) for name in hosts(19)])

    assert {} == here.listed()


def test_only_rows_that_are_ours_to_write_count_for_the_share(rig: Build) -> None:
    others = [row(f"device-{number}.lan", origin=Origin.DERIVED) for number in range(10)]
    disabled = [row(f"off-{number}.lan", is_enabled=False) for number in range(10)]
    here = rig(*map(row, hosts(20)), *others, *disabled, max_delete_share=0.5)

    with pytest.raises(DeleteGuardTripped, match="11 of 20"):
        here.apply(delete=[a(name) for name in hosts(11)])


def test_the_delete_share_counts_only_names_within_the_filter(rig: Build) -> None:
    """The rest may be another cluster's: of a controller that two share equally, each could delete all of its own."""
    names = DomainFilter(["a.example.com"])
    owned = [f"{number}.a.example.com" for number in range(20)]
    theirs = [f"{number}.b.example.com" for number in range(80)]
    here = rig(*map(row, [*owned, *theirs]), max_delete_share=0.5, domain_filter=names)

    with pytest.raises(DeleteGuardTripped, match="11 of 20"):
        here.apply(delete=map(a, owned[:11]))
    here.apply(delete=map(a, owned[:10]))


def test_ownership_records_outside_the_filter_count_on_neither_side(rig: Build) -> None:
    """As with an expression that their names do not match: each deleted record would count twice."""
    owned = hosts(20)
    names = [f"a-{name}" for name in owned]
    texts = [Record(name, name, "TXT", HERITAGE) for name in names]
    here = rig(*map(row, owned), *texts, max_delete_share=0.5, domain_filter=DomainFilter(regex_include="^host"))
    gone = [Endpoint(f"a-{name}", "TXT", (HERITAGE,), labels={"ownedRecord": name}) for name in owned]

    here.apply(delete=[*map(a, owned[:10]), *gone[:10]])


def test_an_update_does_not_count_as_a_deletion(rig: Build) -> None:
    here = rig(*map(row, hosts(20)), max_delete_share=0)

    here.apply(update_old=map(a, hosts(20)), update_new=[a(name, "192.0.2.2") for name in hosts(20)])

    assert {"update"} == set(here.store.verbs)


def test_the_guard_is_off_by_default(rig: Build) -> None:
    here = rig(*map(row, hosts(30)))

    here.apply(delete=map(a, hosts(30)))

    assert {} == here.listed()


# How failures are reported.


def test_one_refused_record_is_a_partial_failure_that_names_it(rig: Build) -> None:
    here = rig()
    here.store.fail("create", RecordError("the name is taken"), name="host-01.example.com")

    with pytest.raises(ApplyFailed, match=r"2 applied, 1 failed: host-01\.example\.com A: the name is taken") as failed:
        here.apply(create=map(a, hosts(3)))

    assert failed.value.is_partial
    assert failed.value.error is None
    assert {"host-00.example.com", "host-02.example.com"} == set(here.listed())


def test_a_long_list_of_failures_is_cut(rig: Build) -> None:
    here = rig()
    here.store.fail("create", RecordError("no"))

    with pytest.raises(ApplyFailed, match=r"30 failed: .*; and 25 more$") as failed:
        here.apply(create=map(a, hosts(30)))

    assert len(str(failed.value)) < 500


def test_when_nothing_could_be_done_the_stores_own_error_is_the_reason(rig: Build) -> None:
    here = rig()
    error = StoreUnreachable("connection refused")
    here.store.fail("create", error)

    with pytest.raises(ApplyFailed) as failed:
        here.apply(create=map(a, hosts(10)))

    assert error is failed.value.error
    assert not failed.value.is_partial


def test_when_something_was_done_it_is_a_partial_failure(rig: Build) -> None:
    here = rig()
    error = StoreUnreachable("reset")
    here.store.fail("create", error, name="host-01.example.com")

    with pytest.raises(ApplyFailed) as failed:
        here.apply(create=map(a, hosts(3)))

    assert failed.value.is_partial
    assert error is failed.value.error


def test_records_with_systemic_failures_do_not_keep_others_waiting_for_ever(rig: Build) -> None:
    """So many failures in a row end an apply; in the next one the others come first."""
    here = rig(write_parallelism=1)
    doomed = hosts(30)
    for name in doomed:
        here.store.fail("create", StoreUnreachable("500"), name=name)
    wanted = [a(name) for name in [*doomed, "new.example.com"]]

    for _ in range(2):
        with pytest.raises(ApplyFailed):
            here.apply(create=wanted)
    assert {("new.example.com", "A", "192.0.2.1")} == here.store.live

    for later in ("newer.example.com", "newest.example.com"):
        with pytest.raises(ApplyFailed):
            here.apply(create=[*wanted, a(later)])
        assert (later, "A", "192.0.2.1") in here.store.live


def test_a_rate_limit_is_passed_on_even_after_something_was_done(rig: Build) -> None:
    here = rig(write_parallelism=1)
    here.store.fail("create", RateLimited("slow down", 30), name="host-01.example.com")

    with pytest.raises(ApplyFailed) as failed:
        here.apply(create=map(a, hosts(3)))

    assert isinstance(failed.value.error, RateLimited)
    assert {"host-00.example.com"} == set(here.listed())


@pytest.mark.parametrize("error", [StoreUnreachable("gone"), CapabilitiesUnknown("which?")])
def test_a_listing_that_fails_is_raised_and_nothing_is_written(rig: Build, error: StoreError) -> None:
    here = rig()
    here.store.fail("list", error)

    with pytest.raises(type(error)):
        here.apply(create=[a("app.example.com")])

    assert [] == here.store.calls


def test_an_unknown_api_is_raised_by_adjust_and_apply(rig: Build) -> None:
    here = rig()
    here.store.limits = CapabilitiesUnknown("not known yet")

    with pytest.raises(CapabilitiesUnknown):
        here.provider.adjust(b"[]")
    with pytest.raises(CapabilitiesUnknown):
        here.apply(create=[a("app.example.com")])
    assert [] == here.store.calls


def test_after_a_failure_the_next_apply_has_its_turn(rig: Build) -> None:
    here = rig()
    here.store.fail("list", StoreUnreachable("gone"), times=1)
    with pytest.raises(StoreUnreachable):
        here.apply(create=[a("app.example.com")])

    here.apply(create=[a("app.example.com")])

    assert {"app.example.com": ["192.0.2.1"]} == here.listed()


# Turns.


def test_a_second_apply_waits_for_the_first_and_plans_on_its_result(rig: Build) -> None:
    here = rig()
    gate = here.store.halt("create")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(here.apply, create=[a("app.example.com")])
        gate.wait_for_arrivals()
        second = pool.submit(here.apply, create=[a("app.example.com")])
        assert 1 == here.store.listings
        gate.open()
        first.result(WAIT_S)
        second.result(WAIT_S)

    assert ["create"] == here.store.verbs
    assert 2 == here.store.listings


def test_a_listing_waits_for_an_apply_to_end(rig: Build) -> None:
    here = rig()
    gate = here.store.halt("create")
    with ThreadPoolExecutor(2) as pool:
        applying = pool.submit(here.apply, create=[a("a.example.com"), a("b.example.com")])
        gate.wait_for_arrivals(2)
        listing = pool.submit(here.listed)
        assert not listing.done()
        gate.open()

        assert {"a.example.com", "b.example.com"} == set(listing.result(WAIT_S))
        applying.result(WAIT_S)


def test_a_call_that_waits_for_its_turn_beyond_its_deadline_gets_a_timeout(rig: Build) -> None:
    here = rig()
    gate = here.store.halt("create")
    with ThreadPoolExecutor(1) as pool:
        applying = pool.submit(here.apply, create=[a("app.example.com")])
        gate.wait_for_arrivals()

        with pytest.raises(StoreTimeout, match="another apply was still running"):
            here.apply(create=[a("b.example.com")], deadline_s=0.01)
        with pytest.raises(StoreTimeout):
            here.provider.records(Deadline.after(0.01), is_wrapped=False)
        gate.open()
        applying.result(WAIT_S)

    assert [("create", "app.example.com", "A", "192.0.2.1")] == here.store.calls


def test_a_caller_that_is_gone_when_its_turn_comes_changes_nothing(rig: Build) -> None:
    here = rig()

    with pytest.raises(CallerGone):
        here.apply(is_caller_gone=lambda: True, create=[a("app.example.com")])

    assert 0 == here.store.listings
    here.apply(create=[a("app.example.com")])
    assert {"app.example.com"} == set(here.listed())


def test_a_stop_in_the_middle_ends_the_apply_as_cut_short(rig: Build) -> None:
    here = rig(write_parallelism=1)
    gate = here.store.halt("create")
    stop = threading.Event()
    changes = Changes(create=tuple(map(a, hosts(5))))
    with ThreadPoolExecutor(1) as pool:
        applying = pool.submit(here.provider.apply, changes, Deadline.after(WAIT_S, stop), lambda: False)
        gate.wait_for_arrivals()
        stop.set()
        gate.open()

        with pytest.raises(ApplyFailed, match="1 applied, 4 not tried") as failed:
            applying.result(WAIT_S)

    assert failed.value.was_cut_short
    assert 1 == len(here.store.calls)


def test_concurrent_listings_are_all_answered(rig: Build) -> None:
    here = rig(row("app.example.com"))
    gate = here.store.halt("list")
    with ThreadPoolExecutor(10) as pool:
        listings = [pool.submit(here.listed) for _ in range(10)]
        gate.wait_for_arrivals()
        gate.open()

        assert [{"app.example.com": ["192.0.2.1"]}] * 10 == [listing.result(WAIT_S) for listing in listings]


LONG = ".".join(["x" * 60, "y" * 60, "example.com"])


def adjusted(rig: Rig, *names: str) -> list[str]:
    wanted = [{"dnsName": name, "recordType": "A", "targets": ["192.0.2.1"]} for name in names]
    return [each["dnsName"] for each in json.loads(rig.provider.adjust(json.dumps(wanted).encode()))]


def test_a_record_that_a_new_api_would_refuse_is_still_wanted_if_an_apply_has_listed_it(
    rig: Callable[..., Rig],
) -> None:
    """With --txt-cache-interval external-dns lists only now and then, and the API may change in between."""
    each = rig()
    assert {} == each.listed()
    each.apply(create=[a(LONG)])
    each.store.limits = integrationrows.CAPABILITIES
    each.apply(create=[a("app.example.com")])

    assert [LONG] == adjusted(each, LONG, "other-" + LONG[6:])
    each.apply(delete=[a(LONG)])
    each.listed()
    assert [] == adjusted(each, LONG)


def test_before_the_first_listing_no_record_that_may_be_served_is_dropped(rig: Callable[..., Rig]) -> None:
    """With --txt-cache-interval we may start between two listings. A dropped record would be removed."""
    each = rig(Record("1", LONG, "A", "192.0.2.1", 300))
    each.store.limits = integrationrows.CAPABILITIES
    other = "other-" + LONG[6:]

    assert [LONG, other] == adjusted(each, LONG, other)
    each.listed()
    assert [LONG] == adjusted(each, LONG, other)


def test_an_empty_store_serves_nothing_once_it_was_listed(rig: Callable[..., Rig]) -> None:
    each = rig()
    each.store.limits = integrationrows.CAPABILITIES
    each.listed()

    assert [] == adjusted(each, LONG)


def test_values_of_a_name_that_the_store_would_refuse_can_be_removed_but_not_added(rig: Callable[..., Rig]) -> None:
    rows = [Record(value, LONG, "A", value, 300) for value in ("192.0.2.1", "192.0.2.2")]
    each = rig(*rows)
    each.store.limits = integrationrows.CAPABILITIES
    before = a(LONG, "192.0.2.1", "192.0.2.2")

    each.apply(update_old=[before], update_new=[a(LONG, "192.0.2.1")])
    assert {LONG: ["192.0.2.1"]} == each.listed()
    with pytest.raises(ApplyFailed, match="name of 133 octets"):
        each.apply(update_old=[a(LONG, "192.0.2.1")], update_new=[before])
    assert {LONG: ["192.0.2.1"]} == each.listed()
