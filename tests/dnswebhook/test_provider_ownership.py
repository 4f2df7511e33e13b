"""Ownership records across calls: what failed ones left behind, and what external-dns takes for present."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dnswebhook.deadline import Deadline
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.errors import RecordError, StoreFailed, StoreTimeout, StoreUnreachable
from dnswebhook.metrics import Metrics
from dnswebhook.model import Endpoint, Listing, Origin, Record
from dnswebhook.provider import ApplyFailed, Policy, Provider
from tests.dnswebhook.rig import Build, Rig, a, hosts, row
from tests.support.memory_store import WAIT_S, MemoryStore
from tests.support.strategies import HERITAGE

OWNERSHIP = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})

# Ownership records that an apply left behind.


def left_behind(here: Rig, count: int) -> None:
    """Deletes that remove the records and then fail on their ownership records."""
    for name in hosts(count):
        here.store.rows[name] = row(name)
        here.store.rows[f"a-{name}"] = Record(f"a-{name}", f"a-{name}", "TXT", HERITAGE)
    ownership = [Endpoint(f"a-{name}", "TXT", (HERITAGE,), labels={"ownedRecord": name}) for name in hosts(count)]
    for name in hosts(count):
        here.store.fail("delete", RecordError("refused"), name=f"a-{name}")
    with pytest.raises(ApplyFailed):
        here.apply(delete=[*map(a, hosts(count)), *ownership])
    here.store.heal()
    here.store.calls.clear()


def test_ownership_records_that_an_apply_left_behind_are_removed_with_the_next_listing(rig: Build) -> None:
    here = rig()
    left_behind(here, 3)
    before = here.metric("dnswebhook_operations_total", operation="delete", outcome="applied") or 0.0

    assert {} == here.listed()
    assert ["delete"] * 3 == here.store.verbs
    assert before + 3 == here.metric("dnswebhook_operations_total", operation="delete", outcome="applied")


def test_an_ownership_record_is_removed_when_somebody_else_removes_its_record_whose_removal_was_refused(
    rig: Build,
) -> None:
    here = rig()
    here.store.rows["1"] = row("app.example.com", origin=Origin.AMBIGUOUS)
    here.store.rows["2"] = Record("2", OWNERSHIP.dns_name, "TXT", HERITAGE)
    with pytest.raises(ApplyFailed):
        here.apply(delete=[a("app.example.com"), OWNERSHIP])

    assert 2 == len(here.store.rows)
    del here.store.rows["1"]
    here.store.forget_listing()
    assert {} == here.listed()


def test_ownership_records_left_behind_in_a_store_are_not_looked_for_in_one_that_replaced_it(rig: Build) -> None:
    """The ownership record in the new store is older than the apply, as is the value that it vouches for."""
    here = rig()
    left_behind(here, 1)
    (name,) = hosts(1)
    here.store.rows[name] = row(name, "198.51.100.1")
    here.store.generation += 1

    assert here.listed() == here.listed() == {name: ["198.51.100.1"], f"a-{name}": [HERITAGE]}
    assert here.journal.notes == ()


def test_a_store_replaced_while_ownership_records_left_behind_are_removed_keeps_its_own(rig: Build) -> None:
    here = rig()
    left_behind(here, 1)
    (name,) = hosts(1)
    gate = here.store.halt("delete")
    with ThreadPoolExecutor(1) as pool:
        listing = pool.submit(here.listed)
        gate.wait_for_arrivals()
        rows = (row(name, "198.51.100.1"), Record("of the new store", f"a-{name}", "TXT", HERITAGE))
        here.store.rows = {each.id: each for each in rows}
        here.store.generation += 1
        here.store.forget_listing()
        gate.open()

        expected = {name: ["198.51.100.1"], f"a-{name}": [HERITAGE]}
        assert listing.result(WAIT_S) == here.listed() == expected


@pytest.mark.parametrize(
    "lists",
    [
        {"delete": [a("app.example.com"), OWNERSHIP]},
        {"update_old": [a("app.example.com")], "update_new": [a("app.example.com", "192.0.2.2")]},
    ],
    ids=["delete", "update"],
)
def test_records_that_external_dns_owned_in_a_store_are_not_taken_for_its_own_in_one_that_replaced_it(
    rig: Build, lists: Any
) -> None:
    by_hand = row("app.example.com")
    here = rig(by_hand, Record("o", "a-app.example.com", "TXT", HERITAGE))
    here.listed()
    here.store.rows = {by_hand.id: by_hand}
    here.store.generation += 1
    here.store.forget_listing()

    with pytest.raises(StoreFailed):
        here.apply(**lists)
    here.apply(create=[a("other.example.com")])

    assert by_hand in here.store.rows.values()
    assert set(here.listed()) == {"app.example.com", "other.example.com"}
    here.apply(delete=[a("other.example.com")])
    assert set(here.listed()) == {"app.example.com"}


def test_an_unreachable_store_is_not_asked_for_further_removals(rig: Build) -> None:
    here = rig()
    left_behind(here, 3)
    here.store.fail("delete", StoreUnreachable("away"), times=1)

    assert 3 == len(here.listed())
    assert ["delete"] == here.store.verbs
    assert {} == here.listed()


def test_an_ownership_record_that_claims_a_record_of_somebody_else_is_not_listed_until_it_is_removed(
    rig: Build,
) -> None:
    """external-dns would remove that record."""
    here = rig()
    left_behind(here, 2)
    name, other = hosts(2)
    here.store.rows["by-hand"] = row(name, "198.51.100.1")
    here.store.fail("delete", StoreUnreachable("away"), times=1)

    assert {name: ["198.51.100.1"], f"a-{other}": [HERITAGE]} == here.listed()
    assert {name: ["198.51.100.1"]} == here.listed()
    assert {(name, "A", "198.51.100.1")} == here.store.live


def test_a_listing_is_answered_when_there_is_no_time_to_remove_all_that_was_left_behind(rig: Build) -> None:
    here = rig()
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


def test_an_ownership_record_without_its_record_stays_for_a_record_that_is_created_later(rig: Build) -> None:
    """external-dns has seen it, so it sends the record alone, and perhaps with another value than before."""
    here = rig()
    ownership = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})
    here.store.fail("create", RecordError("refused"), name="app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com"), ownership])

    here.apply(create=[a("app.example.com", "192.0.2.9")])

    assert {"app.example.com": ["192.0.2.9"], "a-app.example.com": [HERITAGE]} == here.listed()


def test_an_ownership_record_is_removed_when_its_record_was_lost_in_an_update_and_is_no_longer_wanted(
    rig: Build,
) -> None:
    """A store that cannot update rows deletes one first. external-dns then sees no record, so it removes nothing."""
    ownership = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})
    here = rig(row("app.example.com", ttl_s=60), Record("o", "a-app.example.com", "TXT", HERITAGE))
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


def test_a_replaced_text_that_could_not_be_removed_is_removed_with_a_later_listing(rig: Build) -> None:
    """A store that cannot update rows adds the new text first. external-dns never names the old one again."""
    here = rig()
    here.store.can_update = False
    old, new = owned("192.0.2.1", "x", "crd/x/old"), owned("192.0.2.2", "x", "crd/x/new")
    here.apply(create=old)
    here.store.fail("delete", RecordError("refused"), name="a-app.example.com", times=2)
    with pytest.raises(ApplyFailed):
        here.apply(update_old=old, update_new=new)

    assert 2 == len(here.listed()["a-app.example.com"])  # refused again
    assert {"app.example.com": ["192.0.2.2"], "a-app.example.com": list(new[1].targets)} == here.listed()
    here.listed()
    assert () == here.journal.notes


def texts(*values: str) -> Endpoint:
    return Endpoint("app.example.com", "TXT", values)


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("then", [("one",), ("one", "three"), ("three",), ("one", "two", "three")])
def test_a_txt_set_that_is_edited_before_external_dns_lists_again_keeps_all_its_texts(
    rig: Build, then: tuple[str, ...], is_half: bool
) -> None:
    """With `--txt-cache-interval` it may be sent anew, after a call that failed on something else, or on half of it."""
    here = rig()
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


def test_of_two_texts_that_replaced_each_other_one_stays(rig: Build) -> None:
    """All removals failed until only the last note counts."""
    here = rig()
    here.store.can_update = False
    old, new = owned("192.0.2.1", "x", "crd/x/old"), owned("192.0.2.2", "x", "crd/x/new")
    here.apply(create=old)
    here.store.fail("delete", RecordError("refused"), name="a-app.example.com")
    for before, after in ((old, new), (new, old)):
        with pytest.raises(ApplyFailed):
            here.apply(update_old=before, update_new=after)
    here.store.heal()

    assert {"app.example.com": ["192.0.2.1"], "a-app.example.com": list(old[1].targets)} == here.listed()


def test_a_migration_is_recognised_by_the_last_listing(rig: Build) -> None:
    """external-dns names only the new owner. A text that it was not shown is somebody else's."""
    former, other = owned("192.0.2.1", "former", "crd/x/app"), owned("192.0.2.1", "other", "crd/x/app")
    ours = owned("192.0.2.1", "ours", "crd/x/app")
    here = rig()
    here.apply(create=former)
    here.listed()
    here.apply(create=other[1:])

    here.apply(update_old=ours, update_new=ours)

    assert [*other[1].targets, *ours[1].targets] == here.listed()["a-app.example.com"]


