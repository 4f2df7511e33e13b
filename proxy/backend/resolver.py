"""Name resolution: done off the loop, cached while in use, renewed every 30 seconds.

A renewal that fails leaves the last good answer in place, since a resolver that is down says nothing about a backend.
But if resolvers say for half a minute that the name does not exist or has no address, its addresses are dropped: they
may belong to somebody else by now. A name without an answer is looked up again with the next request, at most once a
second. A name that nobody follows and that has not been used for five minutes is forgotten. Names whose servers answer
slowly, or not at all, have separate threads, so that they do not occupy all threads and delay other names. Before the
first lookup nobody knows which these are, so a thread that gets no answer soon is replaced by another one.
"""

import ipaddress
import socket
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from proxy.backend.threadpool import ThreadPool
from proxy.loop import Deadline, Loop

RENEW_S: Final = 30.0
RENEW_FAILED_S: Final = 5.0
RETRY_S: Final = 1.0
HOLD_S: Final = 30.0
"""How long a name keeps its addresses while resolvers say that it does not exist."""
FORGET_S: Final = 300.0
SLOW_S: Final = 1.0
"""A name whose lookup took longer uses the threads for slow names the next time."""
_THREADS: Final = 4
_PATIENCE_S: Final = 0.25
_SUBSTITUTES: Final = 28
_DENIALS: Final = frozenset((socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)))
"""Errors that concern the name; all others concern the resolver."""


class Address(msgspec.Struct, frozen=True, gc=False):
    """An IP address and port to connect to."""

    family: socket.AddressFamily
    ip: str
    port: int
    scope_id: int = 0
    """Set for link-local IPv6 addresses."""

    @property
    def sockaddr(self) -> tuple[str, int] | tuple[str, int, int, int]:
        return (self.ip, self.port) if self.family is socket.AF_INET else (self.ip, self.port, 0, self.scope_id)

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}" if self.family is socket.AF_INET else f"[{self.ip}]:{self.port}"


Addresses = tuple[Address, ...]
GetAddrInfo = Callable[..., list[tuple[Any, ...]]]
"""The signature of `socket.getaddrinfo`."""
OnAnswer = Callable[[Addresses, str], None]
"""Gets addresses in the resolver's order, or none and the reason."""
OnAddresses = Callable[[Addresses], None]


def split(text: str) -> tuple[str, int]:
    """Split an address of the document into host and port, without the brackets of IPv6."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def literal(host: str, port: int) -> Address | None:
    """The address if `host` is an IP address; None if it is a name."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    return Address(socket.AF_INET if ip.version == 4 else socket.AF_INET6, str(ip), port)


class _Entry:
    """What is known about one name and port."""

    __slots__ = (
        "addresses",
        "asked_s",
        "denied_since_s",
        "error",
        "followers",
        "is_asking",
        "is_slow",
        "renewal",
        "used_s",
        "waiting",
    )

    def __init__(self, renewal: Deadline) -> None:
        self.addresses: Addresses = ()
        self.error = ""
        self.denied_since_s: float | None = None
        self.asked_s = 0.0
        self.used_s = 0.0
        self.is_asking = False
        self.is_slow = False
        self.waiting: dict[OnAnswer, None] = {}
        self.followers: dict[OnAddresses, None] = {}
        self.renewal = renewal


