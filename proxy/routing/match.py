"""Matches: the conditions of a rule, and the order of precedence among them.

The order is that of Gateway API for HTTPRoute and GRPCRoute: each criterion decides only if all before it tie, and
each match is ranked on its own, whichever rule it belongs to. The hostname takes precedence over all of this, see
`hosts`. Where the API leaves the order open, regular expressions rank after Exact and before PathPrefix, longer ones
first.

A rule with `cors` answers the preflights of the requests that it would get. Its matches therefore see a preflight as
the request that it announces: with that method, and with header fields of these names. A condition on the value of such
a field counts as met, since a preflight does not tell the value.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar, TypeAlias

from proxy import document
from proxy.pattern import Automaton, automaton
from proxy.routing.asked import Asked
from proxy.routing.paths import rule_path
from proxy.routing.rule import Rule

Rank: TypeAlias = tuple[object, ...]
"""Sorts the better match first. No two matches rank equal, since the last parts are their places in the document."""

RANK_CRITERIA = (
    "kind of path",
    "length of path",
    "method",
    "number of header conditions",
    "number of query conditions",
    "age of route",
    "name of route",
    "place of route in the document",
    "place of rule in the route",
    "place of match in the rule",
)
"""The meaning of each part of an HTTP match's rank."""

CALL_RANK_CRITERIA = ("kind of gRPC method", "length of service", "length of gRPC method", *RANK_CRITERIA[2:])
"""The meaning of each part of a gRPC match's rank."""

Seniority: TypeAlias = tuple[str, str, int]
"""Creation time of a route, its name, and its place in the document (0 if it has a name)."""

UNDATED = "~"
"""Sorts after every timestamp, so that a route without one counts as the youngest."""


def seniority(route: document.Route, position: int) -> Seniority:
    """The place is left out for named routes: names are unique, and moving such a route must not change its rank."""
    name = route.name or ""
    return route.created_at or UNDATED, name, 0 if name else position


class PathKind(IntEnum):
    """Kinds of path conditions, in order of precedence."""

    EXACT = 0
    PATTERN = 1
    PREFIX = 2


class CallKind(IntEnum):
    """Kinds of conditions on a gRPC method, in order of precedence."""

    EXACT = 0
    SERVICE = 1
    PATTERN = 2
    METHOD = 3
    ANY = 4


class Condition:
    """A condition on one header field or query parameter: an exact value or a pattern."""

    __slots__ = ("name", "pattern", "type", "value")

    def __init__(self, name: bytes, type_: str, value: str) -> None:
        self.name = name
        self.type = type_
        self.value = value.encode()
        self.pattern: Automaton | None = automaton(value) if type_ == "RegularExpression" else None

    def accepts(self, value: bytes | None, asked: Asked) -> bool:
        """`value` is the request's header field or query parameter of that name; None: it has none."""
        if value is None:
            return False
        return value == self.value if self.pattern is None else asked.fits(self.pattern, value)


class Match(ABC):
    """The conditions of a match, and the rule they belong to. An index that finds the match by its path checks only the
    other conditions."""

    __slots__ = ("headers", "index", "is_open", "method", "path", "pattern", "queries", "rank", "rule")
    criteria: ClassVar[tuple[str, ...]]
    """The meaning of each part of `rank`."""

    def __init__(self, rule: Rule, index: int, spec: document.Match) -> None:
        self.rule = rule
        self.index = index
        """Index in the rule's `matches`."""
        self.method: bytes | None = spec.method.encode() if spec.method else None
        self.headers = _conditions((header.name.lower(), header) for header in spec.headers)
        self.queries = _conditions((query.name, query) for query in spec.query_params)
        self.is_open = self.method is None and not self.headers and not self.queries
        """Whether there is no condition besides the path."""
        self.path = b""
        """The exact path, or a prefix without trailing slash."""
        self.pattern: Automaton | None = None
        self.rank: Rank = ()

    @property
    @abstractmethod
    def wish(self) -> str:
        """The condition on the path, in words."""

    @abstractmethod
    def accepts_path(self, path: bytes, asked: Asked) -> bool:
        """Whether the condition on the path holds."""

    def accepts(self, asked: Asked) -> bool:
        """Whether all conditions besides the path hold."""
        if self.method is not None and asked.method != self.method and not self.is_method_announced(asked):
            return False
        for condition in self.headers:
            if not condition.accepts(asked.header(condition.name), asked) and not self.is_announced(condition, asked):
                return False
        return all(condition.accepts(asked.parameter(condition.name), asked) for condition in self.queries)

    def is_method_announced(self, asked: Asked) -> bool:
        """Whether this is a preflight that the rule would answer, for a request with the wanted method."""
        return self.rule.cors is not None and asked.announced_method == self.method

    def is_announced(self, condition: Condition, asked: Asked) -> bool:
        """Whether it is a preflight for a request with the header field of `condition`, one of `headers`."""
        return self.rule.cors is not None and asked.announces(condition.name)

    def _tail(self, seniority: Seniority) -> Rank:
        # A preflight may fit both a match for OPTIONS and one for the method that it announces; OPTIONS ranks first.
        # Any other request fits one method only, so all other methods rank equal.
        method = 2 if self.method is None else self.method != b"OPTIONS"
        conditions = (int(method), -len(self.headers), -len(self.queries))
        return (*conditions, *seniority, self.rule.index, self.index)


