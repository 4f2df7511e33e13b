"""The four verbs on a store: turns, guards, dry run, and what a failure is called."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dnswebhook.deadline import Deadline
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.errors import CapabilitiesUnknown, RateLimited, RecordError, StoreError, StoreTimeout, StoreUnreachable
from dnswebhook.journal import Journal
from dnswebhook.metrics import Metrics
from dnswebhook.model import Changes, Endpoint, Listing, Origin, Record
from dnswebhook.provider import ApplyFailed, CallerGone, DeleteGuardTripped, Policy, Provider
from dnswebhook.stores.unifi import integrationrows
from tests.support.memory_store import WAIT_S, MemoryStore
from tests.support.strategies import HERITAGE


def a(name: str, *targets: str) -> Endpoint:
    return Endpoint(name, "A", targets or ("192.0.2.1",))


def row(name: str, value: str = "192.0.2.1", **more: Any) -> Record:
    return Record(name, name, "A", value, **more)


def hosts(count: int) -> list[str]:
    return [f"host-{number:02}.example.com" for number in range(count)]


class House:
    """A provider on a store in memory, with its metrics."""

    def __init__(self, store: MemoryStore, **policy: Any) -> None:
        self.store = store
        self.registry = CollectorRegistry()
        settings = {"domain_filter": DomainFilter(), "protected": ProtectedNames(), **policy}
        self.journal = Journal()
        self.provider = Provider(store, Policy(**settings), Metrics(self.registry), self.journal)

    def apply(
        self, is_caller_gone: Callable[[], bool] = lambda: False, deadline_s: float = WAIT_S, **lists: Any
    ) -> None:
        changes = Changes(**{name: tuple(members) for name, members in lists.items()})
        self.provider.apply(changes, Deadline.after(deadline_s), is_caller_gone)

    def listed(self) -> dict[str, list[str]]:
        answer = json.loads(self.provider.records(Deadline.after(WAIT_S), is_wrapped=False))
        return {endpoint["dnsName"]: endpoint["targets"] for endpoint in answer}

    def loses_all(self) -> None:
        """Somebody removes every row by hand."""
        for row in list(self.store.rows.values()):
            self.store.delete(row, Deadline.after(WAIT_S))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def house() -> Iterator[Callable[..., House]]:
    """Builds houses, and closes them."""
    built: list[House] = []

    def build(*records: Record, **policy: Any) -> House:
        built.append(House(MemoryStore.holding(*records), **policy))
        return built[-1]

    yield build
    for one in built:
        one.provider.close()


Build = Callable[..., House]


def test_negotiation_needs_no_store(house: Build) -> None:
    here = house(domain_filter=DomainFilter(["example.com"]))

    assert ["example.com"] == json.loads(here.provider.negotiate())["include"]
    assert 0 == here.store.listings


def test_records_are_listed_bare_or_wrapped(house: Build) -> None:
    here = house(row("app.example.com"))
    bare = here.provider.records(Deadline.after(WAIT_S), is_wrapped=False)
    wrapped = here.provider.records(Deadline.after(WAIT_S), is_wrapped=True)

    assert {"endpoints": json.loads(bare)} == json.loads(wrapped)
    assert ["app.example.com"] == [endpoint["dnsName"] for endpoint in json.loads(bare)]


def test_an_empty_store_is_an_empty_list(house: Build) -> None:
    assert b"[]" == house().provider.records(Deadline.after(WAIT_S), is_wrapped=False)


def test_names_outside_the_filter_are_listed_all_the_same(house: Build) -> None:
    """Ownership records of an apex lie outside it."""
    here = house(row("a-example.com"), row("nas.lan"), domain_filter=DomainFilter(["example.com"]))

    assert {"a-example.com", "nas.lan"} == set(here.listed())


def test_a_change_is_listed_afterwards(house: Build) -> None:
    here = house(row("app.example.com"))
    here.listed()

    here.apply(create=[a("new.example.com")], delete=[a("app.example.com")])

    assert {"new.example.com": ["192.0.2.1"]} == here.listed()


def test_repeating_an_apply_writes_nothing(house: Build) -> None:
    here = house()

    for _ in range(2):
        here.apply(create=[a("app.example.com", "192.0.2.1", "192.0.2.2")])

    assert ["create", "create"] == here.store.verbs


def test_no_changes_do_not_even_list(house: Build) -> None:
    here = house()

    here.apply()

    assert 0 == here.store.listings


def test_a_dry_run_answers_as_usual_and_writes_nothing(house: Build) -> None:
    here = house(row("app.example.com"), is_dry_run=True)

    here.apply(create=[a("new.example.com")], delete=[a("app.example.com")])

    assert [] == here.store.calls
    assert {"app.example.com": ["192.0.2.1"]} == here.listed()
    assert 1 == here.metric("dnswebhook_operations_total", operation="create", outcome="dry_run")


def test_protected_names_stay_and_the_apply_succeeds(house: Build) -> None:
    here = house(row("nas.lan"), protected=ProtectedNames(["*.lan"]))

    here.apply(delete=[a("nas.lan")], create=[a("app.example.com")])

    assert {"nas.lan", "app.example.com"} == set(here.listed())
    assert 1 == here.metric("dnswebhook_skipped_changes_total", reason="protected")


def test_names_outside_the_filter_are_refused_and_the_rest_is_applied(house: Build) -> None:
    here = house(domain_filter=DomainFilter(["example.com"]))

    with pytest.raises(ApplyFailed, match=r"1 applied, 1 refused: app\.example\.org A: .*outside the domain filter"):
        here.apply(create=[a("app.example.org"), a("app.example.com")])

    assert {"app.example.com": ["192.0.2.1"]} == here.listed()
    assert 1 == here.metric("dnswebhook_refused_changes_total", reason="outside_filter")


# The guard against mass deletion.


@pytest.mark.parametrize(("doomed", "is_refused"), [(10, False), (11, True), (20, True)])
def test_an_apply_that_deletes_more_than_the_share_writes_nothing(house: Build, doomed: int, is_refused: bool) -> None:
    here = house(*map(row, hosts(20)), max_delete_share=0.5)
    deletions = [a(name) for name in hosts(doomed)]

    if is_refused:
        with pytest.raises(DeleteGuardTripped, match=rf"refused to delete {doomed} of 20 .*nothing was changed.* 10;"):
            here.apply(delete=deletions, create=[a("new.example.com")])
        assert [] == here.store.calls
    else:
        here.apply(delete=deletions)
        assert doomed == len(here.store.calls)
    assert float(is_refused) == here.metric("dnswebhook_delete_guard_trips_total")


def test_a_small_store_may_be_emptied(house: Build) -> None:
    here = house(*map(row, hosts(19)), max_delete_share=0.5)

    here.apply(delete=[a(name) for name in hosts(19)])

    assert {} == here.listed()


def test_only_rows_that_are_ours_to_write_count_for_the_share(house: Build) -> None:
    others = [row(f"device-{number}.lan", origin=Origin.DERIVED) for number in range(10)]
    disabled = [row(f"off-{number}.lan", is_enabled=False) for number in range(10)]
    here = house(*map(row, hosts(20)), *others, *disabled, max_delete_share=0.5)

    with pytest.raises(DeleteGuardTripped, match="11 of 20"):
        here.apply(delete=[a(name) for name in hosts(11)])


def test_the_share_is_of_what_is_within_the_filter(house: Build) -> None:
    """The rest may be another cluster's. Of a controller that two share alike, each could delete all of its own."""
    names = DomainFilter(["a.example.com"])
    owned = [f"{number}.a.example.com" for number in range(20)]
    theirs = [f"{number}.b.example.com" for number in range(80)]
    here = house(*map(row, [*owned, *theirs]), max_delete_share=0.5, domain_filter=names)

    with pytest.raises(DeleteGuardTripped, match="11 of 20"):
        here.apply(delete=map(a, owned[:11]))
    here.apply(delete=map(a, owned[:10]))


