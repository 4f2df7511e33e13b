"""Document in, compiled table out: at once with `compile_table`, or a few routes at a time with `TableBuilder`."""

from collections.abc import Callable, Generator, Iterable, Iterator, Set
from typing import TypeAlias

import msgspec

from proxy import document
from proxy.pattern import automaton
from proxy.routing.clientfields import ClientFields
from proxy.routing.hosts import RouteSet, emptied
from proxy.routing.listener import Door, make_doors
from proxy.routing.match import GrpcMatch, HttpMatch, Match, seniority
from proxy.routing.rule import Backend, Rule, RuleCompiler

_EVERYTHING = (document.Match(),)
_STEP = 20
_MATCHES_PER_STEP = 20
"""Matches compiled, added or removed per step. A route may have thousands, under thousands of hostnames."""
_LOOKS_PER_MATCH = 25
"""How much cheaper it is to compare a route's hostname with a listener's than to add a match to the listener."""

_Change: TypeAlias = Callable[[RouteSet, str, Iterable[Match]], None]


class CompiledRoute(msgspec.Struct, frozen=True, gc=False):
    """A route, ready to be added to the route sets of its listeners."""

    listeners: tuple[str, ...]
    hostnames: tuple[str, ...]
    """At least one; an empty one means every host."""
    rules: tuple[Rule, ...]
    matches: tuple[Match, ...]
    header_names: tuple[bytes, ...]
    """The fields that its matches have conditions on."""


class Table(msgspec.Struct, frozen=True):
    """The compiled document. Never changed once it is finished, so requests in progress may keep an old one."""

    settings: document.Settings
    """Limits, forwarding and listeners as in the document."""
    doors: dict[str, Door]
    """By name: `socket_door(address, port)`, TUNNEL_HTTP, TUNNEL_HTTPS."""
    backends: dict[str, Backend]
    """By key: the document's `backends`, and those that are described inside rules."""
    probed: frozenset[str]
    """Keys of the backends with active health checks."""
    client_fields: ClientFields | None
    """The fields that conditions see as a backend would, see `sender`; None if there is no condition on any."""
    routes: dict[int, CompiledRoute]
    """By number. This and the fields below are for the builder of the next table."""
    sets: dict[str, RouteSet]
    """By name of the listener; under "" if there are no listeners."""
    hostnames: dict[str, str]
    """The hostname of each listener in `sets`."""
    uses: dict[str, int]
    """By key, the number of references to each backend that is described inside rules."""
    client_routes: int
    """The number of routes with conditions on fields that describe clients."""

    def dismantle(self) -> Iterator[None]:
        """Drop the parts, a few at each step: dropping 10,000 routes at once would take tens of milliseconds.

        Call this only when `decide` no longer uses the table; decisions that it has returned stay valid.
        """
        return _dismantle(self, list(self.backends.values()), frozenset())


