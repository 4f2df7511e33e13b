"""Document in, compiled table out: at once with `compile_table`, or a few routes at a time with `TableBuilder`."""

from collections.abc import Iterable, Iterator

import msgspec

from proxy import document
from proxy.routing.hosts import RouteSet
from proxy.routing.listener import Door, make_doors
from proxy.routing.match import GrpcMatch, HttpMatch, Match, seniority
from proxy.routing.rule import Backend, Rule, RuleCompiler

_EVERYTHING = (document.Match(),)


class CompiledRoute(msgspec.Struct, frozen=True, gc=False):
    """A route ready to be entered into the listeners' sets."""

    is_named: bool
    """Only such routes are the same wherever they stand in the document."""
    listeners: tuple[str, ...]
    hostnames: tuple[str, ...]
    """At least one; empty text stands for every host."""
    rules: tuple[Rule, ...]
    matches: tuple[Match, ...]


class Table(msgspec.Struct, frozen=True):
    """All that routing knows; never changed once it is finished, so running requests may keep an old one."""

    settings: document.Settings
    """The document without its routes: limits, forwarding, listeners as they were written."""
    doors: dict[str, Door]
    """By name: `socket_door(address, port)`, TUNNEL_HTTP, TUNNEL_HTTPS."""
    backends: dict[str, Backend]
    """Every backend that a rule or mirror can reach, by key, and those of the document that none reaches."""
    route_count: int
    merge_slashes: bool
    known: dict[bytes, CompiledRoute]
    """Compiled routes by their bytes in the document, for the builder of the next table."""

    def dismantle(self, step: int = 20) -> Iterator[None]:
        """Let go of the parts, a few at each step: to drop 10,000 routes at once takes tens of milliseconds.

        For a table that `decide` is not called with any more; decisions that were taken from it stay good.
        """
        for door in self.doors.values():
            for listener in door:
                yield from listener.routes.dismantle(step)
        while self.known:
            for _ in range(min(step, len(self.known))):
                self.known.popitem()
            yield


class TableBuilder:
    """Builds a table in slices; one call of `add_...` does work in proportion to the routes that it is given.

    With the table before, routes whose bytes have not changed are neither decoded nor compiled again.
    """

    def __init__(self, settings: document.Settings, previous: Table | None = None) -> None:
        self._settings = settings
        self._compiler = RuleCompiler(settings.backends)
        self._hostnames = {listener.name: listener.hostname or "" for listener in settings.listeners} or {"": ""}
        self._sets = {name: RouteSet() for name in self._hostnames}
        self._doors = make_doors(settings.listeners, self._sets)
        self._position = 0
        self._known: dict[bytes, CompiledRoute] = {}
        # Compiled rules point to backends, so they are good for another table only if it has the same ones.
        is_reusable = previous is not None and previous.settings.backends == settings.backends
        self._earlier = previous.known if previous is not None and is_reusable else {}

    def add_routes(self, routes: Iterable[document.Route]) -> None:
        """Add the next routes of the document, in its order."""
        for route in routes:
            self._enter(self._compiled(route))

    def add_raw_routes(self, raws: Iterable[msgspec.Raw]) -> None:
        """Add the next routes of a `document.Outline`, in its order."""
        for raw in raws:
            data = bytes(raw)
            compiled = self._earlier.get(data)
            if compiled is None:
                compiled = self._compiled(document.decode_route(raw))
            else:
                for rule in compiled.rules:
                    self._compiler.adopt(rule)
            if compiled.is_named:
                self._known[data] = compiled
            self._enter(compiled)

    def finish(self) -> Table:
        """The table; the builder must not be used afterwards."""
        settings = self._settings
        backends = self._compiler.backends
        return Table(settings, self._doors, backends, self._position, settings.merge_slashes, self._known)

    def _enter(self, route: CompiledRoute) -> None:
        self._position += 1
        for listener in route.listeners or self._hostnames:
            routes, own = self._sets[listener], self._hostnames[listener]
            for hostname in route.hostnames:
                if hosts_overlap(own, hostname):
                    routes.add(hostname, route.matches)

    def _compiled(self, route: document.Route) -> CompiledRoute:
        name = route.name or f"routes[{self._position}]"
        kind = GrpcMatch if route.kind == "grpc" else HttpMatch
        age = seniority(route, self._position)
        rules: list[Rule] = []
        matches: list[Match] = []
        for index, spec in enumerate(route.all_rules):
            rule = self._compiler.compile(spec, index, name, route.kind)
            rules.append(rule)
            for place, match in enumerate(spec.matches or _EVERYTHING):
                matches.append(kind(rule, place, match, age))
        return CompiledRoute(bool(route.name), route.listeners, route.hostnames or ("",), tuple(rules), tuple(matches))


def compile_table(config: document.Document) -> Table:
    """The table of a whole document."""
    builder = TableBuilder(document.settings_of(config))
    builder.add_routes(config.routes)
    return builder.finish()


def hosts_overlap(one: str, other: str) -> bool:
    """Whether some host is covered by both hostnames; an empty one covers all hosts."""
    if not one or not other or one == other:
        return True
    return _covers(one, other) or _covers(other, one)


def _covers(wildcard: str, hostname: str) -> bool:
    return wildcard.startswith("*.") and hostname.removeprefix("*").endswith(wildcard[1:]) and hostname != wildcard