def test_ownership_records_outside_the_filter_count_on_neither_side(house: Build) -> None:
    """As with an expression for names that theirs do not match: each record would count twice as one that goes."""
    owned = hosts(20)
    vouchers = [f"a-{name}" for name in owned]
    texts = [Record(name, name, "TXT", HERITAGE) for name in vouchers]
    here = house(*map(row, owned), *texts, max_delete_share=0.5, domain_filter=DomainFilter(regex_include="^host"))
    gone = [Endpoint(f"a-{name}", "TXT", (HERITAGE,), labels={"ownedRecord": name}) for name in owned]

    here.apply(delete=[*map(a, owned[:10]), *gone[:10]])


def test_an_update_is_no_deletion(house: Build) -> None:
    here = house(*map(row, hosts(20)), max_delete_share=0)

    here.apply(update_old=map(a, hosts(20)), update_new=[a(name, "192.0.2.2") for name in hosts(20)])

    assert {"update"} == set(here.store.verbs)


def test_the_guard_is_off_by_default(house: Build) -> None:
    here = house(*map(row, hosts(30)))

    here.apply(delete=map(a, hosts(30)))

    assert {} == here.listed()


# What a failure is called.


def test_one_refused_record_is_a_partial_failure_that_names_it(house: Build) -> None:
    here = house()
    here.store.fail("create", RecordError("the name is taken"), name="host-01.example.com")

    with pytest.raises(ApplyFailed, match=r"2 applied, 1 failed: host-01\.example\.com A: the name is taken") as failed:
        here.apply(create=map(a, hosts(3)))

    assert failed.value.is_partial
    assert failed.value.error is None
    assert {"host-00.example.com", "host-02.example.com"} == set(here.listed())


