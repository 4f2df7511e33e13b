"""Ownership texts that external-dns has read and does not name: removed with their record, unless another owner's."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.model import Changes, Endpoint, Origin, Record, RecordSpec
from dnswebhook.notes import Note
from dnswebhook.operations import Create, Delete, Plan, Switch, Update
from dnswebhook.ownership import OwnedSet
from dnswebhook.wishes import RefusalReason
from tests.dnswebhook.planning import created, operations, planned, row, steps
from tests.support.plan_world import World

NAME = "app.example.com"
OWNERSHIP = f"a-{NAME}"
NONCE = "AAECAwQFBgcICQoL"
SECRET, OTHER_SECRET, NEW_SECRET = f"{NONCE}c2VjcmV0", "DAsKCQgHBgUEAwIBc2VjcmV0", "EAsKCQgHBgUEAwIBc2VjcmV0"
ADDRESS = row(NAME, "A", "192.0.2.1")


def text(owner: str = "ours", resource: str = "ingress/x/app") -> str:
    return f'"heritage=external-dns,external-dns/owner={owner},external-dns/resource={resource}"'


def txt(value: str) -> Endpoint:
    return Endpoint(OWNERSHIP, "TXT", (value,), labels={"ownedRecord": NAME})


def txt_row(value: str) -> Record:
    return row(OWNERSHIP, "TXT", value)


def address(value: str, owner: str = "ours", **labels: str) -> Endpoint:
    labels = {"owner": owner, "resource": "ingress/x/app", **labels}
    return Endpoint(NAME, "A", (value,), labels={key.replace("_", "-"): label for key, label in labels.items()})


def change(old_text: str, new_text: str, **labels: str) -> Changes:
    return Changes(
        update_old=(address("192.0.2.1", **labels), txt(old_text)),
        update_new=(address("192.0.2.2", **labels), txt(new_text)),
    )


def removal(named: str, **labels: str) -> Changes:
    return Changes(delete=(address("192.0.2.1", **labels), txt(named)))


def left(plan: Plan, *rows: Record) -> list[str]:
    world = World(rows)
    world.play(plan)
    return sorted(world.live(OWNERSHIP, "TXT"))


def test_a_readable_text_is_rewritten_into_an_encrypted_one() -> None:
    """The named text has a nonce of its own, generated for this request."""
    old = txt_row(text())

    plan = planned(change(OTHER_SECRET, NEW_SECRET, txt_encryption_nonce=OTHER_SECRET[:16]), old, ADDRESS)

    assert Update(old, RecordSpec(OWNERSHIP, "TXT", NEW_SECRET)) == operations(plan)[0]


def test_an_encrypted_text_is_rewritten_into_a_readable_one() -> None:
    old = txt_row(SECRET)

    plan = planned(change(text(), text(), txt_encryption_nonce=NONCE), old, ADDRESS)

    assert Update(old, RecordSpec(OWNERSHIP, "TXT", text())) == operations(plan)[0]


def encrypted_anew(resource: str = "ingress/x/app", named: str = SECRET) -> Changes:
    """A changed record whose labels external-dns has encrypted again."""
    new_address = address("192.0.2.2", resource=resource, txt_encryption_nonce=NEW_SECRET[:16])
    return Changes(
        update_old=(address("192.0.2.1", txt_encryption_nonce=NONCE), txt(named)),
        update_new=(new_address, txt(NEW_SECRET)),
    )


MOVED = Update(ADDRESS, RecordSpec(NAME, "A", "192.0.2.2", 0))
ENCRYPTED_ANEW = Update(txt_row(SECRET), RecordSpec(OWNERSHIP, "TXT", NEW_SECRET, 0))


def test_a_reencrypted_text_with_the_same_content_is_written_after_its_record() -> None:
    moved, text_after = steps(planned(encrypted_anew(), txt_row(SECRET), ADDRESS))

    assert (moved.operation, text_after.operation, text_after.needs) == (MOVED, ENCRYPTED_ANEW, (0,))


@pytest.mark.parametrize(
    "others",
    [{"resource": "ingress/x/moved"}, {"owner": "successor"}],
    ids=["another resource", "another owner"],
)
def test_a_reencrypted_text_with_other_content_is_written_before_its_record(others: dict[str, str]) -> None:
    """The name's AAAA record, in the same call, is to have the labels that the A record had."""
    changes = encrypted_anew()
    (new, ownership), (old, _) = changes.update_new, changes.update_old
    changed = msgspec.structs.replace(new, labels={**new.labels, **others})
    aaaa = msgspec.structs.replace(
        old, record_type="AAAA", targets=("2001:db8::1",), labels={**old.labels, "txt-encryption-nonce": "x" * 16}
    )
    changes = msgspec.structs.replace(
        changes,
        update_old=(*changes.update_old, aaaa),
        update_new=(changed, ownership, aaaa),
    )
    text_first, moved = steps(planned(changes, txt_row(SECRET), ADDRESS, row(NAME, "AAAA", "2001:db8::1")))

    assert (text_first.operation, moved.operation) == (ENCRYPTED_ANEW, MOVED)


