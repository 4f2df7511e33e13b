"""What a plan leaves alone, refuses or holds back, and how it reports that."""

import msgspec
import pytest

from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.model import Changes, Endpoint, Origin, Record, RecordSpec
from dnswebhook.notes import Note
from dnswebhook.operations import Create, CreateTogether, Delete, Switch
from dnswebhook.ownership import OwnedSet
from dnswebhook.wishes import RefusalReason, SkipReason
from tests.dnswebhook.planning import a, cname, created, operations, ownership, planned, row, steps


def test_a_disabled_row_is_neither_enabled_nor_duplicated() -> None:
    disabled = row("app.example.com", "A", "192.0.2.1", is_enabled=False)

    plan = planned(Changes(create=(a("app.example.com", "192.0.2.1"), ownership("app.example.com", "A"))), disabled)

    assert [] == operations(plan)
    assert [RefusalReason.DISABLED_ROW] == [refusal.reason for refusal in plan.refusals]


def test_a_disabled_row_is_not_deleted() -> None:
    disabled = row("app.example.com", "A", "192.0.2.1", is_enabled=False)

    assert [] == operations(planned(Changes(delete=(a("app.example.com", "192.0.2.1"),)), disabled))


def test_an_old_value_stays_while_the_new_one_is_refused() -> None:
    """An old answer is better than none, and the refusal is reported on every pass."""
    old = row("app.example.com", "A", "192.0.2.1")
    pair = Changes(update_old=(a("app.example.com", "192.0.2.1"),), update_new=(a("app.example.com", "192.0.2.999"),))

    plan = planned(pair, old)

    assert [] == operations(plan)
    assert RefusalReason.CANNOT_BE_HELD in [refusal.reason for refusal in plan.refusals]


def test_a_refused_type_change_leaves_the_old_record_and_its_ownership() -> None:
    txt = ownership("app.example.com", "A")
    rows = [
        row("app.example.com", "A", "192.0.2.1"),
        row("app.example.com", "TXT", "made-by-hand"),
        row("a-app.example.com", "TXT", txt.targets[0]),
    ]
    changes = Changes(
        create=(cname("app.example.com", "host.example.net"), ownership("app.example.com", "CNAME")),
        delete=(a("app.example.com", "192.0.2.1"), txt),
    )

    plan = planned(changes, *rows)

    assert [] == operations(plan)
    assert RefusalReason.CNAME_CONFLICT in [refusal.reason for refusal in plan.refusals]


@pytest.mark.parametrize("refused", ["its own", "its ownership record"])
@pytest.mark.parametrize(
    "successor", [cname("app.example.com", "host.example.net"), Endpoint("app.example.com", "AAAA", ("2001:db8::1",))]
)
def test_a_record_stays_while_its_successor_of_another_type_is_refused(successor: Endpoint, refused: str) -> None:
    """Not even for a pass: the refusal may last for months."""
    old, txt = row("app.example.com", "A", "192.0.2.1"), ownership("app.example.com", "A")
    rows = [old, row("a-app.example.com", "TXT", txt.targets[0])]
    new_txt = ownership("app.example.com", successor.record_type)
    if refused == "its own":
        rows.append(row("app.example.com", successor.record_type, successor.targets[0], is_enabled=False))
    else:
        new_txt = msgspec.structs.replace(new_txt, targets=('"heritage=external-dns,' + "x" * 300 + '"',))
    changes = Changes(create=(successor, new_txt), delete=(a("app.example.com", "192.0.2.1"), txt))

    plan = planned(changes, *rows)

    assert [] == operations(plan)
    assert ("app.example.com", successor.record_type) in [(refusal.name, refusal.type) for refusal in plan.refusals]


@pytest.mark.parametrize(
    ("other", "is_held_back"), [(("A", "198.51.100.1"), False), (("MX", "10 mail.example.com"), True)]
)
def test_a_refused_address_holds_back_no_removal_while_another_address_stays(
    other: tuple[str, str], *, is_held_back: bool
) -> None:
    """A text or an MX beside it leads no client to a host."""
    old = row("app.example.com", "A", "192.0.2.1")
    rows = [old, row("app.example.com", *other), row("app.example.com", "AAAA", "2001:db8::1", is_enabled=False)]
    changes = Changes(
        create=(Endpoint("app.example.com", "AAAA", ("2001:db8::1",)),), delete=(a("app.example.com", "192.0.2.1"),)
    )

    assert ([] if is_held_back else [Delete(old)]) == operations(planned(changes, *rows))


