"""Backends that do exactly what a test tells them, byte by byte: refuse, reset, stall, talk garbage, hang up.

A `SocketBackend` accepts connections and passes each to its `script`, a function that reads and writes as it likes in a
thread of its own. Exceptions of a script are kept and shown by `close`. A script that waits does so on the backend's
`over` event or on events of the test, always with a deadline.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK

PATIENCE_S = 20.0
BACKLOG = 1024


class Dialogue:
    """One connection from the proxy."""

    def __init__(self, backend: SocketBackend, sock: socket.socket, number: int) -> None:
        self.backend = backend
        self.sock = sock
        self.number = number
        """Counted from one."""
        self.unread = b""

    def read_until(self, end: bytes) -> bytes:
        """Read up to and including `end`; empty if the proxy closed without sending anything more."""
        while end not in self.unread:
            data = self.sock.recv(65536)
            if not data:
                if self.unread:
                    raise AssertionError(f"the proxy closed after {self.unread[-200:]!r}, want {end!r}")
                return b""
            self.unread += data
        found, _, self.unread = self.unread.partition(end)
        return found + end

    def read_exactly(self, size_bytes: int) -> bytes:
        while len(self.unread) < size_bytes:
            data = self.sock.recv(65536)
            assert data, f"the proxy closed after {len(self.unread)} bytes, want {size_bytes}"
            self.unread += data
        found, self.unread = self.unread[:size_bytes], self.unread[size_bytes:]
        return found

    def receive(self) -> bytes:
        return self.sock.recv(65536)

    def receive_idle(self) -> bytes:
        """The first bytes of a request, for as long as the proxy keeps the connection; empty if it has closed."""
        self.sock.settimeout(None)
        try:
            return self.receive()
        finally:
            self.sock.settimeout(PATIENCE_S)

    def read_head(self) -> bytes:
        """The head of the next request; empty if there is none."""
        self.unread = self.unread or self.receive_idle()
        return self.read_until(b"\r\n\r\n")

    def read_request(self) -> bytes:
        """Head and body as sent; empty if there is no further request."""
        head = self.read_head()
        lowered = head.lower()
        if b"\r\ntransfer-encoding: chunked" in lowered:
            return head + self._read_chunks()
        _, found, rest = lowered.partition(b"\r\ncontent-length:")
        return head + (self.read_exactly(int(rest.partition(b"\r\n")[0])) if found else b"")

    def _read_chunks(self) -> bytes:
        body = b""
        while True:
            line = self.read_until(b"\r\n")
            size_bytes = int(line.partition(b";")[0], 16)
            body += line + (self.read_exactly(size_bytes + 2) if size_bytes else self.read_until(b"\r\n"))
            if not size_bytes:
                return body

    def read_to_end(self) -> bytes:
        """Read until the proxy has closed, in one way or another."""
        parts = [self.unread]
        with contextlib.suppress(ConnectionError):
            while data := self.sock.recv(65536):
                parts.append(data)
        return b"".join(parts)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, body: bytes = b"ok", *fields: bytes, status: bytes = b"200 OK") -> None:
        lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *fields]
        self.send(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


Script = Callable[[Dialogue], None]


def answer_all(dialogue: Dialogue) -> None:
    """The simplest script: every request gets a 200 with the number of its connection."""
    while dialogue.read_request():
        dialogue.answer(b"connection %d" % dialogue.number)


class SocketBackend:
    """Listens while it is open; each connection is a `Dialogue` for `script`."""

    def __init__(self, script: Script = answer_all, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.over = threading.Event()
        self.accepted = 0
        self._tls = tls
        self._news = threading.Condition()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self._listener = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name=f"backend {self.port}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def wait_for_connections(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until this many have been accepted since the beginning."""
        with self._news:
            assert self._news.wait_for(lambda: self.accepted >= count, timeout_s), (
                f"{self.accepted} connections after {timeout_s:g} s, want {count}"
            )

    def wait_until_closed(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the scripts of all connections have ended."""
        with self._news:
            assert self._news.wait_for(lambda: not self._open, timeout_s), f"{len(self._open)} connections still open"

    def close(self) -> None:
        self.over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)
        with self._news:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if self._failures:
            raise AssertionError(f"a script failed: {self._failures[0]!r}") from self._failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except AssertionError as failed:
            if error is None:
                raise
            # What the test saw says more, and may be why the script failed.
            error.add_note(str(failed))

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._news:
                self.accepted += 1
                self._open.add(sock)
                self._news.notify_all()
                thread = threading.Thread(target=self._talk, args=(sock, self.accepted), daemon=True)
                self._threads.append(thread)
            thread.start()

    def _talk(self, sock: socket.socket, number: int) -> None:
        sock.settimeout(PATIENCE_S)
        try:
            if self._tls is not None:
                sock = wrapped = self._wrap(sock, self._tls)
                wrapped.do_handshake()
            self.script(Dialogue(self, sock, number))
        except (ConnectionError, ssl.SSLError):
            pass  # the proxy went away, which tests cause on purpose
        except BaseException as error:
            if not self.over.is_set():
                self._failures.append(error)
        finally:
            sock.close()
            with self._news:
                self._open.discard(sock)
                self._news.notify_all()

    def _wrap(self, sock: socket.socket, tls: ssl.SSLContext) -> ssl.SSLSocket:
        """Track the wrapping socket from now on, since it takes over the descriptor."""
        wrapped = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        with self._news:
            self._open.discard(sock)
            self._open.add(wrapped)
        return wrapped
