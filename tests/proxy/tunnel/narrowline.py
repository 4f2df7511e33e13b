"""A line to the edge: it takes what the connector sends as slowly as a test says, or loses it; back it is wide."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from tests.support.deafness import lose_data, wait_for_repeats
from tests.support.edge.ledger import PATIENCE_S
from tests.support.ports import LOOPBACK

_BUFFER_BYTES = 64 * 1024
_EVERYTHING = 1 << 60


class NarrowLine:
    """For one connection."""

    def __init__(self, edge_address: str) -> None:
        host, _, port = edge_address.rpartition(":")
        self._edge = (host, int(port))
        self._listener = socket.socket()
        # The line buffers little, and its buffers do not grow.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._listener.bind((LOOPBACK, 0))
        self._listener.listen()
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        self._news = threading.Condition()
        self._allowed_bytes = _EVERYTHING
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve, name="line", daemon=True)]
        self._threads[0].start()

    def hold(self) -> None:
        """Take nothing more."""
        with self._news:
            self._allowed_bytes = 0

    def take(self, size_bytes: int = _EVERYTHING) -> None:
        """Take that many bytes and wait for them; without a number, take everything from now on."""
        with self._news:
            self._allowed_bytes = size_bytes
            self._news.notify_all()
            if size_bytes < _EVERYTHING:
                assert self._news.wait_for(lambda: not self._allowed_bytes, PATIENCE_S), "the connector sends nothing"

    def lose(self) -> None:
        """Lose all data that the connector sends from now on, retransmissions too; its acknowledgements get through."""
        lose_data(self._sockets[0])

    def wait_until_repeated(self, times: int) -> None:
        """Waits until the connector's kernel has retransmitted the same data that many times in a row."""
        wait_for_repeats(self._sockets[0].getpeername()[1], times)

    def wait_until_closed(self) -> None:
        """Waits until the connector has closed the connection."""
        self._threads[0].join(PATIENCE_S)
        assert not self._threads[0].is_alive(), "the connector keeps it"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            near, _ = self._listener.accept()
            far = socket.create_connection(self._edge)
            self._sockets = [near, far]
            back = threading.Thread(target=self._carry_back, args=(far, near), name="line back", daemon=True)
            self._threads.append(back)
            back.start()
            self._carry(near, far)

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._allowed_bytes)
                most_bytes = min(self._allowed_bytes, _BUFFER_BYTES)
            data = near.recv(most_bytes)
            if not data:
                far.shutdown(socket.SHUT_WR)
                return
            far.sendall(data)
            with self._news:
                self._allowed_bytes = max(0, self._allowed_bytes - len(data))
                self._news.notify_all()

    @staticmethod
    def _carry_back(far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(_BUFFER_BYTES):
                near.sendall(data)
            near.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.take()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for sock in (self._listener, *self._sockets):
            sock.close()
