"""Changes and rows in, ordered writes out: which writes, and in which order."""

import pytest

from dnswebhook.model import Changes, Endpoint, RecordSpec
from dnswebhook.notes import Note
from dnswebhook.operations import Create, CreateTogether, Delete, Step, Switch, Update
from dnswebhook.ownership import OwnedSet
from dnswebhook.wishes import RefusalReason
from tests.dnswebhook.planning import a, cname, created, operations, ownership, planned, row, steps


def test_a_missing_value_is_created() -> None:
    plan = planned(Changes(create=(a("app.example.com", "192.0.2.1", ttl_s=300),)))

    assert [Create(RecordSpec("app.example.com", "A", "192.0.2.1", 300))] == operations(plan)


def test_a_value_that_is_served_already_is_not_written() -> None:
    plan = planned(
        Changes(create=(a("App.Example.com.", "192.0.2.1"),)), row("app.example.com", "A", "192.0.2.1", ttl_s=60)
    )

    assert [] == operations(plan)


def test_a_changed_target_is_one_update_in_place() -> None:
    old = row("app.example.com", "A", "192.0.2.1", 300)
    changes = Changes(
        update_old=(a("app.example.com", "192.0.2.1", ttl_s=300),),
        update_new=(a("app.example.com", "192.0.2.2", ttl_s=300),),
    )

    assert [Update(old, RecordSpec("app.example.com", "A", "192.0.2.2", 300))] == operations(planned(changes, old))


def test_a_changed_ttl_is_one_update_per_value() -> None:
    rows = [row("app.example.com", "A", f"192.0.2.{n}", 300) for n in (1, 2)]
    targets = ("192.0.2.1", "192.0.2.2")
    changes = Changes(
        update_old=(a("app.example.com", *targets, ttl_s=300),), update_new=(a("app.example.com", *targets, ttl_s=60),)
    )

    plan = planned(changes, *rows)

    assert [Update(old, RecordSpec("app.example.com", "A", old.value, 60)) for old in rows] == operations(plan)


def test_values_that_no_change_names_stay() -> None:
    ours, theirs = row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "A", "198.51.100.9")
    changes = Changes(delete=(a("app.example.com", "192.0.2.1"),))

    assert [Delete(ours)] == operations(planned(changes, ours, theirs))


def test_other_types_on_the_name_stay_when_one_is_deleted() -> None:
    four, six = row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "AAAA", "2001:db8::1")

    assert [Delete(four)] == operations(planned(Changes(delete=(a("app.example.com", "192.0.2.1"),)), four, six))


def test_deleting_a_missing_record_writes_nothing() -> None:
    assert [] == operations(planned(Changes(delete=(a("app.example.com", "192.0.2.1"),))))


def test_an_identical_pair_writes_nothing() -> None:
    pair = (a("app.example.com", "192.0.2.1"),)

    assert [] == operations(
        planned(Changes(update_old=pair, update_new=pair), row("app.example.com", "A", "192.0.2.1"))
    )


def test_lists_of_unequal_length_are_paired_by_name_and_type() -> None:
    rows = [row("a.example.com", "A", "192.0.2.1"), row("b.example.com", "A", "192.0.2.2")]
    changes = Changes(
        update_old=(a("b.example.com", "192.0.2.2"), a("a.example.com", "192.0.2.1")),
        update_new=(a("A.example.com", "192.0.2.1", "192.0.2.3"),),
    )

    assert [Create(RecordSpec("a.example.com", "A", "192.0.2.3")), Delete(rows[1])] == operations(
        planned(changes, *rows)
    )


def test_the_ownership_record_is_created_before_its_record_which_needs_it() -> None:
    changes = Changes(create=(a("app.example.com", "192.0.2.1"), ownership("app.example.com", "A")))

    first, second = steps(planned(changes))

    assert "TXT" == created(first).type
    assert Step(Create(RecordSpec("app.example.com", "A", "192.0.2.1")), needs=(0,)) == second


def test_the_ownership_record_is_removed_only_after_its_record() -> None:
    record = row("app.example.com", "A", "192.0.2.1")
    txt = ownership("app.example.com", "A")
    txt_row = row("a-app.example.com", "TXT", txt.targets[0])
    changes = Changes(delete=(txt, a("app.example.com", "192.0.2.1")))

    assert [Step(Delete(record)), Step(Delete(txt_row), needs=(0,))] == steps(planned(changes, txt_row, record))


