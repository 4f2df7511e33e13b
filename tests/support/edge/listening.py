"""An address of an edge: reserved for as long as the edge is there, and only sometimes open.

While it is not open the kernel refuses connections, and gives the port to nobody else: it stays bound, with
SO_REUSEPORT, by a socket that never listens.
"""

from __future__ import annotations

import socket

from tests.support.deafness import lose_large

BACKLOG = 1024


class Listening:
    def __init__(self, address: str) -> None:
        """`address`: host:port, an IPv6 host in brackets; port 0 lets the kernel choose."""
        host, _, port = address.rpartition(":")
        self._host = host.strip("[]")
        self._family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._reserved = self._bound(int(port))
        self.port = int(self._reserved.getsockname()[1])
        self.address = f"{host}:{self.port}"
        self._opened: socket.socket | None = None

    def open(self) -> socket.socket:
        """Belongs to the caller; closing it refuses connections again."""
        sock = self._bound(self.port)
        sock.listen(BACKLOG)
        self._opened = sock
        return sock

    def lose_large(self, most_bytes: int) -> None:
        """From now on, of connections that begin while it stays open."""
        assert self._opened is not None
        lose_large(self._opened, most_bytes)

    def close(self) -> None:
        self._reserved.close()

    def _bound(self, port: int) -> socket.socket:
        sock = socket.socket(self._family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # A restarted program finds connections of the one before in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self._host, port))
        return sock
