"""Document in, compiled table out: at once with `compile_table`, or a few routes at a time with `TableBuilder`."""

from collections.abc import Iterable

import msgspec

from proxy import document
from proxy.routing.hosts import RouteSet
from proxy.routing.listener import Door, make_doors
from proxy.routing.match import GrpcMatch, HttpMatch, Match, seniority
from proxy.routing.rule import Backend, RuleCompiler


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


class TableBuilder:
    """Builds a table in slices; one call of `add_routes` does work in proportion to the routes that it is given."""

    def __init__(self, settings: document.Settings) -> None:
        self._settings = settings
        self._compiler = RuleCompiler(settings.backends)
        self._hostnames = {listener.name: listener.hostname or "" for listener in settings.listeners} or {"": ""}
        self._sets = {name: RouteSet() for name in self._hostnames}
        self._doors = make_doors(settings.listeners, self._sets)
        self._position = 0

    def add_routes(self, routes: Iterable[document.Route]) -> None:
        """Add the next routes of the document, in its order."""
        for route in routes:
            self._add(route)
            self._position += 1

    def finish(self) -> Table:
        """The table; the builder must not be used afterwards."""
        return Table(self._settings, self._doors, self._compiler.backends, self._position, self._settings.merge_slashes)

    def _add(self, route: document.Route) -> None:
        matches = self._matches(route)
        for listener in route.listeners or self._hostnames:
            routes, own = self._sets[listener], self._hostnames[listener]
            for hostname in route.hostnames or ("",):
                if hosts_overlap(own, hostname):
                    for match in matches:
                        routes.add(hostname, match)

    def _matches(self, route: document.Route) -> list[Match]:
        name = route.name or f"routes[{self._position}]"
        kind = GrpcMatch if route.kind == "grpc" else HttpMatch
        found: list[Match] = []
        for index, rule in enumerate(route.all_rules):
            compiled = self._compiler.compile(rule, index, name, route.kind)
            for place, spec in enumerate(rule.matches or (document.Match(),)):
                found.append(kind(compiled, place, spec, seniority(route, self._position)))
        return found


def compile_table(config: document.Document) -> Table:
    """The table of a whole document."""
    builder = TableBuilder(config)
    builder.add_routes(config.routes)
    return builder.finish()


def hosts_overlap(one: str, other: str) -> bool:
    """Whether some host is covered by both hostnames; an empty one covers all hosts."""
    if not one or not other or one == other:
        return True
    return _covers(one, other) or _covers(other, one)


def _covers(wildcard: str, hostname: str) -> bool:
    return wildcard.startswith("*.") and hostname.removeprefix("*").endswith(wildcard[1:]) and hostname != wildcard
