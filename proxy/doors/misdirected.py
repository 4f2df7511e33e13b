"""Requests on a connection that was set up for another listener (RFC 9110, 15.5.20; Gateway API, GEP-3567).

Browsers send requests for all names of a certificate over one connection. Another listener may want other
certificates, protocols or client certificates, so a request for a host of a listener that the handshake did not choose
is answered 421, and the client opens a connection of its own. A host that no listener serves is no case for 421:
routing answers it 404. Pure.
"""

from typing import Protocol

from proxy.routing import Door, host_of


class Entry(Protocol):
    """Where the connection came in."""

    @property
    def entrance(self) -> Door | None:
        """Its listeners by the current table; None when it serves nobody any more."""


class Misdirection:
    """The check of one connection. Keeps its last answer, since most requests name the same host."""

    __slots__ = ("_answer", "_authority", "_entrance", "_entry", "_server_host")

    def __init__(self, server_name: bytes | None, entry: Entry) -> None:
        self._server_host = host_of(server_name or b"")
        self._entry = entry
        self._entrance: Door | None = None
        self._authority: bytes | None = None
        self._answer = False

    def is_misdirected(self, authority: bytes) -> bool:
        entrance = self._entry.entrance
        if authority != self._authority or entrance is not self._entrance:
            self._authority, self._entrance = authority, entrance
            self._answer = entrance is not None and self._is_elsewhere(entrance, host_of(authority))
        return self._answer

    def _is_elsewhere(self, entrance: Door, host: bytes) -> bool:
        wanted = entrance.listener_for(host)
        if wanted is None or host == self._server_host:
            return False
        chosen = entrance.listener_for(self._server_host)
        return chosen is None or wanted.name != chosen.name
