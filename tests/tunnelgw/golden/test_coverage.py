"""The golden cases together: each is short, and every requirement of Gateway API and every reason of ours has one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.coveragepage import Gap, make_coverage_page
from tunnelgw.model.conditions import Reason

GOLDEN = Path(__file__).parent
_REASON = re.compile(r"\b(?:True|False|Unknown) (\w+)")


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
