"""Connections to the API server, of urllib3's pools, that another thread can end."""

import socket
import ssl
import threading
import weakref
from contextlib import suppress

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from daemonkit.clienttls import without_formalities

# A peer that has gone without a word is noticed after about half a minute, even by a watch on which nothing happens.
# The last is for a request over a connection that a firewall has forgotten: while the kernel repeats it, it probes not.
SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
]


class Connections:
    """The sockets of all that are open, so that another thread can end them.

    Not the connections: they let go of their socket while an answer that ends with it is still read.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_ended = False

    def add(self, connection: HTTPConnection) -> None:
        """Raises OSError once all were ended: one that was being made meanwhile must not live on."""
        with self._lock:
            if self._is_ended:
                connection.close()
                raise OSError("interrupted")
            if connection.sock is not None:
                self._open.add(connection.sock)

    def end(self) -> None:
        with self._lock:
            self._is_ended = True
            sockets = list(self._open)
        for sock in sockets:
            with suppress(OSError):
                # Not SSLSocket's own, which takes the TLS session away from the thread that reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def pool_classes(self) -> dict[str, type[HTTPConnectionPool]]:
        """Of urllib3, with connections that are known here."""
        known = self

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                known.add(self)

        class Encrypted(HTTPSConnection):
            def connect(self) -> None:
                self.ssl_context = _context_of(self)
                super().connect()
                known.add(self)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class EncryptedPool(HTTPSConnectionPool):
            ConnectionCls = Encrypted

        return {"http": PlainPool, "https": EncryptedPool}


def _context_of(connection: HTTPSConnection) -> ssl.SSLContext:
    """As urllib3 makes one for each connection, but for how authorities must look."""
    context = create_urllib3_context(cert_reqs=resolve_cert_reqs(connection.cert_reqs))
    if not (connection.ca_certs or connection.ca_cert_dir or connection.ca_cert_data):
        context.load_default_certs()
    return without_formalities(context)
