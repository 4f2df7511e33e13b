"""After a failed apply: which ownership records are removed or stay, and which notes stay open."""

import msgspec
import pytest

from dnswebhook.model import Origin, Record, RecordSpec
from dnswebhook.notes import LATE_LISTINGS, IsDesired, Note, Settlement, awaited, extended, settle
from dnswebhook.ownership import OwnedSet

TEXT = '"heritage=external-dns,external-dns/owner=default"'
OWNED = OwnedSet("app.example.com", frozenset({"A"}))
OURS = frozenset({"192.0.2.1"})

TXT_ROW = Record("t", "a-app.example.com", "TXT", TEXT)
OUR_ROW = Record("a", "app.example.com", "A", "192.0.2.1")
FOREIGN_ROW = Record("f", "app.example.com", "A", "198.51.100.9")

leaving = Note("a-app.example.com", TEXT, OWNED, OURS, is_leaving=True)
coming = Note("a-app.example.com", TEXT, OWNED, OURS, is_leaving=False)
staying = Note("a-app.example.com", TEXT, OWNED, OURS, is_leaving=False, is_staying=True)


def nobody_knows(name: str, record_type: str) -> bool | None:
    return None


def desired(name: str, record_type: str) -> bool | None:
    return True


def undesired(name: str, record_type: str) -> bool | None:
    return False


@pytest.mark.parametrize("note", [leaving, coming, staying])
def test_a_note_is_settled_when_its_row_is_gone(note: Note) -> None:
    settlement = settle([note], [FOREIGN_ROW], undesired)

    assert ((), ()) == (settlement.remove, settlement.open)


@pytest.mark.parametrize("is_desired", [nobody_knows, desired, undesired])
@pytest.mark.parametrize("note", [leaving, coming, staying])
def test_a_note_is_settled_when_its_record_exists(note: Note, is_desired: IsDesired) -> None:
    """external-dns sees both, and asks again for what it wants; if both were to be removed, its record may go first."""
    settlement = settle([note], [TXT_ROW, OUR_ROW], is_desired)

    assert settlement.remove == ()
    assert settlement.open == ((leaving,) if note is leaving and is_desired is undesired else ())


def test_an_older_ownership_record_stays_when_somebody_has_replaced_its_record() -> None:
    """As with any edit of a set that external-dns owns: the next pass restores the set."""
    settlement = settle([staying], [TXT_ROW, FOREIGN_ROW], undesired)

    assert ((), ()) == (settlement.remove, settlement.open)


def test_an_older_ownership_record_is_removed_when_its_record_neither_exists_nor_is_wanted() -> None:
    settlement = settle([staying], [TXT_ROW], undesired)

    assert ((TXT_ROW,), (staying,)) == (settlement.remove, settlement.open)


@pytest.mark.parametrize("is_desired", [nobody_knows, desired, undesired])
def test_a_leaving_ownership_record_is_removed_once_its_record_is_gone(is_desired: IsDesired) -> None:
    settlement = settle([leaving], [TXT_ROW], is_desired)

    assert ((TXT_ROW,), (leaving,)) == (settlement.remove, settlement.open)


@pytest.mark.parametrize(("rows", "claims"), [([FOREIGN_ROW], (TXT_ROW,)), ([FOREIGN_ROW, OUR_ROW], ()), ([], ())])
def test_an_ownership_record_that_claims_a_record_of_somebody_else_is_listed_in_the_claims(
    rows: list[Record], claims: tuple[Record, ...]
) -> None:
    """external-dns must not see it, even if it cannot be removed."""
    assert claims == settle([coming], [TXT_ROW, *rows], undesired).claims


def test_a_record_of_another_type_at_the_name_decides_nothing() -> None:
    other_type = Record("o", "app.example.com", "AAAA", "2001:db8::1")

    settlement = settle([coming], [TXT_ROW, other_type], desired)

    assert ((), (coming,)) == (settlement.remove, settlement.open)