@pytest.mark.parametrize(
    ("successor", "in_its_way"),
    [
        (
            Endpoint("app.example.com", "AAAA", ("2001:db8::1",)),
            row("app.example.com", "AAAA", "2001:db8::1", is_enabled=False),
        ),
        (cname("app.example.com", "host.example.net"), row("app.example.com", "TXT", "made-by-hand")),
    ],
)
def test_an_mx_record_created_at_the_same_time_does_not_replace_an_address(
    successor: Endpoint, in_its_way: Record
) -> None:
    old = row("app.example.com", "A", "192.0.2.1")
    mail = Endpoint("app.example.com", "MX", ("10 mail.example.com",))
    changes = Changes(create=(successor, mail), delete=(a("app.example.com", "192.0.2.1"),))

    plan = planned(changes, old, in_its_way)

    assert [Create(RecordSpec("app.example.com", "MX", "10 mail.example.com"))] == operations(plan)


def test_a_cname_does_not_stay_beside_an_mx_record_even_if_its_successor_is_refused() -> None:
    alias = row("app.example.com", "CNAME", "host.example.net")
    disabled = row("app.example.com", "A", "192.0.2.1", is_enabled=False)
    mail = Endpoint("app.example.com", "MX", ("10 mail.example.com",))
    changes = Changes(
        create=(a("app.example.com", "192.0.2.1"), mail), delete=(cname("app.example.com", "host.example.net"),)
    )

    plan = planned(changes, alias, disabled)

    assert [Switch((alias,), (RecordSpec("app.example.com", "MX", "10 mail.example.com"),))] == operations(plan)


@pytest.mark.parametrize(
    "refused",
    [Endpoint("app.example.com", "TXT", ("x" * 300,)), Endpoint("app.example.com", "MX", ("10 a.example.com",))],
)
def test_a_refused_record_that_cannot_replace_an_address_does_not_hold_back_its_removal(refused: Endpoint) -> None:
    """external-dns asks for it in each pass, so the address of a Service that has gone would stay for ever."""
    old, txt = row("app.example.com", "A", "192.0.2.1"), ownership("app.example.com", "A")
    old_txt = row("a-app.example.com", "TXT", txt.targets[0])
    rows = [old, old_txt, row("app.example.com", "MX", "10 a.example.com", is_enabled=False)]
    changes = Changes(
        create=(refused, ownership("app.example.com", refused.record_type)),
        delete=(a("app.example.com", "192.0.2.1"), txt),
    )

    plan = planned(changes, *rows)

    assert [Delete(old), Delete(old_txt)] == operations(plan)
    assert {("app.example.com", refused.record_type)} == {(refusal.name, refusal.type) for refusal in plan.refusals}


def test_a_cname_in_a_loop_gets_no_ownership_record_and_its_predecessor_keeps_its_own() -> None:
    first, second = "app.example.com", "www.example.com"
    txt = ownership(second, "A")
    rows = [row(second, "A", "192.0.2.1"), row(f"a-{second}", "TXT", txt.targets[0])]
    changes = Changes(
        create=(
            cname(first, second),
            ownership(first, "CNAME"),
            cname(second, first),
            ownership(second, "CNAME"),
        ),
        delete=(a(second, "192.0.2.1"), txt),
    )

    plan = planned(changes, *rows)

    written = [operation.spec for operation in operations(plan) if isinstance(operation, Create)]
    assert [(f"cname-{first}", "TXT"), (first, "CNAME")] == [(spec.name, spec.type) for spec in written]
    assert len(written) == len(operations(plan))
    assert (second, RefusalReason.CNAME_LOOP) in [(refusal.name, refusal.reason) for refusal in plan.refusals]


def test_a_row_that_the_controller_made_is_left_alone_without_failing() -> None:
    derived = row("nas.example.com", "A", "192.0.2.1", origin=Origin.DERIVED)

    plan = planned(Changes(delete=(a("nas.example.com", "192.0.2.1"),)), derived)

    assert [] == operations(plan)
    assert [SkipReason.DERIVED_ROW] == [skip.reason for skip in plan.skips]
    assert () == plan.refusals


