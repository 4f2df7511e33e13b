"""The counts of all successive processes of one slot, so that counters never decrease.

Counters of dead processes are kept, as are series that a process no longer counts. Gauges (in flight, open connections)
end with their process.
"""

from collections.abc import Set
from itertools import zip_longest
from typing import Literal, NamedTuple, TypeVar

import msgspec

from proxy.stats import MAX_SERIES, NO_ROUTE, OTHER, BackendStats, DoorStats, EdgeStats, Outcomes, RouteStats, Stats

_S = TypeVar("_S", RouteStats, BackendStats, DoorStats)


class Series(NamedTuple):
    """Series named after something in the document, which are removed after it."""

    kind: Literal["routes", "backends", "doors"]
    name: str


_LASTING = frozenset(
    (Series("routes", NO_ROUTE), Series("routes", OTHER), Series("backends", OTHER), Series("doors", OTHER))
)


class Totals:
    def __init__(self) -> None:
        self._dead = Stats()
        self._alive = Stats()

    def update(self, stats: Stats) -> None:
        """Take in the latest snapshot of the running process."""
        self._keep(_missing(self._alive, stats))
        self._alive = stats

    def retire(self) -> None:
        """The running process has ended."""
        self._keep(self._alive)
        self._alive = Stats()

    def _keep(self, stats: Stats) -> None:
        _end_gauges(stats)
        add(self._dead, stats, limit=MAX_SERIES)

    @property
    def counted(self) -> set[Series]:
        """The series that the running process counts."""
        return _series(self._alive)

    @property
    def kept(self) -> set[Series]:
        """The series kept from ended processes, or from processes that no longer count them."""
        return _series(self._dead) - _LASTING

    def forget(self, kept: Set[Series]) -> None:
        for kind, name in kept:
            getattr(self._dead, kind).pop(name, None)

    @property
    def table_version(self) -> int:
        return self._alive.table_version

    @property
    def last_swap_s(self) -> float:
        return self._alive.last_swap_s

    def add_to(self, total: Stats) -> None:
        add(total, self._dead)
        add(total, self._alive)


def _series(stats: Stats) -> set[Series]:
    return {
        *(Series("routes", name) for name in stats.routes),
        *(Series("backends", key) for key in stats.backends),
        *(Series("doors", name) for name in stats.doors),
    }


def _missing(before: Stats, now: Stats) -> Stats:
    """The series of `before` that are not in `now`, or only as ones that have begun again."""
    return Stats(
        routes=_ended(before.routes, now.routes),
        backends=_ended(before.backends, now.backends),
        doors=_ended(before.doors, now.doors),
    )


def _ended(before: dict[str, _S], now: dict[str, _S]) -> dict[str, _S]:
    return {name: one for name, one in before.items() if name not in now or now[name].drops != one.drops}


def _end_gauges(stats: Stats) -> None:
    for route in stats.routes.values():
        route.in_flight = 0
    for backend in stats.backends.values():
        backend.in_flight = backend.connections = backend.ejected = 0
    for door in stats.doors.values():
        door.connections = 0
    for edge in stats.edges.values():
        edge.is_up = edge.in_flight = 0


def add(total: Stats, stats: Stats, *, limit: int | None = None) -> None:
    """Add `stats` to `total`. Series beyond `limit` of a kind go to OTHER; without a limit, each keeps its name."""
    for name, route in stats.routes.items():
        _add_route(total.route(name, limit), route)
    for key, backend in stats.backends.items():
        _add_backend(total.backend(key, limit), backend)
    for name, door in stats.doors.items():
        _add_door(total.door(name, limit), door)
    for conn_index, edge in stats.edges.items():
        _add_edge(total.edge(conn_index), edge)
    total.swaps += stats.swaps
    total.access_log_dropped += stats.access_log_dropped


def _add_route(total: RouteStats, route: RouteStats) -> None:
    _add_outcomes(total, route)
    _add_numbers(total, route, ("in_flight", "request_bytes", "response_bytes", "retries"))


def _add_backend(total: BackendStats, backend: BackendStats) -> None:
    names = ("requests", "in_flight", "connections", "connections_opened", "ejections", "ejected")
    _add_outcomes(total, backend)
    _add_numbers(total, backend, names)
    _add_words(total.failures, backend.failures)
    total.mirrored = [one + other for one, other in zip_longest(total.mirrored, backend.mirrored, fillvalue=0)]


def _add_outcomes(total: Outcomes, outcomes: Outcomes) -> None:
    total.responses = [one + other for one, other in zip(total.responses, outcomes.responses, strict=True)]
    total.durations = [one + other for one, other in zip(total.durations, outcomes.durations, strict=True)]
    total.duration_sum_s += outcomes.duration_sum_s
    _add_words(total.calls, outcomes.calls)


def _add_door(total: DoorStats, door: DoorStats) -> None:
    _add_numbers(total, door, ("accepted", "connections"))
    _add_words(total.refused, door.refused)


def _add_edge(total: EdgeStats, edge: EdgeStats) -> None:
    _add_numbers(total, edge, ("in_flight", "requests", "sent_bytes", "received_bytes"))
    if edge.is_up:
        total.round_trip_s = edge.round_trip_s


def _add_numbers(total: msgspec.Struct, part: msgspec.Struct, names: tuple[str, ...]) -> None:
    for name in names:
        setattr(total, name, getattr(total, name) + getattr(part, name))


def _add_words(total: dict[str, int], part: dict[str, int]) -> None:
    for word, count in part.items():
        total[word] = total.get(word, 0) + count
