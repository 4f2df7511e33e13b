"""State shared by all connections of a worker to its backends."""

from typing import Protocol

from proxy import document
from proxy.backend.resolver import GetAddrInfo, Resolver
from proxy.backend.threadpool import ThreadPool
from proxy.backend.tls import Trust
from proxy.h1 import Caches as H1Caches
from proxy.h2 import Caches as H2Caches
from proxy.loop import Loop


class Unused(Protocol):
    """A connection that waits for its next request."""

    def close(self) -> None: ...


class Shared:
    def __init__(self, loop: Loop, getaddrinfo: GetAddrInfo) -> None:
        self.loop = loop
        self.resolver = Resolver(loop, getaddrinfo)
        self.h1_caches = H1Caches()
        self.h2_caches = H2Caches()
        self.apply(document.Limits())
        self._certificates = ThreadPool(loop, "certificates", threads=1)
        self._trusts: dict[tuple[document.BackendTLS, bool], Trust] = {}
        self._turn = 0
        self._reserved: dict[int, set[Unused]] = {}
        """Unused connections that only one client may use, by the id of the client's connection."""

    def apply(self, limits: document.Limits) -> None:
        """Adopt the limits of a new document; 0 means no limit."""
        self.connect_timeout_s = document.seconds(limits.connect_timeout)
        self.idle_timeout_s = document.seconds(limits.backend_idle_timeout)

    def reserve(self, unused: Unused, client: object) -> None:
        """Nobody but this client may use the connection for its next request."""
        self._reserved.setdefault(id(client), set()).add(unused)

    def end_reservation(self, unused: Unused, client: object) -> None:
        """The connection carries that client's next request, or is closed."""
        of_client = self._reserved[id(client)]
        of_client.remove(unused)
        if not of_client:
            del self._reserved[id(client)]

    def keeps_for(self, client: object | None) -> bool:
        """Whether a connection to any backend is reserved for that client's next request."""
        return id(client) in self._reserved

    def forget_client(self, client: object) -> None:
        """A client connection has closed: close the connections reserved for it, which no other client may use."""
        for unused in tuple(self._reserved.get(id(client), ())):
            unused.close()

    def next_turn(self) -> int:
        """A number that rises with every call."""
        self._turn += 1
        return self._turn

    def trust(self, tls: document.BackendTLS, *, offers_h2: bool) -> Trust:
        """The `Trust` for `tls`: backends with equal `tls` share its context and sessions."""
        found = self._trusts.get((tls, offers_h2))
        if found is None:
            found = self._trusts[tls, offers_h2] = Trust(tls, self._certificates, offers_h2=offers_h2)
        return found

    def forget_trusts(self, in_use: set[document.BackendTLS]) -> None:
        """Release the certificates and keys that no backend uses any more."""
        self._trusts = {key: trust for key, trust in self._trusts.items() if key[0] in in_use}

    def close(self) -> None:
        self.resolver.close()
        self._certificates.close()
