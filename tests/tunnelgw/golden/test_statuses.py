"""Golden cases of what is written into statuses, and when nothing is: one question a file.

rows       which rows of rows.yaml it covers
config, services, tls, ca, objects   see given.py; the objects carry the status that is stored
held       whether a proxy holds the document; it does unless this says no
unbound    why ports could not be bound, by listener
delivered  the Gateway's condition tunnelgw.dev/Delivered as `Status Reason: message`
expect     by object: `unwritten`, `outdated`, or fields of the status that is written. Objects have at least these
           fields, null says "absent", lists are equal

A condition is written `Type Status Reason`, its generation and time: `now`, or since when. In stored statuses
everything behind the type is needed, in expectations all but a message, of which a part may stand behind a colon.
What was written is never written again.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.tunnelgw.golden.given import FIELDS, snapshot_of
from tests.tunnelgw.translate.world import translation_of
from tunnelgw.model.conditions import ConditionType, Finding, Reason, Status
from tunnelgw.model.kinds import STATUS_KINDS
from tunnelgw.options import DEFAULT_CONTROLLER
from tunnelgw.status.compose import Author, StatusUpdate, compose
from tunnelgw.status.conditions import Outdated
from tunnelgw.status.objects import Delivery
from tunnelgw.translate.verdicts import ObjectId

CASES = sorted((Path(__file__).parent / "status").glob("*.yaml"))
AUTHOR = Author(DEFAULT_CONTROLLER, ("Gateway", "HTTPRoute"))
NOW, LATER = "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"
_CONDITION = re.compile(
    r"(?P<type>\S+) (?P<status>\S+) (?P<reason>\S+) (?P<generation>\d+) (?P<time>[^\s:]\S*?)(?:: (?P<message>.*))?"
)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_statuses(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    assert case["rows"]
    assert not case.keys() - FIELDS - {"rows", "held", "unbound", "delivered", "expect"}
    snapshot = snapshot_of(_with_whole_conditions(case))
    translation = translation_of(snapshot)
    delivery = _delivery(case)
    seen = {}
    for kind in STATUS_KINDS:
        for key, item in snapshot.all(kind).items():
            id_ = ObjectId(kind, key)
            update = StatusUpdate(item, translation.verdict(id_), delivery)
            seen[str(id_)] = _written(update)

    for name, wanted in case["expect"].items():
        assert name in seen, seen.keys()
        _check_part(seen[name], wanted, name)


def _delivery(case: dict[str, Any]) -> Delivery:
    finding = None
    if "delivered" in case:
        words, _, message = case["delivered"].partition(": ")
        status, reason = words.split()
        finding = Finding(ConditionType.DELIVERED, Status(status), Reason(reason), message)
    return Delivery(case.get("held", True), finding, case.get("unbound", {}))


def _written(update: StatusUpdate) -> Any:
    """The status as it is written, conditions in the words of the cases."""
    try:
        text = compose(update, AUTHOR, NOW).status
    except Outdated:
        return "outdated"
    if text is None:
        return "unwritten"
    stored = msgspec.structs.replace(update.item, status=msgspec.Raw(text))
    assert compose(msgspec.structs.replace(update, item=stored), AUTHOR, LATER).status is None
    return _in_words(msgspec.json.decode(text))


def _in_words(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_in_words(value) for value in plain]
    if not isinstance(plain, dict):
        return plain
    if "lastTransitionTime" not in plain:
        return {name: _in_words(value) for name, value in plain.items()}
    since = "now" if plain["lastTransitionTime"] == NOW else plain["lastTransitionTime"]
    head = f"{plain['type']} {plain['status']} {plain['reason']} {plain.get('observedGeneration', 0)} {since}"
    return f"{head}: {plain['message']}"


def _with_whole_conditions(plain: Any) -> Any:
    """The same with conditions as the API has them."""
    if isinstance(plain, list):
        return [_with_whole_conditions(value) for value in plain]
    if not isinstance(plain, dict):
        return plain
    return {
        name: [_condition(text) for text in value] if name == "conditions" else _with_whole_conditions(value)
        for name, value in plain.items()
    }


def _condition(text: str) -> dict[str, Any]:
    found = _CONDITION.fullmatch(text)
    assert found is not None, text
    return {
        "type": found["type"],
        "status": found["status"],
        "reason": found["reason"],
        "message": found["message"] or "",
        "lastTransitionTime": found["time"],
        "observedGeneration": int(found["generation"]),
    }


def _check_part(seen: Any, wanted: Any, at: str) -> None:
    if isinstance(wanted, dict) and isinstance(seen, dict):
        for name, value in wanted.items():
            _check_part(seen.get(name), value, f"{at}.{name}")
    elif isinstance(wanted, list) and isinstance(seen, list):
        assert len(seen) == len(wanted), (at, seen)
        for place, (one, other) in enumerate(zip(seen, wanted, strict=True)):
            _check_part(one, other, f"{at}[{place}]")
    elif at.rpartition(".")[2].startswith("conditions["):
        head, _, part = wanted.partition(": ")
        assert seen.partition(": ")[0] == head, (at, seen)
        assert part in seen, (at, seen)
    else:
        assert seen == wanted, (at, seen)
