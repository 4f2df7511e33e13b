"""Peek at the first bytes of a connection while they stay in its socket, until there are enough to decide something.

With SO_RCVLOWAT, the socket becomes readable only when as many bytes as wanted are there. Only a system that is short
of memory for sockets makes it readable for fewer.
"""

import contextlib
import select
import socket
from typing import Final, Protocol

from proxy.loop import Loop

_LOOK_AGAIN_S: Final = 0.05
"""The wait after a look that came too early, so that bytes already there do not keep the loop busy."""


class Observer(Protocol):
    def on_peeked(self, received: bytes) -> int:
        """Takes all bytes so far; returns how many have to be there before another look, or 0 for none."""

    def on_lost(self, reason: str) -> None:
        """No more bytes will come. `reason` is for the log."""


class Peeking:
    """Watches the socket from `start` to `stop`, which its observer has to call before it closes the socket."""

    __slots__ = ("_look_again", "_loop", "_max_bytes", "_observer", "_sock", "wanted_bytes")

    def __init__(self, loop: Loop, sock: socket.socket, max_bytes: int, observer: Observer) -> None:
        """The observer is shown at most `max_bytes`."""
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
        try:
            self._loop.watch(self._sock, self)
        except OSError as error:  # a limit of watches, no memory
            if self._observer is not None:
                self._observer.on_lost(f"connection cannot be watched: {error.strerror or error}")


def _has_ended(sock: socket.socket) -> bool:
    """Whether the client has closed its sending side."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))
