"""Series of routes, backends and doors that have left the table. A worker drops them once nothing is running on them.

The supervisor keeps their counts (`proxy.supervisor.totals`). So `let_go` must be called right after a report, before
anything is counted that was not reported. After a new table, one search in slices finds the departed series.
Tables may arrive more often than reports. A series is then dropped even if its route has come back meanwhile; counting
starts again with the route's next request, and the supervisor adds that to the old count. Not so that of a door, which
would go on counting in what was dropped.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from proxy.routing import Table
from proxy.stats import NO_ROUTE, OTHER, Stats

_STEP = 500
"""Routes per slice: a few tenths of a millisecond."""


class Departed:
    def __init__(self, stats: Stats, is_served: Callable[[str], bool]) -> None:
        """`is_served` says whether requests may still go to the backend with that key."""
        self._stats = stats
        self._is_served = is_served
        self._table: Table | None = None
        self._is_table_new = False
        self._routes: set[str] = set()
        self._backends: set[str] = set()
        self._doors: set[str] = set()

    def use(self, table: Table) -> None:
        self._table = table
        self._is_table_new = True

    def let_go(self) -> Iterator[None]:
        """Drop the series known to have left; the returned steps find those that have left with the latest table."""
        routes, backends, doors = self._stats.routes, self._stats.backends, self._stats.doors
        before = len(routes) + len(backends) + len(doors)
        for name in [name for name in self._routes if not routes[name].in_flight]:
            self._routes.remove(name)
            del routes[name]
        # Dropped keys stay known: a request may end, and be counted, long after its backend's part in it.
        for key in [key for key in self._backends if key in backends and not self._is_served(key)]:
            del backends[key]
        for name in [name for name in self._doors if not doors[name].connections]:
            self._doors.remove(name)
            if self._table is not None and name not in self._table.doors:
                del doors[name]
        if len(routes) + len(backends) + len(doors) < before:
            self._stats.drops += 1
        return self._look_up()

    def _look_up(self) -> Iterator[None]:
        table = self._table
        if table is None or not self._is_table_new:
            return
        self._is_table_new = False
        in_use = {NO_ROUTE, OTHER}
        routes = iter(table.routes.values())
        while some := [*islice(routes, _STEP)]:
            in_use.update(rule.route_name for route in some for rule in route.rules[:1])
            yield
        if self._table is not table:
            return
        self._routes = self._stats.routes.keys() - in_use
        self._backends = self._stats.backends.keys() - table.backends.keys() - {OTHER}
        self._doors = self._stats.doors.keys() - table.doors.keys() - {OTHER}
