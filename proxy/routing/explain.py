"""Explains why `decide` does what it does with a request, from the same table and in the same order.

It is slow, since it looks at every match of the door. It returns values; `commands.explainview` prints them.
"""

import sys
from collections.abc import Iterator

import msgspec

from proxy.routing.asked import Asked
from proxy.routing.decide import BAD_PATH, NO_RESOURCE, TOO_MUCH, decide
from proxy.routing.decision import Answer, Decision
from proxy.routing.head import Head, header
from proxy.routing.hosts import RouteSet, is_grpc
from proxy.routing.listener import Listener
from proxy.routing.match import Condition, GrpcMatch, Match
from proxy.routing.paths import UnusablePath, host_of, normalise
from proxy.routing.rule import Branch, Rule
from proxy.routing.sender import STRANGER, SeenHead, Sender
from proxy.routing.table import Table

MAX_MISSES = 5
_UNROUTED = frozenset((BAD_PATH.reason, NO_RESOURCE.reason, TOO_MUCH.reason))


class MatchPlace(msgspec.Struct, frozen=True):
    """A match, and where it is in the document."""

    route: str
    kind: str
    rule: str
    """The rule's name, else its place, such as `rules[2]`."""
    match: int
    """Index in the rule's `matches`."""
    hostname: str
    """The route's hostname under which it was found; empty: every host."""
    conditions: tuple[str, ...]
    """In words, such as `path PathPrefix /api` and `header x-canary Exact 1`."""


class Miss(msgspec.Struct, frozen=True):
    """A match that did not get the request, and the first criterion that failed."""

    place: MatchPlace
    criterion: str
    """hostname, path, method, a header or query parameter, the content type of gRPC, or the listener."""
    wanted: str
    seen: str | None
    """None: the request has no such header field or query parameter."""


class BackendShare(msgspec.Struct, frozen=True):
    """A backend reference of the rule, with its share of the requests."""

    backend: str
    """Key of the backend; status code and reason for a reference that answers by itself."""
    addresses: tuple[str, ...]
    share: float
    """0.0 to 1.0, of the requests without a session."""
    filters: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True):
    """What happens to one request at one door."""

    door: str
    host: str
    path: str
    """Normalised, as rules see it; as sent if it cannot be normalised."""
    listener: str | None
    listener_hostname: str
    other_listeners: tuple[str, ...]
    """The door's listeners that did not get the request, as `name (hostname)`."""
    winner: MatchPlace | None
    runner_up: MatchPlace | None
    """The match that would have got the request without the winner."""
    decided_by: str | None
    """The first criterion in which winner and runner-up differ."""
    filters: tuple[str, ...]
    """The rule's filters and policies, in words."""
    backends: tuple[BackendShare, ...]
    misses: tuple[Miss, ...]
    """The MAX_MISSES matches that came closest, closest first."""
    decision: Decision
    """What `decide` returns when every `draw` returns 0.0."""


def explain(table: Table, door: str, head: Head, now_s: float = 0.0, sender: Sender = STRANGER) -> Explanation:
    """Explain what `decide` does with the same arguments."""
    decision = decide(table, door, head, lambda: 0.0, now_s, sender)
    entrance = table.doors.get(door)
    listeners = list(entrance or ())
    listener = entrance.listener_for(host_of(head.authority)) if entrance is not None else None
    others = [other for other in listeners if other is not listener]
    if table.client_fields is not None and listeners:
        head = SeenHead(head, listener or listeners[0], sender, table.client_fields)
    request = _Request(table, head)
    is_routed = listener is not None and not (isinstance(decision, Answer) and decision.reason in _UNROUTED)
    ranked = list(request.accepted(listener.routes)) if listener is not None and is_routed else []
    winner, runner_up = (*ranked, None, None)[:2]
    rule = winner[1].rule if winner is not None else None
    return Explanation(
        door,
        _text(request.host),
        _text(request.path),
        listener.name if listener is not None else None,
        listener.hostname if listener is not None else "",
        tuple(f"{other.name} ({other.hostname or 'every host'})" for other in others),
        _place(*winner) if winner is not None else None,
        _place(*runner_up) if runner_up is not None else None,
        _difference(winner, runner_up) if winner is not None and runner_up is not None else None,
        tuple(_rule_filters(rule)) if rule is not None else (),
        tuple(_shares(rule)) if rule is not None else (),
        tuple(request.nearest_misses(listener, others)),
        decision,
    )


