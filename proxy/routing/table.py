"""Document in, compiled table out: at once with `compile_table`, or a few routes at a time with `TableBuilder`."""

from collections.abc import Iterable, Iterator, Set

import msgspec

from proxy import document
from proxy.routing.hosts import RouteSet, emptied
from proxy.routing.listener import Door, make_doors
from proxy.routing.match import GrpcMatch, HttpMatch, Match, seniority
from proxy.routing.rule import Backend, Rule, RuleCompiler

_EVERYTHING = (document.Match(),)
_STEP = 20


class CompiledRoute(msgspec.Struct, frozen=True, gc=False):
    """A route ready to be entered into the listeners' sets."""

    listeners: tuple[str, ...]
    hostnames: tuple[str, ...]
    """At least one; empty text stands for every host."""
    rules: tuple[Rule, ...]
    matches: tuple[Match, ...]


class Table(msgspec.Struct, frozen=True):
    """All that routing knows; never changed once it is finished, so running requests may keep an old one."""

    settings: document.Settings
    """Limits, forwarding, listeners as they were written."""
    doors: dict[str, Door]
    """By name: `socket_door(address, port)`, TUNNEL_HTTP, TUNNEL_HTTPS."""
    backends: dict[str, Backend]
    """Every backend that a rule or mirror can reach, by key, and those of the document that none reaches."""
    probed: frozenset[str]
    """Keys of the backends with active health checks."""
    merge_slashes: bool
    routes: dict[int, CompiledRoute]
    """By number, for the builder of the next table; likewise all that follows."""
    sets: dict[str, RouteSet]
    """By name of the listener; "" where there are no listeners."""
    hostnames: dict[str, str]
    """Of the same listeners."""
    uses: dict[str, int]
    """How often rules refer to a backend that they describe themselves, by key."""

    @property
    def route_count(self) -> int:
        return len(self.routes)

    def dismantle(self) -> Iterator[None]:
        """Let go of the parts, a few at each step: to drop 10,000 routes at once takes tens of milliseconds.

        For a table that `decide` is not called with any more; decisions that were taken from it stay good.
        """
        return _dismantle(self, list(self.backends.values()), frozenset())


class TableBuilder:
    """Builds a table in slices; each call does work in proportion to what it is given.

    With the table before, it begins with all that this one has. The calls come in this order: `remove_routes`,
    `remove_backends`, `fill` to its end, `put_backends`, `add_routes`, `finish`.
    """

    def __init__(self, settings: document.Settings, previous: Table | None = None) -> None:
        self._settings = settings
        self._previous = previous
        self._compiler = RuleCompiler(previous.backends, previous.uses) if previous else RuleCompiler()
        self._probed = set(previous.probed) if previous else set()
        self._routes = previous.routes.copy() if previous else {}
        self._hostnames = {listener.name: listener.hostname or "" for listener in settings.listeners} or {"": ""}
        self._replaced: list[object] = []
        """What only the table before still needs."""
        self._sets: dict[str, RouteSet] = {}
        self._unfilled: dict[str, RouteSet] = {}
        """Of listeners that the table before does not have."""
        for name, hostname in self._hostnames.items():
            if previous is not None and previous.hostnames.get(name) == hostname:
                self._sets[name] = previous.sets[name].copy(self._replaced)
            else:
                self._sets[name] = self._unfilled[name] = RouteSet()

    def remove_routes(self, numbers: Iterable[int]) -> None:
        """Routes of the table before."""
        for number in numbers:
            route = self._routes.pop(number)
            self._replaced.append(route)
            self._compiler.forget(route.rules)
            for name, hostname in self._entries(route, self._sets):
                if name not in self._unfilled:
                    self._sets[name].remove(hostname, route.matches)

    def remove_backends(self, names: Iterable[str]) -> None:
        """Which no route refers to any more."""
        for name in names:
            del self._compiler.backends[name]
            self._probed.discard(name)

    def fill(self) -> Iterator[None]:
        """Enter the routes that stay for listeners that are new, some at a time."""
        if not self._unfilled:
            return
        for place, route in enumerate([*self._routes.values()]):
            self._enter(route, self._unfilled)
            if place % _STEP == _STEP - 1:
                yield

    def put_backends(self, specs: Iterable[document.Backend]) -> None:
        """New ones, or in place of those with the same names, whose routes were removed and are to be added again."""
        for spec in specs:
            self._compiler.backends[spec.name] = Backend(spec.name, spec)
            (self._probed.add if spec.active_health else self._probed.discard)(spec.name)

    def add_routes(self, routes: Iterable[tuple[int, int, document.Route]]) -> None:
        """Each with its number, which no other route has, and its place, which counts when it has no name."""
        for number, place, route in routes:
            compiled = self._routes[number] = self._compiled(route, place)
            self._enter(compiled, self._sets)

    def finish(self) -> Table:
        """The table; the builder is good for `let_go` only then."""
        settings = self._settings
        for routes in self._sets.values():
            routes.seal()
        return Table(
            settings,
            make_doors(settings.listeners, self._sets),
            self._compiler.backends,
            frozenset(self._probed),
            settings.merge_slashes,
            self._routes,
            self._sets,
            self._hostnames,
            self._compiler.uses,
        )

    def let_go(self) -> Iterator[None]:
        """Dismantle the table before, but for what the new one has of it."""
        previous, self._previous = self._previous, None
        if previous is not None:
            yield from _dismantle(previous, self._replaced, self._sets.keys() - self._unfilled.keys())

    def _entries(self, route: CompiledRoute, sets: dict[str, RouteSet]) -> Iterator[tuple[str, str]]:
        """Under which hostnames of which listeners a route is found."""
        for listener in route.listeners or sets:
            own = self._hostnames.get(listener)
            if own is not None:
                for hostname in route.hostnames:
                    if hosts_overlap(own, hostname):
                        yield listener, hostname

    def _enter(self, route: CompiledRoute, sets: dict[str, RouteSet]) -> None:
        for listener, hostname in self._entries(route, sets):
            if listener in sets:
                sets[listener].add(hostname, route.matches)

    def _compiled(self, route: document.Route, place: int) -> CompiledRoute:
        name = route.name or f"routes[{place}]"
        kind = GrpcMatch if route.kind == "grpc" else HttpMatch
        age = seniority(route, place)
        rules: list[Rule] = []
        matches: list[Match] = []
        for index, spec in enumerate(route.all_rules):
            rule = self._compiler.compile(spec, index, name, route.kind)
            rules.append(rule)
            for match_place, match in enumerate(spec.matches or _EVERYTHING):
                matches.append(kind(rule, match_place, match, age))
        return CompiledRoute(route.listeners, route.hostnames or ("",), tuple(rules), tuple(matches))


def _dismantle(table: Table, pieces: list[object], kept: Set[str]) -> Iterator[None]:
    """Let go of `pieces`, and of what no other table has, a few at a time.

    `kept` names the listeners whose indexes are among `pieces` or shared: those others hold, so they go at once.
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
    """The table of a whole document."""
    builder = TableBuilder(document.settings_of(config))
    builder.put_backends(config.backends)
    builder.add_routes((place, place, route) for place, route in enumerate(config.routes))
    return builder.finish()


def hosts_overlap(one: str, other: str) -> bool:
    """Whether some host is covered by both hostnames; an empty one covers all hosts."""
    if not one or not other or one == other:
        return True
    return _covers(one, other) or _covers(other, one)


def _covers(wildcard: str, hostname: str) -> bool:
    return wildcard.startswith("*.") and hostname.removeprefix("*").endswith(wildcard[1:]) and hostname != wildcard
