"""Wishes against rows: what each record set lacks, what it has too much of, and what stays."""

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from dnswebhook.chains import MAX_NAMES
from dnswebhook.difference import Difference
from dnswebhook.model import Origin, Record, RecordSpec
from dnswebhook.notes import Note
from dnswebhook.operations import Update
from dnswebhook.ownership import OwnedSet
from dnswebhook.wishes import Refusal, RefusalReason, SkipReason, Wish, Wishes
from tests.dnswebhook.planning import NO_PAST

NAME = "app.example.com"


def row(
    value: str,
    kind: str = "A",
    ttl_s: int = 0,
    name: str = NAME,
    *,
    is_enabled: bool = True,
    origin: Origin = Origin.USER_DEFINED,
) -> Record:
    return Record(f"{name}/{kind}/{value}", name, kind, value, ttl_s, is_enabled, origin)


def wish(
    wanted: Iterable[str] = (),
    removed: Iterable[str] = (),
    kind: str = "A",
    *,
    ttl_s: int = 0,
    is_wanted: bool | None = None,
    owned: OwnedSet | None = None,
) -> Wish:
    """The set is wanted if it has values, unless `is_wanted` says otherwise."""
    values = tuple(wanted)
    is_wanted = bool(values) if is_wanted is None else is_wanted
    return Wish(NAME, kind, values, ttl_s, frozenset(removed), is_wanted, owned)


def ownership(wanted: Iterable[str] = ("heritage",), removed: Iterable[str] = (), kind: str = "A") -> Wish:
    values = tuple(wanted)
    owned = OwnedSet(NAME, frozenset({kind}))
    name = f"{kind.lower()}-{NAME}"
    return Wish(name, "TXT", values, removed=frozenset(removed), is_wanted=bool(values), owned=owned)


def difference(wishes: Iterable[Wish], rows: Iterable[Record] = (), refusals: Iterable[Refusal] = ()) -> Difference:
    return Difference(Wishes({one.key: one for one in wishes}, tuple(refusals), ()), tuple(rows), NO_PAST)


def is_half(wanted: Iterable[str], here: Iterable[str]) -> bool:
    """Asks this of a set of which an earlier call was to write `one` and `two`."""
    owned = OwnedSet(NAME, frozenset({"TXT"}))
    note = Note(NAME, "", owned, frozenset({"one", "two"}), is_leaving=False, is_whole=True)
    wanted_set = wish(wanted, ["three"], "TXT")
    asked, past = Wishes({wanted_set.key: wanted_set}, (), ()), msgspec.structs.replace(NO_PAST, noted=(note,))
    return Difference(asked, [row(value, "TXT") for value in here], past).is_half(wanted_set)


def values(difference_: Difference, kind: str = "A") -> tuple[list[str], list[str], list[str]]:
    """Old -> new of updates, creates, deletes."""
    needed = difference_.sets[NAME, kind]
    updates = [f"{update.record.value} -> {update.spec.value}" for update in needed.updates]
    return updates, [spec.value for spec in needed.creates], [record.value for record in needed.deletes]


def reasons(difference_: Difference) -> list[RefusalReason]:
    return [refusal.reason for refusal in difference_.refusals]


def test_surplus_rows_are_reused_for_missing_values_and_the_rest_is_created_or_deleted() -> None:
    rows = [row("192.0.2.1"), row("192.0.2.2")]

    more = difference([wish(["192.0.2.7", "192.0.2.8", "192.0.2.9"], ["192.0.2.1", "192.0.2.2"])], rows)
    fewer = difference([wish(["192.0.2.9"], ["192.0.2.1", "192.0.2.2"])], rows)

    assert (["192.0.2.1 -> 192.0.2.7", "192.0.2.2 -> 192.0.2.8"], ["192.0.2.9"], []) == values(more)
    assert (["192.0.2.1 -> 192.0.2.9"], [], ["192.0.2.2"]) == values(fewer)