def test_whether_a_record_is_desired_is_asked_by_name_and_type() -> None:
    def is_desired(name: str, record_type: str) -> bool | None:
        return (name, record_type) == ("app.example.com", "A")

    assert () == settle([coming], [TXT_ROW], is_desired).remove


@pytest.mark.parametrize("is_desired", [nobody_knows, desired])
def test_a_note_stays_open_while_its_record_may_still_be_created(is_desired: IsDesired) -> None:
    settlement = settle([coming], [TXT_ROW], is_desired)

    assert ((), (coming,)) == (settlement.remove, settlement.open)


def test_a_note_stays_open_when_its_name_does_not_tell_the_type() -> None:
    of_any_type = msgspec.structs.replace(coming, owned=OwnedSet("app.example.com", frozenset()))

    settlement = settle([of_any_type], [TXT_ROW], undesired)

    assert ((), (of_any_type,)) == (settlement.remove, settlement.open)


def test_an_ownership_record_on_the_name_of_its_record_is_not_taken_for_a_record_of_somebody_else() -> None:
    """As external-dns 0.17 and earlier write them."""
    own = Record("t", "app.example.com", "TXT", TEXT)
    of_its_name = Note(own.name, TEXT, OwnedSet(own.name, frozenset()), OURS, is_leaving=False)

    settlement = settle([of_its_name], [own], nobody_knows)

    assert ((), (of_its_name,)) == (settlement.remove, settlement.open)


def test_an_ownership_record_is_removed_when_its_record_is_no_longer_wanted() -> None:
    settlement = settle([coming], [TXT_ROW], undesired)

    assert (TXT_ROW,) == settlement.remove


# Creates that were not answered, and may yet be carried out.


def listings_until_removed(note: Note, *rows: Record) -> int:
    """How many listings of the same rows, while the record is not wanted, precede the removal."""
    for count in range(LATE_LISTINGS + 2):
        settlement = settle([note], rows, undesired)
        if settlement.remove:
            return count
        (note,) = settlement.open
    raise AssertionError("it is never removed")


def test_an_ownership_record_stays_for_some_listings_when_its_record_may_be_created_late() -> None:
    (note,) = awaited([coming], {OUR_ROW.spec})

    assert listings_until_removed(note, TXT_ROW) == LATE_LISTINGS
    assert listings_until_removed(coming, TXT_ROW) == 0


def test_an_ownership_record_that_may_be_created_late_is_looked_for_during_some_listings() -> None:
    (note,) = awaited([coming], {TXT_ROW.spec})

    for _ in range(LATE_LISTINGS):
        (note,) = settle([note], [], undesired).open
    assert (TXT_ROW,) == settle([note], [TXT_ROW], undesired).remove
    assert () == settle([note], [], undesired).open


def test_a_note_whose_record_was_created_late_is_settled_after_some_listings() -> None:
    """Another value may be created later still, after the first one has been removed."""
    (note,) = awaited([coming], {OUR_ROW.spec})

    for _ in range(LATE_LISTINGS):
        (note,) = settle([note], [TXT_ROW, OUR_ROW], undesired).open
    assert Settlement((), ()) == settle([note], [TXT_ROW, OUR_ROW], undesired)


@pytest.mark.parametrize("note", [leaving, staying])
def test_an_older_or_leaving_ownership_record_stays_for_some_listings_when_its_record_may_be_created_late(
    note: Note,
) -> None:
    (note,) = awaited([note], {OUR_ROW.spec})

    assert listings_until_removed(note, TXT_ROW) == LATE_LISTINGS


def test_an_ownership_record_that_waits_for_its_record_can_claim_no_record_of_somebody_else() -> None:
    notes = awaited([coming], {OUR_ROW.spec})

    assert (TXT_ROW,) == settle(notes, [TXT_ROW, FOREIGN_ROW], undesired).claims


