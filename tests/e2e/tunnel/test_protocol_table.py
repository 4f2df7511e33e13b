"""Each row of the protocol table beside these tests names tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from tests.support.process import REPOSITORY

HERE = Path(__file__).parent
TABLE = HERE / "README.md"
REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if is_row(line) and after[:4] != "|---"]


def is_row(line: str) -> bool:
    return line.startswith("|") and not line.startswith("|---")


@functools.cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_row_names_tests_that_exist() -> None:
    for row in rows():
        cell = row.split("|")[-2]
        references = REFERENCE.findall(cell)
        assert references or cell.strip() == "above", row
        for file, name in references:
            path = REPOSITORY / file if "/" in file else HERE / file
            assert name in functions_of(path), f"{file}::{name} of the row {row}"


def test_the_table_has_rows() -> None:
    assert len(rows()) > 60