def test_the_last_address_of_a_name_is_removed_only_after_a_new_one_was_created() -> None:
    four, by_hand = row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "A", "198.51.100.1")
    text = row("app.example.com", "TXT", "by-hand")
    changes = Changes(
        create=(
            Endpoint("app.example.com", "AAAA", ("2001:db8::1", "2001:db8::2")),
            ownership("app.example.com", "AAAA"),
        ),
        delete=(a("app.example.com", "192.0.2.1"),),
    )

    assert Step(Delete(four), needs_one_of=(1, 2)) == steps(planned(changes, four))[-1]
    assert Step(Delete(four), needs_one_of=(1, 2)) == steps(planned(changes, four, text))[-1], "it leads nowhere"
    assert Step(Delete(four)) == steps(planned(changes, four, by_hand))[-1]


def test_the_removal_of_an_address_waits_only_for_a_new_address_and_that_of_a_text_for_nothing() -> None:
    four, txt = row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "TXT", "old")
    six, mx = (
        Endpoint("app.example.com", "AAAA", ("2001:db8::1",)),
        Endpoint("app.example.com", "MX", ("10 a.example",)),
    )
    both = (a("app.example.com", "192.0.2.1"), Endpoint("app.example.com", "TXT", ("old",)))

    found = steps(planned(Changes(create=(six, mx), delete=both), four, txt))

    assert [Step(Delete(four), needs_one_of=(0,)), Step(Delete(txt))] == found[2:]
    assert Step(Delete(four)) == steps(planned(Changes(create=(mx,), delete=both), four, txt))[1]


def test_each_ownership_record_vouches_for_its_own_type() -> None:
    changes = Changes(
        create=(
            a("app.example.com", "192.0.2.1"),
            Endpoint("app.example.com", "AAAA", ("2001:db8::1",)),
            ownership("app.example.com", "A"),
            ownership("app.example.com", "AAAA"),
        )
    )

    by_type = {created(step).type: step.needs for step in steps(planned(changes)) if created(step).type != "TXT"}

    assert {"A": (0,), "AAAA": (1,)} == by_type


@pytest.mark.parametrize(
    ("txt_name", "label"),
    [
        pytest.param("prefix-a-app.example.com", "app.example.com", id="prefix"),
        pytest.param("a-app-suffix.example.com", "app.example.com", id="suffix"),
        pytest.param("a.owner.app.example.com", "app.example.com", id="template"),
        pytest.param("app.example.com", "app.example.com", id="the format of 0.17 and before"),
        pytest.param("a-app.example.com", "", id="no label"),
    ],
)
def test_an_ownership_record_is_recognised_whatever_its_name(txt_name: str, label: str) -> None:
    text = '"heritage=external-dns,external-dns/owner=default"'
    txt = Endpoint(txt_name, "TXT", (text,), labels={"ownedRecord": label} if label else {})

    _, record = steps(planned(Changes(create=(a("app.example.com", "192.0.2.1"), txt))))

    assert (0,) == record.needs


def test_an_encrypted_ownership_record_is_recognised_by_its_label() -> None:
    txt = Endpoint("a-app.example.com", "TXT", ('"c2VjcmV0IHRleHQ="',), labels={"ownedRecord": "app.example.com"})

    _, record = steps(planned(Changes(create=(a("app.example.com", "192.0.2.1"), txt))))

    assert (0,) == record.needs


def test_a_type_change_to_cname_removes_and_adds_in_one_switch() -> None:
    rows = [row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "A", "192.0.2.2")]
    changes = Changes(
        create=(cname("app.example.com", "host.example.net"),),
        delete=(a("app.example.com", "192.0.2.1", "192.0.2.2"),),
    )

    expected = Switch(tuple(rows), (RecordSpec("app.example.com", "CNAME", "host.example.net"),))

    assert [expected] == operations(planned(changes, *rows))


def test_a_type_change_from_cname_removes_and_adds_in_one_switch() -> None:
    old = row("app.example.com", "CNAME", "host.example.net")
    changes = Changes(
        create=(a("app.example.com", "192.0.2.1"),), delete=(cname("app.example.com", "host.example.net"),)
    )

    expected = Switch((old,), (RecordSpec("app.example.com", "A", "192.0.2.1"),))

    assert [expected] == operations(planned(changes, old))


def test_a_cname_is_never_put_beside_rows_that_stay() -> None:
    theirs = row("app.example.com", "A", "192.0.2.1")
    changes = Changes(create=(cname("app.example.com", "host.example.net"), ownership("app.example.com", "CNAME")))

    plan = planned(changes, theirs)

    assert [] == operations(plan)
    assert [RefusalReason.CNAME_CONFLICT] == [refusal.reason for refusal in plan.refusals]


