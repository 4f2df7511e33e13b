"""The golden cases together: each is short, and every requirement of Gateway API and every reason of ours has one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.manuals import DOCS
from tests.tunnelgw.sources.cluster import gateway_api
from tools.coveragepage import Gap, make_coverage_page
from tunnelgw.model.conditions import Reason

GOLDEN = Path(__file__).parent
_REASON = re.compile(r"\b(?:True|False|Unknown) (\w+)")
_OF_HEALTHY = {"Accepted", "ResolvedRefs", "NoConflicts", "SupportedVersion"}
"""Reasons that cases expect without naming them."""
_KINDS = (
    "gatewayclasses",
    "gateways",
    "listenersets",
    "httproutes",
    "grpcroutes",
    "backendtlspolicies",
    "referencegrants",
)


@pytest.mark.parametrize("directory", ["gateways", "rules", "status"])
def test_every_case_is_a_sentence_and_short(directory: str) -> None:
    cases = sorted((GOLDEN / directory).glob("*.yaml"))
    assert cases
    for path in cases:
        assert "-" in path.stem
        assert len(path.read_text().splitlines()) <= 80, path.name


def texts(plain: Any) -> Iterator[str]:
    """All texts of an expectation, without the messages in them."""
    if isinstance(plain, dict):
        plain = list(plain.values())
    if isinstance(plain, list):
        for value in plain:
            yield from texts(value)
    elif isinstance(plain, str):
        yield plain.partition(": ")[0]


def test_every_reason_is_expected_by_a_case() -> None:
    """Cases compare reasons word for word, so that a change of any fails one."""
    expected: set[str] = set()
    for path in GOLDEN.glob("*/*.yaml"):
        for text in texts(yaml.safe_load(path.read_text()).get("expect", {})):
            expected |= set(_REASON.findall(text))

    assert {reason.value for reason in Reason} - expected == set()


def test_a_row_named_after_a_condition_and_its_reason_has_cases_with_this_reason() -> None:
    missing = []
    for path in sorted(GOLDEN.glob("*/*.yaml")):
        case = yaml.safe_load(path.read_text())
        rows = case.pop("rows")
        named = {reason for text in texts(case) for reason in _REASON.findall(text)} | _OF_HEALTHY
        for row in rows:
            reason = row.rpartition("-")[2].rpartition("/")[2]
            if reason in set(Reason) and reason not in named:
                missing.append(f"{path.stem}: {row}")

    assert missing == []


def fields_of(schema: Any, path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from fields_of(field, f"{path}.{name}")
    if "items" in schema:
        yield from fields_of(schema["items"], path)


def test_every_field_that_users_set_is_in_a_case_or_not_supported() -> None:
    """Also those that only the newest release and the experimental channel have."""
    texts = "".join(path.read_text() for path in GOLDEN.glob("*/*.yaml"))
    texts += (DOCS / "gateway-api.md").read_text()
    manifests = {path.stem.partition("_")[2]: path for path in gateway_api()}
    fields: list[str] = []
    for kind in _KINDS:
        (version,) = [
            each for each in yaml.safe_load(manifests[kind].read_text())["spec"]["versions"] if each["storage"]
        ]
        fields += fields_of(version["schema"]["openAPIV3Schema"]["properties"]["spec"], kind)

    missing = [path for path in fields if not re.search(rf"\b{path.rpartition('.')[2]}\b", texts)]

    assert len(fields) > 300
    assert missing == []


def repository(root: Path, rows: str, case: str) -> Path:
    """A repository whose only golden case has this text."""
    golden = root / "tests" / "tunnelgw" / "golden"
    (golden / "rules").mkdir(parents=True)
    (golden / "rows.yaml").write_text(rows)
    (golden / "rules" / "a-case-of-it.yaml").write_text(case)
    return root


def test_the_page_names_the_cases_of_each_row(tmp_path: Path) -> None:
    root = repository(tmp_path, "'1': {title: Weights, rows: {zero: Zero is none}}", "rows: [1/zero]")

    assert "| 1/zero | Zero is none | [a case of it](" in make_coverage_page(root)


@pytest.mark.parametrize(
    ("rows", "case", "problem"),
    [
        ("{a: first, b: second}", "rows: [1/a]", r"1/b: no golden case covers it \(second\)"),
        ("{a: first}", "rows: [1/a, 1/c]", "a-case-of-it.yaml: 1/c is not in rows.yaml"),
        ("{a: {title: first, unused: why}}", "rows: [1/a]", "1/a is said to be unused"),
        ("{a: first, b: {title: second, test: 'x.py::test_b'}}", "rows: [1/a]", "there is no test x.py::test_b"),
    ],
)
def test_a_gap_is_an_error(tmp_path: Path, rows: str, case: str, problem: str) -> None:
    root = repository(tmp_path, f"'1': {{title: Weights, rows: {rows}}}", case)

    with pytest.raises(Gap, match=problem):
        make_coverage_page(root)