def test_a_long_list_of_failures_is_cut(house: Build) -> None:
    here = house()
    here.store.fail("create", RecordError("no"))

    with pytest.raises(ApplyFailed, match=r"30 failed: .*; and 25 more$") as failed:
        here.apply(create=map(a, hosts(30)))

    assert len(str(failed.value)) < 500


def test_when_nothing_could_be_done_the_stores_own_error_is_the_reason(house: Build) -> None:
    here = house()
    error = StoreUnreachable("connection refused")
    here.store.fail("create", error)

    with pytest.raises(ApplyFailed) as failed:
        here.apply(create=map(a, hosts(10)))

    assert error is failed.value.error
    assert not failed.value.is_partial


def test_when_something_was_done_it_is_a_partial_failure(house: Build) -> None:
    here = house()
    error = StoreUnreachable("reset")
    here.store.fail("create", error, name="host-01.example.com")

    with pytest.raises(ApplyFailed) as failed:
        here.apply(create=map(a, hosts(3)))

    assert failed.value.is_partial
    assert error is failed.value.error


def test_records_that_fail_as_if_the_store_were_away_keep_no_other_one_waiting_for_ever(house: Build) -> None:
    """So many failures in a row end an apply; in the next one the others come first."""
    here = house(write_parallelism=1)
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


def test_a_rate_limit_is_passed_on_even_after_something_was_done(house: Build) -> None:
    here = house(write_parallelism=1)
    here.store.fail("create", RateLimited("slow down", 30), name="host-01.example.com")

    with pytest.raises(ApplyFailed) as failed:
        here.apply(create=map(a, hosts(3)))

    assert isinstance(failed.value.error, RateLimited)
    assert {"host-00.example.com"} == set(here.listed())


@pytest.mark.parametrize("error", [StoreUnreachable("gone"), CapabilitiesUnknown("which?")])
def test_a_listing_that_fails_is_raised_and_nothing_is_written(house: Build, error: StoreError) -> None:
    here = house()
    here.store.fail("list", error)

    with pytest.raises(type(error)):
        here.apply(create=[a("app.example.com")])

    assert [] == here.store.calls


def test_an_unknown_api_is_raised_by_adjust_and_apply(house: Build) -> None:
    here = house()
    here.store.limits = CapabilitiesUnknown("not known yet")

    with pytest.raises(CapabilitiesUnknown):
        here.provider.adjust(b"[]")
    with pytest.raises(CapabilitiesUnknown):
        here.apply(create=[a("app.example.com")])
    assert [] == here.store.calls


def test_after_a_failure_the_next_apply_has_its_turn(house: Build) -> None:
    here = house()
    here.store.fail("list", StoreUnreachable("gone"), times=1)
    with pytest.raises(StoreUnreachable):
        here.apply(create=[a("app.example.com")])

    here.apply(create=[a("app.example.com")])

    assert {"app.example.com": ["192.0.2.1"]} == here.listed()


# Ownership records that an apply left behind.


def left_behind(here: House, count: int) -> None:
    """Deletes that remove the records and then fail on their ownership records."""
    for name in hosts(count):
        here.store.rows[name] = row(name)
        here.store.rows[f"a-{name}"] = Record(f"a-{name}", f"a-{name}", "TXT", HERITAGE)
    vouchers = [Endpoint(f"a-{name}", "TXT", (HERITAGE,), labels={"ownedRecord": name}) for name in hosts(count)]
    for name in hosts(count):
        here.store.fail("delete", RecordError("refused"), name=f"a-{name}")
    with pytest.raises(ApplyFailed):
        here.apply(delete=[*map(a, hosts(count)), *vouchers])
    here.store.heal()
    here.store.calls.clear()