def test_a_reencrypted_text_with_the_same_content_is_not_written_while_its_record_is_refused() -> None:
    refused = row(NAME, "A", "192.0.2.2", is_enabled=False)

    plan = planned(encrypted_anew(), txt_row(SECRET), ADDRESS, refused)

    assert [refusal.reason for refusal in plan.refusals] == [RefusalReason.DISABLED_ROW]
    assert operations(plan) == []


def test_an_encrypted_text_is_rewritten_first_when_its_labels_change() -> None:
    plan = planned(encrypted_anew(resource="ingress/x/other"), txt_row(SECRET), ADDRESS)

    assert operations(plan) == [ENCRYPTED_ANEW, MOVED]


def test_an_encrypted_text_is_rewritten_first_when_external_dns_names_other_content() -> None:
    """The named text has another owner: the one that external-dns migrates from."""
    plan = planned(encrypted_anew(named=f"{NONCE}bmV3"), txt_row(SECRET), ADDRESS)

    assert operations(plan) == [ENCRYPTED_ANEW, MOVED]


def test_an_unreplaced_text_is_removed_when_external_dns_names_its_intended_successor() -> None:
    """With `--txt-cache-interval`, external-dns does not check whether it was replaced."""
    note = Note(OWNERSHIP, SECRET, OwnedSet(NAME, frozenset({"A"})), frozenset(), False, True, OTHER_SECRET)
    named_labels = {"txt_encryption_nonce": OTHER_SECRET[:16]}
    changes = change(OTHER_SECRET, NEW_SECRET, **named_labels)

    assert left(planned(changes, txt_row(SECRET), ADDRESS), txt_row(SECRET), ADDRESS) == [SECRET, NEW_SECRET]
    assert left(planned(changes, txt_row(SECRET), ADDRESS, noted=[note]), txt_row(SECRET), ADDRESS) == [NEW_SECRET]
    removed = planned(removal(OTHER_SECRET, **named_labels), txt_row(SECRET), ADDRESS, noted=[note])
    assert left(removed, txt_row(SECRET), ADDRESS) == []


def test_an_unreplaced_text_is_removed_when_its_intended_successor_is_wanted_again() -> None:
    note = Note(
        OWNERSHIP, text("ours", "ingress/x/old"), OwnedSet(NAME, frozenset({"A"})), frozenset(), False, True, text()
    )
    old = txt_row(note.value)

    assert left(planned(change(text(), text()), old, ADDRESS, noted=[note]), old, ADDRESS) == [text()]


def test_values_left_by_an_earlier_call_are_removed_with_those_that_it_was_to_write() -> None:
    note = Note(OWNERSHIP, text(), OwnedSet(NAME, frozenset({"A"})), frozenset({"192.0.2.1", "192.0.2.2"}), False)
    by_hand = row(NAME, "A", "192.0.2.9")
    named, other = address("192.0.2.2"), address("192.0.2.3")

    def addresses(changes: Changes) -> set[str]:
        world = World([txt_row(text()), ADDRESS, by_hand])
        world.play(planned(changes, txt_row(text()), ADDRESS, by_hand, noted=[note]))
        return set(world.live(NAME, "A"))

    assert addresses(Changes(update_old=(named,), update_new=(other,))) == {"192.0.2.3", "192.0.2.9"}
    assert addresses(Changes(update_old=(named,), update_new=(named,))) == {"192.0.2.2", "192.0.2.9"}
    assert addresses(Changes(delete=(named,))) == {"192.0.2.9"}
    assert addresses(Changes(create=(other,))) == {"192.0.2.1", "192.0.2.3", "192.0.2.9"}


def test_values_left_by_several_earlier_calls_are_all_removed_with_their_record() -> None:
    """Its resource changed in between, so each call has noted a text of its own."""
    owned = OwnedSet(NAME, frozenset({"A"}))
    first = Note(OWNERSHIP, text("ours", "ingress/x/old"), owned, frozenset({"192.0.2.1"}), is_leaving=False)
    second = Note(OWNERSHIP, text(), owned, frozenset({"192.0.2.2"}), is_leaving=False)
    rows = [txt_row(text()), ADDRESS, row(NAME, "A", "192.0.2.2"), row(NAME, "A", "192.0.2.9")]
    world = World(rows)

    world.play(planned(Changes(delete=(address("192.0.2.3"), txt(text()))), *rows, noted=[first, second]))

    assert ["192.0.2.9"] == sorted(world.live(NAME, "A"))


def test_a_noted_text_that_has_gone_and_is_not_awaited_is_noted_no_more() -> None:
    owned = OwnedSet(NAME, frozenset({"A"}))
    gone = Note(OWNERSHIP, text("ours", "ingress/x/old"), owned, frozenset({"192.0.2.1"}), is_leaving=False)
    awaited = msgspec.structs.replace(gone, waits=3)

    def noted_texts(note: Note) -> set[str]:
        plan = planned(change(text(), text()), txt_row(text()), ADDRESS, noted=[note])
        return {each.value for each in plan.notes}

    assert {text()} == noted_texts(gone)
    assert {text(), gone.value} == noted_texts(awaited)


