"""The exchanges of a worker: where the doors bring their requests, and where a new table comes in.

    services = Services(loop=loop, pools=pools, stats=stats, access_log=queue.append)
    services.use(table)                         new requests use it, running ones keep their terms
    exchange = services.begin(client, head, end_stream)

`begin` may answer before it returns: `client` then has the whole response, and the exchange has ended.
Called only by the loop's thread.
"""

from typing import Final

from proxy.exchange.client import ClientExchange, ClientStream
from proxy.exchange.exchange import Exchange
from proxy.exchange.shared import Shared
from proxy.exchange.terms import terms_of
from proxy.heads import RequestHead
from proxy.routing import Table

_SWEEP_S: Final = 1.0
_SWEEPS_PER_TIMEOUT: Final = 10


class Services(Shared):
    def __post_init__(self) -> None:
        super().__post_init__()
        self._sweep = self.loop.deadline(self._end_idle)
        self._sweep_s = _SWEEP_S
        self._is_sweeping = False

    def use(self, table: Table) -> None:
        """Requests that begin from now on use `table`."""
        self.terms = terms_of(table.settings, self.terms)
        self.table = table
        self._sweep_s = min(_SWEEP_S, self.terms.idle_timeout_s / _SWEEPS_PER_TIMEOUT)

    def begin(self, client: ClientStream, head: RequestHead, end_stream: bool) -> ClientExchange:
        """A request has arrived; `end_stream`: it has no body."""
        exchange = Exchange(self, client, head, end_stream)
        self.running.add(exchange)
        if not self._is_sweeping:
            self._is_sweeping = True
            self._sweep.set(self.loop.now_s + self._sweep_s)
        try:
            exchange.begin()
        except Exception:
            exchange.give_up()
            raise
        return exchange

    def _end_idle(self) -> None:
        """Check everything that runs, which is cheaper than a deadline for each request."""
        now_s = self.loop.now_s
        for running in self.running:
            if now_s - running.active_s >= running.idle_timeout_s:
                # In separate calls, so that a bug in one of them does not affect the others.
                self.loop.call_soon(running.on_idle)
        self._is_sweeping = bool(self.running)
        if self._is_sweeping:
            self._sweep.set(now_s + self._sweep_s)
