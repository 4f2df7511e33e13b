"""An address of an edge: reserved for as long as the edge exists, but not always open.

While it is not open, the kernel refuses connections and gives the port to nobody else: it stays bound, with
SO_REUSEPORT, by a socket that never listens.
"""

from __future__ import annotations

import socket

from tests.support.deafness import lose_large

BACKLOG = 1024


class Listening:
    def __init__(self, address: str) -> None:
        """`address`: host:port, with an IPv6 host in brackets; with port 0, the kernel chooses."""
        host, _, port = address.rpartition(":")
        self._host = host.strip("[]")
        self._family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._reserved = self._bound(int(port))
        self.port = int(self._reserved.getsockname()[1])
        self.address = f"{host}:{self.port}"
        self._opened: socket.socket | None = None

    def open(self) -> socket.socket:
        """The socket belongs to the caller; after it is closed, connections are refused again."""
        sock = self._bound(self.port)
        sock.listen(BACKLOG)
        self._opened = sock
        return sock

    def lose_large(self, most_bytes: int) -> None:
        """Applies to connections that begin from now on while it stays open."""
        assert self._opened is not None
        lose_large(self._opened, most_bytes)

    def close(self) -> None:
        self._reserved.close()

    def _bound(self, port: int) -> socket.socket:
        sock = socket.socket(self._family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # A restarted program finds its predecessor's connections in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self._host, port))
        return sock
