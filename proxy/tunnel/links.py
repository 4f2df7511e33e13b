"""All edge connections of a worker: made and ended by order of the supervisor, they serve what the doors serve.

They share the exchanges and backends of the listeners, and one cache of encoded heads. Called in the loop's thread.
"""

import platform
import ssl
import uuid
from collections.abc import Callable
from typing import Final

import msgspec

import daemonkit
from daemonkit.logs import get_logger
from proxy import document
from proxy.doors.terms import Begin, Caches, Terms, terms_of
from proxy.loop import Loop
from proxy.stats import Stats
from proxy.tunnel.dialling import make_context
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.identity import client_info
from proxy.tunnel.link import Link, Means
from proxy.tunnel.orders import Dial, DialMeans, EdgeOrder, EdgeReport, Ended, Pushed, PushTaken, Withdraw
from proxy.tunnel.responses import ResponseHeads
from proxy.tunnel.token import TunnelToken

log = get_logger(__name__)

CONNECTOR_VERSION: Final = f"tunnelgw-{daemonkit.__version__}"

Report = Callable[[EdgeReport], None]


class Links:
    def __init__(self, loop: Loop, begin: Begin, caches: Caches, stats: Stats, report: Report) -> None:
        self._loop = loop
        self._caches = caches
        self._stats = stats
        self.report = report
        self._links: dict[int, Link] = {}
        """By dial number."""
        self._limits = document.Limits()
        self._roots = ""
        self._context: ssl.SSLContext | None = None
        self._pushes: dict[int, Callable[[int], None]] = {}
        """Pushes that wait for the supervisor's answer, by number."""
        self._next_push = 0
        self._is_draining = False
        self._on_idle: Callable[[], None] | None = None
        self.begin = begin
        self.heads = ResponseHeads()

    def use(self, limits: document.Limits) -> None:
        """Keep to these limits from now on: connections to the edge last for days."""
        if limits != self._limits:
            self._limits = limits
            for link in self._links.values():
                link.renew_terms()

    # -- orders ------------------------------------------------------------------------------------------------------

    def obey(self, order: EdgeOrder, content: memoryview | None) -> None:
        match order:
            case Dial():
                self._dial(order, content)
            case Withdraw(number):
                link = self._links.get(number)
                if link is not None:
                    link.withdraw()
            case PushTaken(push, applied_version):
                answer = self._pushes.pop(push, None)
                if answer is not None:
                    answer(applied_version)

    def _dial(self, order: Dial, content: memoryview | None) -> None:
        if self._is_draining:
            # The order was under way when draining began.
            self.report(Ended(order.number, FailureCause.LOST, "the worker is stopping", 0.0, 0.0))
            return
        if content is None:
            reason = "its worker has no descriptor or memory for it"
            self.report(Ended(order.number, FailureCause.DIAL, reason, 0.0, 0.0))
            return
        means = msgspec.msgpack.decode(content, type=DialMeans)
        try:
            context = self._context_of(means.trusted_roots)
        except (ssl.SSLError, ValueError) as error:
            reason = f"the CAs for the edge's certificate cannot be used: {error}"
            self.report(Ended(order.number, FailureCause.TLS, reason, 0.0, 0.0))
            return
        client = client_info(uuid.UUID(bytes=means.client_id), CONNECTOR_VERSION, platform.system(), platform.machine())
        decoded = Means(TunnelToken.decode(means.token), client, context, means.source)
        link = Link(self._loop, order, decoded, self, self._stats.edge(order.conn_index))
        self._links[order.number] = link
        link.start()

    def _context_of(self, roots: str) -> ssl.SSLContext:
        if self._context is None or roots != self._roots:
            self._context, self._roots = make_context(roots), roots
        return self._context

    # -- what connections ask and say --------------------------------------------------------------------------------

    def terms(self) -> Terms:
        return terms_of(self._limits, self.begin, self._caches)

    def acknowledge(self, version: int | None, answer: Callable[[int], None]) -> None:
        """Implements `proxy.tunnel.pushes.Acknowledge`: the supervisor tracks the version for all workers."""
        push, self._next_push = self._next_push, self._next_push + 1
        self._pushes[push] = answer
        self.report(Pushed(push, version))

    def forget(self, link: Link) -> None:
        self._links.pop(link.number, None)
        self._look_if_idle()

    def measure(self) -> None:
        """Bring the metrics of all connections up to date."""
        for stats in self._stats.edges.values():
            stats.is_up = stats.in_flight = 0
        for link in self._links.values():
            link.measure()

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Unregister all connections; `on_idle` is called when the last one is gone."""
        self._is_draining = True
        self._on_idle = on_idle
        for link in tuple(self._links.values()):
            link.withdraw()
        self._look_if_idle()

    def _look_if_idle(self) -> None:
        if not self._links and self._on_idle is not None:
            on_idle, self._on_idle = self._on_idle, None
            on_idle()

    def close(self) -> None:
        """Close all connections at once."""
        for link in tuple(self._links.values()):
            link.abandon("the worker is stopping")