def test_notes_wait_only_for_pending_creates_of_their_own_values() -> None:
    pending = {
        RecordSpec("other.example.com", "A", "192.0.2.1"),
        RecordSpec(OUR_ROW.name, "AAAA", "2001:db8::1"),
        RecordSpec(TXT_ROW.name, "TXT", "another text"),
    }

    assert () == awaited([coming, leaving, staying], pending)


def test_a_replaced_text_waits_for_its_successor() -> None:
    """Otherwise both would stay."""
    successor = RecordSpec(TXT_ROW.name, "TXT", "another text")
    replaced = msgspec.structs.replace(staying, successor=successor.value)

    (note,) = awaited([replaced], {successor})
    (note,) = settle([note], [TXT_ROW, OUR_ROW], desired).open

    late = Record("s", successor.name, "TXT", successor.value)
    assert (TXT_ROW,) == settle([note], [TXT_ROW, late, OUR_ROW], desired).remove


@pytest.mark.parametrize("note", [leaving, coming])
def test_an_ownership_record_is_removed_before_it_can_claim_a_record_of_somebody_else(note: Note) -> None:
    settlement = settle([note], [TXT_ROW, FOREIGN_ROW], desired)

    assert (TXT_ROW,) == settlement.remove


def test_a_row_that_is_not_ours_to_write_is_never_removed() -> None:
    derived = Record("t", "a-app.example.com", "TXT", TEXT, origin=Origin.DERIVED)
    disabled = Record("t", "a-app.example.com", "TXT", TEXT, is_enabled=False)

    assert () == settle([leaving], [derived, disabled], undesired).remove


def test_other_texts_on_the_name_stay() -> None:
    other = Record("o", "a-app.example.com", "TXT", "made-by-hand")

    assert (TXT_ROW,) == settle([leaving], [other, TXT_ROW], undesired).remove


def test_values_written_later_are_added_to_a_note() -> None:
    """The record failed; when external-dns asks again, with another value, it sends no ownership record."""
    other = Record("b", "app.example.com", "A", "192.0.2.2")

    (noted,) = extended([coming], [other.spec])

    assert noted.owned_values == {"192.0.2.1", "192.0.2.2"}
    assert settle([noted], [TXT_ROW, other], desired).remove == ()
    assert extended([noted], [other.spec]) == ()
    assert extended([coming], [Record("c", "app.example.com", "AAAA", "2001:db8::1").spec, TXT_ROW.spec]) == ()


NEW_TEXT = '"heritage=external-dns,external-dns/owner=new"'
NEW_ROW = Record("n", "a-app.example.com", "TXT", NEW_TEXT)

replaced = msgspec.structs.replace(staying, successor=NEW_TEXT)


@pytest.mark.parametrize("covered", [[OUR_ROW], [FOREIGN_ROW], []])
def test_a_text_is_removed_when_its_successor_exists_whatever_it_vouches_for(covered: list[Record]) -> None:
    settlement = settle([replaced], [TXT_ROW, NEW_ROW, *covered], desired)

    assert ((TXT_ROW,), (replaced,)) == (settlement.remove, settlement.open)


def test_a_text_stays_with_its_record_when_its_successor_was_never_created() -> None:
    settlement = settle([replaced], [TXT_ROW, OUR_ROW], desired)

    assert ((), ()) == (settlement.remove, settlement.open)


def test_a_note_is_settled_when_only_the_successor_of_its_text_exists() -> None:
    settlement = settle([replaced], [NEW_ROW, OUR_ROW], desired)

    assert ((), ()) == (settlement.remove, settlement.open)


def test_a_row_of_another_type_does_not_count_as_the_successor_of_a_text() -> None:
    other = Record("n", "a-app.example.com", "A", NEW_TEXT)

    assert () == settle([replaced], [TXT_ROW, other, OUR_ROW], desired).remove