def test_leftovers_of_an_earlier_call_are_removed_when_external_dns_creates_record_and_text_again() -> None:
    """With `--txt-cache-interval`, external-dns does so even after a failed removal."""
    old = text("ours", "ingress/x/old")
    owned = OwnedSet(NAME, frozenset({"A"}))
    note = Note(OWNERSHIP, old, owned, frozenset({"192.0.2.1"}), is_leaving=True)
    by_hand = row(NAME, "A", "192.0.2.9")
    changes = Changes(create=(address("192.0.2.2"), txt(text())))

    def played(noted: Note) -> tuple[set[str], set[str]]:
        world = World([txt_row(old), ADDRESS, by_hand])
        world.play(planned(changes, txt_row(old), ADDRESS, by_hand, noted=[noted]))
        return set(world.live(NAME, "A")), set(world.live(OWNERSHIP, "TXT"))

    assert played(note) == ({"192.0.2.2", "192.0.2.9"}, {text()})
    of_another = msgspec.structs.replace(note, value=text("other"))
    assert played(of_another) == ({"192.0.2.1", "192.0.2.2", "192.0.2.9"}, {old, text()})


def test_a_leftover_text_of_another_owner_stays_beside_a_new_one() -> None:
    """As when two clusters have shared a state directory."""
    note = Note(OWNERSHIP, text("other"), OwnedSet(NAME, frozenset({"A"})), frozenset(), is_leaving=True)
    changes = Changes(create=(address("192.0.2.2"), txt(text())))

    plan = planned(changes, txt_row(text("other")), noted=[note])

    assert left(plan, txt_row(text("other"))) == [text("other"), text()]


def test_a_noted_text_is_removed_with_its_record_whatever_text_external_dns_names() -> None:
    note = Note(OWNERSHIP, SECRET, OwnedSet(NAME, frozenset({"A"})), frozenset({"192.0.2.1"}), is_leaving=False)
    changes = removal(OTHER_SECRET, txt_encryption_nonce=NONCE)

    assert left(planned(changes, txt_row(SECRET), ADDRESS, noted=[note]), txt_row(SECRET), ADDRESS) == []


def test_a_text_is_noted_with_all_that_earlier_calls_were_to_remove() -> None:
    """Values of its record may remain that external-dns no longer names."""
    owned = OwnedSet(NAME, frozenset({"A"}))
    note = Note(OWNERSHIP, text(), owned, frozenset({"192.0.2.1", "192.0.2.2"}), is_leaving=False, is_staying=True)
    changes = Changes(delete=(address("192.0.2.2"), txt(text())))

    plan = planned(changes, txt_row(text()), ADDRESS, noted=[note])

    assert [msgspec.structs.replace(note, is_leaving=True, is_staying=False)] == [*plan.notes]


def test_a_text_that_was_to_be_replaced_is_noted_with_its_successor_when_both_are_removed() -> None:
    """If a removal fails, one text too many may remain."""
    owned, values = OwnedSet(NAME, frozenset({"A"})), frozenset({"192.0.2.1"})
    old = Note(OWNERSHIP, text("ours", "ingress/x/old"), owned, values, False, True, successor=text())
    new = Note(OWNERSHIP, text(), owned, values, is_leaving=False, is_staying=True)
    changes = Changes(delete=(address("192.0.2.1"), txt(text())))

    plan = planned(changes, txt_row(old.value), txt_row(text()), ADDRESS, noted=[old, new])

    leaving = [msgspec.structs.replace(note, is_leaving=True, is_staying=False) for note in (new, old)]
    assert leaving == [*plan.notes]


def test_a_text_that_stays_is_noted_where_its_record_loses_a_value() -> None:
    both = msgspec.structs.replace(address("192.0.2.1"), targets=("192.0.2.1", "192.0.2.2"))
    changes = Changes(update_old=(both, txt(text())), update_new=(address("192.0.2.1"), txt(text())))

    plan = planned(changes, txt_row(text()), ADDRESS, row(NAME, "A", "192.0.2.2"))

    owned, values = OwnedSet(NAME, frozenset({"A"})), frozenset({"192.0.2.1", "192.0.2.2"})
    assert [Note(OWNERSHIP, text(), owned, values, is_leaving=False, is_staying=True)] == [*plan.notes]


def test_of_two_encrypted_texts_with_the_same_content_the_wanted_one_stays() -> None:
    plan = planned(encrypted_anew(), txt_row(SECRET), txt_row(NEW_SECRET), ADDRESS)

    assert left(plan, txt_row(SECRET), txt_row(NEW_SECRET), ADDRESS) == [NEW_SECRET]


def test_a_disabled_encrypted_text_does_not_count_as_the_wanted_one() -> None:
    disabled = row(OWNERSHIP, "TXT", SECRET, is_enabled=False)

    assert NEW_SECRET in left(planned(encrypted_anew(), disabled, ADDRESS), disabled, ADDRESS)


