"""One address of a backend: its connections, its requests, its health."""

from typing import Final, Protocol

from proxy import document
from proxy.backend.circuit import Circuit
from proxy.backend.connectionpool import ConnectionPool, Owner
from proxy.backend.health import AddressHealth
from proxy.backend.request import Request
from proxy.backend.shared import Shared
from proxy.backend.stream import Failure
from proxy.heads import authenticates_connection
from proxy.routing import fingerprint, is_grpc
from proxy.stats import BackendStats

_BAD_STATUS_CODES: Final = frozenset((502, 503, 504))


class Observer(Protocol):
    """Is notified of the outcome of each request to an address, for passive health."""

    def on_success(self, destination: "Destination") -> None: ...

    def on_failure(self, destination: "Destination") -> None: ...


class Destination:
    """One address; also the ledger of its requests."""

    def __init__(
        self,
        shared: Shared,
        owner: Owner,
        circuit: Circuit,
        stats: BackendStats,
        spec: document.Backend,
        text: str,
    ) -> None:
        self._shared = shared
        self._owner = owner
        self._circuit = circuit
        self._stats = stats
        self._tls = spec.tls
        self._is_h2c = spec.protocol == "h2c"
        self.is_tls = bool(spec.tls)
        self.observer: Observer | None = None
        """None without passive health checks."""
        self.text = text
        self.fingerprint = fingerprint(text)
        self.health = AddressHealth()
        self.running = 0
        self.pool = self.new_pool(owner, circuit, stats)
        self._http_1: ConnectionPool | None = None
        """For TLS backends that may speak HTTP/2: the pool for requests that need HTTP/1.1."""
        self._wants_http_1 = False
        """The backend has sent HTTP_1_1_REQUIRED, as IIS does for resources behind a Windows login. It would send it
        again for each request."""
        self._is_retired = False

    def __repr__(self) -> str:
        return f"<Destination {self.text}, {self.running} running>"

    def new_pool(self, owner: Owner, circuit: Circuit, stats: BackendStats) -> ConnectionPool:
        """A new pool of connections to this address, counted in `circuit` and `stats`. The caller closes it."""
        trust = self._shared.trust(self._tls, offers_h2=True) if self._tls else None
        return ConnectionPool(self._shared, owner, circuit, stats, self.text, trust=trust, is_h2c=self._is_h2c)

    def send(self, request: Request) -> None:
        """Count the request, then send it or queue it."""
        self.running += 1
        self._circuit.running += 1
        self._stats.requests += 1
        self._stats.in_flight += 1
        pool = self._http_1_pool(self._tls) if self._tls and self._needs_http_1(request) else self.pool
        pool.dispatch(request)

    def _needs_http_1(self, request: Request) -> bool:
        """Whether the request needs HTTP/1.1 even if others use HTTP/2: an Upgrade, connection-based authentication,
        or any request to an address that wants HTTP/1.1. Never gRPC, which exists only over HTTP/2 and authenticates
        each call.
        """
        head = request.head
        if head.protocol is not None:
            return head.method != b"CONNECT"
        if self._http_1 is not None and self._http_1.keeps_for(request.receiver.client_connection):
            return True
        if not self._wants_http_1 and not authenticates_connection(head.fields):
            return False
        return not is_grpc(head)

    def _http_1_pool(self, tls: document.BackendTLS) -> ConnectionPool:
        if self._http_1 is None:
            trust = self._shared.trust(tls, offers_h2=False)
            self._http_1 = ConnectionPool(self._shared, self._owner, self._circuit, self._stats, self.text, trust=trust)
            if self._is_retired:
                self._http_1.retire()
        return self._http_1

    def renew(self) -> None:
        """Send later requests over new connections: a name may lead to another host by now."""
        for pool in self.pools:
            pool.renew()

    def retire(self) -> None:
        """Keep no connection open after its request."""
        self._is_retired = True
        for pool in self.pools:
            pool.retire()

    def keeps_for(self, client: object | None) -> bool:
        """Whether a connection is reserved for that client's next request."""
        return any(pool.keeps_for(client) for pool in self.pools)

    @property
    def pools(self) -> list[ConnectionPool]:
        return [self.pool] if self._http_1 is None else [self.pool, self._http_1]

    @property
    def is_idle(self) -> bool:
        return not self.running and not any(pool.has_connections for pool in self.pools)

    # -- the ledger --------------------------------------------------------------------------------------------------

    def answered(self, status_code: int) -> None:
        if self.observer is not None:
            if status_code in _BAD_STATUS_CODES:
                self.observer.on_failure(self)
            else:
                self.observer.on_success(self)

    def failed(self, failure: Failure) -> None:
        self._stats.count_failure(failure.reason.value)
        self._wants_http_1 = self._wants_http_1 or failure.wants_http_1
        if self.observer is not None and failure.blames_address:
            self.observer.on_failure(self)

    def timed_out(self) -> None:
        self._stats.count_failure("timeout")
        if self.observer is not None:
            self.observer.on_failure(self)

    def ended(self) -> None:
        self.running -= 1
        self._circuit.running -= 1
        self._stats.in_flight -= 1
