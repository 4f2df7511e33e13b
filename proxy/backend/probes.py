"""Active health checks: probe an address regularly, over a separate connection.

So probes count against no limit and in no metric, and wait for no request: a backend that has reached its connection
limit is not mistaken for a dead one. An address is used until probes have shown that it is down. A probe that fails for
want of our own resources, such as descriptors, shows nothing.

After a probe that failed, the next one opens a new connection, and so do requests once the address is up again: its
name may lead to another host by then, while the one that failed keeps its connections open. For the same reason a
connection for probes is kept no longer than the answer of a resolver.
"""

from collections.abc import Callable
from typing import Final

from daemonkit.logs import get_logger
from proxy import document
from proxy.backend.circuit import Circuit
from proxy.backend.connectionpool import ConnectionPool
from proxy.backend.destination import Destination
from proxy.backend.request import Request
from proxy.backend.resolver import RENEW_S
from proxy.backend.stream import NO_WISH, Failure
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.loop import Loop
from proxy.stats import BackendStats

log = get_logger(__name__)

_MAX_BODY_BYTES: Final = 64 * 1024
"""Limit of the body of a probe's response. The body does not matter, but reading it keeps the connection."""


_ONE_CONNECTION: Final = document.Circuit(max_connections=1)


class Prober:
    """Probes one address. It is receiver and ledger of its requests, and owner of their connection pool."""

    def __init__(
        self,
        loop: Loop,
        policy: document.ActiveHealth,
        backend: str,
        destination: Destination,
        on_change: Callable[[], None],
    ) -> None:
        """`backend` is the backend's name, for the log."""
        self._backend = backend
        self._loop = loop
        self.policy = policy
        self.destination = destination
        self._on_change = on_change
        self._interval_s = document.seconds(policy.interval)
        self._timeout_s = document.seconds(policy.timeout)
        authority = (policy.host or destination.text).encode()
        scheme = b"https" if destination.is_tls else b"http"
        fields = [(b"user-agent", b"tunnelgw-health"), (b"accept", b"*/*")]
        self._head = RequestHead(b"GET", scheme, authority, policy.path.encode(), fields)
        self._next = loop.deadline(self._ask)
        self._timeout = loop.deadline(self._on_timeout)
        self._pool: ConnectionPool | None = None
        self._pool_until_s = 0.0
        self._running: Request | None = None
        self._is_judged = False
        self._body_bytes = 0

    def start(self, share: float) -> None:
        """Send the first probe after this share of the interval, so that addresses are not all probed at once."""
        self._next.set(self._loop.now_s + share * self._interval_s)

    def stop(self) -> None:
        self._next.cancel()
        self._timeout.cancel()
        self._hang_up()

    def _ask(self) -> None:
        self._next.set(self._loop.now_s + self._interval_s)
        if self._running is not None:
            return
        self._is_judged = False
        self._body_bytes = 0
        request = self._running = Request(self._head, True, self, NO_WISH, self.destination.text, self)
        self._timeout.set(self._loop.now_s + self._timeout_s)
        if self._pool is not None and self._loop.now_s >= self._pool_until_s:
            self._pool.close()
            self._pool = None
        if self._pool is None:
            self._pool_until_s = self._loop.now_s + RENEW_S
            self._pool = self.destination.new_pool(self, Circuit(_ONE_CONNECTION), BackendStats())
        self._pool.dispatch(request)

    def _on_timeout(self) -> None:
        if self._running is not None:
            self._hang_up()
            self._judge(False, f"no complete answer within {self._timeout_s:g} s")

    def _hang_up(self) -> None:
        """Close the connection, or stop connecting; the next probe opens a new one."""
        pool, self._pool = self._pool, None
        self._running = None
        if pool is not None:
            pool.close()

    def _judge(self, is_success: bool, seen: str) -> None:
        if self._is_judged:
            return
        self._is_judged = True
        if self.destination.health.probed(is_success, self.policy):
            if is_success:
                log.info("backend address is up again", backend=self._backend, address=self.destination.text)
            else:
                log.warning("backend address is down", backend=self._backend, address=self.destination.text, error=seen)
                self.destination.renew()
            self._on_change()

    # -- receiver ----------------------------------------------------------------------------------------------------

    client_connection: Final = None

    def on_backend_open(self) -> None:
        """There is no body to send."""

    def on_backend_writable(self) -> None:
        """There is no body to send."""

    def on_response_interim(self, head: ResponseHead) -> None:
        """Ignored: the final response is still to come."""

    def on_response_head(self, head: ResponseHead, end_stream: bool) -> None:
        wanted = " or ".join(map(str, self.policy.status_codes))
        seen = f"status code {head.status_code} for {self.policy.path}, want {wanted}"
        is_success = head.status_code in self.policy.status_codes
        self._judge(is_success, seen)
        self._end(end_stream or not is_success)
        if not is_success:
            self._hang_up()

    def on_response_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        self._body_bytes += len(data)
        if self._running is not None:
            self._running.release(len(data))
        self._end(end_stream)
        if self._body_bytes > _MAX_BODY_BYTES:
            self._end(True)
            self._hang_up()

    def on_response(self, head: ResponseHead, data: bytes | memoryview) -> None:  # noqa: ARG002
        self.on_response_head(head, True)

    def on_response_trailers(self, fields: Fields) -> None:  # noqa: ARG002
        self._end(True)

    def on_backend_failed(self, failure: Failure) -> None:
        if failure.blames_address:
            self._judge(False, f"{failure.reason.value}: {failure.detail}")
        self._end(True)
        self._hang_up()

    def on_bug(self) -> None:
        self._hang_up()

    def _end(self, is_over: bool) -> None:
        if is_over:
            self._running = None
            self._timeout.clear()

    # -- owner of the pool -------------------------------------------------------------------------------------------

    def make_room(self) -> bool:
        """Nothing to do: the only connection is replaced before it is too old for further requests."""
        return False

    def on_room(self) -> None:
        """Nothing to do: no other request is waiting."""

    # -- ledger ------------------------------------------------------------------------------------------------------

    def answered(self, status_code: int) -> None:
        """See `on_response_head`."""

    def failed(self, failure: Failure) -> None:
        """See `on_backend_failed`."""

    def timed_out(self) -> None:
        """Never called: probes have their own timeout."""

    def ended(self) -> None:
        """Probes are not counted."""