def test_a_row_is_rewritten_into_the_value_of_its_own_host() -> None:
    """A controller takes mail exchangers of one host for the same row, and refuses the second one."""
    rows = [row("10 mx1.example.com", "MX"), row("20 mx2.example.com", "MX"), row("30 mx3.example.com", "MX")]
    old = [each.value for each in rows]

    swapped = difference([wish(["10 mx2.example.com", "20 mx1.example.com"], old, "MX")], rows)
    another = difference([wish(["10 mx2.example.com", "20 mx4.example.com"], old, "MX")], rows)

    to_its_own = "20 mx2.example.com -> 10 mx2.example.com"
    assert values(swapped, "MX") == ([to_its_own, "10 mx1.example.com -> 20 mx1.example.com"], [], [old[2]])
    assert values(another, "MX") == ([to_its_own, "10 mx1.example.com -> 20 mx4.example.com"], [], [old[2]])


def test_a_value_that_nobody_named_is_neither_reused_nor_deleted() -> None:
    found = difference([wish(["192.0.2.9"], ["192.0.2.1"])], [row("192.0.2.5"), row("192.0.2.1")])

    assert (["192.0.2.1 -> 192.0.2.9"], [], []) == values(found)


def test_a_ttl_is_rewritten_only_when_one_is_wanted() -> None:
    held = row("192.0.2.1", ttl_s=300)

    assert [Update(held, RecordSpec(NAME, "A", "192.0.2.1", 60))] == difference(
        [wish(["192.0.2.1"], ttl_s=60)], [held]
    ).sets[NAME, "A"].updates
    assert ([], [], []) == values(difference([wish(["192.0.2.1"], ttl_s=0)], [held]))
    assert ([], [], []) == values(difference([wish(["192.0.2.1"], ttl_s=300)], [held]))


def test_the_ttl_of_a_row_that_is_not_ours_to_write_stays() -> None:
    held = row("192.0.2.1", ttl_s=300, origin=Origin.DERIVED)

    assert ([], [], []) == values(difference([wish(["192.0.2.1"], ttl_s=60)], [held]))


def test_a_derived_row_is_skipped_and_an_ambiguous_one_refused() -> None:
    derived = difference([wish((), ["192.0.2.1"])], [row("192.0.2.1", origin=Origin.DERIVED)])
    ambiguous = difference([wish((), ["192.0.2.1"])], [row("192.0.2.1", origin=Origin.AMBIGUOUS)])

    assert ([], [], []) == values(derived) == values(ambiguous)
    assert [SkipReason.DERIVED_ROW] == [skip.reason for skip in derived.skips]
    assert [RefusalReason.AMBIGUOUS_ID] == reasons(ambiguous)
    assert ambiguous.sets[NAME, "A"].has_blocked_delete


def test_a_disabled_row_holds_its_value_back_and_is_not_touched() -> None:
    found = difference([wish(["192.0.2.1", "192.0.2.2"])], [row("192.0.2.1", is_enabled=False)])

    assert ([], ["192.0.2.2"], []) == values(found)
    assert [RefusalReason.DISABLED_ROW] == reasons(found)


def test_a_disabled_row_of_another_type_holds_back_nothing() -> None:
    found = difference([wish(["192.0.2.1"])], [row("192.0.2.1", "TXT", is_enabled=False)])

    assert ([], ["192.0.2.1"], []) == values(found)
    assert [] == reasons(found)


def test_an_old_value_stays_when_no_new_one_can_be_written() -> None:
    found = difference([wish((), ["192.0.2.1"], is_wanted=True)], [row("192.0.2.1")])

    assert ([], [], []) == values(found)
    assert found.sets[NAME, "A"].has_blocked_delete


def test_an_old_value_is_removed_when_a_wanted_one_is_served_already() -> None:
    found = difference([wish(["192.0.2.2"], ["192.0.2.1"])], [row("192.0.2.1"), row("192.0.2.2")])

    assert ([], [], ["192.0.2.1"]) == values(found)


