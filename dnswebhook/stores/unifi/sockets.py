"""Connections whose every step ends in time: name resolution, connecting, and reading a whole answer.

Socket timeouts bound one system call each, so a peer that sends a byte now and then, a name server that is away (on the
LAN whose names we manage!) or a host with several dead addresses could hold a call far beyond its deadline. Here the
connect timeout covers resolution and all addresses together, and the read timeout covers the whole answer.

Requests are written as one piece and answers read by `replyreader`, in place of urllib3's own ways over http.client.
"""

import ipaddress
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, InvalidHeader, NameResolutionError, NewConnectionError

from dnswebhook.stores.unifi.replyreader import WholeReply, read_reply

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


# What must not stand in a field's value: it would begin another field, or another request.
_UNSAFE = re.compile(r"[^\t -~\x80-\xff]")


class _Prompt:
    """The part that both connection classes share: replaces urllib3's ways to a connected socket and of using it."""

    host: str
    port: int
    timeout: Any
    sock: Any
    connect: Callable[[], None]
    close: Callable[[], None]
    default_port: ClassVar[int]

    def __init__(self, *args: Any, max_reply_bytes: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_reply_bytes = max_reply_bytes

    def _new_conn(self) -> socket.socket:
        try:
            return connect(self.host, self.port, self.timeout)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error  # type: ignore[arg-type]
        except TimeoutError as error:
            raise ConnectTimeoutError(self, str(error)) from error
        except OSError as error:
            raise NewConnectionError(self, str(error)) from error  # type: ignore[arg-type]

    def request(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **_options: Any,
    ) -> None:
        """Everything in one packet where it fits; `url` is encoded already."""
        if self.sock is None:
            self.connect()
        elif self.sock.gettimeout() != self.timeout:
            self.sock.settimeout(self.timeout)
        host = _host_field(self.host, self.port, self.default_port)
        fields = {"Host": host, "Accept-Encoding": "identity", **(headers or {})}
        if body:
            fields["Content-Length"] = str(len(body))
        if any(map(_UNSAFE.search, fields.values())):
            raise InvalidHeader("a request field holds a control character")
        lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
        self.sock.sendall(f"{method} {url} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + (body or b""))

    def getresponse(self) -> WholeReply:
        reply, goes_on = read_reply(self.sock, self.timeout, self._max_reply_bytes)
        if not goes_on:
            self.close()
        return reply


@lru_cache(maxsize=8)
def _host_field(host: str, port: int, default_port: int) -> str:
    written = host if host.isascii() else host.encode("idna").decode("ascii")
    name = f"[{written}]" if ":" in written else written
    return name if port == default_port else f"{name}:{port}"


class _PromptHttpConnection(_Prompt, HTTPConnection):  # type: ignore[misc]
    pass


class _PromptHttpsConnection(_Prompt, HTTPSConnection):  # type: ignore[misc]
    pass


class PromptHttpPool(HTTPConnectionPool):
    ConnectionCls = _PromptHttpConnection  # type: ignore[assignment]  # takes only the bodies that we send


class PromptHttpsPool(HTTPSConnectionPool):
    ConnectionCls = _PromptHttpsConnection  # type: ignore[assignment]