def test_a_row_with_a_shared_id_is_not_deleted_and_keeps_its_ownership_record() -> None:
    shared = row("app.example.com", "A", "192.0.2.1", origin=Origin.AMBIGUOUS)
    txt = ownership("app.example.com", "A")
    changes = Changes(delete=(a("app.example.com", "192.0.2.1"), txt))

    plan = planned(changes, shared, row("a-app.example.com", "TXT", txt.targets[0]))

    assert [] == operations(plan)
    assert RefusalReason.AMBIGUOUS_ID in [refusal.reason for refusal in plan.refusals]


def test_protected_names_are_skipped_with_their_ownership() -> None:
    record = row("router.lan", "A", "192.0.2.1")

    plan = planned(
        Changes(delete=(a("router.lan", "192.0.2.1"), ownership("router.lan", "A"))),
        record,
        protected=ProtectedNames(["*.lan"]),
    )

    assert [] == operations(plan)
    assert {SkipReason.PROTECTED} == {skip.reason for skip in plan.skips}
    assert () == plan.refusals


@pytest.mark.parametrize("pattern", ["a-router.lan", "*-router.lan", "a-*"])
@pytest.mark.parametrize("kind", ["create", "delete"])
def test_a_record_whose_ownership_record_has_a_protected_name_is_left_alone_with_it(pattern: str, kind: str) -> None:
    """Written without one, it would never be claimed again; removed, it would leave one that claims the next record."""
    theirs = row("a-router.lan", "A", "192.0.2.9")
    rows = [theirs, row("router.lan", "A", "192.0.2.1")] if kind == "delete" else [theirs]
    both = (a("router.lan", "192.0.2.1"), ownership("router.lan", "A"))
    of_other_type = (Endpoint("router.lan", "AAAA", ("2001:db8::1",)), ownership("router.lan", "AAAA"))
    other = (Endpoint("other.lan", "AAAA", ("2001:db8::2",)), ownership("other.lan", "AAAA"))

    changes = Changes(create=(*of_other_type, *other, *both))
    if kind == "delete":
        changes = Changes(create=other, delete=both)
    plan = planned(changes, *rows, protected=ProtectedNames([pattern]))

    assert {"other.lan", "aaaa-other.lan"} == {created(step).name for step in steps(plan)}
    assert {(SkipReason.PROTECTED, "router.lan"), (SkipReason.PROTECTED, "a-router.lan")} <= {
        (skip.reason, skip.name) for skip in plan.skips
    }
    assert () == plan.refusals


def test_names_outside_the_filter_are_refused_but_ownership_follows_its_record() -> None:
    changes = Changes(
        create=(
            a("example.com", "192.0.2.1"),
            ownership("example.com", "A"),  # a-example.com: outside the filter by its own name
            a("example.org", "192.0.2.1"),
        )
    )

    plan = planned(changes, domain_filter=DomainFilter(["example.com"]))

    assert ["a-example.com", "example.com"] == [created(step).name for step in steps(plan)]
    assert [(RefusalReason.OUTSIDE_FILTER, "example.org")] == [(r.reason, r.name) for r in plan.refusals]


def test_a_record_whose_ownership_cannot_be_held_is_refused_too() -> None:
    text = '"heritage=external-dns,' + "x" * 300 + '"'
    txt = Endpoint("a-app.example.com", "TXT", (text,), labels={"ownedRecord": "app.example.com"})

    plan = planned(Changes(create=(a("app.example.com", "192.0.2.1"), txt)))

    assert [] == operations(plan)
    assert {RefusalReason.CANNOT_BE_HELD, RefusalReason.NO_OWNERSHIP} == {refusal.reason for refusal in plan.refusals}


BY_HAND = row("app.example.com", "A", "198.51.100.1")
CLAIM = Changes(create=(a("app.example.com", "192.0.2.1"), ownership("app.example.com", "A")))


def test_a_set_that_somebody_created_since_external_dns_listed_is_not_claimed() -> None:
    """external-dns would own the whole set, and remove the values that it does not want."""
    plan = planned(CLAIM, BY_HAND, told=[])

    assert [] == operations(plan)
    assert () == plan.notes
    ((reason, detail),) = [(refusal.reason, refusal.detail) for refusal in plan.refusals]
    assert RefusalReason.NO_OWNERSHIP == reason
    assert "'198.51.100.1'" in detail


def test_the_refusal_of_a_set_created_by_hand_names_its_values_and_how_to_hand_it_over() -> None:
    plan = planned(CLAIM, BY_HAND, row("app.example.com", "A", "198.51.100.2"), told=[])

    (refusal,) = plan.refusals
    assert "'198.51.100.1, 198.51.100.2'" in refusal.detail
    assert refusal.detail.endswith("to hand the name over to external-dns, remove it by hand")