@pytest.mark.parametrize(("stored", "named"), [(text(), OTHER_SECRET), (SECRET, text())])
def test_a_text_is_removed_with_its_record_whatever_text_external_dns_names(stored: str, named: str) -> None:
    nonce = named[:16] if named == OTHER_SECRET else NONCE

    plan = planned(removal(named, txt_encryption_nonce=nonce), txt_row(stored), ADDRESS)

    assert [Delete(ADDRESS), Delete(txt_row(stored))] == operations(plan)
    assert [stored] == [note.value for note in plan.notes if note.is_leaving]


def test_the_text_of_the_former_owner_is_rewritten_in_a_migration() -> None:
    old = txt_row(text("former"))

    plan = planned(change(text(), text()), old, ADDRESS, told=[old, ADDRESS])

    assert Update(old, RecordSpec(OWNERSHIP, "TXT", text())) == operations(plan)[0]


def test_the_text_of_the_former_owner_is_removed_when_the_new_one_exists() -> None:
    """An interrupted migration leaves both."""
    rows = [txt_row(text("former")), txt_row(text()), ADDRESS]

    assert [text()] == left(planned(change(text(), text()), *rows, told=rows), *rows)


def test_the_text_of_the_former_owner_is_removed_with_its_record() -> None:
    rows = [txt_row(text("former")), ADDRESS]

    assert [] == left(planned(removal(text()), *rows, told=rows), *rows)


def test_an_encrypted_text_of_the_former_owner_is_recognised_by_its_nonce() -> None:
    rows = [txt_row(SECRET), ADDRESS]

    plan = planned(change(f"{NONCE}bmV3", f"{NONCE}bmV3", txt_encryption_nonce=NONCE), *rows)

    assert [f"{NONCE}bmV3"] == left(plan, *rows)


FOREIGN = [
    pytest.param(text("other"), id="another owner of the same objects"),
    pytest.param(text("other", "ingress/x/elsewhere"), id="another owner of others"),
    pytest.param(text("ours", "ingress/x/elsewhere"), id="another object"),
    pytest.param(SECRET, id="an encrypted text that was not read"),
    pytest.param("made-by-hand", id="made by hand"),
]


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("changes", [change(text(), text()), removal(text()), change(text(), NEW_SECRET)])
def test_a_text_that_external_dns_did_not_read_stays(foreign: str, changes: Changes) -> None:
    """The text of external-dns was there when it listed, and has been removed since."""
    rows = [txt_row(foreign), ADDRESS]

    plan = planned(changes, *rows, told=[txt_row(text()), ADDRESS])

    assert foreign in left(plan, *rows)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_create_removes_no_existing_text(foreign: str) -> None:
    """Older clients create without having listed."""
    rows = [txt_row(foreign)]

    plan = planned(Changes(create=(address("192.0.2.1"), txt(NEW_SECRET))), *rows, told=rows)

    assert [foreign, NEW_SECRET] == sorted(left(plan, *rows), key=[foreign, NEW_SECRET].index)


def test_of_the_texts_of_other_owners_only_the_one_listed_first_counts_as_read() -> None:
    rows = [txt_row(text("a-former")), txt_row(text("b-other")), ADDRESS]

    plan = planned(change(text(), text()), *rows, told=rows)

    assert [text("b-other"), text()] == left(plan, *rows)


def test_a_disabled_text_does_not_count_as_listed() -> None:
    disabled = msgspec.structs.replace(txt_row(text("a-former")), is_enabled=False)
    rows = [txt_row(text("b-former")), ADDRESS]

    plan = planned(change(text(), text()), *rows, told=[disabled, *rows])

    assert [text()] == left(plan, *rows)


@pytest.mark.parametrize("told", [None, ()], ids=["nothing told since the start", "it came since"])
def test_the_text_of_another_owner_stays_if_it_is_not_known_to_have_been_listed(
    told: tuple[Record, ...] | None,
) -> None:
    rows = [txt_row(text("former")), ADDRESS]

    assert [text("former"), text()] == left(planned(change(text(), text()), *rows, told=told), *rows)


def test_an_old_format_text_of_another_owner_stays() -> None:
    """external-dns ignores it beside an ownership record whose name has a type."""
    old_format = row(NAME, "TXT", text("other"))
    changes = Changes(
        update_old=(address("192.0.2.1"), Endpoint(NAME, "TXT", (text(),), labels={"ownedRecord": NAME})),
        update_new=(address("192.0.2.2"), Endpoint(NAME, "TXT", (text(),), labels={"ownedRecord": NAME})),
    )
    rows = [old_format, ADDRESS]
    world = World(rows)

    world.play(planned(changes, *rows, told=rows))

    assert {text("other"), text()} == world.live(NAME, "TXT")


def test_a_text_that_was_read_but_must_not_be_written_is_refused_as_if_it_were_named() -> None:
    shared = msgspec.structs.replace(txt_row(text()), origin=Origin.AMBIGUOUS)

    plan = planned(removal(OTHER_SECRET), shared, ADDRESS)

    assert [Delete(ADDRESS)] == operations(plan)
    assert [RefusalReason.AMBIGUOUS_ID] == [refusal.reason for refusal in plan.refusals]


def test_a_text_stays_when_its_successor_cannot_be_held() -> None:
    rows = [txt_row(text()), ADDRESS]

    plan = planned(change(OTHER_SECRET, "x" * 300), *rows)

    assert [text()] == left(plan, *rows)


