"""Open connections to the controller, and exchanges on them: a request in one piece, a whole reply within a time limit.

urllib3 opens connections and handles TLS and fingerprints, with a common limit for resolving and connecting
(`sockets`). The pool and the exchange are our own, since each write of a plan uses them. http.client writes and reads a
head field by field (0.60 ms of CPU per write instead of 0.37, measured); urllib3's pool computes timeouts, retries and
the target anew for each request (130 us of CPU per call instead of 95). `timeout_s` covers a whole exchange: with a
socket's own timeout, a peer that sends a byte now and then could go on for ever.
"""

import contextlib
import re
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import quote

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, InvalidHeader, NameResolutionError, NewConnectionError

from dnswebhook.stores.unifi import sockets
from dnswebhook.stores.unifi.replyreader import WholeReply, read_reply

# Not allowed in a field value: it would start another field, or another request.
_UNSAFE = re.compile(r"[^\t -~\x80-\xff]")
# RFC 3986, 3.3 and 3.4. Row ids come from the controller, so a path may contain anything.
_TARGET_MARKS = "/?:@!$&'()*+,;=%-._~"
_TARGET = re.compile(f"[A-Za-z0-9{re.escape(_TARGET_MARKS)}]+")


class Pool:
    """Connections to one controller; at most `max_idle` idle ones are kept. Any thread may call."""

    def __init__(self, open_one: Callable[[], HTTPConnection], max_idle: int, max_reply_bytes: int) -> None:
        """`open_one` creates a connection that is not connected yet."""
        self._open_one = open_one
        self._max_idle = max_idle
        self._max_reply_bytes = max_reply_bytes
        self._idle: deque[HTTPConnection] = deque()
        self._lock = threading.Lock()
        """Held while a connection is put back: there must still be room, and the pool must not have been closed."""
        self._is_closed = False

    def exchange(
        self, method: str, target: str, fields: Mapping[str, str], body: bytes, timeout_s: float
    ) -> WholeReply:
        """Raises OSError, urllib3's HTTPError and ReplyTooLong; the connection is then closed."""
        deadline_s = time.monotonic() + timeout_s
        connection = self._connected(timeout_s)
        try:
            # BrokenPipeError: the peer refused without reading everything, perhaps with a reply.
            with contextlib.suppress(BrokenPipeError):
                connection.sock.sendall(_request(connection, method, target, fields, body))
            reply, goes_on = read_reply(connection.sock, deadline_s - time.monotonic(), self._max_reply_bytes)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                # A firewall that has dropped this connection has most likely dropped the idle ones too.
                self._drop_idle()
            raise
        self._put_back(connection, goes_on)
        return reply

    def close(self) -> None:
        """Connections in use are closed after their exchange."""
        with self._lock:
            self._is_closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        while (connection := self._taken()) is not None:
            connection.close()

    def _connected(self, timeout_s: float) -> HTTPConnection:
        while (connection := self._taken()) is not None:
            if connection.is_connected:
                if connection.sock.gettimeout() != timeout_s:  # saves a system call per write
                    connection.sock.settimeout(timeout_s)
                return connection
            connection.close()  # the controller closed it in the meantime, or sent something unrequested
        connection = self._open_one()
        connection.timeout = timeout_s
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def _taken(self) -> HTTPConnection | None:
        """The most recently used connection, so that surplus ones stay idle until the controller closes them."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _put_back(self, connection: HTTPConnection, goes_on: bool) -> None:
        with self._lock:
            is_kept = goes_on and len(self._idle) < self._max_idle and not self._is_closed
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()


def http(host: str, port: int) -> HTTPConnection:
    return _HttpConnection(host, port)


def https(host: str, port: int, context: ssl.SSLContext, fingerprint: str) -> HTTPConnection:
    """`fingerprint` is that of the only accepted certificate; if empty, `context` decides."""
    return _HttpsConnection(host, port, ssl_context=context, assert_fingerprint=fingerprint or None)


class _HttpConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _new_socket(self)


class _HttpsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _new_socket(self)


def _new_socket(connection: HTTPConnection) -> socket.socket:
    try:
        return sockets.connect(connection.host, connection.port, connection.timeout or 0)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, str(error)) from error
    except OSError as error:
        raise NewConnectionError(connection, str(error)) from error


def _request(connection: HTTPConnection, method: str, target: str, fields: Mapping[str, str], body: bytes) -> bytes:
    host = _host_field(connection.host, connection.port, connection.default_port)
    sent = {"Host": host, "Accept-Encoding": "identity", **fields}
    if body:
        sent["Content-Length"] = str(len(body))
    if _UNSAFE.search("".join(sent.values())):
        raise InvalidHeader("a request field holds a control character")
    if not _TARGET.fullmatch(target):
        target = quote(target, safe=_TARGET_MARKS)
    lines = "".join([f"{name}: {value}\r\n" for name, value in sent.items()])
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


@lru_cache(maxsize=8)
def _host_field(host: str, port: int, default_port: int) -> str:
    host = host.partition("%")[0]  # the zone of a link-local address has no meaning to others (RFC 6874, 3)
    written = host if host.isascii() else host.encode("idna").decode("ascii")
    name = f"[{written}]" if ":" in written else written
    return name if port == default_port else f"{name}:{port}"
