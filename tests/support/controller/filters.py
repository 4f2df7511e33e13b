"""Filter expressions of the integration API: `domain.eq('x')`, `name.like('a*')`, `and(…, …)`, `or(…, …)`."""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

Predicate = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"(?P<name>[A-Za-z][A-Za-z.]*)\(|(?P<text>'(?:[^']|'')*')|(?P<mark>[,)])|(?P<space>\s+)")


class FilterError(ValueError):
    """The expression cannot be parsed, or names a property that may not be filtered."""


def parse(expression: str, properties: frozenset[str]) -> Predicate:
    predicate, rest = _term(expression, properties)
    if rest:
        raise FilterError(f"surplus text {rest!r}")
    return predicate


def _term(text: str, properties: frozenset[str]) -> tuple[Predicate, str]:
    match = _TOKEN.match(text)
    if match is None or not match["name"]:
        raise FilterError(f"expected an expression at {text!r}")
    rest = text[match.end() :]
    if match["name"] in ("and", "or"):
        return _combined(match["name"], rest, properties)
    property_name, _, operator = match["name"].rpartition(".")
    if property_name not in properties:
        raise FilterError(f"property {property_name!r} cannot be filtered")
    literal = _TOKEN.match(rest)
    if literal is None or not literal["text"] or not rest[literal.end() :].startswith(")"):
        raise FilterError(f"expected 'text') at {rest!r}")
    wanted = literal["text"][1:-1].replace("''", "'")
    return _comparison(property_name, operator, wanted), rest[literal.end() + 1 :]


def _comparison(property_name: str, operator: str, wanted: str) -> Predicate:
    if operator == "eq":
        return lambda content: content.get(property_name) == wanted
    if operator == "like":
        return lambda content: fnmatchcase(str(content.get(property_name, "")), wanted)
    raise FilterError(f"unknown operator {operator!r}")


def _combined(operator: str, text: str, properties: frozenset[str]) -> tuple[Predicate, str]:
    parts = []
    rest = text
    while True:
        part, rest = _term(rest.lstrip(), properties)
        parts.append(part)
        rest = rest.lstrip()
        if rest.startswith(")"):
            break
        if not rest.startswith(","):
            raise FilterError(f"expected , or ) at {rest!r}")
        rest = rest[1:]
    combine = all if operator == "and" else any
    return (lambda content: combine(part(content) for part in parts)), rest[1:]