def test_a_second_cname_is_never_added() -> None:
    theirs = row("app.example.com", "CNAME", "other.example.net")

    plan = planned(Changes(create=(cname("app.example.com", "host.example.net"),)), theirs)

    assert [] == operations(plan)
    assert [RefusalReason.CNAME_CONFLICT] == [refusal.reason for refusal in plan.refusals]


def test_an_address_is_never_put_beside_a_cname() -> None:
    theirs = row("app.example.com", "CNAME", "other.example.net")

    plan = planned(Changes(create=(a("app.example.com", "192.0.2.1"),)), theirs)

    assert [] == operations(plan)
    assert [RefusalReason.CNAME_CONFLICT] == [refusal.reason for refusal in plan.refusals]


def test_of_a_cname_and_an_address_wanted_together_the_address_wins() -> None:
    changes = Changes(create=(cname("app.example.com", "host.example.net"), a("app.example.com", "192.0.2.1")))

    plan = planned(changes)

    assert [Create(RecordSpec("app.example.com", "A", "192.0.2.1"))] == operations(plan)
    assert [RefusalReason.CNAME_CONFLICT] == [refusal.reason for refusal in plan.refusals]


def test_a_new_txt_set_of_several_values_is_created_whole_and_needs_its_ownership_record() -> None:
    texts = Endpoint("app.example.com", "TXT", ("one", "two"))

    claim, whole = steps(planned(Changes(create=(texts, ownership("app.example.com", "TXT")))))

    assert isinstance(claim.operation, Create)
    expected = tuple(RecordSpec("app.example.com", "TXT", value) for value in texts.targets)
    assert (CreateTogether(expected), (0,)) == (whole.operation, whole.needs)


def test_a_txt_set_is_noted_when_it_is_created_whole() -> None:
    """Half of it may remain after a crash, or when it cannot be removed again."""
    texts = Endpoint("app.example.com", "TXT", ("one", "two"))
    owned = OwnedSet("app.example.com", frozenset({"TXT"}))
    whole = Note("app.example.com", "", owned, frozenset({"one", "two"}), is_leaving=False, is_whole=True)

    assert (whole,) == planned(Changes(create=(texts,))).notes
    assert () == planned(Changes(create=(texts,)), row("app.example.com", "TXT", "one")).notes
    assert () == planned(Changes(create=(Endpoint("app.example.com", "TXT", ("one",)),))).notes
    three = Endpoint("app.example.com", "TXT", ("one", "two", "three"))
    assert () == planned(Changes(create=(three,)), row("app.example.com", "TXT", "one")).notes


def test_addresses_of_which_an_earlier_call_wrote_only_some_are_not_noted_as_a_whole() -> None:
    """The next listing would remove those that are there."""
    both = a("app.example.com", "192.0.2.1", "192.0.2.2")
    claim = ownership("app.example.com", "A")
    noted = planned(Changes(create=(both, claim))).notes
    rows = [row("a-app.example.com", "TXT", claim.targets[0]), row("app.example.com", "A", "192.0.2.1")]

    plan = planned(Changes(update_old=(both, claim), update_new=(both, claim)), *rows, noted=noted)

    assert [False] == [note.is_whole for note in plan.notes]


def test_a_cname_with_several_targets_keeps_the_lowest() -> None:
    plan = planned(Changes(create=(cname("app.example.com", "z.example.net", "b.example.net"),)))

    assert [Create(RecordSpec("app.example.com", "CNAME", "b.example.net"))] == operations(plan)


def test_of_two_cnames_the_surplus_one_is_removed_before_the_other_is_rewritten() -> None:
    rows = [row("app.example.com", "CNAME", target) for target in ("one.example.net", "two.example.net")]
    changes = Changes(
        update_old=(cname("app.example.com", "one.example.net", "two.example.net"),),
        update_new=(cname("app.example.com", "new.example.net"),),
    )

    expected = [Delete(rows[1]), Update(rows[0], RecordSpec("app.example.com", "CNAME", "new.example.net"))]

    assert expected == operations(planned(changes, *rows))


def test_many_texts_beside_an_ownership_record_of_many_values_are_not_paired() -> None:
    """Each text with each value would be 25 million pairs in two sets of 5,000."""
    addresses = a("app.example.com", *(f"10.0.{number // 250}.{number % 250}" for number in range(500)))
    texts = Endpoint("a-app.example.com", "TXT", tuple(f"text-{number}" for number in range(500)))

    plan = planned(Changes(create=(addresses, texts, ownership("app.example.com", "A"))))

    assert 1001 == len(operations(plan))
    assert 501 == max(len(step.needs) for step in steps(plan))
    assert 1 == len({id(step.needs) for step in steps(plan) if step.needs})
    assert sum(len(note.owned_values) for note in plan.notes) <= 500