def of_owner(owner: str) -> str:
    return f'"heritage=external-dns,external-dns/owner={owner},external-dns/resource=ingress/default/app"'


FIRST, SECOND = (Record(owner, "a-app.example.com", "TXT", of_owner(owner)) for owner in ("home", "lab"))
second = Note("a-app.example.com", SECOND.value, OWNED, OURS, is_leaving=False)
done = msgspec.structs.replace(second, is_done=True)


@pytest.mark.parametrize("note", [second, done])
@pytest.mark.parametrize(("is_desired", "removed"), [(desired, ()), (nobody_knows, ()), (undesired, (SECOND,))])
def test_an_ownership_record_listed_after_that_of_another_owner_is_removed_when_its_record_is_not_wanted(
    note: Note, is_desired: IsDesired, removed: tuple[Record, ...]
) -> None:
    """Not at once: the other one may be about to be removed, and the record is ours then."""
    settlement = settle([note], [FIRST, SECOND, OUR_ROW], is_desired)
    assert ((), (note,)) == (settlement.remove, settlement.contested)
    assert Settlement((), ()) == settle(settlement.open, [SECOND, OUR_ROW], is_desired)

    again = settle(settlement.open, [FIRST, SECOND, OUR_ROW], is_desired)

    assert (removed, settlement.open, (note,)) == (again.remove, again.open, again.contested)


def test_an_ownership_record_beside_that_of_another_owner_stays_when_its_record_is_wanted_again() -> None:
    open_notes: tuple[Note, ...] = (done,)
    for is_desired in (undesired, desired, undesired):
        settlement = settle(open_notes, [FIRST, SECOND, OUR_ROW], is_desired)
        open_notes = settlement.open

        assert () == settlement.remove


def test_an_ownership_record_beside_that_of_another_owner_is_removed_when_none_of_its_values_is_left() -> None:
    settlement = settle([done], [FIRST, SECOND, FOREIGN_ROW], desired)

    assert (SECOND,) == settlement.remove


@pytest.mark.parametrize("beside", [[], [Record("h", "a-app.example.com", "TXT", "a-note-by-hand")]])
def test_an_uncontested_ownership_record_stays_even_if_its_record_was_replaced(beside: list[Record]) -> None:
    for record in (OUR_ROW, FOREIGN_ROW):
        settlement = settle([done], [*beside, SECOND, record], undesired)

        assert ((), (), ()) == (settlement.remove, settlement.open, settlement.contested)


def test_a_written_ownership_record_without_any_record_is_removed_when_none_is_wanted() -> None:
    assert (SECOND,) == settle([done], [SECOND], undesired).remove


@pytest.mark.parametrize("words", [of_owner("lab").replace("ingress", "a-gateway"), '"heritage=external-dns"'])
def test_a_note_is_not_contested_by_a_text_of_the_same_owner_or_of_none(words: str) -> None:
    other = Record("o", "a-app.example.com", "TXT", words)

    assert () == settle([done], [other, SECOND, OUR_ROW], desired).contested


@pytest.mark.parametrize("note", [leaving, staying])
def test_a_note_of_an_older_or_leaving_ownership_record_is_not_contested(note: Note) -> None:
    late = msgspec.structs.replace(note, value=SECOND.value)

    assert () == settle([late], [FIRST, SECOND, OUR_ROW], desired).contested


# Sets that are written whole.

TEXTS = OwnedSet("app.example.com", frozenset({"TXT"}))
whole = Note("app.example.com", "", TEXTS, frozenset({"one", "two", "three"}), is_leaving=False, is_whole=True)
ONE, TWO, THREE = (Record(text, "app.example.com", "TXT", text) for text in ("one", "two", "three"))
BY_HAND = Record("h", "app.example.com", "TXT", "by-hand")


