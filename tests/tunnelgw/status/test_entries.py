"""Lists that controllers share: our entries as found, foreign ones byte for byte."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.refs import ParentRef
from tunnelgw.status.entries import ANCESTORS, PARENTS, Entry, Writer, merge

NOW = "2026-11-21T12:00:00Z"
OURS = "tunnelgw.dev/tunnel-gateway-controller"
ACCEPTED = Finding(ConditionType.ACCEPTED, Status.TRUE, Reason.ACCEPTED)
WRITER = Writer(OURS, "apps", 4, NOW)


def raw(content: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(content, indent=1).encode())


def entry(name: str, **more: Any) -> Entry:
    return Entry(ParentRef(name, **more), (ACCEPTED,))


def stored(name: str, controller: str = OURS, generation: int = 3, **ref: Any) -> dict[str, Any]:
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": "2026-11-01T00:00:00Z",
        "observedGeneration": generation,
    }
    return {"parentRef": {"name": name, **ref}, "controllerName": controller, "conditions": [condition]}


def shown(entries: tuple[msgspec.Raw, ...]) -> list[dict[str, Any]]:
    return [json.loads(bytes(each)) for each in entries]


def test_foreign_entries_keep_their_place_and_bytes_and_our_stale_ones_are_removed() -> None:
    foreign = raw({**stored("gw2", "example.net/other"), "future": {"kept": True}})

    merged, left_out = merge(PARENTS, [foreign, raw(stored("gw1"))], [entry("gw1", section_name="web")], WRITER)

    assert left_out == ()
    assert bytes(merged[0]) == bytes(foreign)
    assert len(merged) == 2
    assert shown(merged)[1]["parentRef"] == {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": "gw1",
        "sectionName": "web",
    }
    assert shown(merged)[1]["conditions"][0]["lastTransitionTime"] == NOW
    assert shown(merged)[1]["conditions"][0]["observedGeneration"] == 4


def test_an_entry_matches_its_stored_form_with_defaults_applied() -> None:
    current = raw(stored("gw1", group="gateway.networking.k8s.io", kind="Gateway", namespace="apps", generation=4))

    merged, _ = merge(PARENTS, [current], [entry("gw1")], WRITER)

    assert [bytes(each) for each in merged] == [bytes(current)]


def test_an_explicit_core_group_is_another_parent() -> None:
    current = raw(stored("gw1", group=""))

    merged, _ = merge(PARENTS, [current], [entry("gw1")], WRITER)

    assert [each["parentRef"]["group"] for each in shown(merged)] == ["gateway.networking.k8s.io"]


def test_a_foreign_condition_inside_our_entry_stays() -> None:
    current = stored("gw1")
    checked = {**current["conditions"][0], "type": "example.net/Checked", "observedGeneration": 1}
    current["conditions"].append(checked)

    merged, _ = merge(PARENTS, [raw(current)], [entry("gw1")], WRITER)

    assert [condition["type"] for condition in shown(merged)[0]["conditions"]] == ["Accepted", "example.net/Checked"]
    assert shown(merged)[0]["conditions"][1] == checked


def test_two_references_that_mean_the_same_parent_share_one_entry() -> None:
    merged, _ = merge(PARENTS, [], [entry("gw1"), entry("gw1", namespace="apps")], WRITER)

    assert len(merged) == 1


def test_a_full_list_takes_no_more_and_says_what_is_missing() -> None:
    current = [raw(stored(f"gw{n}", "example.net/other")) for n in range(15)]
    ancestors = [entry("one"), entry("two")]

    merged, left_out = merge(ANCESTORS, current, ancestors, WRITER)

    assert len(merged) == 16
    assert shown(merged)[-1]["ancestorRef"]["name"] == "one"
    assert left_out == (ParentRef("two"),)


def test_our_entry_for_a_parent_about_which_nothing_can_be_said_stays_but_none_is_added() -> None:
    """Such as a Gateway that cannot be read now."""
    left_alone = [ParentRef(name, namespace="apps") for name in ("gw1", "gw2")]
    current = raw(stored("gw1"))

    merged, left_out = merge(PARENTS, [current, raw(stored("gone"))], [], WRITER, left_alone)

    assert [bytes(each) for each in merged] == [bytes(current)]
    assert left_out == ()


def test_without_findings_of_ours_only_foreign_entries_remain() -> None:
    foreign = raw(stored("gw2", "example.net/other"))

    merged, _ = merge(PARENTS, [raw(stored("gw1")), foreign], [], WRITER)

    assert [bytes(each) for each in merged] == [bytes(foreign)]
