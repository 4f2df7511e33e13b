"""The loop's side of an edge: accepts connectors and clients, holds the connections, chooses one for each request.

Everything here runs in the loop's thread; tests call `Edge`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import ssl
import uuid
from collections import deque
from typing import Any

from proxy import h2
from proxy.doors.acceptor import Acceptor, Reserve
from proxy.exchange.client import ClientStream
from proxy.heads import RequestHead
from proxy.loop import Handshake, Loop
from proxy.tunnel.registration import Refusal, Registration
from tests.support.edge.behaviour import DUPLICATE, WELL, Behaviour, Hang
from tests.support.edge.connection import EdgeConnection
from tests.support.edge.front import Front
from tests.support.edge.ledger import Ledger, Record
from tests.support.edge.passage import Passage
from tests.support.edge.pushing import Update, push
from tests.support.edge.tunnels import Tunnels


class Treatment:
    """How connections will be treated: the planned ones in turn, then the usual. Set by tests, in any thread."""

    def __init__(self) -> None:
        self.usual: Behaviour = WELL
        self.planned: deque[Behaviour] = deque()
        self.refuses_duplicates = False
        """Allow only one connection per connector and address, as if each address were one server."""
        self.configuration: Update | None = None
        """Pushed over every connection once it is registered, as the provider does for a tunnel that it manages."""

    def next(self) -> Behaviour:
        return self.planned.popleft() if self.planned else self.usual


class LoopSide:
    def __init__(
        self, loop: Loop, context: ssl.SSLContext, ledger: Ledger, tunnels: Tunnels, treatment: Treatment
    ) -> None:
        self.loop = loop
        self.ledger = ledger
        self._tunnels = tunnels
        self._treatment = treatment
        self._context = context
        context.sni_callback = self._on_server_name
        self._server_names: dict[Any, str | None] = {}
        self._caches = h2.Caches()
        self._reserve = Reserve()
        self._acceptors: dict[str, Acceptor] = {}
        self._fronts: list[Front] = []
        self._visits: dict[int, _Visit] = {}
        """Connections before HTTP/2, by the number of their records."""
        self.connections: dict[int, EdgeConnection] = {}
        self._rotation: dict[uuid.UUID, list[EdgeConnection]] = {}
        self._turn = itertools.count()

    # -- doors -------------------------------------------------------------------------------------------------------

    def open(self, address: str, sock: socket.socket) -> None:
        if address in self._acceptors:
            sock.close()
        else:
            self._acceptors[address] = Acceptor(self.loop, sock, self._reserve, _Entrance(self, address))

    def shut(self, address: str) -> None:
        acceptor = self._acceptors.pop(address, None)
        if acceptor is not None:
            acceptor.close()

    def open_front(self, sock: socket.socket, scheme: bytes) -> None:
        self._fronts.append(Front(self.loop, sock, scheme, self._begin, self._reserve))

    def close(self) -> None:
        for address in tuple(self._acceptors):
            self.shut(address)
        for front in self._fronts:
            front.close()
        for number in (*self._visits, *self.connections):
            self.drop(number, "the edge stops")
        self._reserve.close()

    # -- connectors --------------------------------------------------------------------------------------------------

    def on_accepted(self, sock: socket.socket, address: str, source: str) -> None:
        record = Record(len(self.ledger.records) + 1, address, self.loop.now_s, source)
        with self.ledger.writing():
            self.ledger.records.append(record)
        visit = self._visits[record.number] = _Visit(self, sock, record, self._treatment.next())
        visit.start(self._context)

    def on_greeted(self, visit: _Visit, sock: ssl.SSLSocket) -> None:
        record = visit.record
        del self._visits[record.number]
        with self.ledger.writing():
            record.server_name = self._server_names.pop(sock, None)
            record.tls_version = sock.version()
        connection = EdgeConnection(self.loop, self._caches, sock, visit.behaviour, self.ledger, record, self)
        self.connections[record.number] = connection
        connection.start()

    def on_left(self, visit: _Visit, sock: socket.socket, why: str, *, is_failure: bool) -> None:
        self._visits.pop(visit.record.number, None)
        self._server_names.pop(sock, None)
        with self.ledger.writing():
            visit.record.closed = why
            if is_failure:
                self.ledger.handshakes_failed.append(why)

    def drop(self, number: int, why: str) -> None:
        """Break the connection, whatever its state."""
        if number in self._visits:
            self._visits[number].drop(why)
        elif number in self.connections:
            self.connections[number].drop(why)

    def _on_server_name(self, sock: Any, server_name: str | None, _context: ssl.SSLContext) -> None:
        self._server_names[sock] = server_name

    # -- what connections say ----------------------------------------------------------------------------------------

    def verdict(self, connection: EdgeConnection, registration: Registration) -> Refusal | None:
        if self._treatment.refuses_duplicates:
            client_id = registration.options.client.client_id
            for other in self.connections.values():
                held = other.registration
                is_here = other.record.address == connection.record.address
                if is_here and held is not None and held.options.client.client_id == client_id:
                    return DUPLICATE
        return self._tunnels.flaw_of(registration)

    def on_registered(self, connection: EdgeConnection) -> None:
        assert connection.registration is not None
        self._rotation.setdefault(connection.registration.token.tunnel_id, []).append(connection)
        if self._treatment.configuration is not None:
            push(connection, self._treatment.configuration, self.ledger)

    def on_leaving(self, connection: EdgeConnection) -> None:
        for connections in self._rotation.values():
            if connection in connections:
                connections.remove(connection)
        with self.ledger.writing():
            connection.record.is_in_rotation = False

    def on_closed(self, connection: EdgeConnection) -> None:
        self.on_leaving(connection)
        self.connections.pop(connection.record.number, None)

    # -- clients -----------------------------------------------------------------------------------------------------

    def choose(self, authority: bytes) -> EdgeConnection | None:
        """The next connection in turn that has room."""
        tunnel_id = self._tunnels.tunnel_for(authority)
        connections = [] if tunnel_id is None else self._rotation.get(tunnel_id, [])
        for _ in connections:
            connection = connections[next(self._turn) % len(connections)]
            if connection.has_room:
                return connection
        return None

    def _begin(self, client: ClientStream, head: RequestHead, end_stream: bool) -> Passage:
        passage = Passage(self, client, head, end_stream)
        passage.begin()
        return passage


class _Entrance:
    """An address of the edge, as its acceptor sees it."""

    def __init__(self, side: LoopSide, address: str) -> None:
        self._side = side
        self._address = address

    def on_accepted(self, sock: socket.socket, peer: Any) -> None:
        self._side.on_accepted(sock, self._address, peer[0])

    def on_starved(self) -> None:
        """Out of descriptors: the connector was turned away."""


class _Visit:
    """A connection before HTTP/2: in its handshake, or stuck before that."""

    def __init__(self, side: LoopSide, sock: socket.socket, record: Record, behaviour: Behaviour) -> None:
        self._side = side
        self._sock = sock
        self.record = record
        self.behaviour = behaviour
        self._handshake: Handshake[ssl.SSLSocket] | None = None

    def start(self, context: ssl.SSLContext) -> None:
        loop = self._side.loop
        if self.behaviour.drop_after_s is not None:
            number = self.record.number
            deadline = loop.deadline(lambda: self._side.drop(number, "dropped in time"))
            deadline.set(loop.now_s + self.behaviour.drop_after_s)
        if self.behaviour.hang is Hang.BEFORE_TLS:
            loop.watch(self._sock, self)
            return
        sock = context.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
        self._sock = sock
        self._handshake = Handshake(loop, sock, math.inf, self._on_done, self._on_failed)
        self._handshake.start()

    def _on_done(self, sock: ssl.SSLSocket) -> None:
        self._side.on_greeted(self, sock)

    def _on_failed(self, sock: ssl.SSLSocket, error: OSError) -> None:
        self._leave(f"TLS handshake failed: {error}", is_failure=True)

    def drop(self, why: str) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
        self._leave(why)

    def _leave(self, why: str, *, is_failure: bool = False) -> None:
        self._side.loop.unwatch(self._sock)
        self._side.on_left(self, self._sock, why, is_failure=is_failure)
        self._sock.close()

    # -- while it hangs ----------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                if self._sock.recv(65536):
                    return
            except ConnectionError:
                pass
            self._leave("closed by the connector")

    def on_writable(self) -> None:
        """Never requested."""

    def on_bug(self) -> None:
        self._leave("given up after a bug of the edge")
