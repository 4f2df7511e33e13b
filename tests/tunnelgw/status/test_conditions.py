"""Conditions merged by type, times and generations as Gateway API asks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelgw.model.conditions import Condition, ConditionType, Finding, Reason, Status
from tunnelgw.status.conditions import Outdated, merge_conditions

THEN, NOW = "2026-11-01T00:00:00Z", "2026-11-21T12:00:00Z"
ACCEPTED = Finding(ConditionType.ACCEPTED, Status.TRUE, Reason.ACCEPTED, "fine")
REFUSED = Finding(ConditionType.ACCEPTED, Status.FALSE, Reason.NO_MATCHING_PARENT, "no such listener")
RESOLVED = Finding(ConditionType.RESOLVED_REFS, Status.TRUE, Reason.RESOLVED_REFS)
PARTIAL = Finding(ConditionType.PARTIALLY_INVALID, Status.TRUE, Reason.UNSUPPORTED_VALUE, "Dropped Rule")
FOREIGN = Condition("example.net/Checked", "True", "Checked", "", THEN, 1)
OWNED = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS, ConditionType.PARTIALLY_INVALID})


def stored(finding: Finding, generation: int = 1) -> Condition:
    return Condition(finding.type, finding.status, finding.reason, finding.message, THEN, generation)


def test_new_conditions_have_the_current_time_and_generation() -> None:
    assert merge_conditions((), [ACCEPTED, RESOLVED], OWNED, 3, NOW) == (
        Condition("Accepted", "True", "Accepted", "fine", NOW, 3),
        Condition("ResolvedRefs", "True", "ResolvedRefs", "", NOW, 3),
    )


def test_unchanged_conditions_stay_as_they_were() -> None:
    current = (stored(ACCEPTED), FOREIGN, stored(RESOLVED))

    assert merge_conditions(current, [RESOLVED, ACCEPTED], OWNED, 1, NOW) == current


def test_a_new_generation_is_set_on_all_of_ours_and_changes_no_transition_time() -> None:
    current = (stored(ACCEPTED), FOREIGN, stored(RESOLVED))

    merged = merge_conditions(current, [ACCEPTED, RESOLVED], OWNED, 2, NOW)

    assert merged == (stored(ACCEPTED, 2), FOREIGN, stored(RESOLVED, 2))


def test_a_new_reason_keeps_the_transition_time_and_a_new_status_changes_it() -> None:
    hostname = Finding(ConditionType.ACCEPTED, Status.FALSE, Reason.NO_MATCHING_LISTENER_HOSTNAME)

    same_status = merge_conditions((stored(REFUSED),), [hostname], OWNED, 1, NOW)
    other_status = merge_conditions((stored(REFUSED),), [ACCEPTED], OWNED, 1, NOW)

    assert (same_status[0].reason, same_status[0].last_transition_time) == ("NoMatchingListenerHostname", THEN)
    assert (other_status[0].reason, other_status[0].last_transition_time) == ("Accepted", NOW)


def test_conditions_of_ours_that_no_longer_apply_are_removed_and_foreign_ones_keep_their_place() -> None:
    current = (stored(PARTIAL), FOREIGN, stored(ACCEPTED))

    assert merge_conditions(current, [ACCEPTED], OWNED, 1, NOW) == (FOREIGN, stored(ACCEPTED))


@pytest.mark.parametrize(("foreign", "told"), [(6, ["Accepted", "ResolvedRefs"]), (7, ["Accepted"]), (8, [])])
def test_the_first_of_our_conditions_are_kept_if_foreign_ones_leave_no_room_for_all(
    foreign: int, told: list[str]
) -> None:
    others = tuple(Condition(f"example.net/C{place}", "True", "Checked", "", THEN, 1) for place in range(foreign))
    current = (stored(RESOLVED), *others)

    merged = merge_conditions(current, [ACCEPTED, RESOLVED, PARTIAL], OWNED, 1, NOW)

    assert len(merged) == 8
    assert sorted(condition.type for condition in merged if condition not in others) == told
    assert tuple(condition for condition in merged if condition in others) == others


def test_a_status_about_a_newer_generation_is_not_touched() -> None:
    with pytest.raises(Outdated, match="generation 5, the object at hand is generation 4"):
        merge_conditions((stored(ACCEPTED, 5),), [ACCEPTED], OWNED, 4, NOW)


def test_a_foreign_condition_about_a_newer_generation_does_not_stop_us() -> None:
    newer = Condition("example.net/Checked", "True", "Checked", "", THEN, 9)

    assert merge_conditions((newer,), [ACCEPTED], OWNED, 1, NOW)[0] == newer


def test_an_endless_message_is_cut_at_what_the_api_takes() -> None:
    long = Finding(ConditionType.ACCEPTED, Status.TRUE, Reason.ACCEPTED, "x" * 40_000)

    assert len(merge_conditions((), [long], OWNED, 1, NOW)[0].message) == 32_768


FINDINGS = st.lists(
    st.builds(Finding, st.sampled_from(sorted(OWNED)), st.sampled_from(Status), st.sampled_from(Reason)),
    unique_by=lambda finding: finding.type,
)
CONDITIONS = st.lists(
    st.builds(
        Condition,
        st.sampled_from([*sorted(OWNED), "example.net/One", "example.net/Two"]),
        st.sampled_from(Status),
        st.just("Reason"),
        st.just(""),
        st.just(THEN),
        st.integers(0, 3),
    ),
    unique_by=lambda condition: condition.type,
).map(tuple)


@given(current=CONDITIONS, findings=FINDINGS)
def test_merging_twice_equals_merging_once_and_keeps_what_is_foreign(
    current: tuple[Condition, ...], findings: list[Finding]
) -> None:
    once = merge_conditions(current, findings, OWNED, 3, NOW)

    assert merge_conditions(once, findings, OWNED, 3, "2027-01-01T00:00:00Z") == once
    assert [c for c in once if c.type not in OWNED] == [c for c in current if c.type not in OWNED]
    assert {c.type for c in once if c.type in OWNED} == {finding.type for finding in findings}