class HttpMatch(Match):
    """A match of a route of kind http."""

    __slots__ = ("kind",)
    criteria = RANK_CRITERIA

    def __init__(self, rule: Rule, index: int, spec: document.Match, seniority: Seniority) -> None:
        super().__init__(rule, index, spec)
        path = spec.path or document.PathMatch()
        if path.type == "RegularExpression":
            self.kind = PathKind.PATTERN
            self.pattern = automaton(path.value)
            length = len(path.value)
        else:
            self.kind = PathKind.EXACT if path.type == "Exact" else PathKind.PREFIX
            self.path = rule_path(path.value)
            if self.kind is PathKind.PREFIX:
                self.path = self.path.rstrip(b"/")
            length = len(self.path)
        self.rank = (int(self.kind), -length, *self._tail(seniority))

    @property
    def wish(self) -> str:
        if self.pattern is not None:
            return f"path RegularExpression {self.pattern.pattern}"
        type_ = "Exact" if self.kind is PathKind.EXACT else "PathPrefix"
        return f"path {type_} {self.path.decode() or '/'}"

    def accepts_path(self, path: bytes, asked: Asked) -> bool:
        """The same answer as the index gives, for one match alone."""
        if self.pattern is not None:
            return asked.fits(self.pattern, path)
        if path == self.path:
            return True
        return self.kind is PathKind.PREFIX and path.startswith(self.path + b"/")


class GrpcMatch(Match):
    """A match of a route of kind grpc. `path` is /service/method, /service or the method alone, as the match wants."""

    __slots__ = ("kind", "method_pattern")
    criteria = CALL_RANK_CRITERIA

    def __init__(self, rule: Rule, index: int, spec: document.Match, seniority: Seniority) -> None:
        super().__init__(rule, index, spec)
        call = spec.grpc or document.GrpcMethodMatch()
        service, method = call.service or "", call.method or ""
        self.method_pattern: Automaton | None = None
        if call.type == "RegularExpression":
            self.kind = CallKind.PATTERN
            self.pattern = automaton(service) if service else None
            self.method_pattern = automaton(method) if method else None
        elif service:
            self.kind = CallKind.EXACT if method else CallKind.SERVICE
            self.path = f"/{service}/{method}".encode() if method else f"/{service}".encode()
        else:
            self.kind = CallKind.METHOD if method else CallKind.ANY
            self.path = method.encode()
        self.rank = (int(self.kind), -len(service), -len(method), *self._tail(seniority))

    @property
    def wish(self) -> str:
        if self.kind is CallKind.PATTERN:
            parts = [pattern.pattern if pattern else "*" for pattern in (self.pattern, self.method_pattern)]
            return f"gRPC RegularExpression {parts[0]} / {parts[1]}"
        text = self.path.decode()
        shown = {CallKind.SERVICE: f"{text}/*", CallKind.METHOD: f"/*/{text}", CallKind.ANY: "/*/*"}
        return f"gRPC Exact {shown.get(self.kind, text)}"

    def accepts_path(self, path: bytes, asked: Asked) -> bool:
        """The same answer as the index gives, for one match alone."""
        service, _, method = path.rpartition(b"/")
        if self.kind is CallKind.EXACT:
            return path == self.path
        if self.kind is CallKind.SERVICE:
            return service == self.path
        return self.accepts_call(service[1:], method, asked)

    def accepts_call(self, service: bytes, method: bytes, asked: Asked) -> bool:
        """The condition on service and method, for kinds that no index finds by key: PATTERN, METHOD and ANY."""
        if self.kind is CallKind.PATTERN:
            return (self.pattern is None or asked.fits(self.pattern, service)) and (
                self.method_pattern is None or asked.fits(self.method_pattern, method)
            )
        return self.kind is CallKind.ANY or self.path == method


def _conditions(
    named: Iterable[tuple[str, document.HeaderMatch | document.QueryParamMatch]],
) -> tuple[Condition, ...]:
    """Of entries with the same name, the first counts."""
    conditions: dict[bytes, Condition] = {}
    for name, spec in named:
        key = name.encode()
        if key not in conditions:
            conditions[key] = Condition(key, spec.type, spec.value)
    return tuple(conditions.values())