@pytest.mark.parametrize("is_desired", [nobody_knows, desired, undesired])
@pytest.mark.parametrize("half", [(ONE,), (THREE,), (ONE, THREE)])
def test_a_half_written_set_is_removed_whether_it_is_wanted_or_not(
    half: tuple[Record, ...], is_desired: IsDesired
) -> None:
    """A later call of external-dns writes it whole."""
    settlement = settle([whole], [*half, BY_HAND, OUR_ROW], is_desired)

    assert (half, (whole,)) == (settlement.remove, settlement.open)


@pytest.mark.parametrize("rows", [(), (ONE, TWO, THREE), (ONE, TWO, THREE, BY_HAND), (BY_HAND,)])
def test_a_set_is_settled_when_it_exists_whole_or_not_at_all(rows: tuple[Record, ...]) -> None:
    settlement = settle([whole], rows, undesired)

    assert ((), ()) == (settlement.remove, settlement.open)


def test_the_ownership_record_of_a_half_written_set_is_removed_with_it_when_it_is_not_wanted() -> None:
    note = Note("txt-app.example.com", TEXT, TEXTS, whole.owned_values, is_leaving=False)
    text_row = Record("t", "txt-app.example.com", "TXT", TEXT)

    given_up = settle([note, whole], [ONE, text_row], undesired)
    still_wanted = settle([note, whole], [ONE, text_row], desired)

    assert Settlement((ONE, text_row), (whole, note)) == given_up
    assert Settlement((ONE,), (whole, note)) == still_wanted


def test_a_set_that_is_written_whole_is_not_extended() -> None:
    assert () == extended([whole], [RecordSpec("app.example.com", "TXT", "four")])


@pytest.mark.parametrize(("text", "goes"), [(of_owner("other"), True), (TEXT, False), ("of no owner", False)])
def test_an_ownership_record_without_its_record_is_removed_when_another_owner_has_another_type_of_the_name(
    text: str, goes: bool
) -> None:
    """Our external-dns asks for nothing there. That of the other owner writes no such record while ours is there."""
    theirs = [
        Record("o", "app.example.com", "CNAME", "host.example.net"),
        Record("u", "cname-app.example.com", "TXT", text),
    ]

    settlement = settle([coming], [TXT_ROW, *theirs], desired)

    assert ((TXT_ROW,) if goes else (), (coming,)) == (settlement.remove, settlement.open)


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("*.example.com", "a-any.example.com", "aaaa-any.example.com"),
        ("*.example.com", "a.any.example.com", "aaaa.any.example.com"),
        ("app.example.com", "own-a-app.example.com", "own-aaaa-app.example.com"),
        ("app.example.com", "app-a.example.com", "app-aaaa.example.com"),
    ],
)
def test_another_owner_is_found_where_ownership_records_have_the_same_affixes_and_word_for_wildcards(
    name: str, ours: str, theirs: str
) -> None:
    text, record = Record("t", ours, "TXT", TEXT), Record("6", name, "AAAA", "2001:db8::1")
    noted = msgspec.structs.replace(coming, name=ours, owned=OwnedSet(name, frozenset({"A"})))

    for owner, goes in (("other", True), ("default", False)):
        settlement = settle([noted], [text, record, Record("x", theirs, "TXT", of_owner(owner))], desired)

        assert ((text,) if goes else (), (noted,)) == (settlement.remove, settlement.open)


def test_an_encrypted_ownership_record_without_its_record_stays_beside_another_type_of_the_name() -> None:
    """Its owner cannot be read, so it may be the same one."""
    encrypted = Record("t", "a-app.example.com", "TXT", "AAECAwQFBgcICQoLc2VjcmV0")
    of_other = Record("6", "app.example.com", "AAAA", "2001:db8::1")
    text_of_other = Record("x", "aaaa-app.example.com", "TXT", of_owner("home"))
    noted = msgspec.structs.replace(coming, value=encrypted.value)

    settlement = settle([noted], [encrypted, of_other, text_of_other], desired)

    assert ((), (noted,)) == (settlement.remove, settlement.open)
