"""One door: a bound socket, the listeners behind it, and the connections that came in through it.

A client on a plain door begins with HTTP/1.1 and may go on with HTTP/2; on a TLS door its server name chooses the
listener, and ALPN the protocol. The door is told when the document changes. New connections follow the new document.
Existing ones keep the certificates and ALPN that they came in with, but get its terms, and are routed by the new table,
only to listeners that would have admitted them (`misdirected`).
"""

import base64
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from daemonkit.logs import get_logger
from proxy import document, routing
from proxy.doors.acceptor import Acceptor, Reserve
from proxy.doors.clienthello import ClientHello
from proxy.doors.greeting import INTERNAL_ERROR, UNRECOGNIZED_NAME, Greeting
from proxy.doors.h1connection import H1Connection
from proxy.doors.h2connection import H2Connection
from proxy.doors.introduction import Introduction
from proxy.doors.member import Member
from proxy.doors.misdirected import IN_CLEAR, Admission, Misdirection
from proxy.doors.networks import Networks, networks_of
from proxy.doors.registry import Registry
from proxy.doors.terms import Terms
from proxy.doors.tls import ListenerContexts
from proxy.exchange.client import Arrival
from proxy.loop import Loop, TlsSocket, Transport
from proxy.stats import DoorStats, RefusalCause
from proxy.tls.contexts import UnusableTLS

log = get_logger(__name__)
quiet_log = log.every(10.0)

_STEP: Final = 20
"""How many connections get new terms at a time."""


class Layout(msgspec.Struct, frozen=True):
    """What a table says about a door."""

    entrance: routing.Door
    listeners: tuple[document.Listener, ...]
    """At least one; all have the same protocol."""
    trusted: Networks
    """Peers that are trusted to say who their clients are."""
    introducing: Networks
    """Peers whose connections begin with a PROXY header."""
    terms: Terms


class Change(msgspec.Struct, frozen=True):
    """A change of a door that is prepared, but not in use yet."""

    door: "Door"
    layout: Layout
    contexts: dict[str, ListenerContexts]
    """By name of the listener."""
    acceptor: Acceptor | None
    """For a new socket; None if the socket stays."""

    def carry_out(self) -> None:
        self.door.use(self)

    def take_back(self) -> None:
        if self.acceptor is not None:
            self.acceptor.let_go()


