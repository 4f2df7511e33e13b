"""Requests on a connection that was set up for another listener (RFC 9110, 15.5.20; Gateway API, GEP-3567).

Browsers send requests for all names of a certificate over one connection. Another listener may want other
certificates, protocols or client certificates, so a request for a host of a listener that the handshake did not choose
is answered 421, and the client opens another connection for it. A request on a connection that is older than a document
with other requirements is turned away too, since otherwise existing clients would never have to present a certificate;
so is one on a connection that is older than a document that removed the port, even if the port has come back since.
Over HTTP/1.1 it is answered 421 as well; over HTTP/2 it is refused unprocessed. Such a connection then ends, since many
clients would go on using it. A host that no listener serves is not answered 421, but 404 by routing. Pure.
"""

from typing import Final, Protocol

from proxy.document import ClientValidation, Unset
from proxy.routing import Door, host_of

Admission = ClientValidation | Unset | None
"""What a listener requires of connections: TLS with client certificates, TLS without them (UNSET), or None: no TLS."""
IN_CLEAR: Final = None


class Entry(Protocol):
    """The door that the connection came in through."""

    @property
    def entrance(self) -> Door | None:
        """Its listeners by the current table; None if the door is no longer served."""

    def admission_to(self, listener: str) -> Admission:
        """What the current document requires for one of these listeners."""


class Misdirection:
    """The check of one connection. Keeps its last answer, since most requests name the same host."""

    __slots__ = ("_admission", "_answer", "_authority", "_entrance", "_entry", "_server_host")

    def __init__(self, server_name: bytes | None, entry: Entry, admission: Admission) -> None:
        """`admission` is what was required when the connection came in."""
        self._admission = admission
        self._server_host = host_of(server_name or b"")
        self._entry = entry
        self._entrance: Door | None = None
        self._authority: bytes | None = None
        self._answer = False

    def is_misdirected(self, authority: bytes) -> bool:
        entrance = self._entry.entrance
        if authority != self._authority or entrance is not self._entrance:
            self._authority, self._entrance = authority, entrance
            self._answer = entrance is None or self._is_elsewhere(entrance, host_of(authority))
        return self._answer

    @property
    def is_outdated(self) -> bool:
        """Requirements have changed since the connection came in: it would not be admitted now as it was then."""
        entrance = self._entry.entrance
        chosen = None if entrance is None else entrance.listener_for(self._server_host)
        return chosen is None or self._entry.admission_to(chosen.name) != self._admission

    def _is_elsewhere(self, entrance: Door, host: bytes) -> bool:
        wanted = entrance.listener_for(host)
        if wanted is None:
            return False
        if self._entry.admission_to(wanted.name) != self._admission:
            return True
        if host == self._server_host or self._admission is IN_CLEAR:
            return False
        chosen = entrance.listener_for(self._server_host)
        return chosen is None or wanted.name != chosen.name