def test_what_an_apply_left_behind_goes_with_the_next_listing(house: Build) -> None:
    here = house()
    left_behind(here, 3)
    before = here.metric("dnswebhook_operations_total", operation="delete", outcome="applied") or 0.0

    assert {} == here.listed()
    assert ["delete"] * 3 == here.store.verbs
    assert before + 3 == here.metric("dnswebhook_operations_total", operation="delete", outcome="applied")


def test_a_store_that_is_away_is_not_asked_to_remove_one_after_another(house: Build) -> None:
    here = house()
    left_behind(here, 3)
    here.store.fail("delete", StoreUnreachable("away"), times=1)

    assert 3 == len(here.listed())
    assert ["delete"] == here.store.verbs
    assert {} == here.listed()


def test_what_claims_a_record_of_somebody_else_is_not_listed_while_it_cannot_be_removed(house: Build) -> None:
    """external-dns would remove that record."""
    here = house()
    left_behind(here, 2)
    name, other = hosts(2)
    here.store.rows["by-hand"] = row(name, "198.51.100.1")
    here.store.fail("delete", StoreUnreachable("away"), times=1)

    assert {name: ["198.51.100.1"], f"a-{other}": [HERITAGE]} == here.listed()
    assert {name: ["198.51.100.1"]} == here.listed()
    assert {(name, "A", "198.51.100.1")} == here.store.live


def test_a_listing_is_answered_when_there_is_no_time_to_remove_all_that_was_left_behind(house: Build) -> None:
    here = house()
    left_behind(here, 3)
    moment = 0.0

    class Slow(MemoryStore):
        def delete(self, record: Record, deadline: Deadline) -> None:
            nonlocal moment
            moment += 6.0
            if deadline.has_passed:
                raise StoreTimeout("no time left")
            super().delete(record, deadline)

        def list_records(self, deadline: Deadline) -> Listing:
            if deadline.has_passed:
                raise StoreTimeout("no time left")
            return super().list_records(deadline)

    here.store.__class__ = Slow
    deadline = Deadline(10.0, threading.Event(), lambda: moment)

    names = [endpoint["dnsName"] for endpoint in json.loads(here.provider.records(deadline, is_wrapped=False))]

    assert [f"a-{name}" for name in hosts(3)[1:]] == names
    assert {} == here.listed()


def test_what_comes_later_under_an_ownership_record_without_its_record_keeps_that(house: Build) -> None:
    """external-dns has seen it, so it sends the record alone, and perhaps with another value than before."""
    here = house()
    ownership = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})
    here.store.fail("create", RecordError("refused"), name="app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com"), ownership])

    here.apply(create=[a("app.example.com", "192.0.2.9")])

    assert {"app.example.com": ["192.0.2.9"], "a-app.example.com": [HERITAGE]} == here.listed()


def test_an_ownership_record_goes_whose_record_was_lost_as_it_was_rewritten_and_is_not_wanted_any_more(
    house: Build,
) -> None:
    """A store that cannot change rows removes one first. external-dns sees no record then, so it removes nothing."""
    ownership = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})
    here = house(row("app.example.com", ttl_s=60), Record("o", "a-app.example.com", "TXT", HERITAGE))
    here.store.can_update = False
    here.store.fail("create", RecordError("refused"), name="app.example.com")
    wanted = Endpoint("app.example.com", "A", ("192.0.2.1",), ttl_s=300)
    with pytest.raises(ApplyFailed):
        here.apply(update_old=[a("app.example.com"), ownership], update_new=[wanted, ownership])
    assert {"a-app.example.com"} == set(here.listed())

    here.provider.adjust(b"[]")

    assert {} == here.listed()


def owned(value: str, owner: str, resource: str) -> tuple[Endpoint, Endpoint]:
    """A record and its ownership record."""
    text = f'"heritage=external-dns,external-dns/owner={owner},external-dns/resource={resource}"'
    return (
        Endpoint("app.example.com", "A", (value,), labels={"owner": owner, "resource": resource}),
        Endpoint("a-app.example.com", "TXT", (text,), labels={"ownedRecord": "app.example.com"}),
    )


