"""The connections to one address, and the requests that wait for one.

A request takes the most recently used connection. If none is free, it waits for whichever comes first: a connection
that becomes free, or a new one, opened for it. If connections carry several requests (HTTP/2), or may turn out to, only
one at a time is opened for all waiting requests. Waiting ends after `connect_timeout`. Another HTTP/2 connection is
also opened before slow readers have used up the window of one, which would stall all other responses on it, and for an
upload if other uploads have used up the window.

A name may come to lead to other hosts. Connections to an address that its newest answer lacks carry no further request.

A connection that a client has authenticated (NTLM, Negotiate) carries requests of that client only. It is kept if these
arrive one after another over one client connection, until that connection closes; otherwise it is closed.
"""

import socket
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from proxy.backend.circuit import Circuit
from proxy.backend.connecting import Connecting
from proxy.backend.h1link import H1Link
from proxy.backend.h2link import H2Link
from proxy.backend.request import Request
from proxy.backend.resolver import Address, Addresses, literal, split
from proxy.backend.shared import Shared
from proxy.backend.stream import Failure, Reason
from proxy.backend.tls import Trust
from proxy.loop import TlsSocket
from proxy.stats import BackendStats

ALPN_H2: Final = "h2"


class Owner(Protocol):
    """The balancer that owns the pools."""

    def make_room(self) -> bool:
        """Close an unused connection, in any pool. Returns False if there is none."""

    def on_room(self) -> None:
        """There may be room for another connection."""


