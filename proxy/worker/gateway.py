"""The rooms of a worker, joined: backends, exchanges, doors. What a table is changed with and how it all ends."""

import random
import socket
import time
from collections.abc import Callable, Mapping

from proxy.accesslog.writer import AccessLogWriter
from proxy.backend.pools import Pools
from proxy.doors.doors import Doors
from proxy.exchange.services import Services
from proxy.loop import Loop
from proxy.routing import Table
from proxy.stats import Stats


class Gateway:
    """Everything behind the listening sockets; belongs to the loop's thread."""

    def __init__(self, loop: Loop, stats: Stats, access_log: AccessLogWriter) -> None:
        self._pools = Pools(loop, stats)
        self._services = Services(
            loop=loop,
            pools=self._pools,
            stats=stats,
            access_log=access_log.write,
            is_logged=access_log.wants,
            draw=random.random,
            wall_clock_s=time.time,
        )
        self._doors = Doors(loop, self._services, stats)

    def use(self, table: Table, sockets: Mapping[str, socket.socket]) -> None:
        """From now on, with the sockets of new doors; running exchanges keep the table that they began with."""
        self._pools.use(table)
        self._services.use(table)
        self._doors.use(table, sockets)

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Take nothing new; `on_idle` is called when nothing runs any more."""
        self._doors.on_idle = on_idle
        self._doors.drain()
        self._pools.drain()

    def close(self) -> None:
        self._pools.close()