def test_a_dry_run_leaves_what_was_left_behind_before_it(rig: Build) -> None:
    before = rig()
    left_behind(before, 2)
    policy = Policy(domain_filter=DomainFilter(), protected=ProtectedNames(), is_dry_run=True)
    after = Provider(before.store, policy, Metrics(CollectorRegistry()), before.journal)

    after.records(Deadline.after(WAIT_S), is_wrapped=False)
    after.close()

    assert [] == before.store.calls


@pytest.mark.parametrize("pattern", ["host-00.*", "a-host-00.*"])
def test_an_ownership_record_left_behind_stays_when_it_or_its_record_was_protected_since(
    rig: Build, pattern: str
) -> None:
    before = rig()
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


# Ownership records that external-dns takes for present.


def test_a_record_created_again_before_the_next_listing_gets_its_ownership_record_back(
    rig: Callable[..., Rig],
) -> None:
    """external-dns 0.23 with --txt-cache-interval sends none then. The record was refused, or had no owner."""
    each = rig()
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


def test_of_several_removed_ownership_records_the_last_one_is_restored(rig: Callable[..., Rig]) -> None:
    each = rig()
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


@pytest.mark.parametrize("then", ["changed", "removed"])
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["from another resource", "encrypted"])
def test_a_restored_ownership_record_goes_when_external_dns_names_the_text_that_it_has_listed(
    rig: Callable[..., Rig], then: str, is_encrypted: bool
) -> None:
    """external-dns 0.23 with --txt-cache-interval knows no other. The restored text stayed, beside the new one."""
    each = rig()

    def sent(address: str, turn: int, text: int) -> tuple[Endpoint, Endpoint]:
        """A record as in its `turn`, with the ownership text of another one."""
        nonces = [str(number) * 16 for number in (turn, text)]
        labels = {"owner": "default", "resource": f"ingress/{turn}/app"}
        value = f'{HERITAGE[:-1]},external-dns/resource=ingress/{text}/app"'
        if is_encrypted:
            labels |= {"resource": "ingress/one/app", "txt-encryption-nonce": nonces[0]}
            value = f"{nonces[1]}an+encrypted/text"
        owned = {"ownedRecord": "app.example.com"}
        record = Endpoint("app.example.com", "A", (address,), labels=labels)
        return record, Endpoint("a-app.example.com", "TXT", (value,), labels=labels | owned)

    each.apply(create=[*sent("192.0.2.1", 1, 1)])
    each.listed()
    each.apply(update_old=[*sent("192.0.2.1", 1, 1)], update_new=[*sent("192.0.2.2", 2, 2)])
    each.apply(delete=[*sent("192.0.2.2", 2, 1)])
    each.apply(create=[sent("192.0.2.3", 3, 3)[0]])
    old = sent("192.0.2.3", 3, 1)

    if then == "removed":
        each.apply(delete=[*old])
        assert {} == each.listed()
    else:
        record, text = sent("192.0.2.4", 4, 4)
        each.apply(update_old=[*old], update_new=[record, text])
        assert {text.dns_name: list(text.targets), record.dns_name: ["192.0.2.4"]} == each.listed()