class ConnectionPool:
    """`text` is the address as written in the document. `is_h2c`: HTTP/2 with prior knowledge. `trust`: use TLS."""

    def __init__(
        self,
        shared: Shared,
        owner: Owner,
        circuit: Circuit,
        stats: BackendStats,
        text: str,
        *,
        trust: Trust | None,
        is_h2c: bool = False,
    ) -> None:
        self._shared = shared
        self._owner = owner
        self._circuit = circuit
        self._stats = stats
        self._text = text
        self._host, self._port = split(text)
        self._trust = trust
        self._is_h2c = is_h2c
        self._may_multiplex = is_h2c or (trust is not None and trust.offers_h2)
        """Whether connections carry several requests; also true until that is known."""
        self._idle: list[H1Link] = []
        self._reserved: dict[int, H1Link] = {}
        """Idle connections reserved for their client's next request, by the id of the client's connection."""
        self._multiplexed: list[H2Link] = []
        self._links: dict[H1Link | H2Link, Address] = {}
        """All connections, and what each is to."""
        self._connecting: set[Connecting | H2Link] = set()
        """Connections that cannot carry requests yet: being made, or waiting for the backend's HTTP/2 SETTINGS."""
        self._waiting: dict[Request, None] = {}
        self._is_retired = False

    # -- requests ----------------------------------------------------------------------------------------------------

    def dispatch(self, request: Request) -> None:
        """Send the request, or queue it until it can be sent. Its receiver is never called from within this call."""
        if self._reserved and not request.wish.needs_new_connection:
            link = self._reserved.get(id(request.receiver.client_connection))
            if link is not None:
                if link.begin(request):
                    self._end_reservation(link)
                return
        if self._idle and not request.wish.needs_new_connection:
            link = self._idle.pop()
            if not link.begin(request):
                self._idle.append(link)
            return
        crowded = None
        for carrier in self._multiplexed:
            if carrier.has_room and not carrier.is_crowded and (request.end_stream or not carrier.is_stopped):
                carrier.begin(request)
                return
            if carrier.has_room:
                crowded = carrier
        if crowded is None or (not request.end_stream and crowded.is_stopped and self._may_wait):
            self._wait(request)
            return
        crowded.begin(request)
        if not self._connecting and self._circuit.has_connection_left and not self._is_retired:
            self._open()

    @property
    def _may_wait(self) -> bool:
        """Whether a request may wait for a better connection than the existing ones without the risk of a refusal."""
        circuit = self._circuit
        has_another = bool(self._connecting) or circuit.has_connection_left
        is_limited = any(link.takes_none for link in self._multiplexed)
        return has_another and not is_limited and circuit.pending < circuit.limits.max_pending

    def leave(self, request: Request) -> None:
        """The request was cancelled while it waited."""
        self._take(request)

    def lack(self) -> Failure | None:
        """The failure of requests that wait for existing connections only; None while a connection is being opened."""
        if self._connecting:
            return None
        limit = self._circuit.limits.max_connections
        what = f"{self._text}: no room for the request on any of at most {limit} connections"
        return Failure(Reason.OVERLOAD, what, is_unprocessed=True)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def open_as_needed(self) -> None:
        """Open as many connections as there are requests waiting, within the limit."""
        if any(link.takes_none for link in self._multiplexed):
            # The backend would allow no stream on another connection either; if that changes, it says so on this one.
            self._make_do()
            return
        wanted = min(len(self._waiting), 1) if self._may_multiplex else len(self._waiting)
        while len(self._connecting) < wanted:
            if self._circuit.has_connection_left:
                self._open()
            elif not self._owner.make_room():
                self._make_do()
                return

    def _make_do(self) -> None:
        """No other connection will come: requests that waited for a better one use the existing ones."""
        for link in list(self._multiplexed):
            while self._waiting and link.has_room:
                self._begin(next(iter(self._waiting)), link)

    def _begin(self, request: Request, link: H2Link) -> None:
        self._take(request)
        if link.begin(request):
            request.tell_open()

    def _wait(self, request: Request) -> None:
        circuit = self._circuit
        if circuit.pending >= circuit.limits.max_pending:
            what = f"{self._text}: {circuit.pending} requests wait for a connection, which is the limit"
            failure = Failure(Reason.OVERLOAD, what, is_unprocessed=True)
            self._shared.loop.call_soon(partial(request.fail, failure))
            return
        circuit.pending += 1
        self._waiting[request] = None
        request.queue = self
        # Before the request's own deadline is set: the deadline of connecting then passes first, with a better error.
        self.open_as_needed()
        if self._shared.connect_timeout_s:
            request.deadline = self._shared.loop.deadline(partial(self._expire, request))
            request.deadline.set(self._shared.loop.now_s + self._shared.connect_timeout_s)

    def _take(self, request: Request) -> None:
        """Take the request out of the queue."""
        del self._waiting[request]
        self._circuit.pending -= 1
        request.queue = None
        if request.deadline is not None:
            request.deadline.cancel()
            request.deadline = None

    def _expire(self, request: Request) -> None:
        for link in self._multiplexed:
            if link.has_room:
                self._begin(request, link)
                return
        self._take(request)
        detail = f"{self._text}: waited {self._shared.connect_timeout_s:g} s for a new connection"
        request.fail(self.lack() or Failure(Reason.CONNECT_TIMEOUT, detail, is_unprocessed=True))

    # -- connections -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._circuit.connections += 1
        connecting = Connecting(
            self._shared,
            self._text,
            self._host,
            self._port,
            self._trust,
            self._on_connected,
            self._on_failed,
        )
        self._connecting.add(connecting)
        connecting.start()

    def _on_connected(self, connecting: Connecting, sock: socket.socket, address: Address, alpn: str) -> None:
        self._stats.connections += 1
        self._stats.connections_opened += 1
        name = self._text if self._text == str(address) else f"{self._text} ({address})"
        if not self._links and literal(self._host, self._port) is None:
            self._shared.resolver.follow(self._host, self._port, self._on_addresses)
        self._connecting.remove(connecting)
        self._may_multiplex = self._is_h2c or alpn == ALPN_H2
        remember: Callable[[], None] | None = None
        if self._trust is not None and isinstance(sock, TlsSocket):
            remember = partial(self._trust.remember, sock, str(address), self._shared.loop.now_s)
        if self._may_multiplex:
            carrier = H2Link(self._shared, sock, self, name, remember)
            self._links[carrier] = address
            self._connecting.add(carrier)
            return
        link = H1Link(self._shared, sock, self, name, remember)
        self._links[link] = address
        self.on_free(link)
        # If only one was opened to learn which protocol the backend speaks, other requests are still waiting.
        self.open_as_needed()

    def _on_failed(self, connecting: Connecting, failure: Failure) -> None:
        self._connecting.remove(connecting)
        self._circuit.connections -= 1
        self._fail_waiting(failure)
        self._owner.on_room()

    def _fail_waiting(self, failure: Failure) -> None:
        """A connection attempt failed: fail the request, or with HTTP/2 all requests, that it was made for."""
        self._make_do()
        waiting = list(self._waiting)
        for request in waiting if self._may_multiplex else waiting[:1]:
            # A receiver may respond to its failure by cancelling another of these requests.
            if request in self._waiting:
                self._take(request)
                request.fail(failure)

    def on_free(self, link: H1Link) -> None:
        """A link is free for the next request."""
        if link.is_authenticated:
            self._reserve(link)
            return
        while self._waiting and (request := self._next_for(link)) is not None:
            self._take(request)
            if link.begin(request):
                request.tell_open()
                return
        if self._is_retired:
            link.close()
        else:
            self._idle.append(link)
            link.rest()
            if self._circuit.pending:
                # Requests to another address may be waiting for room.
                self._owner.on_room()

    def _reserve(self, link: H1Link) -> None:
        """Keep an authenticated link for its client, if that is known by its connection."""
        if link.client is None or self._is_retired:
            link.close()
            return
        before = self._reserved.get(id(link.client))
        if before is not None:
            before.close()
        self._reserved[id(link.client)] = link
        self._shared.reserve(link, link.client)
        link.rest()
        if self._circuit.pending:
            self._owner.on_room()

    def _end_reservation(self, link: H1Link) -> None:
        """No-op unless the link is reserved."""
        if self._reserved.get(id(link.client)) is link:
            del self._reserved[id(link.client)]
            self._shared.end_reservation(link, link.client)

    def keeps_for(self, client: object | None) -> bool:
        """Whether a connection is reserved for that client's next request."""
        return id(client) in self._reserved

    def _next_for(self, link: H1Link) -> Request | None:
        for request in self._waiting:
            if not (request.wish.needs_new_connection and link.is_kept):
                return request
        return None

    def on_ready(self, link: H2Link) -> None:
        """The backend speaks HTTP/2."""
        self._connecting.remove(link)
        self._multiplexed.append(link)
        self.on_limit(link)

    def on_limit(self, link: H2Link) -> None:
        """The number of requests that a link may carry has changed."""
        self.on_streams_left(link)
        # For requests that do not fit on it.
        self.open_as_needed()

    def on_streams_left(self, link: H2Link) -> None:
        """A link may carry more requests."""
        while self._waiting and link.has_room and (request := self._next_on(link)) is not None:
            self._begin(request, link)
        if self._is_retired and not self._waiting:
            # Not while requests wait: another connection would be opened for them, and closed just as soon.
            link.drain()
        elif self._circuit.pending and link.is_idle and not link.takes_none:
            # The waiting requests want a connection to another address, or this one is too old for them.
            self._owner.on_room()

    def _next_on(self, link: H2Link) -> Request | None:
        """The next request for this link; not an upload while other uploads have used up its window."""
        if not link.is_stopped:
            return next(iter(self._waiting))
        return next((request for request in self._waiting if request.end_stream), None)

    def on_gone(self, link: H1Link | H2Link, failure: Failure | None = None) -> None:
        """`failure`: the peer does not speak HTTP/2, or closed before any request."""
        if isinstance(link, H1Link):
            self._end_reservation(link)
            if link in self._idle:
                self._idle.remove(link)
        else:
            self._connecting.discard(link)
            if link in self._multiplexed:
                self._multiplexed.remove(link)
        self._links.pop(link, None)
        if not self._links:
            self._shared.resolver.unfollow(self._host, self._port, self._on_addresses)
        self._circuit.connections -= 1
        self._stats.connections -= 1
        if failure is not None:
            # Before `on_room`, which would open another connection for requests that are about to fail.
            self._fail_waiting(failure)
        self._owner.on_room()

    def _on_addresses(self, addresses: Addresses) -> None:
        """The name has been looked up again."""
        current = set(addresses)
        for link, address in list(self._links.items()):
            # One that is not ready yet was dialled just now, for requests that wait for it.
            if address not in current and link not in self._connecting:
                link.drain()

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def has_connections(self) -> bool:
        return bool(self._links or self._connecting)

    @property
    def unused(self) -> list[H1Link | H2Link]:
        return [*self._idle, *self._reserved.values(), *(link for link in self._multiplexed if link.is_idle)]

    @property
    def in_use(self) -> list[H1Link | H2Link]:
        """Those that carry requests."""
        others = {*self.unused, *self._connecting}
        return [link for link in self._links if link not in others]

    def close_idle(self) -> bool:
        """Close the least recently used idle connection that is not reserved. Returns False if there is none."""
        if self._idle:
            self._idle[0].close()
            return True
        for link in self._multiplexed:
            if link.is_idle:
                link.drain()
                return True
        return False

    def close_reserved(self) -> bool:
        """Close a connection reserved for a client, which then has to authenticate a new one. False: there is none."""
        for link in self._reserved.values():
            link.close()
            return True
        return False

    def retire(self) -> None:
        """Close connections as soon as they are free; open new ones only for requests that still come."""
        self._is_retired = True
        for unused in [*self._idle, *self._reserved.values()]:
            unused.close()
        for link in list(self._multiplexed):
            self.on_streams_left(link)

    def renew(self) -> None:
        """Use the existing connections for no further request."""
        for link in list(self._links):
            link.drain()

    def close(self) -> None:
        """Close everything immediately, without calling the receivers of waiting and running requests."""
        self._is_retired = True
        for request in list(self._waiting):
            self._take(request)
            request.end()
        for connecting in list(self._connecting):
            if isinstance(connecting, Connecting):
                connecting.cancel()
                self._circuit.connections -= 1
        self._connecting.clear()
        for link in list(self._links):
            link.abort()