CHANGE = Changes(update_old=CLAIM.create, update_new=(a("app.example.com", "192.0.2.2"), CLAIM.create[1]))
"""With `--txt-cache-interval` external-dns takes a refused record for present."""


def test_a_set_created_by_hand_is_not_claimed_by_an_update_of_a_record_that_was_never_created() -> None:
    assert [] == operations(planned(CHANGE, BY_HAND, told=[]))


def test_a_set_that_lost_its_ownership_record_and_got_a_value_by_hand_is_updated_and_claimed_again() -> None:
    plan = planned(CHANGE, BY_HAND, row("app.example.com", "A", "192.0.2.1"), told=[])

    assert not plan.refusals


def test_other_types_of_a_name_are_claimed_beside_a_set_created_by_hand() -> None:
    six = Endpoint("app.example.com", "AAAA", ("2001:db8::1",))
    both = Changes(create=(*CLAIM.create, six, ownership("app.example.com", "AAAA")))

    plan = planned(both, BY_HAND, told=[])

    assert ["aaaa-app.example.com", "app.example.com"] == [created(step).name for step in steps(plan)]
    assert [("app.example.com", "A")] == [(refusal.name, refusal.type) for refusal in plan.refusals]


def test_a_set_is_claimed_beside_a_value_that_the_controller_has_made_itself_since() -> None:
    """external-dns cannot remove that one: it is never written."""
    plan = planned(CLAIM, row("app.example.com", "A", "198.51.100.1", origin=Origin.DERIVED), told=[])

    assert ["a-app.example.com", "app.example.com"] == [created(step).name for step in steps(plan)]


def test_an_ownership_record_of_several_sets_is_written_although_somebody_else_has_created_one_of_them() -> None:
    """The others would belong to nobody without it."""
    six = Endpoint("app.example.com", "AAAA", ("2001:db8::1",))
    (text,) = CLAIM.create[1].targets
    old_format = Endpoint("app.example.com", "TXT", (text,), labels={"ownedRecord": "app.example.com"})

    plan = planned(Changes(create=(CLAIM.create[0], six, old_format)), BY_HAND, told=[])

    assert {"A", "AAAA", "TXT"} == {created(step).type for step in steps(plan)}


def test_an_ownership_record_of_several_sets_is_written_although_one_of_them_is_refused() -> None:
    six = Endpoint("app.example.com", "AAAA", ("2001:db8::1",))
    (text,) = CLAIM.create[1].targets
    old_format = Endpoint("app.example.com", "TXT", (text,), labels={"ownedRecord": "app.example.com"})
    disabled = row("app.example.com", "A", "192.0.2.1", is_enabled=False)

    plan = planned(Changes(create=(CLAIM.create[0], six, old_format)), disabled)

    assert {"AAAA", "TXT"} == {created(step).type for step in steps(plan)}
    assert [RefusalReason.DISABLED_ROW] == [refusal.reason for refusal in plan.refusals]


@pytest.mark.parametrize("told", [[BY_HAND], None], ids=["seen", "listed before the start"])
def test_a_set_is_claimed_where_external_dns_may_have_seen_all_of_it(told: list[Record] | None) -> None:
    plan = planned(CLAIM, BY_HAND, told=told)

    assert ["a-app.example.com", "app.example.com"] == [created(step).name for step in steps(plan)]


def test_a_value_left_by_an_earlier_call_does_not_keep_its_set_from_being_claimed() -> None:
    owned = OwnedSet("app.example.com", frozenset({"A"}))
    note = Note("a-app.example.com", "text", owned, frozenset({BY_HAND.value}), is_leaving=True)

    assert not planned(CLAIM, BY_HAND, told=[], noted=[note]).refusals


def test_a_value_added_by_hand_to_a_claimed_set_does_not_hold_back_new_values() -> None:
    (text,) = CLAIM.create[1].targets
    plan = planned(CLAIM, BY_HAND, row("a-app.example.com", "TXT", text), told=[])

    assert ["192.0.2.1"] == [created(step).value for step in steps(plan)]


