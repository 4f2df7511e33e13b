"""What holds for every plan. Few names and values, so that they collide."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dnswebhook.canonical import canonical_name, canonical_value
from dnswebhook.model import Changes, Endpoint, Record
from dnswebhook.operations import Plan
from dnswebhook.ownership import is_heritage
from tests.dnswebhook.planning import a, cname, planned, row
from tests.support.plan_world import World

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
    """By record set, computed independently: what must exist, and what may be removed."""
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


LINKED = ["a.example.com", "b.example.com", "c.example.com", "d.example.com"]
"""Names that may be CNAMEs of each other."""
linked = st.dictionaries(st.sampled_from(LINKED), st.sampled_from(LINKED)).map(
    lambda targets: {name: target for name, target in targets.items() if name != target}
)
"""What each name with a CNAME leads to; the others have an address."""


def _served(targets: dict[str, str]) -> list[Record]:
    """Leaves out rows that would close a loop, which no appliance can have."""
    rows: list[Record] = []
    for name in LINKED:
        kind, value = ("CNAME", targets[name]) if name in targets else ("A", "192.0.2.1")
        try:
            World([*rows, row(name, kind, value)]).check()
        except AssertionError:
            continue
        rows.append(row(name, kind, value))
    return rows


@example(  # a reversed chain: each name waits for the one before it
    {"d.example.com": "c.example.com", "c.example.com": "a.example.com", "a.example.com": "b.example.com"},
    {"b.example.com": "a.example.com", "a.example.com": "c.example.com", "c.example.com": "d.example.com"},
    random.Random(0),
)
@given(linked, linked, st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None)
def test_cnames_never_lead_back_to_their_name_and_those_that_need_not_are_created_in_the_end(
    before: dict[str, str], after: dict[str, str], chance: random.Random
) -> None:
    wanted = [cname(name, after[name]) if name in after else a(name, "192.0.2.2") for name in LINKED]
    world = World(_served(before))
    # A CNAME that waits for the removal of another is created in the next pass: each pass ends at least one wait.
    for _ in range(len(LINKED) + 1):
        old = tuple(Endpoint(held.name, held.type, (held.value,)) for held in world.rows.values())
        plan = planned(Changes(update_old=old, update_new=tuple(wanted)), *world.rows.values())
        strands = [[step.operation for step in strand.steps] for strand in plan.strands]
        while strands:  # interleaved
            strand = chance.choice(strands)
            world.perform(strand.pop(0))
            strands = [strand for strand in strands if strand]

    assert () == plan.strands
    refused = {refusal.name for refusal in plan.refusals}
    assert all(world.live(each.dns_name, each.record_type) for each in wanted if each.dns_name not in refused)
    assert {held.name for held in world.rows.values()} >= {each.name for each in _served(before)}
    for name in refused:
        others = [held for held in world.rows.values() if held.name != name]
        with pytest.raises(AssertionError, match="leads back"):
            World([*others, row(name, "CNAME", after[name])]).check()


@given(some_changes, worlds())
@settings(max_examples=200, deadline=None)
def test_planning_again_after_playing_finds_nothing_to_do(changes: Changes, rows: list[Record]) -> None:
    world = World(rows)
    world.play(planned(changes, *rows))

    again = planned(changes, *world.rows.values())

    assert () == again.strands


def _is_consistent(changes: Changes) -> bool:
    """External-dns wants a CNAME for no name for which it wants another type."""
    kinds: dict[str, set[str]] = {}
    for endpoint in changes.create + changes.update_new:
        kinds.setdefault(canonical_name(endpoint.dns_name), set()).add(endpoint.record_type)
    return not any("CNAME" in wanted and len(wanted) > 1 for wanted in kinds.values())


def _play_with_failures(plan: Plan, world: World, chance: random.Random) -> None:
    """Some steps fail; those that need one that has failed are left out."""
    for strand in plan.strands:
        succeeded: list[bool] = []
        for step in strand.steps:
            one_of = step.needs_one_of
            may_follow = all(succeeded[index] for index in step.needs) and (
                not one_of or any(succeeded[index] for index in one_of)
            )
            succeeded.append(may_follow and chance.random() < 0.65)
            if succeeded[-1]:
                world.perform(step.operation)


@given(some_changes.filter(_is_consistent), worlds(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_planning_again_after_any_failures_leads_to_the_same_records(
    changes: Changes, rows: list[Record], chance: random.Random
) -> None:
    plan = planned(changes, *rows, told=rows)
    intended, world = World(rows), World(rows)
    intended.play(plan)
    _play_with_failures(plan, world, chance)

    listed = [*world.rows.values()]
    world.play(planned(changes, *listed, told=listed, noted=plan.notes))

    assert _served_by(intended) == _served_by(world)


def _served_by(world: World) -> set[tuple[str, str, str]]:
    return {(held.name, held.type, held.value) for held in world.rows.values() if held.is_enabled}


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