def test_a_replaced_text_is_noted_with_its_successor_and_the_successor_as_staying() -> None:
    """A store that cannot update the row creates one, and may not get to delete the old one."""
    old, new = text(resource="ingress/x/old"), text(resource="ingress/x/new")
    rows = [txt_row(old), ADDRESS]

    plan = planned(change(old, new, resource="ingress/x/old"), *rows)

    noted = {note.value: (note.is_leaving, note.is_staying, note.successor) for note in plan.notes}
    assert {old: (False, True, new), new: (False, True, "")} == noted


def test_a_text_removed_beside_one_that_stays_is_noted_as_replaced_by_it() -> None:
    """The reverse of the earlier note, so that the earlier one no longer counts."""
    old, new = text(resource="ingress/x/old"), text(resource="ingress/x/new")
    rows = [txt_row(old), txt_row(new), ADDRESS]

    plan = planned(change(new, old, resource="ingress/x/new"), *rows)

    noted = {note.value: (note.is_leaving, note.is_staying, note.successor) for note in plan.notes}
    assert {new: (False, True, old), old: (False, True, "")} == noted


owners = st.sampled_from(["ours", "other", "former"])
resources = st.sampled_from(["ingress/x/app", "ingress/x/elsewhere"])
texts = st.builds(text, owners, resources) | st.sampled_from([SECRET, OTHER_SECRET, "made-by-hand"])
stored = st.sets(texts, max_size=4).map(lambda values: [txt_row(value) for value in sorted(values)])
labels = st.fixed_dictionaries({"owner": owners, "resource": resources, "txt_encryption_nonce": st.just(NONCE)})


@given(labels, texts, texts, stored, stored, st.booleans())
@settings(max_examples=300, deadline=None)
def test_of_the_texts_of_other_owners_at_most_the_one_listed_first_is_removed(
    labels: dict[str, str], old: str, new: str, rows: list[Record], told: list[Record], is_removal: bool
) -> None:
    changes = removal(old, **labels) if is_removal else change(old, new, **labels)

    plan = planned(changes, *rows, ADDRESS, told=told)

    remain = left(plan, *rows, ADDRESS)
    gone = {each.value for each in rows if each.value not in remain} - {old, SECRET}
    shown_first = min((each.value for each in told), key=lambda value: ("heritage" not in value, value), default="")
    assert gone <= {text(labels["owner"], labels["resource"]), shown_first}
    assert "made-by-hand" not in gone
    if gone - {text(labels["owner"], labels["resource"])}:
        assert labels["resource"] in shown_first
    assert is_removal or new in remain


def test_a_change_with_an_unchanged_text_updates_the_record_alone() -> None:
    rows = [txt_row(text()), ADDRESS]

    plan = planned(change(text(), text()), *rows, told=rows)

    assert [Update(ADDRESS, RecordSpec(NAME, "A", "192.0.2.2"))] == operations(plan)


OTHERS_TEXT = txt_row(text("other"))


@pytest.mark.parametrize("rows", [[OTHERS_TEXT], []], ids=["it is there", "it has gone since"])
@pytest.mark.parametrize("name", [OWNERSHIP, f"a.{NAME}"])
def test_nothing_is_written_under_the_ownership_record_of_another_owner(name: str, rows: list[Record]) -> None:
    """external-dns 0.19 or newer sends none beside it. The record would be the other owner's, and later nobody's."""
    rows = [msgspec.structs.replace(each, name=name) for each in rows]
    told = [msgspec.structs.replace(OTHERS_TEXT, name=name)]
    plan = planned(Changes(create=(address("192.0.2.1"),)), *rows, told=told)

    assert [] == steps(plan)
    (refusal,) = plan.refusals
    assert RefusalReason.NO_OWNERSHIP is refusal.reason
    assert "'other'" in refusal.detail


@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        (address("192.0.2.1"), [txt_row(text())]),
        (address("192.0.2.1"), [OTHERS_TEXT, txt_row(text())]),
        (address("192.0.2.1"), [txt_row(SECRET)]),
        (address("192.0.2.1"), [row(NAME, "TXT", text("other"))]),
        (Endpoint(NAME, "A", ("192.0.2.1",)), [OTHERS_TEXT]),
    ],
    ids=["ours", "ours beside it", "unreadable", "of the old format", "without a registry"],
)
def test_a_record_sent_without_an_ownership_record_is_written_unless_only_another_owner_has_one(
    wanted: Endpoint, texts: list[Record]
) -> None:
    plan = planned(Changes(create=(wanted,)), *texts, told=texts)

    assert () == plan.refusals
    assert [RecordSpec(NAME, "A", "192.0.2.1")] == [created(step) for step in steps(plan)]


