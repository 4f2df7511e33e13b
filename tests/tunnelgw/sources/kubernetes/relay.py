"""A TCP relay in front of the API server, which can cut, freeze and refuse connections. It sees TLS, and no more."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 16 * 1024


class Relay:
    """`address` leads to `target` (host, port)."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._is_refusing = False

        self._bytes_left: int | None = None
        self.has_cut = threading.Event()
        self.accepted = 0
        self.received = 0
        """Bytes from the server."""
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                _shut(end)

    def cut_after(self, octets: int) -> None:
        """Let that many bytes from the server pass, over all connections, and cut within the next ones."""
        self.has_cut.clear()
        with self._lock:
            self._bytes_left = octets

    def refuse(self) -> None:
        """End all connections and let no new one through."""
        with self._lock:
            self._is_refusing = True
        self.cut()

    def freeze(self) -> None:
        """The connections of now stay open, but nothing passes any more; new ones work."""
        with self._lock:
            frozen = self._pairs
            self._pairs = set()
            self._frozen = frozen
        for pair in frozen:
            # The pumps end; the client's end stays open and silent.
            _shut(pair[1])

    def accept(self) -> None:
        self._is_refusing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_refusing = True
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._is_refusing:
                client.close()
                continue
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            pair = (client, server)
            with self._lock:
                if self._is_refusing:  # since it was accepted
                    return
                self._pairs.add(pair)
            with selectors.DefaultSelector() as selector:
                selector.register(client, selectors.EVENT_READ, server)
                selector.register(server, selectors.EVENT_READ, client)
                while self._pass_on(selector, client):
                    pass
            with self._lock:
                is_ours = pair in self._pairs
                self._pairs.discard(pair)
            if not is_ours and pair in getattr(self, "_frozen", ()):
                client.recv(1)  # until the client gives up, or the relay ends

    def _pass_on(self, selector: selectors.BaseSelector, client: socket.socket) -> bool:
        for key, _ in selector.select():
            source = key.fileobj
            assert isinstance(source, socket.socket)
            octets = source.recv(_CHUNK_BYTES)
            if not octets:
                return False
            if source is not client:
                self.received += len(octets)
            passing = octets if source is client else self._passing(octets)
            with contextlib.suppress(OSError):  # an end that is shut is seen in the next turn
                key.data.sendall(passing)
            if len(passing) < len(octets):
                self.cut()
                self.has_cut.set()
                return False
        return True

    def _passing(self, octets: bytes) -> bytes:
        """What may pass of bytes from the server; less than all of them once."""
        with self._lock:
            if self._bytes_left is None:
                return octets
            passing = octets[: self._bytes_left]
            is_last = len(passing) < len(octets)
            self._bytes_left = None if is_last else self._bytes_left - len(octets)
            return passing


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