class Resolver:
    def __init__(self, loop: Loop, getaddrinfo: GetAddrInfo = socket.getaddrinfo) -> None:
        self._loop = loop
        self._getaddrinfo = getaddrinfo
        self._threads = ThreadPool(loop, "resolver", _THREADS, patience_s=_PATIENCE_S, substitutes=_SUBSTITUTES)
        self._threads_of_slow = ThreadPool(loop, "slow-names", _THREADS)
        self._entries: dict[tuple[str, int], _Entry] = {}

    def resolve(self, host: str, port: int, on_answer: OnAnswer) -> None:
        """Call `on_answer` once; immediately if the answer is known."""
        now_s = self._loop.now_s
        entry = self._entries.get((host, port))
        if entry is None:
            entry = self._entries[host, port] = self._new_entry(host, port)
        entry.used_s = now_s
        if entry.addresses:
            on_answer(entry.addresses, "")
        elif not entry.is_asking and entry.error and now_s < entry.asked_s + RETRY_S:
            on_answer((), entry.error)
        else:
            entry.waiting[on_answer] = None
            self._ask(host, port, entry)

    def leave(self, host: str, port: int, on_answer: OnAnswer) -> None:
        """`on_answer` no longer waits. A lookup may take minutes, and those that gave up meanwhile would add up."""
        entry = self._entries.get((host, port))
        if entry is not None:
            entry.waiting.pop(on_answer, None)

    def follow(self, host: str, port: int, on_addresses: OnAddresses) -> None:
        """Call `on_addresses` with every further answer that has addresses, changed or not, until `unfollow`."""
        entry = self._entries.get((host, port))
        if entry is None:
            entry = self._entries[host, port] = self._new_entry(host, port)
            entry.renewal.set(self._loop.now_s + RENEW_S)
        entry.followers[on_addresses] = None

    def unfollow(self, host: str, port: int, on_addresses: OnAddresses) -> None:
        """No-op unless `on_addresses` follows the name."""
        entry = self._entries.get((host, port))
        if entry is not None:
            entry.followers.pop(on_addresses, None)

    def close(self) -> None:
        for entry in self._entries.values():
            entry.renewal.cancel()
        self._entries.clear()
        self._threads.close()
        self._threads_of_slow.close()

    def _new_entry(self, host: str, port: int) -> _Entry:
        return _Entry(self._loop.deadline(lambda: self._renew(host, port)))

    def _renew(self, host: str, port: int) -> None:
        entry = self._entries[host, port]
        if entry.followers or self._loop.now_s < entry.used_s + FORGET_S:
            self._ask(host, port, entry)
        elif not entry.is_asking:
            entry.renewal.cancel()
            del self._entries[host, port]

    def _ask(self, host: str, port: int, entry: _Entry) -> None:
        if entry.is_asking:
            return
        entry.is_asking = True
        entry.asked_s = self._loop.now_s

        def work() -> Addresses:
            began_s = time.monotonic()
            try:
                return _addresses(self._getaddrinfo(host, port, type=socket.SOCK_STREAM))
            finally:
                entry.is_slow = time.monotonic() - began_s > SLOW_S

        def on_done(addresses: Addresses | None, error: Exception | None) -> None:
            self._answer(entry, addresses or (), error)

        (self._threads_of_slow if entry.is_slow else self._threads).run(work, on_done)

    def _answer(self, entry: _Entry, addresses: Addresses, error: Exception | None) -> None:
        entry.is_asking = False
        if addresses:
            entry.addresses = addresses
            entry.error = ""
            entry.denied_since_s = None
        else:
            entry.error = f"{type(error).__name__}: {error}" if error else "the name has no address"
            if error is None or (isinstance(error, socket.gaierror) and error.errno in _DENIALS):
                self._deny(entry)
        entry.renewal.set(self._loop.now_s + (RENEW_S if addresses else RENEW_FAILED_S))
        waiting, entry.waiting = entry.waiting, {}
        for on_answer in waiting:
            on_answer(entry.addresses, entry.error)
        if addresses:
            for on_addresses in list(entry.followers):
                on_addresses(addresses)

    def _deny(self, entry: _Entry) -> None:
        """A resolver says that the name does not exist."""
        now_s = self._loop.now_s
        if entry.denied_since_s is None:
            entry.denied_since_s = now_s
        if now_s >= entry.denied_since_s + HOLD_S:
            entry.addresses = ()


def _addresses(answers: list[tuple[Any, ...]]) -> Addresses:
    """The distinct addresses, in the resolver's order, which follows RFC 6724."""
    found: dict[Address, None] = {}
    for family, _, _, _, sockaddr in answers:
        if family in (socket.AF_INET, socket.AF_INET6):
            scope_id = sockaddr[3] if family == socket.AF_INET6 else 0
            found[Address(socket.AddressFamily(family), sockaddr[0], sockaddr[1], scope_id)] = None
    return tuple(found)
