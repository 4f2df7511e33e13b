"""The connections of one worker to all backends of its table.

    pools = Pools(loop, stats)
    pools.use(table)                                                for each new table
    stream = pools.request(backend, head, end_stream, receiver)     see `stream`
    pools.forget_client(receiver.client_connection)                 when it has closed
    pools.drain()                                                   keep no connection after its request
    pools.close()

A backend gets its balancer with its first request, or at once if it has active health checks. With a new table, the
balancer of an unchanged backend keeps everything; if only addresses, limits or health checks have changed, connections
to addresses that remain are kept. Other balancers finish running requests, and still serve exchanges on earlier tables,
which may send their first request to a backend, or a retry, long after it has left.
"""

import random
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from proxy.backend.balancer import Balancer, Refusals
from proxy.backend.request import Request
from proxy.backend.resolver import GetAddrInfo
from proxy.backend.shared import Shared
from proxy.backend.stream import NO_WISH, Reason, Receiver, Wish
from proxy.heads import RequestHead
from proxy.loop import Loop
from proxy.routing import Backend, Table
from proxy.stats import Stats

_STEP: Final = 50
"""How many balancers are compared with a new table, or removed, at a time."""
_LINGER_S: Final = 60.0
"""The least time that a balancer outlives its backend. An exchange that still needs it later gets a new one."""


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
        self._shared = Shared(loop, getaddrinfo)
        self._backends: dict[str, Backend] = {}
        self._balancers: dict[str, Balancer] = {}
        self._former: dict[str, list[Balancer]] = {}
        """Balancers of backends that have left the table, or were replaced in it, by key; the latest last."""
        self._retired: deque[tuple[float, str, Balancer]] = deque()
        """For each: when it may be closed, its key, and the balancer."""
        self._sweep = loop.deadline(lambda: loop.work_through(self._forget_retired()))
        self._generation = 0
        self._is_draining = False
        self._is_closed = False

    def request(
        self, backend: Backend, head: RequestHead, end_stream: bool, receiver: Receiver, wish: Wish = NO_WISH
    ) -> Request:
        """See `stream.Pool`."""
        key = backend.key
        balancer = self._balancers.get(key)
        if balancer is None or balancer.generation != self._generation:
            balancer = self._renew(key)
        if balancer is None or (balancer.spec is not backend.spec and not balancer.can_become(backend.spec)):
            # The exchange's table is older: in the current one, the backend is gone or has another protocol or TLS.
            if self._is_closed:
                return self._refuse(key, head, receiver)
            balancer = self._former_of(backend)
        return balancer.request(head, end_stream, receiver, wish)

    def forget_client(self, client: object) -> None:
        """This client connection has closed."""
        self._shared.forget_client(client)

    def use(self, table: Table) -> None:
        """Serve the backends of `table` from now on."""
        self._generation += 1
        self._backends = table.backends
        self._shared.apply(table.settings.limits)
        self._loop.work_through(self._renew_all(self._generation, table))

    def serves(self, key: str) -> bool:
        """Whether requests may still go to that backend."""
        return key in self._balancers or key in self._former

    def drain(self) -> None:
        """Finish running requests and accept new ones, but keep no connection open after its request."""
        self._is_draining = True
        for balancer in self._balancers.values():
            balancer.retire()

    def close(self) -> None:
        """Close immediately; no receiver is called any more."""
        self._is_closed = True
        self._sweep.cancel()
        for balancer in [*self._balancers.values(), *(balancer for *_, balancer in self._retired)]:
            balancer.close()
        self._balancers.clear()
        self._former.clear()
        self._retired.clear()
        self._shared.close()

    # -- tables ------------------------------------------------------------------------------------------------------

    def _renew(self, key: str) -> Balancer | None:
        """Bring the balancer of a backend up to date with the table; None if the table has no such backend."""
        backend, balancer = self._backends.get(key), self._balancers.get(key)
        if balancer is not None and backend is not None and balancer.spec is backend.spec:
            balancer.generation = self._generation
            return balancer
        if balancer is not None and (backend is None or not balancer.can_become(backend.spec)):
            self._retire(key, balancer)
            balancer = None
        if backend is None or self._is_closed:
            return None
        if balancer is None:
            balancer = self._balancers[key] = Balancer(self._shared, backend.spec, self._stats.backend(key), self._draw)
            if self._is_draining:
                balancer.retire()
        elif balancer.spec != backend.spec:
            balancer.change(backend.spec)
        else:
            balancer.spec = backend.spec
        balancer.generation = self._generation
        return balancer

    def _renew_all(self, generation: int, table: Table) -> Iterator[None]:
        """Bring all balancers up to date, and create those of backends with active health checks."""
        for place, key in enumerate([*self._balancers, *table.probed]):
            if generation != self._generation or self._is_closed:
                # A newer table has come.
                return
            self._renew(key)
            if place % _STEP == _STEP - 1:
                yield
        tls = {balancer.spec.tls for balancer in self._balancers.values() if balancer.spec.tls}
        tls |= {balancer.spec.tls for *_, balancer in self._retired if balancer.spec.tls}
        self._shared.forget_trusts(tls)

    def _retire(self, key: str, balancer: Balancer) -> None:
        del self._balancers[key]
        balancer.retire()
        self._stats.backend(key).ejected = 0
        self._keep_former(key, balancer)

    def _former_of(self, backend: Backend) -> Balancer:
        """For an exchange on an earlier table. It may be the first one to need its backend."""
        for balancer in reversed(self._former.get(backend.key, ())):
            if balancer.can_become(backend.spec):
                return balancer
        stats = self._stats.backend(backend.key)
        balancer = Balancer(self._shared, backend.spec, stats, self._draw, is_retired=True)
        self._keep_former(backend.key, balancer)
        return balancer

    def _keep_former(self, key: str, balancer: Balancer) -> None:
        self._former.setdefault(key, []).append(balancer)
        if not self._retired:  # otherwise it is set; if backends leave all the time, setting it again would postpone it
            self._sweep.set(self._loop.now_s + _LINGER_S)
        self._retired.append((self._loop.now_s + _LINGER_S, key, balancer))

    def _forget_retired(self) -> Iterator[None]:
        """Check each balancer once, some at a time: close it if its time is over, otherwise put it back."""
        now_s = self._loop.now_s
        for place in range(len(self._retired)):
            if not self._retired:  # all was closed meanwhile
                return
            until_s, key, balancer = self._retired.popleft()
            if until_s > now_s or not balancer.is_idle:
                self._retired.append((until_s, key, balancer))
            else:
                balancer.close()
                self._former[key].remove(balancer)
                if not self._former[key]:
                    del self._former[key]
            if place % _STEP == _STEP - 1:
                yield
        if self._retired:
            self._sweep.set(now_s + _LINGER_S)

    def _refuse(self, key: str, head: RequestHead, receiver: Receiver) -> Request:
        """Return a request that fails in a later call of the loop: the worker is stopping."""
        refusals = Refusals(self._loop, self._stats.backend(key))
        return refusals.refuse(head, receiver, Reason.STOPPING, f"{key}: this worker is stopping")
