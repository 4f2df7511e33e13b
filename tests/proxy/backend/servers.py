"""Backends that do what a test tells them, each connection in a thread of its own."""

import errno
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from proxy import document
from tests.support.ports import ReservedPort

PATIENCE_S = 10.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


class Conn:
    """A connection, seen from the backend."""

    def __init__(self, sock: socket.socket, place: int) -> None:
        self.sock = sock
        self.place = place
        """How many connections came before."""
        self.buffer = b""

    def request(self) -> bytes | None:
        """The next request, body included where its length is announced; None after the last."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                return None
        head, _, rest = self.buffer.partition(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        while len(rest) < length:
            if not self._more():
                return None
            rest = self.buffer.partition(b"\r\n\r\n")[2]
        self.buffer = rest[length:]
        return head + b"\r\n\r\n" + rest[:length]

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def read_until(self, ending: bytes) -> bytes:
        while not self.buffer.endswith(ending):
            assert self._more(), self.buffer
        data, self.buffer = self.buffer, b""
        return data

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def serve(self, answer: bytes = OK) -> None:
        """Answer requests as long as they come."""
        while self.request() is not None:
            self.send(answer)

    def wait_for_end(self) -> None:
        while self._more():
            pass

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


Behaviour = Callable[[Conn], None]


class Backend:
    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None, host: str) -> None:
        self._behaviour = behaviour
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=100)
        self.host = host
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self.resumed: list[bool] = []
        self.tls_errors: list[str] = []
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._socks: list[socket.socket] = []
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError as error:
                if error.errno == errno.EMFILE:
                    # A test has used up all descriptors for a moment.
                    continue
                return
            sock.settimeout(PATIENCE_S)
            self._socks.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, self.connections))
            self.connections += 1
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, place: int) -> None:
        try:
            if self._tls is not None:
                try:
                    sock = self._tls.wrap_socket(sock, server_side=True)
                except OSError as error:
                    self.tls_errors.append(str(error))
                    sock.close()
                    return
                self.resumed.append(bool(sock.session_reused))
                self._socks.append(sock)
            self._behaviour(Conn(sock, place))
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            pass
        except BaseException as error:
            # The behaviour closed its own socket, or the test is over.
            is_closed = isinstance(error, OSError) and sock.fileno() < 0
            if self._listening.fileno() >= 0 and not is_closed:
                self.errors.append(error)
        finally:
            sock.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock in self._socks:
            with suppress(OSError, ValueError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        for sock in self._socks:
            sock.close()


@contextmanager
def backend(
    behaviour: Behaviour = Conn.serve, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[Backend]:
    made = Backend(behaviour, tls, host)
    try:
        yield made
    finally:
        made.close()
    assert not made.errors, made.errors


def of(*peers: Backend | str, name: str = "b", **options: object) -> document.Backend:
    """A backend of the document with these addresses."""
    addresses = tuple(peer if isinstance(peer, str) else peer.address for peer in peers)
    return document.Backend(name=name, addresses=addresses, **options)  # type: ignore[arg-type]


_DEAD: list[ReservedPort] = []


def dead_port() -> int:
    """A port where nobody listens, and nobody else will as long as these tests run."""
    _DEAD.append(ReservedPort())
    return _DEAD[-1].number
