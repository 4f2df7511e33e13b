"""Connections whose every step ends in time: name resolution, connecting, and reading a whole answer.

Socket timeouts bound one system call each, so a peer that sends a byte now and then, a name server that is away (on the
LAN whose names we manage!) or a host with several dead addresses could hold a call far beyond its deadline. Here the
connect timeout covers resolution and all addresses together, and the read timeout covers the whole answer.
"""

import http.client
import io
import ipaddress
import queue
import socket
import threading
import time
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

SocketAddress = tuple[Any, ...]
"""What `socket.connect` takes: (host, port) or (host, port, flow, scope)."""


def resolve(host: str, port: int, timeout_s: float) -> list[tuple[int, SocketAddress]]:
    """Address families with socket addresses; raises TimeoutError or socket.gaierror.

    The C library's resolver has no timeout that we could set, so it runs in a thread that is left behind when late.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return _getaddrinfo(host, port)
    answer: queue.SimpleQueue[list[tuple[int, SocketAddress]] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answer.put(_getaddrinfo(host, port))
        except (OSError, UnicodeError) as error:
            answer.put(error if isinstance(error, OSError) else socket.gaierror(socket.EAI_NONAME, str(error)))

    threading.Thread(target=look_up, name="resolve", daemon=True).start()
    try:
        found = answer.get(timeout=max(timeout_s, 0))
    except queue.Empty:
        raise TimeoutError(f"resolving {host} took longer than {timeout_s:.1f} s") from None
    if isinstance(found, OSError):
        raise found
    return found


def _getaddrinfo(host: str, port: int) -> list[tuple[int, SocketAddress]]:
    return [(info[0], info[4]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket with what is left of `timeout_s` as its timeout; raises OSError.

    Each address gets an equal part of the time that is left, so that one dead address does not starve the next.
    """
    at = time.monotonic() + timeout_s
    addresses = resolve(host, port, timeout_s)
    failure: OSError = OSError(f"{host} has no address")
    for index, (family, address) in enumerate(addresses):
        remaining_s = at - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError(f"connecting to {host} took longer than {timeout_s:.1f} s") from failure
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(remaining_s / (len(addresses) - index))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(max(at - time.monotonic(), 0.001))
        except OSError as error:
            sock.close()
            failure = error
            continue
        return sock
    raise failure


class _AnswerReader(io.RawIOBase):
    """A socket's bytes, all of which must arrive within the timeout that the socket has when reading begins."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        timeout_s = sock.gettimeout()
        self._at = time.monotonic() + timeout_s if timeout_s is not None else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._at is not None:
            remaining_s = self._at - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError("the answer did not end in time")
            self._sock.settimeout(remaining_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _PromptResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_AnswerReader(sock), 65536)


class _PromptConnect:
    """The part that both connection classes share: replaces urllib3's way to a connected socket."""

    host: str
    port: int
    timeout: Any

    def _new_conn(self) -> socket.socket:
        try:
            return connect(self.host, self.port, self.timeout)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error  # type: ignore[arg-type]
        except TimeoutError as error:
            raise ConnectTimeoutError(self, str(error)) from error
        except OSError as error:
            raise NewConnectionError(self, str(error)) from error  # type: ignore[arg-type]


class _PromptHttpConnection(_PromptConnect, HTTPConnection):
    response_class = _PromptResponse


class _PromptHttpsConnection(_PromptConnect, HTTPSConnection):
    response_class = _PromptResponse


class PromptHttpPool(HTTPConnectionPool):
    ConnectionCls = _PromptHttpConnection


class PromptHttpsPool(HTTPSConnectionPool):
    ConnectionCls = _PromptHttpsConnection
