"""Happy Eyeballs (RFC 8305) on the loop: connect to whichever of several addresses answers first.

Address families alternate, starting with the one that the resolver put first. The next address is tried when the
previous one has failed or has not answered within 250 ms. The first connection wins; the others are closed.
"""

import errno
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from daemonkit.causes import forget_frames
from proxy.backend.resolver import Address, Addresses
from proxy.loop import Loop

STAGGER_S: Final = 0.25
"""Connection Attempt Delay (RFC 8305, 8)."""


def alternate(addresses: Addresses, turn: int) -> Addresses:
    """The addresses in the order to try them. `turn` rotates each family, to spread connections over its addresses."""
    if len(addresses) < 2:
        return addresses
    first = [address for address in addresses if address.family is addresses[0].family]
    second = [address for address in addresses if address.family is not addresses[0].family]
    first, second = _rotated(first, turn), _rotated(second, turn)
    order: list[Address] = []
    while first or second:
        order += first[:1] + second[:1]
        del first[:1], second[:1]
    return tuple(order)


def _rotated(addresses: list[Address], turn: int) -> list[Address]:
    place = turn % len(addresses) if addresses else 0
    return addresses[place:] + addresses[:place]


class Race:
    """Calls exactly one of `on_won(sock, address)` and `on_lost(errors)`, after `start` has returned, unless cancelled.

    `errors` has the error of each address, in the order in which they failed.
    """

    __slots__ = ("_attempts", "_errors", "_left", "_loop", "_next", "_on_lost", "_on_won")

    def __init__(
        self,
        loop: Loop,
        addresses: Addresses,
        on_won: Callable[[socket.socket, Address], None],
        on_lost: Callable[[list[tuple[Address, OSError]]], None],
    ) -> None:
        self._loop = loop
        self._left = list(addresses)
        self._on_won = on_won
        self._on_lost = on_lost
        self._attempts: set[_Attempt] = set()
        self._errors: list[tuple[Address, OSError]] = []
        self._next = loop.deadline(self._try_next)

    def start(self) -> None:
        self._try_next()

    def cancel(self) -> None:
        self._next.cancel()
        for attempt in self._attempts:
            attempt.close()
        self._attempts.clear()

    def _try_next(self) -> None:
        if not self._left:
            return
        address = self._left.pop(0)
        if self._left:
            self._next.set(self._loop.now_s + STAGGER_S)
        attempt = _Attempt(self._loop, address, self._end)
        self._attempts.add(attempt)
        attempt.start()

    def _end(self, attempt: "_Attempt", error: OSError | None) -> None:
        if attempt not in self._attempts:
            return
        self._attempts.remove(attempt)
        if error is None:
            sock = attempt.take()
            self.cancel()
            self._on_won(sock, attempt.address)
            return
        attempt.close()
        self._errors.append((attempt.address, error))
        if self._left:
            self._try_next()
        elif not self._attempts:
            self._next.cancel()
            self._on_lost(self._errors)


class _Attempt:
    """A connection attempt to one address. Calls `on_end`, but never from within `start`."""

    __slots__ = ("_loop", "_on_end", "_sock", "address")

    def __init__(self, loop: Loop, address: Address, on_end: Callable[["_Attempt", OSError | None], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self._sock: socket.socket | None = None
        self.address = address

    def start(self) -> None:
        try:
            sock = self._sock = socket.socket(self.address.family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            code = sock.connect_ex(self.address.sockaddr)
            is_pending = code in (errno.EINPROGRESS, errno.EINTR)
            if is_pending:
                self._loop.watch(sock, self, reads=False, writes=True)
        except OSError as error:
            # The race keeps the error, whose frames refer to the race.
            forget_frames(error)
            self._end_soon(error)
            return
        if not is_pending:
            self._end_soon(_error(code) if code else None)

    def take(self) -> socket.socket:
        """Hand the connected socket over to the caller."""
        sock, self._sock = self._sock, None
        assert sock is not None  # noqa: S101
        self._loop.unwatch(sock)
        return sock

    def close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.unwatch(sock)
            sock.close()

    def on_writable(self) -> None:
        if self._sock is None:
            return
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._on_end(self, _error(code) if code else None)

    def on_readable(self) -> None:
        """Never called: only writability is watched."""

    def on_bug(self) -> None:
        self._on_end(self, ConnectionAbortedError("given up after a bug in this proxy"))

    def _end_soon(self, error: OSError | None) -> None:
        self._loop.call_soon(partial(self._on_end, self, error))


def _error(code: int) -> OSError:
    # OSError picks the subclass for the number, as for socket.connect.
    return OSError(code, os.strerror(code))