def test_the_old_ownership_format_is_left_out_beside_a_cname() -> None:
    old_format = Endpoint(
        "app.example.com", "TXT", ('"heritage=external-dns"',), labels={"ownedRecord": "app.example.com"}
    )
    changes = Changes(
        create=(cname("app.example.com", "host.example.net"), old_format, ownership("app.example.com", "CNAME"))
    )

    plan = planned(changes)

    assert ["TXT", "CNAME"] == [created(step).type for step in steps(plan)]
    assert [SkipReason.OLD_FORMAT_BESIDE_CNAME] == [skip.reason for skip in plan.skips]
    assert "--txt-" not in plan.skips[0].detail  # with another format external-dns would no longer know its records
    assert () == plan.refusals


def test_an_ownership_record_of_the_old_format_is_removed_when_a_cname_replaces_an_address() -> None:
    """The client creates it for the CNAME and deletes it for the address, with one text: both come from one object."""
    old_format = Endpoint(
        "app.example.com", "TXT", ownership("app.example.com", "A").targets, labels={"ownedRecord": "app.example.com"}
    )
    changes = Changes(
        create=(cname("app.example.com", "host.example.net"), old_format, ownership("app.example.com", "CNAME")),
        delete=(a("app.example.com", "192.0.2.1"), old_format, ownership("app.example.com", "A")),
    )
    heritage = old_format.targets[0]
    address = row("app.example.com", "A", "192.0.2.1")
    texts = [row(name, "TXT", heritage) for name in ("app.example.com", "a-app.example.com")]

    plan = planned(changes, address, *texts)

    assert not plan.refusals
    assert operations(plan) == [
        Create(RecordSpec("cname-app.example.com", "TXT", heritage)),
        Switch((address, texts[0]), (RecordSpec("app.example.com", "CNAME", "host.example.net"),)),
        Delete(texts[1]),
    ]


def test_an_old_ownership_record_is_removed_with_the_address_that_a_cname_replaces() -> None:
    text = '"heritage=external-dns,external-dns/owner=default"'
    rows = [row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "TXT", text)]
    changes = Changes(
        create=(cname("app.example.com", "host.example.net"),),
        delete=(a("app.example.com", "192.0.2.1"), Endpoint("app.example.com", "TXT", (text,))),
    )

    expected = Switch(tuple(rows), (RecordSpec("app.example.com", "CNAME", "host.example.net"),))

    assert [expected] == operations(planned(changes, *rows))


def test_a_new_txt_set_is_created_whole_or_not_at_all() -> None:
    """external-dns 0.21 never looks at its own TXT sets again, so half of one would stay half."""
    plan = planned(Changes(create=(Endpoint("app.example.com", "TXT", ("one", "two")),)))

    specs = tuple(RecordSpec("app.example.com", "TXT", text) for text in ("one", "two"))
    assert [CreateTogether(specs)] == operations(plan)


def test_created_and_removed_ownership_records_are_noted_with_what_they_vouch_for() -> None:
    old, txt = row("old.example.com", "A", "192.0.2.1"), ownership("old.example.com", "A")
    changes = Changes(
        create=(a("new.example.com", "192.0.2.2"), ownership("new.example.com", "A")),
        delete=(a("old.example.com", "192.0.2.1"), txt),
    )

    plan = planned(changes, old, row("a-old.example.com", "TXT", txt.targets[0]))

    named = {(each.name, each.owned.name, each.owned_values, each.is_leaving) for each in plan.notes}
    assert {
        ("a-new.example.com", "new.example.com", frozenset({"192.0.2.2"}), False),
        ("a-old.example.com", "old.example.com", frozenset({"192.0.2.1"}), True),
    } == named


def test_record_sets_that_are_removed_entirely_are_named() -> None:
    rows = [row("a.example.com", "A", "192.0.2.1"), row("b.example.com", "A", "192.0.2.2")]
    changes = Changes(
        delete=(a("a.example.com", "192.0.2.1"),),
        update_old=(a("b.example.com", "192.0.2.2"),),
        update_new=(a("b.example.com", "192.0.2.3"),),
    )

    assert (("a.example.com", "A"),) == planned(changes, *rows).vanishing_sets


def test_a_row_that_the_controller_made_does_not_keep_its_set_from_being_named_as_removed() -> None:
    """The delete guard counts what users lose, out of what users made."""
    rows = [
        row("a.example.com", "A", "192.0.2.1"),
        row("a.example.com", "A", "192.0.2.9", origin=Origin.DERIVED),
    ]

    plan = planned(Changes(delete=(a("a.example.com", "192.0.2.1"),)), *rows)

    assert (("a.example.com", "A"),) == plan.vanishing_sets
