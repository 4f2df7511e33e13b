"""Changes and rows in, ordered writes out: the rules of `dnswebhook.plan`, one by one and as properties."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.canonical import canonical_name, canonical_value
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.model import Capabilities, Changes, Endpoint, Origin, Record, RecordSpec
from dnswebhook.operations import Create, CreateTogether, Delete, Plan, Step, Switch, Update
from dnswebhook.ownership import is_heritage
from dnswebhook.plan import make_plan
from dnswebhook.wishes import RefusalReason, SkipReason
from tests.support.plan_world import World

CAPABILITIES = Capabilities(
    store="test",
    max_ttl_s={"A": 86400, "AAAA": 86400, "CNAME": 86400, "TXT": 0, "MX": 0, "SRV": 0},
    max_name_octets=253,
    max_target_octets=253,
    max_text_octets=255,
    wildcard_types=frozenset({"A"}),
    reserved_name_octets=6,
)
EVERYTHING = DomainFilter()
NOTHING_PROTECTED = ProtectedNames()


def a(name: str, *targets: str, ttl_s: int = 0) -> Endpoint:
    return Endpoint(name, "A", targets, ttl_s)


def cname(name: str, *targets: str) -> Endpoint:
    return Endpoint(name, "CNAME", targets)


def ownership(of: str, kind: str, owner: str = "default") -> Endpoint:
    text = f'"heritage=external-dns,external-dns/owner={owner},external-dns/resource=ingress/x/y"'
    return Endpoint(f"{kind.lower()}-{of}", "TXT", (text,), labels={"ownedRecord": of})


def row(name: str, kind: str, value: str, ttl_s: int = 0, **more: object) -> Record:
    return Record(f"{name}/{kind}/{value}", name, kind, value, ttl_s, **more)  # type: ignore[arg-type]


def planned(changes: Changes, *rows: Record, **more: object) -> Plan:
    options = {"domain_filter": EVERYTHING, "protected": NOTHING_PROTECTED, **more}
    return make_plan(changes, rows, CAPABILITIES, **options)  # type: ignore[arg-type]


def steps(plan: Plan) -> list[Step]:
    return [step for strand in plan.strands for step in strand.steps]


def operations(plan: Plan) -> list[object]:
    return [step.operation for step in steps(plan)]


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


def test_values_that_neither_old_nor_new_name_stay() -> None:
    ours, theirs = row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "A", "198.51.100.9")
    changes = Changes(delete=(a("app.example.com", "192.0.2.1"),))

    assert [Delete(ours)] == operations(planned(changes, ours, theirs))


def test_other_types_on_the_name_stay_when_one_is_deleted() -> None:
    four, six = row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "AAAA", "2001:db8::1")

    assert [Delete(four)] == operations(planned(Changes(delete=(a("app.example.com", "192.0.2.1"),)), four, six))


def test_deleting_what_is_gone_is_nothing_to_do() -> None:
    assert [] == operations(planned(Changes(delete=(a("app.example.com", "192.0.2.1"),))))


def test_an_identical_pair_is_nothing_to_do() -> None:
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


def test_the_ownership_record_comes_before_its_record_which_needs_it() -> None:
    changes = Changes(create=(a("app.example.com", "192.0.2.1"), ownership("app.example.com", "A")))

    first, second = steps(planned(changes))

    assert "TXT" == first.operation.spec.type  # type: ignore[union-attr]
    assert Step(Create(RecordSpec("app.example.com", "A", "192.0.2.1")), needs=(0,)) == second


def test_the_ownership_record_goes_after_its_record_and_only_then() -> None:
    record = row("app.example.com", "A", "192.0.2.1")
    txt = ownership("app.example.com", "A")
    txt_row = row("a-app.example.com", "TXT", txt.targets[0])
    changes = Changes(delete=(txt, a("app.example.com", "192.0.2.1")))

    assert [Step(Delete(record)), Step(Delete(txt_row), needs=(0,))] == steps(planned(changes, txt_row, record))


def test_each_ownership_record_vouches_for_its_own_type() -> None:
    changes = Changes(
        create=(
            a("app.example.com", "192.0.2.1"),
            Endpoint("app.example.com", "AAAA", ("2001:db8::1",)),
            ownership("app.example.com", "A"),
            ownership("app.example.com", "AAAA"),
        )
    )

    by_type = {
        step.operation.spec.type: step.needs
        for step in steps(planned(changes))
        if step.operation.spec.type != "TXT"  # type: ignore[union-attr]
    }

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


def test_a_cname_with_several_targets_keeps_the_lowest() -> None:
    plan = planned(Changes(create=(cname("app.example.com", "z.example.net", "b.example.net"),)))

    assert [Create(RecordSpec("app.example.com", "CNAME", "b.example.net"))] == operations(plan)


def test_of_two_cnames_the_surplus_one_goes_before_the_other_is_rewritten() -> None:
    rows = [row("app.example.com", "CNAME", target) for target in ("one.example.net", "two.example.net")]
    changes = Changes(
        update_old=(cname("app.example.com", "one.example.net", "two.example.net"),),
        update_new=(cname("app.example.com", "new.example.net"),),
    )

    expected = [Delete(rows[1]), Update(rows[0], RecordSpec("app.example.com", "CNAME", "new.example.net"))]

    assert expected == operations(planned(changes, *rows))


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


def test_names_outside_the_filter_are_refused_but_ownership_follows_its_record() -> None:
    changes = Changes(
        create=(
            a("example.com", "192.0.2.1"),
            ownership("example.com", "A"),  # a-example.com: outside the filter by its own name
            a("example.org", "192.0.2.1"),
        )
    )

    plan = planned(changes, domain_filter=DomainFilter(["example.com"]))

    assert ["a-example.com", "example.com"] == [step.operation.spec.name for step in steps(plan)]  # type: ignore[union-attr]
    assert [(RefusalReason.OUTSIDE_FILTER, "example.org")] == [(r.reason, r.name) for r in plan.refusals]


def test_a_record_whose_ownership_cannot_be_held_is_refused_too() -> None:
    text = '"heritage=external-dns,' + "x" * 300 + '"'
    txt = Endpoint("a-app.example.com", "TXT", (text,), labels={"ownedRecord": "app.example.com"})

    plan = planned(Changes(create=(a("app.example.com", "192.0.2.1"), txt)))

    assert [] == operations(plan)
    assert {RefusalReason.CANNOT_BE_HELD, RefusalReason.NO_OWNERSHIP} == {refusal.reason for refusal in plan.refusals}


def test_the_old_ownership_format_is_left_out_beside_a_cname() -> None:
    old_format = Endpoint(
        "app.example.com", "TXT", ('"heritage=external-dns"',), labels={"ownedRecord": "app.example.com"}
    )
    changes = Changes(
        create=(cname("app.example.com", "host.example.net"), old_format, ownership("app.example.com", "CNAME"))
    )

    plan = planned(changes)

    assert ["TXT", "CNAME"] == [step.operation.spec.type for step in steps(plan)]  # type: ignore[union-attr]
    assert [SkipReason.OLD_FORMAT_BESIDE_CNAME] == [skip.reason for skip in plan.skips]
    assert () == plan.refusals


def test_an_old_ownership_record_leaves_its_name_before_a_cname_comes() -> None:
    text = '"heritage=external-dns,external-dns/owner=default"'
    rows = [row("app.example.com", "A", "192.0.2.1"), row("app.example.com", "TXT", text)]
    changes = Changes(
        create=(cname("app.example.com", "host.example.net"),),
        delete=(a("app.example.com", "192.0.2.1"), Endpoint("app.example.com", "TXT", (text,))),
    )

    expected = Switch(tuple(rows), (RecordSpec("app.example.com", "CNAME", "host.example.net"),))

    assert [expected] == operations(planned(changes, *rows))


def test_a_new_text_set_comes_whole_or_not_at_all() -> None:
    """external-dns 0.21 never looks at its own TXT sets again, so half of one would stay half."""
    plan = planned(Changes(create=(Endpoint("app.example.com", "TXT", ("one", "two")),)))

    specs = tuple(RecordSpec("app.example.com", "TXT", text) for text in ("one", "two"))
    assert [CreateTogether(specs)] == operations(plan)


def test_ownership_records_that_come_or_go_are_named_with_what_they_vouch_for() -> None:
    old, txt = row("old.example.com", "A", "192.0.2.1"), ownership("old.example.com", "A")
    changes = Changes(
        create=(a("new.example.com", "192.0.2.2"), ownership("new.example.com", "A")),
        delete=(a("old.example.com", "192.0.2.1"), txt),
    )

    plan = planned(changes, old, row("a-old.example.com", "TXT", txt.targets[0]))

    named = {(each.name, each.owned.name, each.owned_values, each.is_leaving) for each in plan.vouchers}
    assert {
        ("a-new.example.com", "new.example.com", frozenset({"192.0.2.2"}), False),
        ("a-old.example.com", "old.example.com", frozenset({"192.0.2.1"}), True),
    } == named


def test_sets_of_which_nothing_remains_are_named() -> None:
    rows = [row("a.example.com", "A", "192.0.2.1"), row("b.example.com", "A", "192.0.2.2")]
    changes = Changes(
        delete=(a("a.example.com", "192.0.2.1"),),
        update_old=(a("b.example.com", "192.0.2.2"),),
        update_new=(a("b.example.com", "192.0.2.3"),),
    )

    assert (("a.example.com", "A"),) == planned(changes, *rows).vanishing_sets


# Properties. Few names and values, so that they collide.

names = st.sampled_from(["a.example.com", "b.example.com", "A.Example.COM."])
values = {
    "A": st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.3"]),
    "AAAA": st.sampled_from(["2001:db8::1", "2001:DB8:0::1", "2001:db8::2"]),
    "CNAME": st.sampled_from(["one.example.net", "Two.example.net.", "three.example.net"]),
    "TXT": st.sampled_from(['"one two"', "plain", '"heritage=external-dns,external-dns/owner=x"']),
}


@st.composite
def endpoints(draw: st.DrawFn) -> Endpoint:
    kind = draw(st.sampled_from(sorted(values)))
    name = draw(names)
    targets = tuple(draw(st.lists(values[kind], min_size=1, max_size=3)))
    labels = {}
    if kind == "TXT" and draw(st.booleans()):
        subject = draw(st.sampled_from(["a.example.com", "b.example.com"]))
        name, labels = f"{draw(st.sampled_from(['a', 'cname']))}-{subject}", {"ownedRecord": subject}
    return Endpoint(name, kind, targets, draw(st.sampled_from([0, 0, 60, 300])), labels=labels)


some_endpoints = st.lists(endpoints(), max_size=5).map(tuple)
some_changes = st.builds(
    Changes, create=some_endpoints, update_old=some_endpoints, update_new=some_endpoints, delete=some_endpoints
)


@st.composite
def worlds(draw: st.DrawFn) -> list[Record]:
    """Rows that an appliance can hold: no triple twice, a CNAME alone on its name."""
    found: dict[tuple[str, str, str], Record] = {}
    for name in ("a.example.com", "b.example.com", "a-a.example.com"):
        kinds = draw(st.sampled_from([("A", "AAAA", "TXT"), ("CNAME",)]))
        for kind in kinds:
            canonical = [value for value in ROW_VALUES[kind] if draw(st.booleans())]
            for value in canonical[:1] if kind == "CNAME" else canonical:
                enabled = draw(st.booleans()) or kind == "CNAME"
                found[name, kind, value] = row(name, kind, value, draw(st.sampled_from([0, 300])), is_enabled=enabled)
    return list(found.values())


ROW_VALUES = {
    "A": ["192.0.2.1", "192.0.2.2", "192.0.2.3"],
    "AAAA": ["2001:db8::1", "2001:db8::2"],
    "CNAME": ["one.example.net", "two.example.net", "three.example.net"],
    "TXT": ['"one two"', "plain", '"heritage=external-dns,external-dns/owner=x"'],
}


def wanted_and_released(changes: Changes) -> tuple[dict[tuple[str, str], set[str]], dict[tuple[str, str], set[str]]]:
    """By record set, worked out anew here: what shall be there, and what may go."""
    folded: list[dict[tuple[str, str], set[str]]] = [{}, {}]
    lists = ((changes.create + changes.update_new, 0), (changes.update_old + changes.delete, 1))
    for members, index in lists:
        for endpoint in members:
            key = (canonical_name(endpoint.dns_name), endpoint.record_type)
            spelled = {canonical_value(endpoint.record_type, target) for target in endpoint.targets}
            folded[index].setdefault(key, set()).update(spelled)
    kept = {key: {min(spelled)} if key[1] == "CNAME" else spelled for key, spelled in folded[0].items()}
    return kept, folded[1]


@given(some_changes, worlds())
@settings(max_examples=400, deadline=None)
def test_playing_a_plan_serves_the_wanted_values_keeps_foreign_ones_and_breaks_no_rule(
    changes: Changes, rows: list[Record]
) -> None:
    plan = planned(changes, *rows)
    world = World(rows)

    world.play(plan)

    wanted, released = wanted_and_released(changes)
    refused = {(refusal.name, refusal.type) for refusal in plan.refusals}
    skipped = {(skip.name, skip.type) for skip in plan.skips}
    for key, values_wanted in wanted.items():
        if key not in refused | skipped and not _may_be_held_back(key, changes):
            assert values_wanted <= world.live(*key)
    foreign = [
        old
        for old in rows
        if not old.is_enabled
        or old.value not in released.get((old.name, old.type), set()) | wanted.get((old.name, old.type), set())
    ]
    for old in foreign:
        assert world.rows[old.id] == old


def _may_be_held_back(key: tuple[str, str], changes: Changes) -> bool:
    """An ownership record is held back with its refused record."""
    return key[1] == "TXT" and any(
        endpoint.labels or any(map(is_heritage, endpoint.targets))
        for endpoint in changes.create + changes.update_new + changes.update_old + changes.delete
        if canonical_name(endpoint.dns_name) == key[0]
    )


@given(some_changes, worlds())
@settings(max_examples=200, deadline=None)
def test_planning_again_after_playing_finds_nothing_to_do(changes: Changes, rows: list[Record]) -> None:
    world = World(rows)
    world.play(planned(changes, *rows))

    again = planned(changes, *world.rows.values())

    assert () == again.strands


@given(some_changes, worlds(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_of_the_input_does_not_matter(changes: Changes, rows: list[Record], chance: random.Random) -> None:
    def shuffled(items: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        return tuple(chance.sample(items, len(items)))

    other = Changes(*map(shuffled, (changes.create, changes.update_old, changes.update_new, changes.delete)))

    assert planned(changes, *rows) == planned(other, *chance.sample(rows, len(rows)))


@given(worlds(), st.sampled_from(["192.0.2.1", "192.0.2.2"]), st.sampled_from(["192.0.2.3", "192.0.2.9"]))
@settings(deadline=None)
def test_an_update_never_leaves_a_name_empty(rows: list[Record], old: str, new: str) -> None:
    world = World(rows)

    world.play(planned(Changes(update_old=(a("a.example.com", old),), update_new=(a("a.example.com", new),)), *rows))

    assert set() == world.names_ever_empty
