"""Any input is a document or raises DocumentError with paths; never another exception."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import document
from proxy.document import DocumentError
from proxy.routing import compile_table
from tests.support.process import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples" / "proxy").glob("*.json"))
WORDS = ("routes", "listeners", "backends", "rules", "matches", "filters", "hostnames", "name", "port", "weight")

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


def verdict(data: bytes) -> document.Document | None:
    """None if it is refused with DocumentError."""
    refusal: DocumentError | None = None
    try:
        return document.decode(data)
    except DocumentError as error:
        refusal = error
    assert refusal.problems
    assert all(problem.message for problem in refusal.problems)
    assert len(str(refusal)) < 100_000
    return None


@given(st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_a_document_or_are_refused(data: bytes) -> None:
    verdict(data)


@given(st.dictionaries(st.sampled_from(WORDS), values, max_size=4))
@settings(max_examples=500, deadline=None)
def test_any_json_is_a_document_or_is_refused(content: dict[str, Any]) -> None:
    verdict(json.dumps(content).encode())


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as container and key."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        found += places(value[key])
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_an_example_with_one_value_replaced_is_accepted_or_refused(example: Path, data: st.DataObject) -> None:
    content = json.loads(example.read_text())
    container, key = data.draw(st.sampled_from(places(content)))
    container[key] = data.draw(values)

    taken = verdict(msgspec.json.encode(content))

    if taken is not None:
        # An accepted document can be compiled, and is the same when it is encoded and decoded again.
        compile_table(taken)
        assert document.decode(msgspec.json.encode(taken)) == taken


@pytest.mark.parametrize("depth", [200, 20_000])
def test_deep_nesting_is_refused_at_little_cost(depth: int) -> None:
    assert verdict(b'{"routes":' + b"[" * depth + b"]" * depth + b"}") is None