def test_an_obstacle_to_a_cname_is_named() -> None:
    found = difference([wish(["host.example.net"], kind="CNAME")], [row("192.0.2.1"), row("text", "TXT")])

    assert ([], [], []) == values(found, "CNAME")
    assert [RefusalReason.CNAME_CONFLICT] == reasons(found)
    assert "A '192.0.2.1'" in found.refusals[0].detail


def test_an_obstacle_that_is_served_is_named_before_one_that_is_wanted() -> None:
    found = difference([wish(["host.example.net"], kind="CNAME"), wish(["192.0.2.9"])], [row("text", "TXT")])

    assert ([], [], []) == values(found, "CNAME")
    assert "TXT 'text'" in found.refusals[0].detail


def test_a_disabled_row_is_no_obstacle_to_a_cname() -> None:
    found = difference([wish(["host.example.net"], kind="CNAME")], [row("192.0.2.1", is_enabled=False)])

    assert ([], ["host.example.net"], []) == values(found, "CNAME")


def test_a_disabled_row_is_an_obstacle_when_another_row_would_have_to_be_removed_first() -> None:
    """If the controller refused the new row because of it, the removed one would be put back in each pass."""
    address, alias = row("192.0.2.1"), row("old.example.net", "CNAME")
    disabled = [row("192.0.2.50", is_enabled=False), row("off.example.net", "CNAME", is_enabled=False)]

    comes = difference([wish(["host.example.net"], kind="CNAME"), wish((), ["192.0.2.1"])], [address, disabled[0]])
    goes = difference([wish(["192.0.2.9"]), wish((), [alias.value], "CNAME")], [alias, disabled[1]])

    assert [([], [], [])] * 4 == [values(found, kind) for found in (comes, goes) for kind in ("A", "CNAME")]
    assert [RefusalReason.CNAME_CONFLICT] * 2 == reasons(comes) + reasons(goes)
    assert "A '192.0.2.50' in a disabled row" in comes.refusals[0].detail
    assert comes.sets[NAME, "A"].has_blocked_delete


def test_a_disabled_address_is_no_obstacle_to_another_one_in_place_of_a_cname() -> None:
    rows = [row("old.example.net", "CNAME"), row("192.0.2.50", is_enabled=False)]

    found = difference([wish(["192.0.2.9"]), wish((), ["old.example.net"], "CNAME")], rows)

    assert ([], ["192.0.2.9"], []) == values(found)
    assert ([], [], ["old.example.net"]) == values(found, "CNAME")


def test_a_disabled_row_is_named_only_where_no_served_one_is_in_the_way() -> None:
    rows = [row("192.0.2.1", is_enabled=False), row("192.0.2.2"), row("text", "TXT")]

    found = difference([wish(["host.example.net"], kind="CNAME"), wish((), ["192.0.2.2"])], rows)

    assert "TXT 'text', and" in found.refusals[0].detail


def test_nothing_is_removed_for_a_cname_that_is_in_conflict() -> None:
    found = difference(
        [wish(["host.example.net"], kind="CNAME"), wish((), ["192.0.2.1"])], [row("192.0.2.1"), row("text", "TXT")]
    )

    assert ([], [], []) == values(found)
    assert found.sets[NAME, "A"].has_blocked_delete


def test_an_ownership_record_is_not_written_for_a_record_that_is_refused() -> None:
    refusal = Refusal(RefusalReason.CANNOT_BE_HELD, NAME, "A", "bad")

    found = difference([wish((), is_wanted=True), ownership()], refusals=[refusal])

    assert [] == found.sets["a-app.example.com", "TXT"].creates