@pytest.mark.parametrize("prefix", ["a-", "ed-a-"])
def test_a_record_sent_again_without_an_ownership_record_after_our_restart_waits_for_a_listing(
    rig: Callable[..., Rig], prefix: str
) -> None:
    """external-dns 0.23 with --txt-cache-interval has seen one before. The record had no owner from then on."""
    other = Record("1", "a-other.example.com", "TXT", HERITAGE)
    each = rig(other)
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    text = Endpoint(f"{prefix}app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})

    with pytest.raises(ApplyFailed, match="both will be written after the next listing"):
        each.apply(create=[record])
    assert {other.name: [HERITAGE]} == {row.name: [row.value] for row in each.store.rows.values()}

    each.listed()
    each.apply(create=[record, text])
    assert {other.name, text.dns_name, record.dns_name} == set(each.listed())


@pytest.mark.parametrize("prefix", ["a-", "ed-a-"])
def test_a_record_removed_by_hand_with_its_ownership_record_is_created_again_with_one(
    rig: Callable[..., Rig], prefix: str
) -> None:
    """external-dns 0.19 sends none until it has sent something: the record had no owner from then on."""
    each = rig()
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    text = Endpoint(f"{prefix}app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})
    each.apply(create=[record, text])
    before = each.listed()
    each.loses_all()
    for _ in range(2):
        assert {} == each.listed()

    with pytest.raises(ApplyFailed, match="both will be written after the next listing"):
        each.apply(create=[record])
    assert {} == each.listed()
    each.apply(create=[record, text])

    assert before == each.listed()


def test_a_record_is_refused_only_once_for_an_ownership_record_of_earlier_listings(rig: Callable[..., Rig]) -> None:
    """The registry may have been changed to another one, which sends none."""
    each = rig()
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


@pytest.mark.parametrize("has_listed", [False, True], ids=["never", "before"])
def test_a_record_that_is_requested_again_without_a_listing_is_created_alone(
    rig: Callable[..., Rig], has_listed: bool
) -> None:
    """external-dns 0.22 with --registry=crd never lists before it has written, and sends no ownership records. Where
    some were left of --registry=txt, a new record was refused for ever, and its whole call taken for failed."""
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    text = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})
    each = rig(Record("1", "a-other.example.com", "TXT", HERITAGE))
    if has_listed:
        each.apply(create=[record, text])
        each.listed()
        each.loses_all()

    with pytest.raises(ApplyFailed, match="1 refused"):
        each.apply(create=[record])
    each.apply(create=[record])

    assert "app.example.com" in each.listed()


