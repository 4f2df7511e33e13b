"""Checks of routes: parts of rules that exclude or need each other, paths no request can have, regular expressions."""

import math
import re
from collections.abc import Iterable, Set
from functools import lru_cache
from typing import NamedTuple

from proxy.document.checkfilters import UNTOUCHABLE, check_filters
from proxy.document.checktargets import check_target
from proxy.document.durations import seconds
from proxy.document.part import Timeout, Unset
from proxy.document.problems import Findings, excerpt
from proxy.document.routes import (
    BackendRef,
    GrpcMethodMatch,
    Match,
    PathMatch,
    Route,
    Rule,
    SessionPersistence,
)
from proxy.document.targets import BackendTarget
from proxy.pattern import MAX_ENTRIES, MAX_LENGTH, PatternError, TooManyStates, automaton

# What no normalised path contains (see routing/paths.py), so a match with it would never apply.
_FOREIGN_IN_PATH = re.compile(
    r"//|(?:/|%5[cC])(?:\.|%2[eE]){1,2}(?:[/;]|%5[cC]|\Z)|%2[fF]|%00|[#?\\\x00-\x20\x7f]|%(?![0-9A-Fa-f]{2})"
)

MAX_RULE_WEIGHT = 8 * MAX_ENTRIES
"""Of all regular expressions of a rule: takes about 0.2 s and 2 MiB, enough for hundreds of common ones."""
_ENTRIES_A_CHARACTER = 8
"""The cost of parsing one character, about 5 us, in entries of an automaton's table."""
_TOO_LARGE = (
    "the regular expressions of this {0} are too large in total; want fewer or simpler ones, "
    "or some of them in another {0}"
)


class _Judged(NamedTuple):
    """What is known about a regular expression."""

    weight: int
    """Its size, which counts towards MAX_RULE_WEIGHT."""
    problem: str
    """Empty: none."""
    cost: int
    """The work of finding this out, in entries of an automaton's table: parsing a long text may yield few of them."""


@lru_cache(maxsize=8192)  # more than one route can have; a controller checks a route once per Gateway that it names
def _judged(pattern: str) -> _Judged:
    try:
        weight = automaton(pattern).weight
    except TooManyStates as error:
        return _Judged(MAX_ENTRIES, str(error), MAX_ENTRIES)
    except PatternError as error:
        is_read = len(pattern) <= MAX_LENGTH
        return _Judged(0, str(error), _ENTRIES_A_CHARACTER * len(pattern) if is_read else 0)
    return _Judged(weight, "", max(weight, _ENTRIES_A_CHARACTER * len(pattern)))


class Patterns:
    """Remembers the verdict on each regular expression, and limits the work spent on them."""

    def __init__(self, most_cost: float = math.inf) -> None:
        """`most_cost`: once those examined, valid or not, have cost this much, all others are refused."""
        self._left = most_cost
        self._found: dict[str, tuple[int, str]] = {}

    def found(self, pattern: str) -> tuple[int, str]:
        """Its weight, and what is wrong with it (empty: nothing)."""
        known = self._found.get(pattern)
        if known is not None:
            return known
        if self._left <= 0:
            return 0, _TOO_LARGE.format("route")
        weight, problem, cost = _judged(pattern)
        self._left -= cost
        self._found[pattern] = weight, problem
        return weight, problem


class _RulePatterns:
    """Limits the weight of the regular expressions of one rule; equal ones count once."""

    def __init__(self, known: Patterns) -> None:
        """`known` is shared by all rules."""
        self._known = known
        self._counted: set[str] = set()
        self._left = MAX_RULE_WEIGHT

    def problem_of(self, pattern: str) -> str:
        """Empty: it is valid, and the rule's limit has room for it."""
        if pattern in self._counted:
            return ""
        if self._left <= 0:
            return _TOO_LARGE.format("rule")
        weight, problem = self._known.found(pattern)
        self._left -= weight
        if problem:
            return problem
        if self._left < 0:
            return _TOO_LARGE.format("rule")
        self._counted.add(pattern)
        return ""


def sound_matches(matches: Iterable[Match], kind: str, known: Patterns) -> Iterable[Match]:
    """Those of `matches` that are valid together with the valid ones before them in the same rule."""
    patterns = _RulePatterns(known)
    for match in matches:
        findings = Findings()
        RouteChecker(frozenset(), frozenset(), findings).check_match(match, kind, patterns, "")
        if not findings:
            yield match