@pytest.mark.parametrize(
    ("own_text", "labels"), [(text(), {}), (SECRET, {"txt-encryption-nonce": NONCE})], ids=["readable", "encrypted"]
)
def test_a_record_whose_first_label_is_too_long_for_an_ownership_record_is_refused(
    own_text: str, labels: dict[str, str]
) -> None:
    """external-dns sends it without one, and would neither change nor remove it."""
    long_name = f"{'x' * 59}.example.com"
    unowned = Endpoint(long_name, "CNAME", ("host.example.net",), labels={"owner": "ours", **labels})
    old = row(long_name, "A", "192.0.2.9")
    changes = Changes(
        create=(address("192.0.2.1"), txt(own_text), unowned),
        delete=(Endpoint(long_name, "A", (old.value,), labels={"owner": "ours"}),),
    )

    plan = planned(changes, old)

    refused = [(RefusalReason.NO_OWNERSHIP, long_name, "CNAME")]
    assert refused == [(refusal.reason, refusal.name, refusal.type) for refusal in plan.refusals]
    assert [RecordSpec(OWNERSHIP, "TXT", own_text), ADDRESS.spec] == [created(step) for step in steps(plan)]

    # In the next pass only that record is left to send.
    again = planned(Changes(create=(unowned,)), txt_row(own_text), ADDRESS)
    assert refused == [(refusal.reason, refusal.name, refusal.type) for refusal in again.refusals]
    assert steps(again) == []


@pytest.mark.parametrize("prefix", ["", "owned."])
def test_a_record_with_a_long_first_label_is_changed_if_its_ownership_record_has_no_type_in_front(prefix: str) -> None:
    """external-dns 0.17 and before wrote that, and later releases still read it, but can write none with the type."""
    long_name = f"{'x' * 62}.example.com"
    old, more = (
        Endpoint(long_name, "A", values, labels={"owner": "ours"})
        for values in (("192.0.2.1",), ("192.0.2.1", "192.0.2.2"))
    )
    here = [row(long_name, "A", "192.0.2.1"), row(prefix + long_name, "TXT", text()), ADDRESS, txt_row(text())]

    plan = planned(Changes(update_old=(old,), update_new=(more,)), *here)

    assert plan.refusals == ()
    assert [RecordSpec(long_name, "A", "192.0.2.2")] == [created(step) for step in steps(plan)]


@pytest.mark.parametrize("own_text", [text(), SECRET], ids=["readable", "encrypted"])
@pytest.mark.parametrize("own", ["ed-a-app", "ed.a.app", "a.ed.app", "a-ed-app", "app-a", "a-app-ed"])
def test_a_record_with_an_affixed_ownership_record_is_written_beside_a_leftover_of_another_owner(
    own: str, own_text: str
) -> None:
    """The owner id and the prefix were changed once. external-dns looks only at the name with the prefix."""
    rows = [OTHERS_TEXT, row(f"{own}.example.com", "TXT", own_text)]
    plan = planned(Changes(create=(address("192.0.2.1"),)), *rows, told=rows)

    assert () == plan.refusals
    assert [RecordSpec(NAME, "A", "192.0.2.1")] == [created(step) for step in steps(plan)]


@pytest.mark.parametrize("own", ["a-app-ed", "a-my-app", "aaaa-app", "app", "a-other"])
def test_an_ownership_record_of_another_name_or_type_does_not_override_that_of_another_owner(
    own: str,
) -> None:
    kind, _, of = own.partition("-")
    rows = [OTHERS_TEXT, row(f"{own}.example.com", "TXT", text()), row(f"{of}.example.com", kind.upper(), "::1")]
    plan = planned(Changes(create=(address("192.0.2.1"),)), *rows, told=rows)

    assert [RefusalReason.NO_OWNERSHIP] == [refusal.reason for refusal in plan.refusals]


@pytest.mark.parametrize("rows", ["there", "gone since"])
@pytest.mark.parametrize("own", ["ed-a-app", "ed.a.app", "app-a", "a-app-ed"])
def test_nothing_is_written_under_the_affixed_ownership_record_of_another_owner(own: str, rows: str) -> None:
    """external-dns sends none beside it. The record would be the other owner's, and later nobody's."""
    told = [row(f"{own}.example.com", "TXT", text("other"))]
    plan = planned(Changes(create=(address("192.0.2.1"),)), *(told if rows == "there" else ()), told=told)

    assert [] == steps(plan)
    (refusal,) = plan.refusals
    assert RefusalReason.NO_OWNERSHIP is refusal.reason
    assert f"of 'other' for it, '{own}.example.com'" in refusal.detail


WILDCARD = msgspec.structs.replace(address("192.0.2.1"), dns_name="*.example.com")
WILDCARD_OWNERSHIP = ["a-any", "a.any", "any-a", "ed-a-any", "ed.a-any", "a-any-ed", "a-any.ed", "ed-a-*"]


@pytest.mark.parametrize("own", WILDCARD_OWNERSHIP)
@pytest.mark.parametrize("others_host", [True, False])
def test_no_wildcard_is_written_under_the_ownership_record_of_another_owner(own: str, others_host: bool) -> None:
    """With `--txt-wildcard-replacement`, which puts a word in place of `*`."""
    of_host = f"{own.replace('any', 'host').replace('*', 'host')}.example.com"
    hosts = [row("host.example.com", "A", "192.0.2.9"), row(of_host, "TXT", text())]
    rows = [row(f"{own}.example.com", "TXT", text("other")), *(hosts if others_host else ())]
    plan = planned(Changes(create=(WILDCARD,)), *rows, told=rows)

    assert [] == steps(plan)
    (refusal,) = plan.refusals
    assert f"of 'other' for it, '{own}.example.com'" in refusal.detail


