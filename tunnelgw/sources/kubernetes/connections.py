"""Connections of urllib3's pools to the API server: another thread can end them, and answers have a time limit."""

import socket
import ssl
import threading
import weakref
from contextlib import suppress

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from daemonkit import addressfamilies
from daemonkit.clienttls import without_formalities
from daemonkit.timedresponse import response_within

# They detect a vanished peer after about half a minute, even during a watch on which nothing happens. The last option
# is for requests over connections that a firewall has forgotten: while the kernel resends, it does not probe.
SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
]


class Connections:
    """The sockets of all open connections, so that another thread can end them.

    Connection objects do not suffice: they drop their socket while an answer that ends with the connection is read.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_ended = False
        self._calling = threading.local()
        """`answer_s`: the limit for the answer to this thread's request."""

    def add(self, connection: HTTPConnection) -> None:
        """Raises OSError after `end`: a connection that was being opened meanwhile must not stay open."""
        with self._lock:
            if self._is_ended:
                connection.close()
                raise OSError("interrupted")
            if connection.sock is not None:
                self._open.add(connection.sock)

    def limit_answer(self, answer_s: float) -> None:
        """The whole answer to this thread's next request must come within this time; reading raises TimeoutError after
        that."""
        self._calling.answer_s = answer_s

    def end(self) -> None:
        with self._lock:
            self._is_ended = True
            sockets = list(self._open)
        for sock in sockets:
            with suppress(OSError):
                # Not SSLSocket.shutdown, which would take the TLS session away from the thread that reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def pool_classes(self) -> dict[str, type[HTTPConnectionPool]]:
        """urllib3's pool classes, with connections that are added here."""
        known = self

        class Plain(HTTPConnection):
            def connect(self) -> None:
                addressfamilies.try_usable()
                super().connect()
                known.add(self)

            def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
                self.response_class = response_within(known._calling.answer_s)
                return super().getresponse()

        class Encrypted(Plain, HTTPSConnection):
            def connect(self) -> None:
                self.ssl_context = _context_of(self)
                super().connect()

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class EncryptedPool(HTTPSConnectionPool):
            ConnectionCls = Encrypted

        return {"http": PlainPool, "https": EncryptedPool}


def _context_of(connection: HTTPSConnection) -> ssl.SSLContext:
    """A context like the one that urllib3 makes for each connection, but less strict about the form of authorities."""
    context = create_urllib3_context(cert_reqs=resolve_cert_reqs(connection.cert_reqs))
    if not (connection.ca_certs or connection.ca_cert_dir or connection.ca_cert_data):
        context.load_default_certs()
    return without_formalities(context)
