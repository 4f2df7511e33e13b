"""Translates parts of Gateway API objects into parts of the proxy's document, judged by the document's own rules.

The document uses Gateway API's names and meanings wherever it can, so a part is copied field by field. It is then
checked by the functions with which the proxy checks a document. Whatever they refuse becomes a problem of its rule, so
the proxy refuses no document that is made here.
"""

from collections.abc import Iterable, Set
from typing import Literal, TypeAlias, TypeVar

import msgspec

from proxy import document
from proxy.document import Backend, Findings, Match, Patterns, Route, Rule, excerpt
from tunnelgw.model.part import Part
from tunnelgw.translate.remarks import Remarks

T = TypeVar("T", bound=msgspec.Struct)
RouteKind: TypeAlias = Literal["http", "grpc"]
"""As the document spells it."""

_MAX_ROUTE_COST = 2 * document.MAX_RULE_WEIGHT
"""The limit for a route's regular expressions: otherwise one route could take seconds and hold up all others."""
_AT_RULE = "routes[0].rules[0]."
_AT_BACKEND = "backends[0]."
_API_WORDS = (("backends[", "backendRefs["), ("].grpc", "].method"), ("tls.serverName", "tls.hostname"))
"""Fields whose names in the document differ from those in Gateway API."""

__all__ = [
    "Patterns",
    "RouteKind",
    "carry",
    "excerpt",
    "patterns_of_route",
    "problems_of_backend",
    "problems_of_rule",
    "sound_matches",
]


def carry(part: Part, into: type[T], at: str, remarks: Remarks) -> T | None:
    """`part` as a part of the document; None, with remarks, if it has a value unknown to the document."""
    text = msgspec.json.encode(part)
    try:
        return msgspec.json.decode(text, type=into)
    except msgspec.ValidationError:
        remarks.unsupported += _problems_of_shape(text, into, at)
        return None


def patterns_of_route() -> Patterns:
    """Shared by all rules of a route, whose regular expressions have a common limit of cost."""
    return Patterns(_MAX_ROUTE_COST)


def problems_of_rule(rule: Rule, kind: RouteKind, patterns: Patterns, backends: Set[str] = frozenset()) -> list[str]:
    """Why the proxy would refuse this rule in a route of this kind, if the document has backends of these names.

    Empty: it would not.
    """
    if problems := _problems_of_shape(msgspec.json.encode(rule), Rule):
        return problems
    findings = Findings()
    document.check_routes((Route(kind=kind, rules=(rule,)),), (frozenset(), backends), findings, patterns)
    return _told(findings, _AT_RULE)


def sound_matches(matches: Iterable[Match], kind: RouteKind, patterns: Patterns) -> tuple[Match, ...]:
    """The matches that the proxy accepts; if their regular expressions together are too large, only the first ones."""
    shaped = (match for match in matches if not _problems_of_shape(msgspec.json.encode(match), Match))
    return tuple(document.sound_matches(shaped, kind, patterns))


def problems_of_backend(backend: Backend) -> list[str]:
    """Why the proxy would refuse this backend; empty: it would not."""
    if problems := _problems_of_shape(msgspec.json.encode(backend), Backend):
        return problems
    findings = Findings()
    document.check_backends((backend,), findings)
    return _told(findings, _AT_BACKEND)


def _problems_of_shape(text: bytes, into: type[msgspec.Struct], at: str = "") -> list[str]:
    try:
        msgspec.json.decode(text, type=into)
    except msgspec.ValidationError:
        findings = Findings()
        document.find_shape_problems(msgspec.json.decode(text), into, findings, at)
        return _told(findings)
    return []


def _told(findings: Findings, place: str = "") -> list[str]:
    """The problems, in Gateway API's terms."""
    try:
        findings.raise_if_any()
    except document.DocumentError as error:
        return [_reworded(str(problem).removeprefix(place)) for problem in error.problems]
    return []


def _reworded(problem: str) -> str:
    for word, api_word in _API_WORDS:
        problem = problem.replace(word, api_word)
    return problem
