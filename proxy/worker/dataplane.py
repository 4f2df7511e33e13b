"""Assembles a worker's data plane, from doors through exchanges to backends, switches it to new tables, and ends it."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proxy.accesslog.writer import AccessLogWriter
from proxy.backend.pools import Pools
from proxy.doors.doors import Doors
from proxy.exchange.services import Services
from proxy.loop import Loop
from proxy.routing import Table
from proxy.stats import Stats
from proxy.tunnel.orders import EdgeOrder, EdgeReport
from proxy.worker.departed import Departed

if TYPE_CHECKING:
    from proxy.tunnel.links import Links


class DataPlane:
    """Everything behind the listening sockets and the tunnel. Called in the loop's thread."""

    def __init__(self, loop: Loop, stats: Stats, access_log: AccessLogWriter) -> None:
        self._loop = loop
        self._stats = stats
        self._pools = Pools(loop, stats)
        self._services = Services(
            loop=loop,
            pools=self._pools,
            stats=stats,
            access_log=access_log.write,
            is_logged=access_log.wants,
        )
        self._doors = Doors(loop, self._services.begin, stats, self._pools.forget_client)
        self._departed = Departed(stats, self._pools.serves)
        self._links: Links | None = None
        """The tunnel's connections, once there are orders for them."""
        self._is_draining = False

    def use(self, table: Table, sockets: Mapping[str, socket.socket]) -> None:
        """Switch to `table`, with the sockets of new doors; running exchanges keep the terms that they began with.

        If this raises, the previous table stays in use, and the sockets still belong to the caller. If even that fails,
        the loop ends.
        """
        before = self._services.table
        try:
            self._pools.use(table)
            self._services.use(table)
            use_doors = self._doors.prepare(table, sockets)
        except Exception:
            with self._whole_or_ended():
                self._pools.use(before)
                self._services.use(before)
            raise
        with self._whole_or_ended():
            use_doors()
            self._departed.use(table)
            if self._links is not None:
                self._links.use(table.settings.limits)

    @contextmanager
    def _whole_or_ended(self) -> Iterator[None]:
        """End the loop after an exception: a new process is better than one between two tables."""
        try:
            yield
        except Exception:
            self._loop.stop()
            raise

    def obey(self, order: EdgeOrder, content: memoryview | None, report: Callable[[EdgeReport], None]) -> None:
        """Carry out an order about connections to the tunnel's edge."""
        if self._links is None:
            # Imported here, to save memory without a tunnel.
            from proxy.tunnel.links import Links

            self._links = Links(self._loop, self._services.begin, self._doors.caches, self._stats, report)
            self._links.use(self._services.table.settings.limits)
            if self._is_draining:
                # The order was under way when draining began.
                self._links.drain(lambda: None)
        self._links.obey(order, content)

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Accept nothing new; `on_idle` is called when nothing is running any more."""
        self._is_draining = True
        parts = [self._doors.drain, *([self._links.drain] if self._links is not None else [])]
        waiting = len(parts)

        def one_idle() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                on_idle()

        for drain in parts:
            drain(one_idle)
        self._pools.drain()

    def measure(self) -> None:
        """Update metrics that are not counted as they change."""
        if self._links is not None:
            self._links.measure()

    def let_go_of_departed(self) -> Iterator[None]:
        """Drop departed series. Call right after a report; the returned steps are work that may wait."""
        return self._departed.let_go()

    def close(self) -> None:
        """Abort running exchanges, and write them to the access log. Clients are reset, so that none takes a partial
        response for a complete one."""
        self._doors.abort("cut off, the proxy is stopping")
        if self._links is not None:
            self._links.close()
        self._pools.close()
