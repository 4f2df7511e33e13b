"""Connects sockets in time: name resolution and connecting to all addresses share one timeout.

A socket timeout limits only one system call, so a name server that is down (on the LAN whose names we manage!) or a
host with several dead addresses could delay a call far beyond its deadline.
"""

import ipaddress
import queue
import socket
import threading
import time
from typing import Any

SocketAddress = tuple[Any, ...]
"""The argument of `socket.connect`: (host, port) or (host, port, flow, scope)."""


class NameTimeout(TimeoutError):
    """No name server has responded in time, so no connection was tried."""


def resolve(host: str, port: int, timeout_s: float) -> list[tuple[int, SocketAddress]]:
    """Pairs of address family and socket address; raises NameTimeout or socket.gaierror.

    The C library's resolver has no timeout that we could set, so it runs in a thread, which is abandoned if it takes
    too long.
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
        raise NameTimeout(f"resolving {host} took longer than {timeout_s:.1f} s") from None
    if isinstance(found, OSError):
        raise found
    return found


def _getaddrinfo(host: str, port: int) -> list[tuple[int, SocketAddress]]:
    return [(info[0], info[4]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket, with the rest of `timeout_s` as its timeout; raises OSError.

    Each address gets an equal share of the remaining time, so that one dead address does not starve the next.
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