def test_an_ownership_record_is_written_when_its_refused_record_partly_exists() -> None:
    refusal = Refusal(RefusalReason.CANNOT_BE_HELD, NAME, "A", "bad")

    found = difference([wish(["192.0.2.1"]), ownership()], [row("192.0.2.1")], [refusal])

    assert 1 == len(found.sets["a-app.example.com", "TXT"].creates)


def test_an_ownership_record_is_written_when_some_values_of_its_refused_record_are() -> None:
    rows = [row("192.0.2.2", is_enabled=False)]

    found = difference([wish(["192.0.2.1", "192.0.2.2"]), ownership()], rows)

    assert ([], ["192.0.2.1"], []) == values(found)
    assert [RefusalReason.DISABLED_ROW] == reasons(found)
    assert 1 == len(found.sets["a-app.example.com", "TXT"].creates)


def test_a_record_is_not_created_when_all_its_ownership_records_are_refused() -> None:
    refusal = Refusal(RefusalReason.CANNOT_BE_HELD, f"a-{NAME}", "TXT", "too long")

    found = difference([wish(["192.0.2.1"]), ownership(())], refusals=[refusal])

    assert ([], [], []) == values(found)
    assert [RefusalReason.CANNOT_BE_HELD, RefusalReason.NO_OWNERSHIP] == reasons(found)


def test_an_existing_record_is_not_refused_for_lack_of_an_ownership_record() -> None:
    refusal = Refusal(RefusalReason.CANNOT_BE_HELD, f"a-{NAME}", "TXT", "too long")

    found = difference([wish(["192.0.2.1"]), ownership(())], [row("192.0.2.1")], [refusal])

    assert [RefusalReason.CANNOT_BE_HELD] == reasons(found)


def test_a_refused_ownership_record_of_another_type_does_not_hold_back_a_record() -> None:
    refusal = Refusal(RefusalReason.CANNOT_BE_HELD, f"aaaa-{NAME}", "TXT", "too long")

    found = difference([wish(["192.0.2.1"]), ownership((), kind="AAAA")], refusals=[refusal])

    assert ([], ["192.0.2.1"], []) == values(found)


def test_rows_of_other_names_do_not_matter() -> None:
    found = difference([wish(["192.0.2.1"])], [row("192.0.2.1", name="other.example.com")])

    assert ([], ["192.0.2.1"], []) == values(found)
    assert [] == found.live((NAME, "A"))


def test_a_cname_that_leads_back_to_its_name_is_refused_and_the_chain_is_named() -> None:
    rows = [row("two.example.com", "CNAME", name="one.example.com"), row(NAME, "CNAME", name="two.example.com")]

    found = difference([wish(["one.example.com"], kind="CNAME")], rows)

    assert ([], [], []) == values(found, "CNAME")
    assert [RefusalReason.CNAME_LOOP] == reasons(found)
    assert "one.example.com -> two.example.com -> app.example.com" in found.refusals[0].detail


def test_a_cname_chain_beyond_the_limit_is_refused_without_following_all_of_it() -> None:
    rows = [row(f"host-{number + 1}.example.com", "CNAME", name=f"host-{number}.example.com") for number in range(200)]

    near_the_end = difference([wish(["host-190.example.com"], kind="CNAME")], rows)
    far_from_it = difference([wish(["host-0.example.com"], kind="CNAME")], rows)

    assert ([], ["host-190.example.com"], []) == values(near_the_end, "CNAME")
    assert ([], [], []) == values(far_from_it, "CNAME")
    assert [RefusalReason.CNAME_LOOP] == reasons(far_from_it)
    assert f"more than {MAX_NAMES} names" in far_from_it.refusals[0].detail


def test_of_a_very_long_cname_chain_only_a_part_is_named() -> None:
    tail = "a" * 60 + ".example.com"
    names = [f"host-{number}.{tail}" for number in range(40)]
    rows = [row(target, "CNAME", name=name) for name, target in pairwise([*names, NAME])]

    found = difference([wish([names[0]], kind="CNAME")], rows)

    assert f"{names[0]} -> {names[1]} -> " in found.refusals[0].detail
    assert len(found.refusals[0].detail) < 1200


