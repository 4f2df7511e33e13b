"""What `tunnelgw status` makes of the conditions of an object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tunnelgw.sources.objects import gateway, make
from tunnelgw.commands.inputs import Inputs
from tunnelgw.commands.status import status
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.sources.directory.admission import Problem


def condition(type_: str, status_: str) -> dict[str, Any]:
    return {"type": type_, "status": status_, "reason": "Why", "message": "what it is", "observedGeneration": 1}


CONTROLLER = "example.net/any"
CLASS = make(
    Kind.GATEWAY_CLASS,
    "tunnel",
    {"controllerName": CONTROLLER},
    namespace="",
    status={"conditions": [condition("Accepted", "True")]},
)


def shown(capsys: pytest.CaptureFixture[str], *conditions: dict[str, Any]) -> tuple[bool, str, list[str]]:
    """Of a listener: whether all is well, its grade and its problems."""
    told = {
        "conditions": [condition("Accepted", "True")],
        "listeners": [{"name": "http", "conditions": [condition("Accepted", "True"), *conditions]}],
    }
    item = gateway("web", metadata={"generation": 1}, status=told)
    is_well = status(Inputs(Snapshot.of([(Kind.GATEWAY_CLASS, CLASS), (Kind.GATEWAY, item)])), CONTROLLER, as_json=True)
    _, _, row = json.loads(capsys.readouterr().out)
    return is_well, row["grade"], row.get("problems", [])


@pytest.mark.parametrize(
    ("type_", "good", "is_worth_knowing"),
    [
        ("Programmed", "True", False),
        ("Conflicted", "False", False),
        ("PartiallyInvalid", "False", False),
        ("OverlappingTLSConfig", "False", True),
        ("InsecureFrontendValidationMode", "False", True),
        ("SupportedVersion", "True", True),
        ("tunnelgw.dev/PartlyUnreachable", "False", True),
        ("tunnelgw.dev/Delivered", "True", False),
    ],
)
def test_a_bad_condition_is_shown_with_reason_and_message(
    capsys: pytest.CaptureFixture[str], type_: str, good: str, *, is_worth_knowing: bool
) -> None:
    bad = {"True": "False", "False": "True"}[good]

    assert shown(capsys, condition(type_, good)) == (True, "well", [])
    grade = "warning" if is_worth_knowing else "not well"
    assert shown(capsys, condition(type_, bad)) == (is_worth_knowing, grade, [f"{type_} {bad} Why: what it is"])


def test_a_warning_does_not_hide_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    both = (condition("tunnelgw.dev/PartlyUnreachable", "True"), condition("Programmed", "False"))

    is_well, grade, problems = shown(capsys, *both)

    assert (is_well, grade, len(problems)) == (False, "not well", 2)


def test_a_status_about_a_former_generation_is_old_and_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    """A controller that is stuck leaves it so, with conditions that were good once."""
    told = {"conditions": [condition("Accepted", "True")]}
    items = [
        (Kind.GATEWAY, gateway(f"web-{number}", metadata={"generation": number}, status=told)) for number in (1, 2)
    ]

    assert not status(Inputs(Snapshot.of([(Kind.GATEWAY_CLASS, CLASS), *items])), CONTROLLER, as_json=True)

    _, *rows = json.loads(capsys.readouterr().out)
    assert [(row["grade"], row["object"]) for row in rows] == [
        ("well", "Gateway default/web-1"),
        ("old", "Gateway default/web-2"),
    ]


def test_listeners_are_shown_with_the_number_of_their_routes(capsys: pytest.CaptureFixture[str]) -> None:
    def listener(name: str, **attached: int) -> dict[str, Any]:
        return {"name": name, "conditions": [condition("Accepted", "True")], **attached}

    listeners = [listener("new"), *(listener(f"l{number}", attachedRoutes=number) for number in range(3))]
    item = gateway("web", metadata={"generation": 1}, status={"listeners": listeners})

    status(Inputs(Snapshot.of([(Kind.GATEWAY_CLASS, CLASS), (Kind.GATEWAY, item)])), CONTROLLER, as_json=True)

    rows = [row for row in json.loads(capsys.readouterr().out) if "part" in row]
    assert [(row["part"], row.get("detail", "")) for row in rows] == [
        ("listener new", ""),
        ("listener l0", "0 routes"),
        ("listener l1", "1 route"),
        ("listener l2", "2 routes"),
    ]


def test_a_message_is_printed_on_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    bad = {**condition("Accepted", "False"), "message": "one\ttab\nand \x1b[2J a line"}
    item = gateway("web", metadata={"generation": 1}, status={"conditions": [bad]})

    status(Inputs(Snapshot.of([(Kind.GATEWAY_CLASS, CLASS), (Kind.GATEWAY, item)])), CONTROLLER, as_json=False)

    assert capsys.readouterr().out == (
        "well\tGatewayClass tunnel\t\t\t\n"
        "not well\tGateway default/web\t\t\tAccepted False Why: one tab and  [2J a line\n"
    )


def entry(field: str, name: str, **said: Any) -> dict[str, Any]:
    return {
        field: {"name": name},
        "controllerName": CONTROLLER,
        "conditions": [{**condition("Accepted", "True"), **said}],
    }


def test_a_parent_that_does_not_exist_is_reported_beside_one_that_accepts_the_route(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = {"parentRefs": [{"name": "gw"}, {"name": "wg"}, {"group": "", "kind": "Service", "name": "mesh"}]}
    item = make(Kind.HTTP_ROUTE, "web", spec, status={"parents": [entry("parentRef", "gw")]})
    gateway_item = gateway("gw", status={"conditions": [condition("Accepted", "True")]})
    items = [(Kind.GATEWAY_CLASS, CLASS), (Kind.GATEWAY, gateway_item), (Kind.HTTP_ROUTE, item)]

    assert not status(Inputs(Snapshot.of(items)), CONTROLLER, as_json=False)

    assert capsys.readouterr().out.splitlines()[-2:] == [
        "not well\tHTTPRoute default/web\t\t\tGateway default/wg does not exist",
        f"well\tHTTPRoute default/web\tGateway gw\t{CONTROLLER}\t",
    ]


def test_a_parent_that_is_refused_is_not_said_to_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    item = make(Kind.HTTP_ROUTE, "web", {"parentRefs": [{"name": "gw"}]})
    refused = Problem("gw.yaml", 7, "spec.listeners is missing", Entry(Kind.GATEWAY, Key("default", "gw")))
    inputs = Inputs(Snapshot.of([(Kind.GATEWAY_CLASS, CLASS), (Kind.HTTP_ROUTE, item)]), (refused,))

    assert not status(inputs, CONTROLLER, as_json=False)

    assert "pending\tHTTPRoute default/web\t\t\tGateway default/gw cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("message", "grade"),
    [("not in force everywhere: Service default/web, port x does not exist", "warning"), ("as others put it", "well")],
)
def test_a_policy_that_is_not_in_force_everywhere_is_a_warning(
    capsys: pytest.CaptureFixture[str], message: str, grade: str
) -> None:
    ancestor = entry("ancestorRef", "gw", message=message)
    spec = {"targetRefs": [], "validation": {"hostname": "web.example"}}
    item = make(Kind.BACKEND_TLS_POLICY, "tls", spec, status={"ancestors": [ancestor]})
    items = [(Kind.GATEWAY_CLASS, CLASS), (Kind.BACKEND_TLS_POLICY, item)]

    assert status(Inputs(Snapshot.of(items)), CONTROLLER, as_json=True)

    row = json.loads(capsys.readouterr().out)[-1]
    told = [f"Accepted True Why: {message}"] if grade == "warning" else []
    assert (row["grade"], row.get("problems", [])) == (grade, told)


@pytest.mark.parametrize(("said", "grade"), [("True", "not well"), ("Unknown", "pending")])
def test_a_gateway_whose_class_does_not_exist_is_not_well_whatever_its_status_says(
    capsys: pytest.CaptureFixture[str], said: str, grade: str
) -> None:
    item = gateway("web", metadata={"generation": 1}, status={"conditions": [condition("Programmed", said)]})

    assert not status(Inputs(Snapshot.of([(Kind.GATEWAY, item)])), CONTROLLER, as_json=True)

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["grade"], row["problems"][-1]) == (grade, "GatewayClass tunnel does not exist")


def test_status_fails_if_no_class_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt controllerName, whatever statuses were written before."""
    item = gateway("web", metadata={"generation": 1}, status={"conditions": [condition("Programmed", "True")]})
    inputs = Inputs(Snapshot.of([(Kind.GATEWAY_CLASS, CLASS), (Kind.GATEWAY, item)]))

    assert not status(inputs, "example.net/amy", as_json=True)

    first, *rest = json.loads(capsys.readouterr().out)
    assert (first["grade"], first["object"]) == ("not well", "GatewayClass tunnel")
    assert first["problems"] == [
        "its controllerName is example.net/any, see --controller-name: no GatewayClass is ours"
    ]
    assert ["well", "well"] == [row["grade"] for row in rest]
