"""All doors of a worker.

    doors = Doors(loop, services.begin, stats, pools.forget_client)
    doors.prepare(table, sockets)()   at the start and with each new table; sockets by `routing.socket_door` name
    doors.drain(on_idle)              waiting clients are accepted, the sockets are closed, running exchanges finish
    doors.abort(reason)               the rest, when the grace period is over

Sockets are already bound and listening, and belong to the doors from then on; bind errors are reported elsewhere.
Called only in the loop's thread.
"""

import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from proxy.doors.acceptor import Reserve
from proxy.doors.door import Change, Door, layouts
from proxy.doors.registry import Registry
from proxy.doors.terms import Begin, Caches, terms_of
from proxy.exchange.client import Arrival
from proxy.loop import Loop
from proxy.routing import Table
from proxy.stats import Stats


class Doors:
    def __init__(self, loop: Loop, begin: Begin, stats: Stats, on_client_gone: Callable[[Arrival], None]) -> None:
        """`on_client_gone` is called when an HTTP/1.1 connection has closed."""
        self._on_client_gone = on_client_gone
        self._loop = loop
        self._begin = begin
        self._stats = stats
        self._on_idle: Callable[[], None] | None = None
        self.caches = Caches()
        """The tunnel's connections use them too."""
        self._registry = Registry(self._on_empty)
        self._reserve = Reserve()
        self._doors: dict[str, Door] = {}
        self._is_draining = False
        self._is_closed = False
        """No new connections are accepted."""

    def prepare(self, table: Table, sockets: Mapping[str, socket.socket]) -> Callable[[], None]:
        """Prepare to serve by `table`; call the result at once to do so. All that may fail happens before any change.

        If this raises, the sockets still belong to the caller. `sockets` needs to hold only new ones; a door without a
        socket stays shut. A door that the table no longer has accepts waiting clients, and its connections finish their
        requests.
        """
        if self._is_draining:
            return partial(_close, sockets.values())
        wanted = dict(layouts(table, terms_of(table.settings.limits, self._begin, self.caches)))
        changes: dict[str, Change] = {}
        with contextlib.ExitStack() as undoing:
            for name, layout in wanted.items():
                door = self._doors.get(name)
                if door is None:
                    if name not in sockets:
                        continue
                    door = Door(
                        name, self._loop, self._registry, self._reserve, self._stats.door(name), self._on_client_gone
                    )
                change = changes[name] = door.prepare(layout, sockets.get(name))
                undoing.callback(change.take_back)
            undoing.pop_all()
        unwanted = [sock for name, sock in sockets.items() if name not in wanted]
        return partial(self._carry_out, table.settings.limits.max_connections, changes, unwanted)

    def _carry_out(self, max_connections: int, changes: dict[str, Change], unwanted: list[socket.socket]) -> None:
        self._registry.max_connections = max_connections
        for name in self._doors.keys() - changes.keys():
            self._doors.pop(name).retire()
        for name, change in changes.items():
            self._doors[name] = change.door
            change.carry_out()
        _close(unwanted)

    def drain(self, on_idle: Callable[[], None]) -> None:
        """`on_idle` is called when the last connection has closed, perhaps before this returns. Idempotent."""
        if self._is_draining:
            return
        self._on_idle = on_idle
        self._is_draining = True
        for door in self._doors.values():
            door.drain()
        self._is_closed = True
        for member in self._registry:
            # Connections of retired doors, which are no longer in `_doors`.
            member.drain()
        if self._registry.is_empty:
            self._on_empty()

    def abort(self, reason: str = "shutting down") -> None:
        """Close everything at once."""
        self._is_draining = self._is_closed = True
        for door in self._doors.values():
            door.abort(reason)
        for member in self._registry:
            member.abort(reason)
        self._registry.abort()
        self._reserve.close()

    def _on_empty(self) -> None:
        if not self._is_closed:
            return
        self._reserve.close()
        on_idle, self._on_idle = self._on_idle, None
        if on_idle is not None:
            on_idle()


def _close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
