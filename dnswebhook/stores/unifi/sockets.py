"""Connects sockets in time: name resolution and connecting to all addresses share one timeout.

A socket timeout limits only one system call, so a name server that is down (on the LAN whose names we manage!) or a
host with several dead addresses could delay a call far beyond its deadline.
"""

import errno
import ipaddress
import socket
import threading
import time
from collections import defaultdict
from typing import Any

from daemonkit.lifecycle import StartFailed, start_thread

SocketAddress = tuple[Any, ...]
"""The argument of `socket.connect`: (host, port) or (host, port, flow, scope)."""

_MOST_LOOKUPS = 8
"""For one name. If this many hang, callers wait for the last one: a thread for each attempt would use up the memory,
or the threads that a container may have."""


class NameTimeout(TimeoutError):
    """No name server has responded in time, so no connection was tried."""


def resolve(host: str, port: int, timeout_s: float) -> list[tuple[int, SocketAddress]]:
    """Pairs of address family and socket address; raises NameTimeout, socket.gaierror, or
    another OSError if no thread can be started.

    The C library's resolver has no timeout that we could set, so it runs in a thread. If that takes too long, it is
    left alone until it ends, and later callers may wait for it.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return _getaddrinfo(host, port)
    lookup = _lookup(host, port)
    if not lookup.is_done.wait(max(timeout_s, 0)):
        raise NameTimeout(f"resolving {host} took longer than {timeout_s:.1f} s")
    if (failure := lookup.failure) is not None:
        raise type(failure)(*failure.args)  # one error in several threads would collect the frames of all of them
    return lookup.found


class _Lookup:
    """One call of the resolver; any number of threads may wait until it `is_done`."""

    def __init__(self, host: str, port: int) -> None:
        self.is_done = threading.Event()
        self.found: list[tuple[int, SocketAddress]] = []
        self.failure: OSError | None = None
        self._host = host
        self._port = port

    def run(self) -> None:
        try:
            self.found = _getaddrinfo(self._host, self._port)
        except OSError as error:
            self.failure = type(error)(*error.args)
        except UnicodeError as error:
            self.failure = socket.gaierror(socket.EAI_NONAME, str(error))
        finally:
            with _lookups_lock:
                lookups = _lookups[self._host, self._port]
                lookups.remove(self)
                if not lookups:
                    del _lookups[self._host, self._port]
            self.is_done.set()


_lookups_lock = threading.Lock()
_lookups: dict[tuple[str, int], list[_Lookup]] = defaultdict(list)
"""Those in progress, by host and port."""


def _lookup(host: str, port: int) -> _Lookup:
    with _lookups_lock:
        running = _lookups[host, port]
        if len(running) >= _MOST_LOOKUPS:
            return running[-1]
        lookup = _Lookup(host, port)
        try:
            start_thread(threading.Thread(target=lookup.run, name="resolve", daemon=True))
        except StartFailed as error:
            raise OSError(errno.EAGAIN, str(error)) from None  # messages quote the innermost error
        running.append(lookup)
        return lookup


def _getaddrinfo(host: str, port: int) -> list[tuple[int, SocketAddress]]:
    return [(info[0], info[4]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket, with the rest of `timeout_s` as its timeout; raises OSError.

    Each address gets an equal share of the remaining time, so that one dead address does not starve the next.
    """
    deadline_s = time.monotonic() + timeout_s
    addresses = resolve(host, port, timeout_s)
    failure: OSError = OSError(f"{host} has no address")
    try:
        for index, (family, address) in enumerate(addresses):
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError(f"connecting to {host} took longer than {timeout_s:.1f} s") from failure
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.settimeout(remaining_s / (len(addresses) - index))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
            except OSError as error:
                sock.close()
                failure = error
                continue
            return sock
        raise failure
    finally:
        del failure  # it refers to this frame, with the socket, and the frame refers to it