def test_a_replaced_text_that_could_not_be_removed_goes_with_the_next_listing(house: Build) -> None:
    """A store that cannot change rows adds the new text first. external-dns never names the old one again."""
    here = house()
    here.store.can_update = False
    old, new = owned("192.0.2.1", "x", "crd/x/old"), owned("192.0.2.2", "x", "crd/x/new")
    here.apply(create=old)
    here.store.fail("delete", RecordError("refused"), name="a-app.example.com", times=2)
    with pytest.raises(ApplyFailed):
        here.apply(update_old=old, update_new=new)

    assert 2 == len(here.listed()["a-app.example.com"])  # refused again
    assert {"app.example.com": ["192.0.2.2"], "a-app.example.com": list(new[1].targets)} == here.listed()
    here.listed()
    assert () == here.journal.vouchers


def texts(*values: str) -> Endpoint:
    return Endpoint("app.example.com", "TXT", values)


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("then", [("one",), ("one", "three"), ("three",), ("one", "two", "three")])
def test_a_text_set_that_is_edited_before_external_dns_reads_again_keeps_all_its_texts(
    house: Build, then: tuple[str, ...], is_half: bool
) -> None:
    """With `--txt-cache-interval` it may be sent anew, after a call that failed on something else, or on half of it."""
    here = house()
    here.store.fail("create", RecordError("refused"), name="other.example.com")
    if is_half:
        here.store.fail("create", RecordError("refused"), value="two")
        here.store.fail("delete", RecordError("refused"), value="one")
    with pytest.raises(ApplyFailed):
        here.apply(create=[texts("one", "two"), a("other.example.com")])
    here.store.heal()
    here.store.fail("create", RecordError("refused"), name="other.example.com")

    with pytest.raises(ApplyFailed):
        here.apply(create=[a("other.example.com")], update_old=[texts("one", "two")], update_new=[texts(*then)])

    assert sorted(then) == sorted(here.listed()["app.example.com"])


def test_of_two_texts_that_replaced_each_other_one_stays(house: Build) -> None:
    """None of the removals succeeded, until the last note counts alone."""
    here = house()
    here.store.can_update = False
    old, new = owned("192.0.2.1", "x", "crd/x/old"), owned("192.0.2.2", "x", "crd/x/new")
    here.apply(create=old)
    here.store.fail("delete", RecordError("refused"), name="a-app.example.com")
    for before, after in ((old, new), (new, old)):
        with pytest.raises(ApplyFailed):
            here.apply(update_old=before, update_new=after)
    here.store.heal()

    assert {"app.example.com": ["192.0.2.1"], "a-app.example.com": list(old[1].targets)} == here.listed()


def test_a_migration_is_known_by_what_was_listed_last(house: Build) -> None:
    """external-dns names the new owner alone. What it was not shown is that of somebody else."""
    former, other = owned("192.0.2.1", "former", "crd/x/app"), owned("192.0.2.1", "other", "crd/x/app")
    ours = owned("192.0.2.1", "ours", "crd/x/app")
    here = house()
    here.apply(create=former)
    here.listed()
    here.apply(create=other[1:])

    here.apply(update_old=ours, update_new=ours)

    assert [*other[1].targets, *ours[1].targets] == here.listed()["a-app.example.com"]


def test_a_dry_run_leaves_what_was_left_behind_before_it(house: Build) -> None:
    before = house()
    left_behind(before, 2)
    policy = Policy(domain_filter=DomainFilter(), protected=ProtectedNames(), is_dry_run=True)
    after = Provider(before.store, policy, Metrics(CollectorRegistry()), before.journal)

    after.records(Deadline.after(WAIT_S), is_wrapped=False)
    after.close()

    assert [] == before.store.calls


@pytest.mark.parametrize("pattern", ["host-00.*", "a-host-00.*"])
def test_what_was_left_behind_under_a_name_that_is_protected_since_stays(house: Build, pattern: str) -> None:
    before = house()
    left_behind(before, 2)
    after = Provider(
        before.store,
        Policy(domain_filter=DomainFilter(), protected=ProtectedNames([pattern])),
        Metrics(CollectorRegistry()),
        before.journal,
    )

    after.records(Deadline.after(WAIT_S), is_wrapped=False)
    after.close()

    assert {("a-host-00.example.com", "TXT", HERITAGE)} == before.store.live


# Turns.


def test_a_second_apply_waits_for_the_first_and_plans_on_its_result(house: Build) -> None:
    here = house()
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