class TableBuilder:
    """Builds a table in slices; the work of each call is in proportion to its arguments.

    It begins with the content of the previous table, if there is one. Call in this order: `removing_routes`,
    `remove_backends`, `fill`, `put_backends`, `adding_routes`, `finish`. Iterators that these return must be exhausted,
    other work may go between their steps; `add_routes` does so in one go.
    """

    def __init__(self, settings: document.Settings, previous: Table | None = None) -> None:
        self._settings = settings
        self._previous = previous
        self._compiler = RuleCompiler(previous.backends, previous.uses) if previous else RuleCompiler()
        self._probed = set(previous.probed) if previous else set()
        self._routes = previous.routes.copy() if previous else {}
        id_name = settings.forwarding.request_id_header.lower()
        self._client_fields = ClientFields(id_name.encode())
        if previous and previous.settings.forwarding.request_id_header.lower() == id_name:
            self._client_routes = previous.client_routes
        else:
            conditional = (route for route in self._routes.values() if route.header_names)
            self._client_routes = sum(map(self._reads_client_fields, conditional))
        self._hostnames = {listener.name: listener.hostname or "" for listener in settings.listeners} or {"": ""}
        self._replaced: list[object] = []
        """Parts of the previous table that the new one has replaced."""
        self._looks = 0
        """Work done in the current step, in comparisons of hostnames; see _LOOKS_PER_MATCH."""
        self._sets: dict[str, RouteSet] = {}
        self._unfilled: dict[str, RouteSet] = {}
        """Sets of listeners that are new, or have another hostname than in the previous table."""
        for name, hostname in self._hostnames.items():
            if previous is not None and previous.hostnames.get(name) == hostname:
                self._sets[name] = previous.sets[name].copy(self._replaced)
            else:
                self._sets[name] = self._unfilled[name] = RouteSet()

    def removing_routes(self, numbers: Iterable[int]) -> Iterator[None]:
        """Remove routes of the previous table, by number."""
        filled = {name: routes for name, routes in self._sets.items() if name not in self._unfilled}
        self._looks = 0
        for number in numbers:
            route = self._routes.pop(number)
            self._replaced.append(route)
            self._compiler.forget(route.rules)
            self._client_routes -= self._reads_client_fields(route)
            yield from self._changing(route, filled, RouteSet.remove)

    def remove_backends(self, names: Iterable[str]) -> None:
        """Remove backends that no route refers to any more."""
        for name in names:
            del self._compiler.backends[name]
            self._probed.discard(name)

    def fill(self) -> Iterator[None]:
        """Add the routes that stay to the sets of new listeners, a few at a time."""
        if not self._unfilled:
            return
        for place, route in enumerate([*self._routes.values()]):
            yield from self._changing(route, self._unfilled, RouteSet.add)
            if place % _STEP == _STEP - 1:
                yield

    def put_backends(self, specs: Iterable[document.Backend]) -> None:
        """Add backends, or replace those with the same names. Routes that refer to a replaced backend must have been
        removed, and be added again."""
        for spec in specs:
            self._compiler.backends[spec.name] = Backend(spec.name, spec)
            (self._probed.add if spec.active_health else self._probed.discard)(spec.name)

    def add_routes(self, routes: Iterable[tuple[int, int, document.Route]]) -> None:
        _take_all(self.adding_routes(routes))

    def adding_routes(self, routes: Iterable[tuple[int, int, document.Route]]) -> Iterator[None]:
        """Add routes, each with its unique number and its index in the document, which counts if it has no name."""
        self._looks = 0
        for number, place, route in routes:
            compiled = self._routes[number] = yield from self._compiling(route, place)
            self._client_routes += self._reads_client_fields(compiled)
            yield from self._changing(compiled, self._sets, RouteSet.add)

    def finish(self) -> Table:
        """The finished table. After this, only `let_go` may be called."""
        settings = self._settings
        for routes in self._sets.values():
            routes.seal()
        return Table(
            settings,
            make_doors(settings.listeners, self._sets),
            self._compiler.backends,
            frozenset(self._probed),
            self._client_fields if self._client_routes else None,
            self._routes,
            self._sets,
            self._hostnames,
            self._compiler.uses,
            self._client_routes,
        )

    def let_go(self) -> Iterator[None]:
        """Dismantle the previous table, except for what the new one shares with it."""
        previous, self._previous = self._previous, None
        if previous is not None:
            yield from _dismantle(previous, self._replaced, self._sets.keys() - self._unfilled.keys())

    def _changing(self, route: CompiledRoute, sets: dict[str, RouteSet], change: _Change) -> Iterator[None]:
        """Apply `change` to those of `sets` that the route belongs to, a few matches at a time."""
        for listener in route.listeners or sets:
            if listener not in sets:
                continue
            own = self._hostnames[listener]
            for hostname in route.hostnames:
                if hosts_overlap(own, hostname):
                    for start in range(0, len(route.matches), _MATCHES_PER_STEP):
                        matches = route.matches[start : start + _MATCHES_PER_STEP]
                        change(sets[listener], hostname, matches)
                        if self._is_step_over(len(matches) * _LOOKS_PER_MATCH):
                            yield
                elif self._is_step_over(1):
                    yield

    def _reads_client_fields(self, route: CompiledRoute) -> bool:
        return any(name in self._client_fields for name in route.header_names)

    def _is_step_over(self, looks: int) -> bool:
        """Add to the work of this step; True if it is enough, and then a new step begins."""
        self._looks += looks
        if self._looks < _MATCHES_PER_STEP * _LOOKS_PER_MATCH:
            return False
        self._looks = 0
        return True

    def _compiling(self, route: document.Route, place: int) -> Generator[None, None, CompiledRoute]:
        name = route.name or f"routes[{place}]"
        kind = GrpcMatch if route.kind == "grpc" else HttpMatch
        age = seniority(route, place)
        rules: list[Rule] = []
        matches: list[Match] = []
        header_names: set[bytes] = set()
        for index, spec in enumerate(route.all_rules):
            rule = self._compiler.compile(spec, index, name, route)
            rules.append(rule)
            for match_place, match in enumerate(spec.matches or _EVERYTHING):
                yield from _building(match)
                compiled = kind(rule, match_place, match, age)
                matches.append(compiled)
                if compiled.headers:
                    header_names.update(condition.name for condition in compiled.headers)
                if len(matches) % _MATCHES_PER_STEP == 0:
                    yield
        # Without repeats: a name that is listed twice would be added twice, but could be removed only once.
        listeners, hostnames = dict.fromkeys(route.listeners), dict.fromkeys(route.hostnames or ("",))
        return CompiledRoute(tuple(listeners), tuple(hostnames), tuple(rules), tuple(matches), tuple(header_names))


def _building(match: document.Match) -> Iterator[None]:
    """Compile the regular expressions of a match; each that is not cached is a step of its own."""
    for expression, _ in match.expressions():
        built = automaton.cache_info().misses
        automaton(expression)
        if automaton.cache_info().misses > built:
            yield


def _take_all(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def _dismantle(table: Table, pieces: list[object], kept: Set[str]) -> Iterator[None]:
    """Drop `pieces`, and what no other table shares, a few at a time.

    `kept` names the listeners whose indexes are in `pieces` or shared with another table: since something else still
    holds these, dropping them at once is cheap.
    """
    for name, routes in table.sets.items():
        if name in kept:
            routes.clear()
            yield
        else:
            yield from routes.let_go(_STEP)
    if kept:
        table.routes.clear()
    else:
        yield from emptied(table.routes, _STEP)
    while pieces:
        del pieces[-_STEP:]
        yield


def compile_table(config: document.Document) -> Table:
    """Compile a whole document at once."""
    builder = TableBuilder(document.settings_of(config))
    builder.put_backends(config.backends)
    builder.add_routes((place, place, route) for place, route in enumerate(config.routes))
    return builder.finish()


def hosts_overlap(one: str, other: str) -> bool:
    """Whether any host is covered by both hostnames; an empty one covers all hosts."""
    if not one or not other or one == other:
        return True
    return _covers(one, other) or _covers(other, one)


def _covers(wildcard: str, hostname: str) -> bool:
    return wildcard.startswith("*.") and hostname.removeprefix("*").endswith(wildcard[1:]) and hostname != wildcard