@pytest.mark.parametrize("own_text", [text(), SECRET], ids=["readable", "encrypted"])
@pytest.mark.parametrize("own", WILDCARD_OWNERSHIP)
def test_a_wildcard_is_written_only_while_the_ownership_record_that_external_dns_has_seen_is_there(
    own: str, own_text: str
) -> None:
    told = [row(f"{own}.example.com", "TXT", own_text), row("any-host.example.com", "A", "192.0.2.9")]
    changes = Changes(create=(WILDCARD,))

    assert [RecordSpec("*.example.com", "A", "192.0.2.1")] == [*map(created, steps(planned(changes, *told, told=told)))]
    (refusal,) = planned(changes, told[1], told=told).refusals
    assert f"'{own}.example.com', which was removed since" in refusal.detail


@pytest.mark.parametrize(
    ("own", "name"),
    [
        *((own, "host") for own in ("a-host", "ed-a-host", "ed.a-host", "a-host-ed", "a-host.ed", "host-a")),
        *((own, "host.lab") for own in ("a-host.lab", "ed-a-host.lab", "a-host-ed.lab")),
        *((own, "*.lab") for own in ("a-any.lab", "a-*.lab", "ed.a-any.lab")),
        ("aaaa-any", "host"),
        ("any", "host"),
    ],
)
def test_ownership_records_of_other_names_and_types_are_none_of_a_wildcards(own: str, name: str) -> None:
    rows = [row(f"{own}.example.com", "TXT", text("other")), row(f"{name}.example.com", "A", "192.0.2.9")]
    plan = planned(Changes(create=(WILDCARD,)), *rows, told=rows)

    assert () == plan.refusals


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("app.example.com", "ed-a-app.example.net"),
        ("app.example.com", "ed-a-app.lab.example.com"),
        ("app.example.com", "ed-a-app"),
        ("blue-app.example.com", "ed-a-app-blue.example.com"),
        ("app", "ed-a-app.example.com"),
    ],
)
def test_a_prefixed_ownership_record_of_the_same_words_in_another_name_does_not_override_that_of_another_owner(
    name: str, own: str
) -> None:
    rows = [row(f"a-{name}", "TXT", text("other")), row(own, "TXT", text())]
    wanted = msgspec.structs.replace(address("192.0.2.1"), dns_name=name)
    plan = planned(Changes(create=(wanted,)), *rows, told=rows)

    assert [RefusalReason.NO_OWNERSHIP] == [refusal.reason for refusal in plan.refusals]


@pytest.mark.parametrize("own", ["ed-a-nas", "ed.a-nas", "a.ed.nas", "nas-a", "a-nas-ed"])
def test_a_name_of_one_label_has_prefixed_ownership_records_too(own: str) -> None:
    rows = [row("a-nas", "TXT", text("other")), row(own, "TXT", text())]
    wanted = msgspec.structs.replace(address("192.0.2.1"), dns_name="nas")
    plan = planned(Changes(create=(wanted,)), *rows, told=rows)

    assert () == plan.refusals
    assert [RecordSpec("nas", "A", "192.0.2.1")] == [created(step) for step in steps(plan)]


def test_a_record_is_written_under_the_ownership_record_of_the_owner_that_external_dns_migrates_from() -> None:
    """Its address was removed by hand. external-dns takes it over in the next pass, as it does another in this one."""
    other_name = "two.example.com"
    of_other = row(f"a-{other_name}", "TXT", text("old"))
    rows = [txt_row(text("old")), of_other, row(other_name, "A", "192.0.2.2")]
    moved = Endpoint(other_name, "A", ("192.0.2.2",), labels={"owner": "ours", "resource": "ingress/x/app"})
    vouching = Endpoint(of_other.name, "TXT", (text(),), labels={"ownedRecord": other_name})
    changes = Changes(create=(address("192.0.2.1"),), update_old=(moved, vouching), update_new=(moved, vouching))
    plan = planned(changes, *rows, told=rows)

    assert () == plan.refusals
    assert {Update(of_other, RecordSpec(of_other.name, "TXT", text())), Create(RecordSpec(NAME, "A", "192.0.2.1"))} == {
        *operations(plan)
    }


@pytest.mark.parametrize("own_text", [text(), SECRET], ids=["readable", "encrypted"])
@pytest.mark.parametrize("own", ["a-app", "a.app", "ed-a-app", "app-a"])
@pytest.mark.parametrize("others", [[], [OTHERS_TEXT]], ids=["alone", "beside another owner's"])
def test_a_record_sent_without_its_ownership_record_is_not_written_if_that_was_removed_since_it_was_seen(
    own: str, own_text: str, others: list[Record]
) -> None:
    """external-dns sends none, since it has seen one. The record would never be claimed again."""
    told = [row(f"{own}.example.com", "TXT", own_text), *others]
    plan = planned(Changes(create=(address("192.0.2.1"),)), *others, told=told)

    assert [] == steps(plan)
    (refusal,) = plan.refusals
    assert RefusalReason.NO_OWNERSHIP is refusal.reason
    assert f"'{own}.example.com', which was removed since" in refusal.detail


