"""A small HTTP/1.1 server on threads, one per connection: just enough for tests, and cheap per request.

It differs from library servers in what tests need: a response can be cut, dropped or reset on its way out, a connection
can be paused until its peer leaves, and `stop` ends every connection and thread before it returns, so that `start` may
follow on the same port. Requests with a chunked body get a 411.
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from http import HTTPStatus

from tests.support.controller.answers import Answer, Delivery, Request, html_answer
from tests.support.ports import ReservedPort

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
_RECEIVE_BYTES = 64 * 1024
_SMALL_BODY_BYTES = 16 * 1024
_LINGER_NONE = struct.pack("ii", 1, 0)
_PHRASES = {status.value: status.phrase for status in HTTPStatus}

Handler = Callable[[Request], Answer]


class _PeerLeft(Exception):
    """The connection has ended."""


class HttpServer:
    """Serves `handle` on a loopback address; `handle` is called from many threads."""

    def __init__(self, handle: Handler, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._handle = handle
        self._host = host
        self.port = port
        """The kernel's choice after the first `start` if 0 was given; kept across restarts, and reserved in between."""
        self._reserved: ReservedPort | None = None
        self._tls = tls
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._connections: dict[_Connection, threading.Thread] = {}

    def start(self) -> None:
        if self._listener is not None:
            raise RuntimeError("the server runs already")
        if not self.port:
            self._reserved = ReservedPort(self._host)
            self.port = self._reserved.number
        self._listener = listener = socket.create_server((self._host, self.port), backlog=512)
        self._acceptor = threading.Thread(target=self._accept, args=(listener,), name="sim-accept")
        self._acceptor.start()

    def stop(self) -> None:
        """Close the port and every connection, and wait for the threads."""
        with self._lock:
            listener, self._listener = self._listener, None
            if listener is None:
                return
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            connections = dict(self._connections)
            for connection in connections:
                connection.interrupt()
        if self._acceptor is not None:
            self._acceptor.join()
        for thread in connections.values():
            thread.join()

    def close(self) -> None:
        """Stop for good, and release the port."""
        self.stop()
        if self._reserved is not None:
            self._reserved.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                if self._listener is not listener:
                    sock.close()
                    return
                try:
                    connection = _Connection(sock, self._handle, self._tls)
                except OSError:
                    # The peer has already reset it.
                    sock.close()
                    continue
                thread = threading.Thread(target=self._run, args=(connection,), name="sim-connection")
                self._connections[connection] = thread
                thread.start()

    def _run(self, connection: "_Connection") -> None:
        try:
            connection.serve()
        finally:
            with self._lock:
                del self._connections[connection]
                connection.close()


class _Connection:
    """One accepted connection, served by one thread."""

    def __init__(self, sock: socket.socket, handle: Handler, tls: ssl.SSLContext | None) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Fails if the peer has reset the connection; `wrap_socket` would fail too, and leak its half-made socket.
        sock.getpeername()
        # The handshake happens in the connection's own thread.
        self._sock = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False) if tls else sock
        self._handle = handle
        self._received = bytearray()

    def interrupt(self) -> None:
        """End the connection from another thread: reads and waits return at once."""
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown, which would discard the TLS state while it is being read.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()

    def serve(self) -> None:
        try:
            if isinstance(self._sock, ssl.SSLSocket):
                self._sock.do_handshake()
            while self._exchange():
                pass
        except (OSError, _PeerLeft):
            return

    def _exchange(self) -> bool:
        """Handle one request; returns whether the connection goes on."""
        request, keeps_alive = self._read_request()
        try:
            answer = self._handle(request)
        except Exception:
            self._send(html_answer(500, "Simulator failure"))
            raise
        return self._send(answer) and keeps_alive

    def _read_request(self) -> tuple[Request, bool]:
        head_end = self._received.find(b"\r\n\r\n")
        while head_end < 0:
            if len(self._received) > MAX_HEAD_BYTES:
                self._refuse(431)
            self._receive()
            head_end = self._received.find(b"\r\n\r\n")
        lines = self._received[:head_end].decode("latin-1").split("\r\n")
        del self._received[: head_end + 4]
        words = lines[0].split(" ")
        if len(words) != 3:
            self._refuse(400)
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = self._read_body(headers)
        path, _, query = words[1].partition("?")
        keeps_alive = words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return Request(words[0], path, query, headers, body, self.wait), keeps_alive

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if "transfer-encoding" in headers:
            self._refuse(411)
        length_text = headers.get("content-length", "0")
        if not length_text.isdigit():
            self._refuse(400)
        length_bytes = int(length_text)
        if length_bytes > MAX_BODY_BYTES:
            self._refuse(413)
        if headers.get("expect", "").lower() == "100-continue":
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(self._received) < length_bytes:
            self._receive()
        body = bytes(self._received[:length_bytes])
        del self._received[:length_bytes]
        return body

    def _receive(self) -> None:
        data = self._sock.recv(_RECEIVE_BYTES)
        if not data:
            raise _PeerLeft
        self._received += data

    def _refuse(self, status: int) -> None:
        self._send(html_answer(status, _PHRASES[status]))
        raise _PeerLeft

    def _send(self, answer: Answer) -> bool:
        """Deliver the response as it demands; returns whether the connection can go on."""
        match answer.delivery:
            case Delivery.CLOSED:
                return False
            case Delivery.RESET:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
                return False
            case Delivery.TRUNCATED:
                self._sock.sendall(_head(answer) + answer.body[: len(answer.body) // 2])
                return False
        if len(answer.body) <= _SMALL_BODY_BYTES:
            self._sock.sendall(_head(answer) + answer.body)
        else:
            self._sock.sendall(_head(answer))
            self._sock.sendall(answer.body)
        return True

    def wait(self, fd: int | None, timeout_s: float | None, watches_peer: bool) -> bool:
        """Pause; True once `fd` is readable or `timeout_s` is over, False if the peer has left or `stop` was called."""
        poller = select.poll()
        # Without the flag for the peer's half-close, a hang-up is still reported, which is what `interrupt` causes.
        poller.register(self._sock, select.POLLRDHUP if watches_peer else 0)
        if fd is not None:
            poller.register(fd, select.POLLIN)
        ready = poller.poll(None if timeout_s is None else timeout_s * 1000)
        return not any(ready_fd == self._sock.fileno() for ready_fd, _ in ready)


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, 'Status')}"]
    if answer.content_type:
        lines.append(f"Content-Type: {answer.content_type}")
    lines.extend(f"{name}: {value}" for name, value in answer.headers)
    if answer.status not in (204, 304):
        lines.append(f"Content-Length: {len(answer.body)}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("latin-1")