def test_of_many_values_that_cannot_stand_beside_a_cname_only_some_are_named() -> None:
    addresses = [f"10.0.{number // 250}.{number % 250}" for number in range(1000)]

    found = difference([wish(addresses)], [row("host.example.net", "CNAME")])

    assert ([], [], []) == values(found)
    assert [RefusalReason.CNAME_CONFLICT] == reasons(found)
    assert len(found.refusals[0].detail) < 500


def test_a_record_that_a_cname_in_a_loop_should_replace_stays() -> None:
    back = row(NAME, "CNAME", name="one.example.com")

    rewritten = difference(
        [wish(["one.example.com"], ["host.example.net"], "CNAME")], [row("host.example.net", "CNAME"), back]
    )
    switched = difference([wish(["one.example.com"], kind="CNAME"), wish((), ["192.0.2.1"])], [row("192.0.2.1"), back])

    assert ([], [], []) == values(rewritten, "CNAME")
    assert rewritten.sets[NAME, "CNAME"].has_blocked_delete
    assert ([], [], []) == values(switched)
    assert switched.sets[NAME, "A"].has_blocked_delete


def test_a_mail_exchanger_that_a_cname_in_a_loop_should_replace_stays() -> None:
    mail, back = row("10 mx.example.net", "MX"), row(NAME, "CNAME", name="one.example.com")

    found = difference([wish(["one.example.com"], kind="CNAME"), wish((), [mail.value], "MX")], [mail, back])

    assert ([], [], []) == values(found, "MX")
    assert found.sets[NAME, "MX"].has_blocked_delete


def test_of_cnames_that_lead_to_each_other_the_first_is_created() -> None:
    other = Wish("www.example.com", "CNAME", (NAME,), is_wanted=True)

    found = difference([wish(["www.example.com"], kind="CNAME"), other])

    assert ([], ["www.example.com"], []) == values(found, "CNAME")
    assert [("www.example.com", RefusalReason.CNAME_LOOP)] == [(each.name, each.reason) for each in found.refusals]


def test_a_cname_is_not_refused_for_a_loop_of_other_names_a_disabled_row_or_a_new_ttl() -> None:
    loop = [
        row("two.example.com", "CNAME", name="one.example.com"),
        row("one.example.com", "CNAME", name="two.example.com"),
    ]
    disabled = row(NAME, "CNAME", name="host.example.net", is_enabled=False)

    into_loop = difference([wish(["one.example.com"], kind="CNAME")], loop)
    to_disabled = difference([wish(["host.example.net"], kind="CNAME")], [disabled])
    with_ttl = difference([wish(["host.example.net"], kind="CNAME", ttl_s=60)], [row("host.example.net", "CNAME")])

    assert not reasons(into_loop) + reasons(to_disabled) + reasons(with_ttl)
    assert (["host.example.net -> host.example.net"], [], []) == values(with_ttl, "CNAME")


def test_a_row_that_cannot_be_removed_keeps_its_ownership_record_even_if_nothing_replaces_it() -> None:
    ambiguous = row("other.example.net", "CNAME", origin=Origin.AMBIGUOUS)

    found = difference([wish((), ["other.example.net"], "CNAME"), wish(["192.0.2.1"])], [ambiguous])

    assert ([], [], []) == values(found)
    assert found.sets[NAME, "CNAME"].has_blocked_delete


def test_a_set_is_half_written_when_some_of_its_noted_values_exist_and_it_is_still_wanted() -> None:
    assert is_half(["one", "two"], ["one"])
    assert is_half(["one", "two"], ["two", "by hand"])
    assert not is_half(["one", "two"], ["one", "two"])
    assert not is_half(["one", "two"], ["by hand"])
    assert not is_half([], ["one"])
