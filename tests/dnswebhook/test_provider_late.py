"""Creates that a store carries out late, after no answer, and removals that it confirms without carrying them out."""

import json

import msgspec
import pytest

from dnswebhook.deadline import Deadline
from dnswebhook.errors import RecordError, StoreTimeout
from dnswebhook.model import Endpoint, Record, RecordSpec
from dnswebhook.notes import LATE_LISTINGS, MAX_NOTED_TEXTS
from dnswebhook.provider import ApplyFailed
from tests.dnswebhook.rig import Build, Rig, a
from tests.support.memory_store import CAPABILITIES, WAIT_S
from tests.support.strategies import HERITAGE

OWNERSHIP = Endpoint("a-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})


# A store that carries out unanswered calls late.


def not_answered() -> StoreTimeout:
    error = StoreTimeout("no answer")
    error.is_pending = True
    return error


def test_an_unwanted_record_that_is_created_late_has_its_ownership_record(rig: Build) -> None:
    """Otherwise external-dns would never look at it again."""
    here = rig()
    here.store.fail("create", not_answered(), name="app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.provider.adjust(b"[]")
    assert set(here.listed()) == {"a-app.example.com"}

    here.store.create(RecordSpec("app.example.com", "A", "192.0.2.1"), Deadline.after(WAIT_S))

    assert set(here.listed()) == set(here.listed()) == {"app.example.com", "a-app.example.com"}


def test_an_unwanted_ownership_record_that_is_created_late_is_removed(rig: Build) -> None:
    here = rig()
    here.store.fail("create", not_answered(), name="a-app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.provider.adjust(b"[]")
    assert here.listed() == {}

    here.store.create(RecordSpec("a-app.example.com", "TXT", HERITAGE), Deadline.after(WAIT_S))
    for _ in range(LATE_LISTINGS):
        last = here.listed()

    assert last == here.listed() == {}
    assert here.journal.notes == ()


@pytest.mark.parametrize("is_late", [True, False])
def test_a_record_edited_by_hand_after_an_unanswered_create_keeps_its_ownership_record(
    rig: Build, *, is_late: bool
) -> None:
    """external-dns corrects it in the next pass, like any other record that it owns."""
    here = rig()
    here.store.fail("create", not_answered(), name="app.example.com" if is_late else "a-app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    if is_late:
        here.store.create(RecordSpec("app.example.com", "A", "192.0.2.1"), Deadline.after(WAIT_S))
        here.listed()
    else:
        here.apply(create=[a("app.example.com"), OWNERSHIP])
    (row,) = (row for row in here.store.rows.values() if row.type == "A")

    here.store.update(row, RecordSpec(row.name, "A", "192.0.2.99"), Deadline.after(WAIT_S))

    assert here.listed() == here.listed() == {"app.example.com": ["192.0.2.99"], "a-app.example.com": [HERITAGE]}


def test_a_text_that_is_created_late_beside_its_successor_is_removed(rig: Build) -> None:
    """external-dns would name only one of them when it removes the record."""
    here = rig()
    here.store.fail("create", not_answered(), name="a-app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    text = HERITAGE.removesuffix('"') + ',external-dns/resource=crd/default/moved"'
    here.apply(create=[a("app.example.com"), msgspec.structs.replace(OWNERSHIP, targets=(text,))])
    here.listed()

    here.store.create(RecordSpec("a-app.example.com", "TXT", HERITAGE), Deadline.after(WAIT_S))

    here.listed()
    assert here.listed() == {"app.example.com": ["192.0.2.1"], "a-app.example.com": [text]}


def test_a_text_created_late_after_its_successor_was_removed_claims_no_record_of_somebody_else(rig: Build) -> None:
    here = rig()
    here.store.fail("create", not_answered(), name="a-app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    text = HERITAGE.removesuffix('"') + ',external-dns/resource=crd/default/moved"'
    moved = msgspec.structs.replace(OWNERSHIP, targets=(text,))
    here.apply(create=[a("app.example.com"), moved])
    here.listed()
    here.apply(delete=[a("app.example.com"), moved])
    here.listed()

    here.store.create(RecordSpec("a-app.example.com", "TXT", HERITAGE), Deadline.after(WAIT_S))
    here.store.create(RecordSpec("app.example.com", "A", "198.51.100.1"), Deadline.after(WAIT_S))

    assert here.listed() == here.listed() == {"app.example.com": ["198.51.100.1"]}


def test_of_two_texts_that_were_to_replace_each_other_one_stays(rig: Build) -> None:
    here = rig()
    here.store.can_update = False
    text = HERITAGE.removesuffix('"') + ',external-dns/resource=crd/default/moved"'
    moved = msgspec.structs.replace(OWNERSHIP, targets=(text,))
    wanted = a("app.example.com")
    here.apply(create=[wanted, OWNERSHIP])
    here.listed()
    here.store.fail("create", not_answered(), name="a-app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(update_old=[wanted, OWNERSHIP], update_new=[wanted, moved])
    here.listed()
    here.apply(update_old=[wanted, moved], update_new=[wanted, OWNERSHIP])
    here.listed()

    here.store.create(RecordSpec("a-app.example.com", "TXT", text), Deadline.after(WAIT_S))

    here.listed()
    assert here.listed() == {"app.example.com": ["192.0.2.1"], "a-app.example.com": [HERITAGE]}


@pytest.mark.parametrize("can_update", [True, False])
@pytest.mark.parametrize("unanswered", ["app.example.com", "a-app.example.com"])
def test_notes_of_repeatedly_unanswered_texts_do_not_accumulate(
    rig: Build, unanswered: str, *, can_update: bool
) -> None:
    """An encrypted text is a different one in each pass."""
    here = rig()
    here.store.can_update = can_update
    here.store.fail("create", not_answered(), name=unanswered)
    for number in range(50):
        here.listed()
        with pytest.raises(ApplyFailed):
            here.apply(create=[a("app.example.com"), msgspec.structs.replace(OWNERSHIP, targets=(f'"{number}"',))])

    assert len(here.journal.notes) <= MAX_NOTED_TEXTS + LATE_LISTINGS


def test_of_several_encrypted_successors_of_a_text_that_could_not_be_removed_one_stays(rig: Build) -> None:
    """external-dns still reads the old one, encrypts it anew in each pass, and names none of those between."""
    here = rig()
    here.store.can_update = False
    wanted = a("app.example.com")
    old, *news = [msgspec.structs.replace(OWNERSHIP, targets=(f'"{number}"',)) for number in range(4)]
    here.apply(create=[wanted, old])
    here.listed()
    here.store.fail("delete", RecordError("refused"), name="a-app.example.com")
    for new in news:
        with pytest.raises(ApplyFailed):
            here.apply(update_old=[wanted, old], update_new=[a("app.example.com", "192.0.2.1"), new])
        here.listed()
    here.store.heal()
    here.provider.adjust(b"[]")

    assert here.listed() == {"app.example.com": ["192.0.2.1"], "a-app.example.com": ["3"]}
    here.apply(delete=[wanted, news[-1]])
    assert here.listed() == {}
    assert here.journal.notes == ()


def test_a_value_created_late_for_a_removed_record_has_its_ownership_record(rig: Build) -> None:
    here = rig()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    here.store.fail("create", not_answered(), value="192.0.2.2", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(
            update_old=[a("app.example.com"), OWNERSHIP],
            update_new=[a("app.example.com", "192.0.2.1", "192.0.2.2"), OWNERSHIP],
        )
    here.listed()
    here.provider.adjust(b"[]")
    here.apply(delete=[a("app.example.com"), OWNERSHIP])
    here.listed()

    here.store.create(RecordSpec("app.example.com", "A", "192.0.2.2"), Deadline.after(WAIT_S))

    assert set(here.listed()) == {"app.example.com", "a-app.example.com"}
    here.apply(delete=[a("app.example.com", "192.0.2.2"), OWNERSHIP])
    for _ in range(LATE_LISTINGS):
        here.listed()
    assert here.listed() == {}
    assert here.journal.notes == ()


@pytest.mark.parametrize("can_update", [True, False])
def test_a_value_created_late_has_the_successor_of_its_ownership_text(rig: Build, *, can_update: bool) -> None:
    here = rig()
    here.store.can_update = can_update
    moved = msgspec.structs.replace(
        OWNERSHIP, targets=(HERITAGE.removesuffix('"') + ',external-dns/resource=crd/default/moved"',)
    )
    one, both = a("app.example.com"), a("app.example.com", "192.0.2.1", "192.0.2.2")
    here.apply(create=[one, OWNERSHIP])
    here.listed()
    here.store.fail("create", not_answered(), value="192.0.2.2", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(update_old=[one, OWNERSHIP], update_new=[both, OWNERSHIP])
    here.listed()
    here.apply(update_old=[one, OWNERSHIP], update_new=[one, moved])
    here.listed()
    here.provider.adjust(b"[]")
    here.apply(delete=[one, moved])
    here.listed()

    here.store.create(RecordSpec("app.example.com", "A", "192.0.2.2"), Deadline.after(WAIT_S))

    assert here.listed() == {"app.example.com": ["192.0.2.2"], "a-app.example.com": list(moved.targets)}


def test_an_ownership_record_is_removed_after_a_record_that_is_removed_late(rig: Build) -> None:
    """external-dns saw both once more, but its next call did not reach the store."""
    here = rig()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.provider.adjust(b"[]")
    here.listed()
    here.store.fail("delete", StoreTimeout("no answer"), name="app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(delete=[a("app.example.com"), OWNERSHIP])
    assert set(here.listed()) == {"app.example.com", "a-app.example.com"}
    (row,) = (row for row in here.store.rows.values() if row.type == "A")

    here.store.delete(row, Deadline.after(WAIT_S))

    assert here.listed() == {}


def test_a_cname_that_is_restored_late_has_its_ownership_record(rig: Build) -> None:
    here = rig()
    alias = Endpoint("app.example.com", "CNAME", ("one.example.net",))
    of_alias = Endpoint("cname-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})
    here.apply(create=[alias, of_alias])
    here.listed()
    here.store.fail("create", RecordError("refused"), value="192.0.2.1", times=1)
    here.store.fail("create", not_answered(), value="one.example.net", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(delete=[alias, of_alias], create=[a("app.example.com"), OWNERSHIP])
    here.provider.adjust(b"[]")
    assert set(here.listed()) == {"cname-app.example.com"}

    here.store.create(RecordSpec("app.example.com", "CNAME", "one.example.net"), Deadline.after(WAIT_S))

    assert set(here.listed()) == {"app.example.com", "cname-app.example.com"}


# A store that lists what was there before a create that it has confirmed.


@pytest.mark.parametrize("is_sent_again", [True, False])
def test_an_ownership_record_that_is_listed_late_stays_with_its_record_when_other_values_were_wanted_meanwhile(
    rig: Build, *, is_sent_again: bool
) -> None:
    """Otherwise the record would be nobody's: with its text gone, external-dns would not look at it again."""
    here = rig()
    here.store.lag()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.store.fail("create", RecordError("exists, but is not listed"), name="a-app.example.com")
    assert here.listed() == {}
    if is_sent_again:
        with pytest.raises(ApplyFailed):
            here.apply(create=[a("app.example.com"), OWNERSHIP])
        assert here.listed() == {}
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com", "192.0.2.3"), OWNERSHIP])

    here.store.catch_up()

    assert here.listed() == {"app.example.com": ["192.0.2.1"], "a-app.example.com": [HERITAGE]}
    for _ in range(LATE_LISTINGS):
        here.listed()
    assert here.journal.notes == ()


def test_an_ownership_record_that_is_listed_late_claims_no_record_of_somebody_else(rig: Build) -> None:
    here = rig()
    here.store.lag()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    here.store.fail("create", RecordError("exists, but is not listed"), name="a-app.example.com")
    with pytest.raises(ApplyFailed):
        here.apply(create=[a("app.example.com", "192.0.2.3"), OWNERSHIP])
    (mine,) = (row for row in here.store.rows.values() if row.type == "A")
    here.store.update(mine, RecordSpec(mine.name, "A", "192.0.2.99"), Deadline.after(WAIT_S))

    here.store.catch_up()

    assert here.listed() == here.listed() == {"app.example.com": ["192.0.2.99"]}


def test_a_written_ownership_record_that_somebody_removes_with_its_record_is_forgotten(rig: Build) -> None:
    here = rig()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.loses_all()

    for _ in range(LATE_LISTINGS + 1):
        assert here.listed() == {}

    assert here.journal.notes == ()


def test_an_ownership_record_that_was_removed_by_hand_and_written_again_goes_with_its_record(rig: Build) -> None:
    """If it stayed, it would claim what somebody adds under that name."""
    here = rig()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.loses_all()
    here.listed()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()

    here.apply(delete=[a("app.example.com"), OWNERSHIP])

    assert here.store.rows == {}
    assert here.listed() == {}
    assert here.journal.notes == ()


def test_an_ownership_record_that_is_listed_late_with_its_record_is_removed_with_it(rig: Build) -> None:
    here = rig()
    here.store.lag()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    here.store.catch_up()
    here.listed()

    here.apply(delete=[a("app.example.com"), OWNERSHIP])

    assert here.store.rows == {}


def test_an_ownership_record_that_is_listed_late_stays_until_its_record_is_listed_too(rig: Build) -> None:
    here = rig()
    here.store.lag()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    (mine,) = (row for row in here.store.rows.values() if row.type == "A")
    here.store.catch_up()
    here.store.delete(mine, Deadline.after(WAIT_S))

    here.apply(delete=[a("app.example.com"), OWNERSHIP])

    assert set(here.listed()) == {"a-app.example.com"}
    here.store.create(mine.spec, Deadline.after(WAIT_S))
    assert set(here.listed()) == {"app.example.com", "a-app.example.com"}
    here.apply(delete=[a("app.example.com"), OWNERSHIP])
    assert here.store.rows == {}


def test_an_ownership_record_that_is_listed_late_stays_until_its_record_is_listed_completely(rig: Build) -> None:
    here = rig()
    here.store.lag()
    here.apply(create=[a("app.example.com", "192.0.2.1", "192.0.2.2"), OWNERSHIP])
    here.listed()
    (late,) = (row for row in here.store.rows.values() if row.value == "192.0.2.2")
    here.store.catch_up()
    here.store.delete(late, Deadline.after(WAIT_S))
    here.listed()

    here.apply(delete=[a("app.example.com"), OWNERSHIP])
    here.store.create(late.spec, Deadline.after(WAIT_S))

    assert here.listed() == {"app.example.com": ["192.0.2.2"], "a-app.example.com": [HERITAGE]}


def test_an_ownership_record_that_is_listed_late_stays_while_only_a_record_of_somebody_else_is_listed(
    rig: Build,
) -> None:
    here = rig()
    here.store.lag()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    (mine,) = (row for row in here.store.rows.values() if row.type == "A")
    here.store.catch_up()
    here.store.delete(mine, Deadline.after(WAIT_S))
    here.store.create(RecordSpec("app.example.com", "A", "198.51.100.1"), Deadline.after(WAIT_S))
    here.listed()

    here.apply(delete=[a("app.example.com", "198.51.100.1"), OWNERSHIP])
    here.store.create(mine.spec, Deadline.after(WAIT_S))

    assert here.listed() == {"app.example.com": ["192.0.2.1"], "a-app.example.com": [HERITAGE]}


def test_an_ownership_text_that_is_listed_late_goes_once_its_successor_is_listed_too(rig: Build) -> None:
    here = rig()
    here.store.lag()
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    reworded = HERITAGE.replace("ingress/default/app", "ingress/default/other")
    here.apply(create=[a("app.example.com"), msgspec.structs.replace(OWNERSHIP, targets=(reworded,))])
    written = dict(here.store.rows)
    late = next(row for row in written.values() if row.value == reworded)
    here.store.catch_up()
    here.store.delete(late, Deadline.after(WAIT_S))
    here.listed()

    here.store.create(late.spec, Deadline.after(WAIT_S))

    assert here.listed()["a-app.example.com"] == [reworded]


# A store that confirms removals without carrying them out.


def confirmed_removal(here: Rig, *ignored: str, has_lasting_ids: bool = True) -> None:
    """Removes a record with its ownership record; the store ignores the removal once for each name in `ignored`."""
    here.store.limits = msgspec.structs.replace(CAPABILITIES, has_lasting_ids=has_lasting_ids)
    here.store.rows["1"] = Record("1", "app.example.com", "A", "192.0.2.1")
    here.store.rows["2"] = Record("2", "a-app.example.com", "TXT", HERITAGE)
    for name in ignored:
        here.store.ignore(name, times=1)
    here.apply(delete=[a("app.example.com"), OWNERSHIP])
    assert set(ignored) == {row.name for row in here.store.rows.values()}


@pytest.mark.parametrize(
    "ignored",
    [("app.example.com",), ("a-app.example.com",), ("app.example.com", "a-app.example.com")],
    ids=["record", "ownership record", "both"],
)
def test_rows_whose_removal_was_confirmed_but_not_carried_out_are_removed_with_the_next_listing(
    rig: Build, ignored: tuple[str, ...]
) -> None:
    """external-dns never looks again at either of the two without the other."""
    here = rig()
    confirmed_removal(here, *ignored)

    assert here.listed() == here.listed() == {}
    assert len(here.store.calls) == 2 + len(ignored)


@pytest.mark.parametrize("is_wanted", [True, False], ids=["wanted again", "wanted no more"])
def test_a_text_whose_removal_was_confirmed_but_not_carried_out_is_removed_with_the_next_listing(
    rig: Build, *, is_wanted: bool
) -> None:
    """If it is wanted again, it would otherwise be taken for somebody else's."""
    here = rig()
    here.store.limits = msgspec.structs.replace(CAPABILITIES, has_lasting_ids=True)
    text = Endpoint("app.example.com", "TXT", ("word",))
    ownership = Endpoint("txt-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})
    here.apply(create=[text, ownership])
    here.listed()
    here.store.ignore("app.example.com", times=1)
    here.apply(delete=[text, ownership])
    here.provider.adjust(
        json.dumps([{"dnsName": "app.example.com", "recordType": "TXT", "targets": ["word"]}] * is_wanted).encode()
    )

    assert here.listed() == {}


def test_a_row_that_a_store_does_not_remove_is_listed_and_its_removal_retried_with_each_listing(rig: Build) -> None:
    here = rig()
    confirmed_removal(here, "app.example.com")
    here.store.ignore("app.example.com", times=2)

    assert here.listed() == here.listed() == {"app.example.com": ["192.0.2.1"]}
    assert here.listed() == {}


def test_an_ownership_record_that_a_store_does_not_remove_claims_no_record_of_somebody_else(rig: Build) -> None:
    here = rig()
    confirmed_removal(here, "a-app.example.com")
    here.store.ignore("a-app.example.com")
    here.store.rows["3"] = Record("3", "app.example.com", "A", "192.0.2.1")

    assert here.listed() == {"app.example.com": ["192.0.2.1"]}


def test_rows_that_somebody_creates_in_place_of_removed_ones_stay(rig: Build) -> None:
    here = rig()
    confirmed_removal(here)
    here.store.rows["3"] = Record("3", "app.example.com", "A", "192.0.2.1")
    here.store.rows["4"] = Record("4", "a-app.example.com", "TXT", HERITAGE)

    assert set(here.listed()) == {"app.example.com", "a-app.example.com"}


def test_a_row_that_was_not_removed_stays_when_somebody_has_changed_it(rig: Build) -> None:
    here = rig()
    confirmed_removal(here, "app.example.com")
    here.store.rows["1"] = Record("1", "app.example.com", "A", "192.0.2.9")

    assert here.listed() == {"app.example.com": ["192.0.2.9"]}


def test_a_row_is_not_recognised_by_an_id_that_may_be_reused(rig: Build) -> None:
    here = rig()
    confirmed_removal(here, "app.example.com", has_lasting_ids=False)

    assert here.listed() == {"app.example.com": ["192.0.2.1"]}


def test_rows_that_were_not_removed_are_removed_although_another_type_of_the_name_was_created(rig: Build) -> None:
    here = rig()
    confirmed_removal(here, "app.example.com", "a-app.example.com")
    ipv6 = Endpoint("app.example.com", "AAAA", ("2001:db8::1",))
    ownership = Endpoint("aaaa-app.example.com", "TXT", (HERITAGE,), labels={"ownedRecord": "app.example.com"})

    here.apply(create=[ipv6, ownership])

    assert here.listed() == {"app.example.com": ["2001:db8::1"], "aaaa-app.example.com": [HERITAGE]}


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside that of somebody else"])
def test_a_record_that_a_store_does_not_remove_is_owned_again_when_it_is_wanted_again(
    rig: Build, *, is_alone: bool
) -> None:
    """external-dns would never touch a record whose ownership record it does not see."""
    here = rig()
    confirmed_removal(here, "app.example.com", "a-app.example.com")
    here.store.ignore("app.example.com")
    here.store.ignore("a-app.example.com")
    if not is_alone:
        here.store.rows["3"] = Record("3", "app.example.com", "A", "192.0.2.9")
        here.store.forget_listing()

    assert set(here.listed()) == {"app.example.com"}
    here.provider.adjust(
        json.dumps([{"dnsName": "app.example.com", "recordType": "A", "targets": ["192.0.2.1"]}]).encode()
    )

    assert ("a-app.example.com" in here.listed()) is is_alone


def test_an_ownership_record_that_a_store_does_not_remove_claims_nothing_when_its_record_is_only_desired(
    rig: Build,
) -> None:
    """external-dns may want its record no more before it is written; somebody else's would be claimed then."""
    here = rig()
    confirmed_removal(here, "app.example.com", "a-app.example.com")
    here.store.ignore("a-app.example.com", times=2)
    assert here.listed() == {}
    here.provider.adjust(
        json.dumps([{"dnsName": "app.example.com", "recordType": "A", "targets": ["192.0.2.1"]}]).encode()
    )
    assert here.listed() == {}

    here.provider.adjust(b"[]")

    assert here.listed() == {}
    assert not here.store.rows


def test_an_ownership_record_that_was_not_removed_does_not_stay_beside_another_text(rig: Build) -> None:
    here = rig()
    confirmed_removal(here, "a-app.example.com")
    here.store.ignore("a-app.example.com", times=2)
    text = HERITAGE.removesuffix('"') + ',external-dns/resource=crd/default/moved"'
    assert here.listed() == {}

    here.apply(create=[a("app.example.com"), msgspec.structs.replace(OWNERSHIP, targets=(text,))])
    here.listed()
    here.apply(create=[a("app.example.com", "192.0.2.2")])

    assert here.listed() == {"app.example.com": ["192.0.2.1", "192.0.2.2"], "a-app.example.com": [text]}
    assert len([row for row in here.store.rows.values() if row.type == "TXT"]) == 1


def test_a_replaced_text_that_was_not_removed_is_removed_with_the_next_listing(rig: Build) -> None:
    here = rig()
    here.store.limits = msgspec.structs.replace(CAPABILITIES, has_lasting_ids=True)
    here.store.can_update = False
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    here.store.ignore("a-app.example.com", times=1)
    text = HERITAGE.removesuffix('"') + ',external-dns/resource=crd/default/moved"'

    here.apply(
        update_old=[a("app.example.com"), OWNERSHIP],
        update_new=[a("app.example.com", "192.0.2.2"), msgspec.structs.replace(OWNERSHIP, targets=(text,))],
    )

    assert here.listed() == {"app.example.com": ["192.0.2.2"], "a-app.example.com": [text]}
    assert len(here.store.rows) == 2


def test_an_ownership_record_is_removed_after_the_second_removal_of_its_record(rig: Build) -> None:
    here = rig()
    here.store.limits = msgspec.structs.replace(CAPABILITIES, has_lasting_ids=True)
    here.apply(create=[a("app.example.com"), OWNERSHIP])
    here.listed()
    here.store.ignore("app.example.com", times=1)
    here.store.fail("delete", RecordError("refused"), name="a-app.example.com", times=1)
    with pytest.raises(ApplyFailed):
        here.apply(delete=[a("app.example.com"), OWNERSHIP])

    here.listed()

    assert here.listed() == {}


@pytest.mark.parametrize("with_ownership", [True, False])
def test_rows_that_were_not_removed_stay_when_they_are_wanted_again_before_the_next_listing(
    rig: Build, *, with_ownership: bool
) -> None:
    here = rig()
    confirmed_removal(here, "app.example.com", "a-app.example.com")

    here.apply(create=[a("app.example.com"), OWNERSHIP] if with_ownership else [a("app.example.com", "192.0.2.1")])

    assert set(here.listed()) == set(here.listed()) == {"app.example.com", "a-app.example.com"}