class CountedRows(tuple[Record, ...]):
    """Counts how often it is read."""

    readings = 0

    def __iter__(self) -> Iterator[Record]:
        self.readings += 1
        return super().__iter__()


@pytest.mark.parametrize("prefix", ["ed-a-", "a-"])
def test_the_rows_that_external_dns_has_seen_are_not_searched_for_each_record_without_ownership_record(
    prefix: str,
) -> None:
    """A pass of a thousand such records took a second longer beside tens of thousands of rows."""
    names = [f"app{number}.example.com" for number in range(50)]
    told = CountedRows(row(f"{prefix}{name}", "TXT", text("ours" if prefix == "ed-a-" else "other")) for name in names)
    wanted = tuple(msgspec.structs.replace(address("192.0.2.1"), dns_name=name) for name in names)
    plan = planned(Changes(create=wanted), told=told)

    assert len(names) == len(steps(plan)) + len(plan.refusals)
    assert told.readings <= 5


def test_a_disabled_ownership_record_of_another_owner_does_not_count_as_seen() -> None:
    rows = [row(OWNERSHIP, "TXT", text("other"), is_enabled=False), txt_row(SECRET)]
    plan = planned(Changes(create=(address("192.0.2.1"),)), *rows, told=rows)

    assert () == plan.refusals


GONE = Note(OWNERSHIP, text(), OwnedSet(NAME, frozenset({"A"})), frozenset({"192.0.2.1"}), is_leaving=True)


def test_a_removed_ownership_record_is_restored_before_its_record_is_created_again() -> None:
    plan = planned(Changes(create=(address("192.0.2.1"),)), told=[txt_row(text())], removed=[GONE])

    assert () == plan.refusals
    assert [OWNERSHIP, NAME] == [created(step).name for step in steps(plan)]
    assert [text()] == [note.value for note in plan.notes]


def test_no_ownership_record_is_restored_when_somebody_else_has_taken_the_name_since() -> None:
    """external-dns would own all addresses of the name, and remove the other one in the next pass that lists."""
    by_hand = row(NAME, "A", "198.51.100.1")
    plan = planned(Changes(create=(address("192.0.2.1"),)), by_hand, told=[txt_row(text())], removed=[GONE])

    assert [] == steps(plan)
    assert () == plan.notes
    assert [(NAME, "A", RefusalReason.NO_OWNERSHIP)] == [(each.name, each.type, each.reason) for each in plan.refusals]
    assert by_hand.value in plan.refusals[0].detail


def test_no_ownership_record_is_restored_for_a_record_sent_with_its_own_or_without_owner() -> None:
    elsewhere = msgspec.structs.replace(GONE, name=f"a.{NAME}", value=SECRET)
    brings_own = planned(Changes(create=(address("192.0.2.1"), txt(text()))), removed=[elsewhere])
    nobodys = planned(Changes(create=(Endpoint(NAME, "A", ("192.0.2.1",)),)), removed=[elsewhere])

    assert [OWNERSHIP, NAME] == [created(step).name for step in steps(brings_own)]
    assert [NAME] == [created(step).name for step in steps(nobodys)]


def test_no_ownership_record_is_restored_under_a_name_where_the_call_wants_another_record() -> None:
    other = Endpoint(OWNERSHIP, "A", ("192.0.2.7",))
    plan = planned(Changes(create=(address("192.0.2.1"), other)), told=[txt_row(text())], removed=[GONE])

    assert [(OWNERSHIP, "A")] == [(created(step).name, created(step).type) for step in steps(plan)]
    assert [RefusalReason.NO_OWNERSHIP] == [refusal.reason for refusal in plan.refusals]


def test_a_record_sent_with_its_ownership_record_is_written_beside_that_of_another_owner() -> None:
    """As older releases of external-dns send it."""
    plan = planned(Changes(create=(address("192.0.2.1"), txt(text()))), OTHERS_TEXT, told=[OTHERS_TEXT])

    assert [text("other"), text()] == left(plan, OTHERS_TEXT)
    assert () == plan.refusals


def test_an_ownership_record_sent_without_its_record_is_not_noted() -> None:
    """As when a name of another format is added: its record exists already, and this call has not written it."""
    assert () == planned(Changes(create=(txt(text()),)), ADDRESS).notes


def test_an_ownership_record_replaces_a_cname_of_its_own_name_in_one_switch() -> None:
    alias = row(OWNERSHIP, "CNAME", "host.example.net")
    leaving = Endpoint(OWNERSHIP, "CNAME", ("host.example.net",))

    plan = planned(Changes(create=(address("192.0.2.1"), txt(text())), delete=(leaving,)), alias)

    switch = Switch((alias,), (RecordSpec(OWNERSHIP, "TXT", text()),))
    assert [switch, Create(RecordSpec(NAME, "A", "192.0.2.1"))] == operations(plan)
    assert (0,) == steps(plan)[1].needs
