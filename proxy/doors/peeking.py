"""Look at the first bytes of a connection while they stay in its socket, until enough has come to decide something.

A part of what is wanted does not wake us again before there is more (SO_RCVLOWAT), but where the system is short of
memory for sockets: there any part does.
"""

import contextlib
import select
import socket
from typing import Final, Protocol

from proxy.loop import Loop

_LOOK_AGAIN_S: Final = 0.05
"""After a look that came too early: the loop is not kept busy by what is there already."""


class Observer(Protocol):
    def on_peeked(self, received: bytes) -> int:
        """All that has come; returns how many bytes there have to be for another look. 0: no other is wanted."""

    def on_lost(self, reason: str) -> None:
        """Nothing more will come. `reason` is for the log."""


class Peeking:
    """Watches the socket from `start` to `stop`, which its observer calls in time: it may be closed by then."""

    __slots__ = ("_look_again", "_loop", "_max_bytes", "_observer", "_sock", "wanted_bytes")

    def __init__(self, loop: Loop, sock: socket.socket, max_bytes: int, observer: Observer) -> None:
        """`max_bytes`: shown at once."""
        self._loop = loop
        self._sock = sock
        self._max_bytes = max_bytes
        self._observer: Observer | None = observer
        self._look_again = loop.deadline(self._watch)
        self.wanted_bytes = 1

    def start(self) -> None:
        self._watch()
        self.on_readable()

    def stop(self) -> None:
        """Does nothing the second time."""
        if self._observer is None:
            return
        self._observer = None
        self._look_again.cancel()
        self._loop.unwatch(self._sock)
        if self.wanted_bytes > 1:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def on_readable(self) -> None:
        observer = self._observer
        if observer is None:
            return
        try:
            received = self._sock.recv(self._max_bytes, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            observer.on_lost(f"connection lost: {error.strerror or error}")
            return
        wanted_bytes = observer.on_peeked(received)
        if not wanted_bytes:
            return
        if len(received) >= self.wanted_bytes:
            self.wanted_bytes = wanted_bytes
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted_bytes)
        elif _has_ended(self._sock):
            observer.on_lost("closed by the client")
        else:
            self._loop.unwatch(self._sock)
            self._look_again.set(self._loop.now_s + _LOOK_AGAIN_S)

    def on_writable(self) -> None:
        """Never asked for."""

    def on_bug(self) -> None:
        if self._observer is not None:
            self._observer.on_lost("given up after a bug in this proxy")

    def _watch(self) -> None:
        self._loop.watch(self._sock, self)


def _has_ended(sock: socket.socket) -> bool:
    """The client sends nothing more."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))