class Door:
    """Counts its own connections; they and the acceptor tell it what happens."""

    def __init__(
        self,
        name: str,
        loop: Loop,
        registry: Registry,
        reserve: Reserve,
        stats: DoorStats,
        on_client_gone: Callable[[Arrival], None],
    ) -> None:
        """The first `Change` brings a layout and a socket."""
        self._name = name
        self._loop = loop
        self._registry = registry
        self._reserve = reserve
        self._stats = stats
        self._on_client_gone = on_client_gone
        self._layout: Layout
        self._acceptor: Acceptor | None = None
        self._members: set[Member] = set()
        self._contexts: dict[str, ListenerContexts] = {}
        """By name of the listener, as `_admissions`."""
        self._admissions: dict[str, Admission] = {}
        self._is_draining = False
        self.entrance: routing.Door | None = None

    # -- the document ------------------------------------------------------------------------------------------------

    def prepare(self, layout: Layout, sock: socket.socket | None) -> Change:
        """A change to `layout`, and to `sock` if that is a new socket."""
        contexts = {
            listener.name: self._contexts_of(listener.name, listener.tls)
            for listener in layout.listeners
            if listener.tls
        }
        return Change(self, layout, contexts, None if sock is None else self._acceptor_of(sock))

    def use(self, change: Change) -> None:
        """Carry out the change. If it brings a new socket, the queue of the old one is accepted before it is closed."""
        layout = change.layout
        # A new door has no layout, and no members either.
        have_new_terms = self._members and layout.terms != self._layout.terms
        are_believed_anew = self._members and (
            layout.trusted is not self._layout.trusted or layout.introducing is not self._layout.introducing
        )
        self._layout, self._contexts = layout, change.contexts
        self._admissions = {listener.name: _admission_to(listener) for listener in layout.listeners}
        self.entrance = layout.entrance
        if IN_CLEAR not in self._admissions.values():
            self._check_those_in_clear()
        if change.acceptor is not None:
            if self._acceptor is not None:
                self._registry.finish(self._acceptor)
            self._acceptor = change.acceptor
        if have_new_terms:
            self._loop.work_through(self._renew_terms())
        if are_believed_anew:
            # Last, since requests that wait in sockets are begun by this, and the new requirements hold for them.
            self._end_those_believed_otherwise()

    def _check_those_in_clear(self) -> None:
        """From now on check connections that came in while this port was plain HTTP, which needs no check."""
        for member in self._members:
            if isinstance(member, H1Connection | H2Connection) and member.misdirection is None:
                member.misdirection = Misdirection(None, self, IN_CLEAR)

    def _end_those_believed_otherwise(self) -> None:
        """A load balancer may keep its connections for ever, and they have the trust that it had when they came in."""
        layout = self._layout
        for member in tuple(self._members):
            if not isinstance(member, H1Connection | H2Connection):
                continue
            arrival = member.arrival
            is_trusted = layout.trusted.contain(arrival.address)
            if arrival.is_trusted != is_trusted or not _is_believed(arrival, layout):
                member.drain()

    def _renew_terms(self) -> Iterator[None]:
        """Clients may keep their connections for days, and wonder why a limit that was raised has not changed."""
        for place, member in enumerate(tuple(self._members)):
            if isinstance(member, H1Connection | H2Connection) and member in self._members:
                member.use(self._layout.terms)
            if place % _STEP == _STEP - 1:
                yield

    def admission_to(self, listener: str) -> Admission:
        return self._admissions.get(listener)

    def _contexts_of(self, name: str, settings: document.ListenerTLS) -> ListenerContexts:
        """The existing contexts if their settings have not changed."""
        before = self._contexts.get(name)
        return before if before is not None and before.settings == settings else ListenerContexts(settings)

    def _acceptor_of(self, sock: socket.socket) -> Acceptor | None:
        """None if the socket is in use already."""
        if self._acceptor is not None and self._acceptor.is_on(sock):
            return None
        return Acceptor(self._loop, sock, self._reserve, self)

    # -- new clients -------------------------------------------------------------------------------------------------

    def on_accepted(self, sock: socket.socket, address: Any) -> None:
        self._stats.accepted += 1
        if not self._registry.make_room(self._loop.now_s):
            self.refused("limit", f"{len(self._registry)} connections are open")
            sock.close()
            return
        peer = _address_of(address)
        if not self._layout.introducing.contain(peer):
            self._let_in(sock, peer, "")
            return

        def on_introduced(introduction: Introduction, sock: socket.socket, source: str | None) -> None:
            self._leave(introduction)
            try:
                self._let_in(sock, source or peer, peer)
            finally:
                self._registry.remove(introduction)

        timeout_s = self._layout.terms.header_timeout_s
        introduction = Introduction(self._loop, sock, timeout_s, self, on_introduced)
        self._enter(introduction)
        introduction.start()

    def _let_in(self, sock: socket.socket, address: str, introduced_by: str) -> None:
        """Serve a client with this address, which a load balancer may have named."""
        layout = self._layout
        if layout.listeners[0].protocol == "HTTP":
            self._serve_h1(sock, self._arrival(address, introduced_by, b"http", "HTTP/1.1"), None)
            return

        misdirection: Misdirection

        def choose_context(hello: ClientHello) -> ssl.SSLContext | int:
            nonlocal misdirection
            listener = self._listener_for(hello.server_name)
            # Looked up here, since the document may change during the handshake.
            misdirection = Misdirection(hello.server_name, self, self._admissions.get(listener))
            return self._choose_context(listener, hello)

        def on_greeted(greeting: Greeting, tls_sock: TlsSocket) -> None:
            self._leave(greeting)
            try:
                self._serve_tls(tls_sock, misdirection, address, introduced_by)
            finally:
                # Even if the connection cannot be watched: otherwise this worker would never be empty again.
                self._registry.remove(greeting)

        timeout_s = layout.terms.header_timeout_s
        greeting = Greeting(self._loop, sock, timeout_s, self, choose_context, on_greeted)
        self._enter(greeting)
        greeting.start()

    def on_starved(self) -> None:
        self.refused("descriptors", "no descriptor or memory left")
        self._registry.evict(self._loop.now_s)

    def _listener_for(self, server_name: bytes | None) -> str:
        """The listener whose hostname matches the server name best, as Gateway API wants it; empty if none does."""
        host = routing.host_of(server_name or b"")
        listener = None if self.entrance is None else self.entrance.listener_for(host)
        return "" if listener is None else listener.name

    def _choose_context(self, listener: str, hello: ClientHello) -> ssl.SSLContext | int:
        """The context with the listener's certificate for this client, or the alert that refuses the client."""
        contexts = self._contexts.get(listener)
        if contexts is None:
            return UNRECOGNIZED_NAME
        try:
            return contexts.context_for(hello)
        except (UnusableTLS, OSError) as error:
            quiet_log.error("cannot serve a TLS listener", error, door=self._name, listener=listener)
            return INTERNAL_ERROR

    def _serve_tls(self, sock: TlsSocket, misdirection: Misdirection, address: str, introduced_by: str) -> None:
        """The handshake is done: serve the client in the protocol that was negotiated."""
        certificate = sock.peer_certificate()
        client_cert = b":%b:" % base64.b64encode(certificate) if certificate else b""
        if sock.selected_alpn_protocol() == "h2":
            arrival = self._arrival(address, introduced_by, b"https", "HTTP/2", client_cert)
            connection = H2Connection(self._loop, self._layout.terms, arrival, self, misdirection=misdirection)
            self._enter(connection)
            connection.start(Transport(self._loop, sock, connection))
            self._drain_late(connection)
        else:
            # Also without ALPN: such a client knows nothing newer.
            arrival = self._arrival(address, introduced_by, b"https", "HTTP/1.1", client_cert)
            self._serve_h1(sock, arrival, misdirection)

    def _serve_h1(self, sock: socket.socket, arrival: Arrival, misdirection: Misdirection | None) -> None:
        if misdirection is None and self.entrance is None:
            # One of the last clients of a port that the document has removed: too late for `_check_those_in_clear`.
            misdirection = Misdirection(None, self, IN_CLEAR)
        connection = H1Connection(self._loop, self._layout.terms, arrival, self, self._upgrade, misdirection)
        self._enter(connection)
        connection.start(Transport(self._loop, sock, connection))
        self._drain_late(connection)

    def _upgrade(self, before: H1Connection, transport: Transport, received: bytes) -> None:
        """The client began with HTTP/2's preface."""
        # The document may have changed since it came in.
        is_trusted = self._layout.trusted.contain(before.arrival.address)
        arrival = msgspec.structs.replace(before.arrival, protocol="HTTP/2", is_trusted=is_trusted)
        connection = H2Connection(self._loop, self._layout.terms, arrival, self, misdirection=before.misdirection)
        self._members.discard(before)
        self._members.add(connection)
        self._registry.replace(before, connection)
        transport.hand_over(connection)
        connection.start(transport, received, is_started=True)
        if before.is_draining:
            connection.drain()

    def _drain_late(self, connection: H1Connection | H2Connection) -> None:
        if self._is_draining or not _is_believed(connection.arrival, self._layout):
            connection.drain()

    def _arrival(
        self, address: str, introduced_by: str, scheme: bytes, protocol: str, client_cert: bytes = b""
    ) -> Arrival:
        return Arrival(
            door=self._name,
            scheme=scheme,
            address=address,
            protocol=protocol,
            is_trusted=self._layout.trusted.contain(address),
            introduced_by=introduced_by,
            client_cert=client_cert,
        )

    # -- accounting --------------------------------------------------------------------------------------------------

    def _enter(self, member: Member) -> None:
        self._members.add(member)
        self._stats.connections += 1
        self._registry.add(member)

    def _leave(self, member: Member) -> None:
        self._members.discard(member)
        self._stats.connections -= 1

    def forget(self, member: Member) -> None:
        self._leave(member)
        self._registry.remove(member)
        if isinstance(member, H1Connection):
            self._on_client_gone(member.arrival)

    def refused(self, cause: RefusalCause, detail: str) -> None:
        counts = self._stats.refused
        counts[cause] = counts.get(cause, 0) + 1
        quiet_log.info("client refused", door=self._name, cause=cause, detail=detail[:256])

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Accept waiting clients, then close the socket; all connections finish their requests."""
        self._is_draining = True
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            self._registry.finish(acceptor)
        for member in tuple(self._members):
            member.drain()

    def retire(self) -> None:
        """The document no longer has this door. A later one of the same name does not take over its connections."""
        self.entrance = None
        self._check_those_in_clear()
        self.drain()

    def abort(self, reason: str) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        for member in tuple(self._members):
            member.abort(reason)


def layouts(table: routing.Table, terms: Terms) -> Iterable[tuple[str, Layout]]:
    """The layouts, by name, of all doors of the table that have a socket."""
    forwarding = table.settings.forwarding
    trusted, introducing = networks_of(forwarding.trusted_proxies), networks_of(forwarding.proxy_protocol)
    behind: dict[str, list[document.Listener]] = {}
    for listener in table.settings.listeners:
        if listener.port:
            behind.setdefault(routing.socket_door(listener.address, listener.port), []).append(listener)
    for name, listeners in behind.items():
        yield name, Layout(table.doors[name], tuple(listeners), trusted, introducing, terms)


def _is_believed(arrival: Arrival, layout: Layout) -> bool:
    """Whether its client has its address from the connection itself, or from who may still name it."""
    return not arrival.introduced_by or layout.introducing.contain(arrival.introduced_by)


def _admission_to(listener: document.Listener) -> Admission:
    return listener.tls.client_validation if listener.protocol == "HTTPS" and listener.tls else IN_CLEAR


def _address_of(address: Any) -> str:
    """A client's address without its port. For IPv4 clients of a dual-stack socket it is their IPv4 address; clients of
    unix sockets have none."""
    if not isinstance(address, tuple):
        return "unix"
    return str(address[0]).removeprefix("::ffff:")