def test_a_record_that_was_deleted_in_between_waits_for_a_listing_again(rig: Callable[..., Rig]) -> None:
    """external-dns with --txt-cache-interval takes a refused record for present: it deletes it before it asks again."""
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    text = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": record.dns_name})
    each = rig(Record("1", "a-other.example.com", "TXT", HERITAGE))
    with pytest.raises(ApplyFailed, match="1 refused"):
        each.apply(create=[record])
    each.apply(delete=[record, text])

    with pytest.raises(ApplyFailed, match="1 refused"):
        each.apply(create=[record])


def test_a_record_that_another_owner_claims_is_refused_however_often_it_is_requested(
    rig: Callable[..., Rig],
) -> None:
    record = Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})
    each = rig(Record("1", "a-app.example.com", "TXT", HERITAGE.replace("default", "another")))

    for _ in range(3):
        with pytest.raises(ApplyFailed, match="an ownership record of 'another'"):
            each.apply(create=[record])


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
def test_after_our_restart_a_record_is_created_alone_if_its_ownership_record_exists_or_its_owner_has_none(
    rig: Callable[..., Rig], row: Record
) -> None:
    """Registries other than TXT send the owner, too."""
    each = rig(row, Record("2", "a-third.example.com", "TXT", HERITAGE) if "app" in row.name else row)

    each.apply(create=[Endpoint("app.example.com", "A", ("192.0.2.1",), labels={"owner": "default"})])

    assert "app.example.com" in each.listed()