def test_a_listing_waits_for_an_apply_to_end(house: Build) -> None:
    here = house()
    gate = here.store.halt("create")
    with ThreadPoolExecutor(2) as pool:
        applying = pool.submit(here.apply, create=[a("a.example.com"), a("b.example.com")])
        gate.wait_for_arrivals(2)
        listing = pool.submit(here.listed)
        assert not listing.done()
        gate.open()

        assert {"a.example.com", "b.example.com"} == set(listing.result(WAIT_S))
        applying.result(WAIT_S)


def test_who_waits_for_a_turn_longer_than_the_deadline_gets_a_timeout(house: Build) -> None:
    here = house()
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


def test_a_caller_that_is_gone_when_its_turn_comes_changes_nothing(house: Build) -> None:
    here = house()

    with pytest.raises(CallerGone):
        here.apply(is_caller_gone=lambda: True, create=[a("app.example.com")])

    assert 0 == here.store.listings
    here.apply(create=[a("app.example.com")])
    assert {"app.example.com"} == set(here.listed())


def test_a_stop_in_the_middle_ends_the_apply_as_cut_short(house: Build) -> None:
    here = house(write_parallelism=1)
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


def test_listings_at_once_are_all_answered(house: Build) -> None:
    here = house(row("app.example.com"))
    gate = here.store.halt("list")
    with ThreadPoolExecutor(10) as pool:
        listings = [pool.submit(here.listed) for _ in range(10)]
        gate.wait_for_arrivals()
        gate.open()

        assert [{"app.example.com": ["192.0.2.1"]}] * 10 == [listing.result(WAIT_S) for listing in listings]


LONG = ".".join(["x" * 60, "y" * 60, "example.com"])


def adjusted(house: House, *names: str) -> list[str]:
    wanted = [{"dnsName": name, "recordType": "A", "targets": ["192.0.2.1"]} for name in names]
    return [each["dnsName"] for each in json.loads(house.provider.adjust(json.dumps(wanted).encode()))]


def test_a_record_that_a_later_api_would_not_take_is_still_wanted_where_an_apply_has_listed_it(
    house: Callable[..., House],
) -> None:
    """With --txt-cache-interval external-dns lists now and then only, and the API may change between."""
    each = house()
    assert {} == each.listed()
    each.apply(create=[a(LONG)])
    each.store.limits = integrationrows.CAPABILITIES
    each.apply(create=[a("app.example.com")])

    assert [LONG] == adjusted(each, LONG, "other-" + LONG[6:])
    each.apply(delete=[a(LONG)])
    each.listed()
    assert [] == adjusted(each, LONG)


def test_before_the_first_listing_nothing_is_left_out_that_may_be_served(house: Callable[..., House]) -> None:
    """With --txt-cache-interval a start of ours may fall between two listings. What is left out would be removed."""
    each = house(Record("1", LONG, "A", "192.0.2.1", 300))
    each.store.limits = integrationrows.CAPABILITIES
    other = "other-" + LONG[6:]

    assert [LONG, other] == adjusted(each, LONG, other)
    each.listed()
    assert [LONG] == adjusted(each, LONG, other)


def test_of_an_empty_store_nothing_is_served_once_it_was_listed(house: Callable[..., House]) -> None:
    each = house()
    each.store.limits = integrationrows.CAPABILITIES
    each.listed()

    assert [] == adjusted(each, LONG)


def test_values_of_a_name_that_the_store_would_not_take_can_go_but_none_can_come(house: Callable[..., House]) -> None:
    rows = [Record(value, LONG, "A", value, 300) for value in ("192.0.2.1", "192.0.2.2")]
    each = house(*rows)
    each.store.limits = integrationrows.CAPABILITIES
    before = a(LONG, "192.0.2.1", "192.0.2.2")

    each.apply(update_old=[before], update_new=[a(LONG, "192.0.2.1")])
    assert {LONG: ["192.0.2.1"]} == each.listed()
    with pytest.raises(ApplyFailed, match="name of 133 octets"):
        each.apply(update_old=[a(LONG, "192.0.2.1")], update_new=[before])
    assert {LONG: ["192.0.2.1"]} == each.listed()


