"""The front doors of an edge: HTTP/1.1 and HTTP/2 with prior knowledge, for clients such as curl.

There are two, both without TLS: one for clients that came over http, the other for clients whose TLS is assumed to have
ended here, so that connectors are told https. Built from the proxy's own doors; `begin` is what makes them an edge's.
"""

from __future__ import annotations

import math
import socket
from typing import Any

import msgspec

from proxy import h1, h2
from proxy.doors.acceptor import Acceptor, Reserve
from proxy.doors.h1connection import H1Connection
from proxy.doors.h2connection import H2Connection
from proxy.doors.member import Member
from proxy.doors.terms import Begin, Caches, Terms
from proxy.exchange.client import Arrival
from proxy.loop import Loop, Transport

MAX_STREAMS = 10_000
_SETTINGS = h2.Settings(
    max_concurrent_streams=MAX_STREAMS, stream_window_bytes=1 << 20, connection_window_bytes=64 << 20
)


class Front:
    def __init__(self, loop: Loop, sock: socket.socket, scheme: bytes, begin: Begin, reserve: Reserve) -> None:
        self._loop = loop
        self._scheme = scheme
        self._terms = Terms(
            begin=begin,
            caches=Caches(),
            header_timeout_s=math.inf,
            idle_timeout_s=math.inf,
            max_uri_bytes=64 * 1024,
            h1_limits=h1.Limits(max_request_line_bytes=65 * 1024, max_head_bytes=256 * 1024),
            h2_settings=_SETTINGS,
        )
        self._members: set[Member] = set()
        self._acceptor = Acceptor(loop, sock, reserve, self)

    def close(self) -> None:
        self._acceptor.close()
        for member in tuple(self._members):
            member.abort("the edge stops")

    # -- clients -----------------------------------------------------------------------------------------------------

    def on_accepted(self, sock: socket.socket, address: Any) -> None:
        arrival = Arrival(
            door="edge",
            scheme=self._scheme,
            address=address[0],
            protocol="HTTP/1.1",
            is_trusted=False,
        )
        connection = H1Connection(self._loop, self._terms, arrival, self, self._upgrade)
        self._members.add(connection)
        connection.start(Transport(self._loop, sock, connection))

    def on_starved(self) -> None:
        """Out of descriptors: the client was turned away."""

    def _upgrade(self, before: H1Connection, transport: Transport, received: bytes) -> None:
        """Called when the client began with HTTP/2's preface."""
        arrival = msgspec.structs.replace(before.arrival, protocol="HTTP/2")
        connection = H2Connection(self._loop, self._terms, arrival, self)
        self._members.discard(before)
        self._members.add(connection)
        transport.hand_over(connection)
        connection.start(transport, received, is_started=True)

    def forget(self, member: Member) -> None:
        self._members.discard(member)

    def refused(self, cause: str, detail: str) -> None:
        """Nothing to record: clients of tests see the refusal themselves."""
