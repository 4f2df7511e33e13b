"""A listening socket: accepts clients, a batch each turn, and survives a lack of descriptors, or a refusal.

When the process may not open another descriptor, a client in the queue would keep the socket readable and the loop
spinning. So one descriptor is held in reserve: it is given up to accept the client and turn it away, the owner makes
room, and accepting pauses for a moment. Everybody else is served meanwhile. What a security policy refuses stays in the
queue, too, but nothing here makes that better: accepting only pauses.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from daemonkit.logs import get_logger
from proxy.doors.synfilter import HANDSHAKE_S, drop_new_handshakes
from proxy.loop import Loop

log = get_logger(__name__).every(60.0)

_BATCH: Final = 64
"""Clients accepted in a turn, so that existing ones are served too."""
_LAST: Final = 4096
"""Clients accepted before closing: more than a queue holds, but bounded if they keep coming."""
_PAUSE_S: Final = 0.1
_STARVED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_REFUSED: Final = frozenset((errno.EPERM, errno.EACCES, errno.ENOSYS))
"""What filters of seccomp and security modules answer; not the errors of a client's connection."""
_LISTENER_IS_BROKEN: Final = frozenset((errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP))


class Owner(Protocol):
    def on_accepted(self, sock: socket.socket, address: Any) -> None:
        """`sock` is non-blocking and belongs to the owner now; `address` is what `accept` returns for its family."""

    def on_starved(self) -> None:
        """A client was turned away, or waits, for lack of descriptors or memory."""


class Reserve:
    """One descriptor to give up when there are no more; shared by all acceptors of a process."""

    def __init__(self) -> None:
        self._descriptor = -1
        self.refill()

    def spend(self) -> bool:
        """Give it up. Returns False if there is none."""
        if self._descriptor < 0:
            return False
        os.close(self._descriptor)
        self._descriptor = -1
        return True

    def refill(self) -> None:
        if self._descriptor < 0:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        self.spend()


class Acceptor:
    def __init__(self, loop: Loop, sock: socket.socket, reserve: Reserve, owner: Owner) -> None:
        """`sock` is bound and listening; it belongs to the acceptor."""
        self._loop = loop
        self._sock = sock
        self._reserve = reserve
        self._owner = owner
        self._resume = loop.deadline(self._on_resume)
        self._closing = loop.deadline(self._on_handshakes_done)
        self._on_closed: Callable[[], None] | None = None
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            # Accepted sockets inherit both. Where the document sets no time limit, only keepalive notices a client that
            # has vanished from a silent WebSocket.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        loop.watch(sock, self)

    @property
    def is_closed(self) -> bool:
        return self._sock.fileno() < 0

    def is_on(self, sock: socket.socket) -> bool:
        return sock is self._sock

    def on_readable(self) -> None:
        for _ in range(_BATCH):
            if not self._accept():
                return

    def on_writable(self) -> None:
        """Never asked for."""

    def on_bug(self) -> None:
        """The socket is fine; the client that was being accepted is gone."""

    def finish(self, on_closed: Callable[[], None]) -> None:
        """Accept every client whose TCP handshake has begun, then close; later ones are left to the next listener.

        `on_closed` is called once, now or a moment later.
        """
        self._on_closed = on_closed
        has_dropped = not self.is_closed and drop_new_handshakes(self._sock)
        self._take_all()
        if has_dropped and not self.is_closed:
            self._closing.set(self._loop.now_s + HANDSHAKE_S)
        else:
            self.close()

    def let_go(self) -> None:
        """Give the socket back as it is: nobody has been accepted, and nobody will be."""
        self._loop.unwatch(self._sock)

    def close(self) -> None:
        self._resume.cancel()
        self._closing.cancel()
        self._loop.unwatch(self._sock)
        self._sock.close()
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is not None:
            on_closed()

    def _on_handshakes_done(self) -> None:
        self._take_all()
        self.close()

    def _take_all(self) -> None:
        for _ in range(_LAST):
            if not self._accept():
                break

    def _accept(self) -> bool:
        """Accept one client; returns whether there may be more."""
        if self.is_closed:
            return False
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            return self._on_error(error)
        sock.setblocking(False)
        self._owner.on_accepted(sock, address)
        return True

    def _on_error(self, error: OSError) -> bool:
        if error.errno in _LISTENER_IS_BROKEN:
            log.error("cannot accept connections any more", error=error)
            self.close()
            return False
        if error.errno in _REFUSED:
            log.error(
                "cannot accept a connection: refused by a security policy, perhaps of seccomp, SELinux or AppArmor",
                error=error,
            )
            self._pause()
            return False
        if error.errno not in _STARVED:
            # An error of this one client's connection (accept(2)).
            return True
        log.error(
            "cannot accept a connection: no descriptor or memory left; raise the limit of open files (LimitNOFILE in a "
            "unit, ulimit -n), or lower limits.maxConnections",
            error=error,
        )
        if self._reserve.spend():
            with contextlib.suppress(OSError):
                self._sock.accept()[0].close()
            self._reserve.refill()
        self._owner.on_starved()
        if not self.is_closed:
            self._pause()
        return False

    def _pause(self) -> None:
        self._loop.rewatch(self._sock, self, reads=False, writes=False)
        self._resume.set(self._loop.now_s + _PAUSE_S)

    def _on_resume(self) -> None:
        self._reserve.refill()
        try:
            self._loop.rewatch(self._sock, self, reads=True, writes=False)
        except OSError:  # what was lacking is still lacking
            self._resume.set(self._loop.now_s + _PAUSE_S)