def test_a_record_that_comes_again_before_the_next_listing_gets_its_ownership_record_back(
    house: Callable[..., House],
) -> None:
    """external-dns 0.23 with --txt-cache-interval sends none then. The record was refused, or nobody's."""
    each = house()
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    alias = Endpoint("app.example.com", "CNAME", ("host.example.net",), labels={"owner": "default"})
    text = Endpoint("ed-a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})
    alias_text = Endpoint("ed-cname-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})
    each.apply(create=[record, text])
    before = each.listed()

    for _ in range(2):
        each.apply(delete=[record, text])
        each.apply(create=[record])
        assert before == {row.name: [row.value] for row in each.store.rows.values()}
    each.apply(delete=[record, text], create=[alias, alias_text])
    each.apply(delete=[alias, alias_text], create=[record])
    assert before == each.listed()


def test_of_ownership_records_that_went_the_last_one_comes_back(house: Callable[..., House]) -> None:
    each = house()
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    texts = [
        Endpoint("a-app.example.com", "TXT", (HERITAGE[:-1] + more,), labels={"ownedRecord": record.dns_name})
        for more in (',external-dns/resource=ingress/one/app"', ',external-dns/resource=ingress/two/app"')
    ]
    each.apply(create=[record, texts[0]])
    each.listed()

    each.apply(delete=[record, texts[0]])
    each.apply(create=[record])
    each.apply(update_old=[record, texts[0]], update_new=[record, texts[1]])
    each.apply(delete=[record, texts[1]])
    each.apply(create=[record])

    assert [texts[1].targets[0]] == each.listed()["a-app.example.com"]


@pytest.mark.parametrize("prefix", ["a-", "ed-a-"])
def test_a_record_that_comes_again_after_our_restart_without_an_ownership_record_waits_for_a_listing(
    house: Callable[..., House], prefix: str
) -> None:
    """external-dns 0.23 with --txt-cache-interval has seen one before. The record was nobody's from then on."""
    other = Record("1", "a-other.example.com", "TXT", HERITAGE)
    each = house(other)
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    text = Endpoint(f"{prefix}app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})

    with pytest.raises(ApplyFailed, match="both come in the next pass that lists"):
        each.apply(create=[record])
    assert {other.name: [HERITAGE]} == {row.name: [row.value] for row in each.store.rows.values()}

    each.listed()
    each.apply(create=[record, text])
    assert {other.name, text.dns_name, record.dns_name} == set(each.listed())


@pytest.mark.parametrize("prefix", ["a-", "ed-a-"])
def test_a_record_that_somebody_removed_with_its_ownership_record_comes_again_with_one(
    house: Callable[..., House], prefix: str
) -> None:
    """external-dns 0.19 sends none until it has sent something: the record was nobody's from then on."""
    each = house()
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    text = Endpoint(f"{prefix}app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})
    each.apply(create=[record, text])
    before = each.listed()
    each.loses_all()
    for _ in range(2):
        assert {} == each.listed()

    with pytest.raises(ApplyFailed, match="both come in the next pass that lists"):
        each.apply(create=[record])
    assert {} == each.listed()
    each.apply(create=[record, text])

    assert before == each.listed()


def test_a_record_is_refused_once_for_an_ownership_record_of_former_listings(house: Callable[..., House]) -> None:
    """Somebody may have changed to another registry, which sends none."""
    each = house()
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    text = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})
    each.apply(create=[record, text])
    each.listed()
    each.loses_all()
    each.listed()
    with pytest.raises(ApplyFailed, match="1 refused"):
        each.apply(create=[record])

    each.listed()
    each.apply(create=[record])

    assert {record.dns_name: list(record.targets)} == each.listed()


@pytest.mark.parametrize(
    "row",
    [
        Record("1", "a-app.example.com", "TXT", HERITAGE),
        Record("1", "ed-a-app.example.com", "TXT", HERITAGE),
        Record("1", "a-app.example.com", "TXT", "an+encrypted/text"),
        Record("1", "a-other.example.com", "TXT", HERITAGE.replace("default", "another")),
        Record("1", "other.example.com", "TXT", "words"),
    ],
    ids=["its own", "its own with a prefix", "encrypted", "of another owner", "none"],
)
def test_after_our_restart_a_record_comes_by_itself_beside_its_ownership_record_or_where_its_owner_keeps_none(
    house: Callable[..., House], row: Record
) -> None:
    """Other registries than TXT send the owner, too."""
    each = house(row, Record("2", "a-third.example.com", "TXT", HERITAGE) if "app" in row.name else row)

    each.apply(create=[Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})])

    assert "app.example.com" in each.listed()
