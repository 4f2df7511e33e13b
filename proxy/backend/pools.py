"""The connections of one worker to all backends of its table.

    pools = Pools(loop, stats)
    pools.use(table)                                    with each new table; see `stream` for `request`
    stream = pools.request(key, head, end_stream, receiver)
    pools.drain()                                       keep no connection any longer
    pools.close()

A backend gets a pool with its first request, or when it wants active health checks. After a new table, pools whose
backend has not changed keep everything; where only addresses, limits or health checks have, connections to addresses
that stay are kept. The others finish what runs, and are still there for exchanges that run on an earlier table.
"""

import random
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from proxy.backend.means import Means
from proxy.backend.pool import BackendPool, Refusals
from proxy.backend.request import Request
from proxy.backend.resolver import GetAddrInfo
from proxy.backend.stream import NO_WISH, Failure, Reason, Receiver, Wish
from proxy.h2.heads import RequestHead
from proxy.loop import Loop
from proxy.routing import Backend, Table
from proxy.stats import Stats

_STEP: Final = 50
"""Pools that are compared with a new table at a time."""
_LINGER_S: Final = 60.0
"""How long a pool outlives its backend at least: exchanges on earlier tables may still retry."""


class Pools:
    def __init__(
        self,
        loop: Loop,
        stats: Stats,
        *,
        getaddrinfo: GetAddrInfo = socket.getaddrinfo,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._loop = loop
        self._stats = stats
        self._draw = draw
        self._means = Means(loop, getaddrinfo)
        self._backends: dict[str, Backend] = {}
        self._pools: dict[str, BackendPool] = {}
        self._former: dict[str, BackendPool] = {}
        """Of backends that have left the table, by key."""
        self._retired: list[tuple[float, BackendPool]] = []
        """With the time at which each may go."""
        self._sweep = loop.deadline(self._forget_retired)
        self._generation = 0
        self._is_draining = False
        self._is_closed = False

    def request(
        self, key: str, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish = NO_WISH
    ) -> Request:
        """See `stream.Pool`."""
        pool = self._pools.get(key)
        if pool is None or pool.generation != self._generation:
            pool = self._renew(key)
            if pool is None:
                pool = self._former.get(key)
            if pool is None or self._is_closed:
                return self._refuse(key, head, receiver)
        return pool.request(head, end_stream, receiver, wish)

    def use(self, table: Table) -> None:
        """Serve the backends of `table` from now on."""
        self._generation += 1
        self._backends = table.backends
        self._means.apply(table.settings.limits)
        for spec in table.settings.backends:
            if spec.active_health:
                self._renew(spec.name)
        self._loop.work_through(self._renew_all(self._generation))

    def drain(self) -> None:
        """Let running requests finish, and take new ones, but keep no connection after its request."""
        self._is_draining = True
        for pool in self._pools.values():
            pool.retire()

    def close(self) -> None:
        """At once: nobody is called any more."""
        self._is_closed = True
        self._sweep.cancel()
        for pool in [*self._pools.values(), *(pool for _, pool in self._retired)]:
            pool.close()
        self._pools.clear()
        self._former.clear()
        self._retired.clear()
        self._means.close()

    # -- tables ------------------------------------------------------------------------------------------------------

    def _renew(self, key: str) -> BackendPool | None:
        """The pool of a backend of the table, made to fit it; None: the table has no such backend."""
        backend, pool = self._backends.get(key), self._pools.get(key)
        if pool is not None and pool.generation == self._generation:
            return pool
        if pool is not None and (backend is None or not pool.can_become(backend.spec)):
            self._retire(key, pool)
            pool = None
        if backend is None or self._is_closed:
            return None
        if pool is None:
            pool = self._pools[key] = BackendPool(self._means, backend.spec, self._stats.backend(key), self._draw)
            if self._is_draining:
                pool.retire()
        elif pool.spec != backend.spec:
            pool.change(backend.spec)
        pool.generation = self._generation
        return pool

    def _renew_all(self, generation: int) -> Iterator[None]:
        for place, key in enumerate(list(self._pools)):
            if generation != self._generation or self._is_closed:
                # A newer table has come.
                return
            if key in self._pools:
                self._renew(key)
            if place % _STEP == _STEP - 1:
                yield
        tls = {pool.spec.tls for pool in self._pools.values() if pool.spec.tls}
        tls |= {pool.spec.tls for _, pool in self._retired if pool.spec.tls}
        self._means.forget_trusts(tls)

    def _retire(self, key: str, pool: BackendPool) -> None:
        del self._pools[key]
        pool.retire()
        self._former[key] = pool
        self._retired.append((self._loop.now_s + _LINGER_S, pool))
        self._sweep.set(self._loop.now_s + _LINGER_S)

    def _forget_retired(self) -> None:
        now_s = self._loop.now_s
        kept = [(until_s, pool) for until_s, pool in self._retired if until_s > now_s or not pool.is_idle]
        gone = {id(pool) for _, pool in self._retired} - {id(pool) for _, pool in kept}
        self._former = {key: pool for key, pool in self._former.items() if id(pool) not in gone}
        self._retired = kept
        if kept:
            self._sweep.set(now_s + _LINGER_S)

    def _refuse(self, key: str, head: RequestHead, receiver: Receiver) -> Request:
        """A request that fails soon: its backend is gone, or everything is."""
        request = Request(head, True, receiver, NO_WISH, "", Refusals(self._stats.backend(key)))
        what = "this worker stops" if self._is_closed else "the backend has left the configuration"
        self._loop.call_soon(partial(request.fail, Failure(Reason.STOPPING, f"{key}: {what}", is_unprocessed=True)))
        return request