class RouteChecker:
    """Checks routes one at a time."""

    def __init__(
        self, listeners: Set[str], backends: Set[str], findings: Findings, patterns: Patterns | None = None
    ) -> None:
        self._listeners = listeners
        self._backends = backends
        self._findings = findings
        self._patterns = patterns or Patterns()

    def check(self, route: Route, at: str) -> None:
        add = self._findings.add
        for place, listener in enumerate(route.listeners):
            if listener not in self._listeners:
                add(f"{at}.listeners[{place}]", f"no entry of `listeners` has the name `{listener}`")
        if route.rules and route.backends:
            add(f"{at}.backends", "`rules` is given too; want `backends` inside the rules, or no `rules`")
        if not route.rules and not route.backends:
            add(at, "no `rules` and no `backends`, so there is nothing to do with a request")
        if route.backends:
            self._check_rule(Rule(backends=route.backends), route.kind, at)
        names: dict[str, int] = {}
        for place, rule in enumerate(route.rules):
            if rule.name and names.setdefault(rule.name, place) != place:
                add(f"{at}.rules[{place}].name", f"`{rule.name}` is the name of rules[{names[rule.name]}] too")
            self._check_rule(rule, route.kind, f"{at}.rules[{place}]")

    def _check_rule(self, rule: Rule, kind: str, at: str) -> None:
        patterns = _RulePatterns(self._patterns)
        for place, match in enumerate(rule.matches):
            self.check_match(match, kind, patterns, f"{at}.matches[{place}]")
        check_filters(rule, kind, at, self._findings)
        for number, mirror in enumerate(rule.filters.request_mirrors):
            self._check_target(mirror.backend, f"{at}.filters.requestMirrors[{number}].backend")
        if rule.filters.external_auth:
            self._check_target(rule.filters.external_auth.backend, f"{at}.filters.externalAuth.backend")
        self._check_answers(rule, at)
        self._check_backends(rule.backends, at)
        request, attempt = _limit_s(rule.timeouts.request), _limit_s(rule.timeouts.backend_request)
        if request and attempt > request:
            self._findings.add(f"{at}.timeouts.backendRequest", "longer than `request`, which it is a part of")
        if rule.session_persistence:
            self._check_persistence(rule.session_persistence, f"{at}.sessionPersistence")

    def _check_answers(self, rule: Rule, at: str) -> None:
        """A rule answers in one way only: from backends, with a fixed response, or with a redirect."""
        ways = {
            "filters.requestRedirect": bool(rule.filters.request_redirect),
            "respond": bool(rule.respond),
            "backends": bool(rule.backends),
        }
        given = [way for way, is_given in ways.items() if is_given]
        if len(given) > 1:
            self._findings.add(f"{at}.{given[0]}", f"excludes `{given[1]}`: each answers the request")

    def _check_backends(self, backends: Iterable[BackendRef], at: str) -> None:
        for place, backend in enumerate(backends):
            where = f"{at}.backends[{place}]"
            if backend.respond:
                if backend.backend or backend.address or backend.addresses or backend.tls:
                    self._findings.add(f"{where}.respond", "excludes `backend`, `address` and `addresses`")
            else:
                self._check_target(backend, where)
            for number, mirror in enumerate(backend.filters.request_mirrors):
                self._check_target(mirror.backend, f"{where}.filters.requestMirrors[{number}].backend")

    def _check_target(self, target: BackendTarget, at: str) -> None:
        if not (target.backend or target.address or target.addresses):
            self._findings.add(at, "nothing says where to forward to: want `backend`, `address` or `addresses`")
            return
        check_target(target, self._backends, at, self._findings)

    def _check_persistence(self, policy: SessionPersistence, at: str) -> None:
        if policy.type == "Header" and policy.session_name and policy.session_name.lower() in UNTOUCHABLE | {"host"}:
            self._findings.add(f"{at}.sessionName", f"`{policy.session_name}` is written only by the proxy")
        if policy.lifetime_type == "Permanent" and policy.type == "Header":
            self._findings.add(f"{at}.lifetimeType", "Permanent is for cookies, and `type` is Header")
        elif policy.lifetime_type == "Permanent" and not policy.absolute_timeout:
            self._findings.add(at, "field `absoluteTimeout` is missing, which `lifetimeType` Permanent needs")

    def check_match(self, match: Match, kind: str, patterns: _RulePatterns, at: str) -> None:
        """`patterns`: the regular expressions of the rule's earlier matches."""
        self._check_kind(match, kind, at)
        if match.path:
            self._check_path(match.path, f"{at}.path.value")
        if match.grpc:
            self._check_grpc(match.grpc, f"{at}.grpc")
        for value, where in match.expressions():
            if problem := patterns.problem_of(value):
                self._findings.add(f"{at}.{where}", problem)

    def _check_kind(self, match: Match, kind: str, at: str) -> None:
        foreign = ("grpc",) if kind == "http" else ("path", "method", "query_params")
        for name in foreign:
            if getattr(match, name):
                spelled = "queryParams" if name == "query_params" else name
                self._findings.add(f"{at}.{spelled}", f"not for routes of kind {kind}")

    def _check_path(self, path: PathMatch, at: str) -> None:
        if path.type == "RegularExpression":
            return  # see `Match.expressions`
        if not path.value.startswith("/"):
            self._findings.add(at, f"{excerpt(path.value)} does not begin with `/`")
        foreign = _FOREIGN_IN_PATH.search(path.value)
        if foreign:
            # Normalised paths may contain an encoded slash, but Gateway API does not allow one here.
            is_slash = foreign[0].upper() == "%2F"
            why = "want a RegularExpression for that" if is_slash else "which no normalised path contains"
            self._findings.add(at, f"{excerpt(path.value)} contains {excerpt(foreign[0])}, {why}")

    def _check_grpc(self, call: GrpcMethodMatch, at: str) -> None:
        if not call.service and not call.method:
            self._findings.add(at, "want `service`, `method` or both")
        for name, value in (("service", call.service), ("method", call.method)):
            if value and call.type != "RegularExpression" and "/" in value:
                self._findings.add(
                    f"{at}.{name}", f"{excerpt(value)} contains `/`, want a name such as package.Service"
                )


def _limit_s(timeout: Timeout | Unset) -> float:
    return seconds(timeout) if timeout else 0.0