class _Request:
    """A request as matches see it."""

    def __init__(self, table: Table, head: Head) -> None:
        self.head = head
        self.host = host_of(head.authority)
        path, _, query = head.path.partition(b"?")
        self.asked = Asked(query, head, sys.maxsize)
        try:
            self.path = normalise(path, merge_slashes=table.settings.merge_slashes)
        except UnusablePath:
            self.path = path

    def accepted(self, routes: RouteSet) -> Iterator[tuple[str, Match]]:
        """All matches that accept the request, best first."""
        for hostname, index in routes.indexes_of(self.host):
            accepting = [match for match in index if self._obstacle(match) is None]
            calls = sorted((match for match in accepting if isinstance(match, GrpcMatch)), key=lambda m: m.rank)
            others = sorted((match for match in accepting if not isinstance(match, GrpcMatch)), key=lambda m: m.rank)
            yield from ((hostname, match) for match in (*calls, *others))

    def nearest_misses(self, listener: Listener | None, others: list[Listener]) -> list[Miss]:
        """The matches that failed at the latest criterion. A match that only other listeners have counts as a miss if
        all its conditions hold."""
        found: list[tuple[int, Miss]] = []
        here: set[int] = set()
        for hostname, match in listener.routes if listener is not None else ():
            here.add(id(match))
            obstacle = self._obstacle(match) if _covers(hostname, self.host) else (0, "hostname", hostname, self.host)
            if obstacle is not None:
                depth, criterion, wanted, seen = obstacle
                shown = None if seen is None else _text(seen)
                found.append((depth, Miss(_place(hostname, match), criterion, wanted, shown)))
        for other in others:
            for hostname, match in other.routes:
                if id(match) not in here and _covers(hostname, self.host) and self._obstacle(match) is None:
                    chosen = listener.name if listener is not None else "no listener"
                    found.append((9, Miss(_place(hostname, match), "listener", other.name, chosen)))
        # Sorting is stable, so misses of equal depth stay in the order of the table.
        found.sort(key=lambda entry: -entry[0])
        return [miss for _, miss in found[:MAX_MISSES]]

    def _obstacle(self, match: Match) -> tuple[int, str, str, bytes | None] | None:
        """How far the match got (1 to 5), the first criterion that failed, what it wanted, and what was seen."""
        head = self.head
        if isinstance(match, GrpcMatch) and not is_grpc(head):
            return 1, "content-type", "application/grpc", header(head, b"content-type")
        if not match.accepts_path(self.path, self.asked):
            return 2, "path", match.wish, self.path
        if match.method is not None and match.method != head.method and not match.is_method_announced(self.asked):
            announced = self.asked.announced_method if match.rule.cors is not None else None
            seen = head.method if announced is None else b"preflight of " + announced
            return 3, "method", _text(match.method), seen
        for condition in match.headers:
            value = self.asked.header(condition.name)
            if not condition.accepts(value, self.asked) and not match.is_announced(condition, self.asked):
                return 4, f"header {_text(condition.name)}", _value_words(condition), value
        for condition in match.queries:
            value = self.asked.parameter(condition.name)
            if not condition.accepts(value, self.asked):
                return 5, f"query parameter {_text(condition.name)}", _value_words(condition), value
        return None


def _place(hostname: str, match: Match) -> MatchPlace:
    rule = match.rule
    name = rule.name or f"rules[{rule.index}]"
    return MatchPlace(rule.route_name, rule.route_kind, name, match.index, hostname, tuple(_conditions(match)))


def _conditions(match: Match) -> Iterator[str]:
    yield match.wish
    if match.method is not None:
        yield f"method {_text(match.method)}"
    for condition in match.headers:
        yield f"header {_text(condition.name)} {_value_words(condition)}"
    for condition in match.queries:
        yield f"query parameter {_text(condition.name)} {_value_words(condition)}"


def _value_words(condition: Condition) -> str:
    return f"{condition.type} {_text(condition.value) or '(empty)'}"


def _difference(winner: tuple[str, Match], runner_up: tuple[str, Match]) -> str:
    if winner[0] != runner_up[0]:
        return "hostname"
    if winner[1].rule.route_kind != runner_up[1].rule.route_kind:
        return "kind of route"
    pairs = zip(winner[1].criteria, winner[1].rank, runner_up[1].rank, strict=True)
    return next(criterion for criterion, one, other in pairs if one != other)


def _rule_filters(rule: Rule) -> Iterator[str]:
    if rule.cors is not None:
        yield "cors"
    if rule.redirect is not None:
        yield f"requestRedirect {rule.redirect.status_code}"
    if rule.answer is not None:
        yield f"respond {rule.answer.status_code} ({rule.answer.reason})"
    if rule.authorization is not None:
        yield f"externalAuth by {rule.authorization.backend.key}"
    if rule.persistence is not None:
        yield f"sessionPersistence {_text(rule.persistence.name)}"
    if rule.request_timeout_s is not None:
        yield f"timeouts.request {rule.request_timeout_s:g}s"
    if rule.backend_timeout_s is not None:
        yield f"timeouts.backendRequest {rule.backend_timeout_s:g}s"
    if rule.retry is not None:
        yield f"retry {rule.retry.attempts} times"


def _shares(rule: Rule) -> Iterator[BackendShare]:
    total = rule.cumulative[-1] if rule.cumulative else 0
    for branch in rule.branches:
        answer = branch.answer
        addresses = branch.backend.spec.addresses if branch.backend is not None else ()
        name = f"{answer.status_code} ({answer.reason})" if answer is not None else ""
        key = branch.backend.key if branch.backend is not None else name
        share = branch.weight / total if total else 0.0
        yield BackendShare(key, addresses, share, tuple(_branch_filters(branch)))


def _branch_filters(branch: Branch) -> Iterator[str]:
    for label, edits in (("request", branch.request_edits), ("response", branch.response_edits)):
        if edits is not None:
            dropped = sorted(edits.drop - {name for name, _ in edits.append})
            yield from (f"{label} header {_text(name)} removed" for name in dropped)
            yield from (f"{label} header {_text(name)}: {_text(value)}" for name, value in edits.append)
    if branch.hostname:
        yield f"host rewritten to {_text(branch.hostname)}"
    if branch.path is not None:
        what = "matched prefix" if branch.path.is_prefix else "path"
        yield f"{what} replaced by {_text(branch.path.replacement) or '/'}"
    for mirror in branch.mirrors:
        share = "every request" if mirror.share >= 1 else f"{mirror.share:.4g} of requests"
        yield f"{share} copied to {mirror.backend.key}"


def _covers(hostname: str, host: bytes) -> bool:
    if hostname.startswith("*."):
        return host.endswith(hostname[1:].encode())
    return not hostname or hostname.encode() == host


def _text(value: bytes) -> str:
    return value.decode("latin-1")
