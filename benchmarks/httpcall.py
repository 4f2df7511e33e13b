"""A timed HTTP/1.1 call at the least possible cost to the measuring side.

Time runs from before the request is sent until the last byte of the response has arrived; parsing comes after that.
Chunked responses are recognised by their end, not chunk by chunk, so that a server that sends many small chunks is not
charged for the reader's work: bodies here are JSON, in which a bare line break never occurs.
"""

import re
import select
import socket
import time
from collections.abc import Mapping

import msgspec

_CHUNK_END = b"\r\n0\r\n\r\n"
_RECEIVE_BYTES = 1 << 20


class Answer(msgspec.Struct, frozen=True):
    status_code: int
    body: bytes
    duration_s: float


class CallFailed(Exception):
    """No complete response: timeout, refused or broken connection."""


class Connection:
    """One persistent connection, reopened when the server has closed it. For one thread."""

    def __init__(self, address: str, timeout_s: float = 300.0) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._host = address
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        sent = {"Host": self._host, "Content-Length": str(len(body)), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        request = f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        try:
            connection = self._connected()
            began = time.perf_counter()
            connection.sendall(request)
            raw = _receive(connection)
            duration_s = time.perf_counter() - began
        except OSError as error:
            self.close()
            raise CallFailed(f"{method} http://{self._host}{path}: {str(error) or type(error).__name__}") from error
        status_code, fields, content = _parsed(raw)
        if "connection: close" in fields:
            self.close()
        return Answer(status_code, content, duration_s)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is not None and _is_closed(self._socket):
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(self._address, self._timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


def _is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection, or sent something unrequested."""
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable)


def _receive(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        head += _some(connection)
    fields, _, begun = head.partition(b"\r\n\r\n")
    announced = re.search(rb"(?i)\ncontent-length: *(\d+)", fields)
    chunks, size, tail = [head], len(begun), begun[-len(_CHUNK_END) :]
    if announced or b" 204 " in fields[:16]:
        missing = (int(announced[1]) if announced else 0) - size
        while missing > 0:
            chunk = _some(connection)
            chunks.append(chunk)
            missing -= len(chunk)
        return b"".join(chunks)
    while not tail.endswith(_CHUNK_END) and tail != _CHUNK_END[2:]:
        chunk = _some(connection)
        chunks.append(chunk)
        tail = (tail + chunk)[-len(_CHUNK_END) :]
    return b"".join(chunks)


def _some(connection: socket.socket) -> bytes:
    chunk = connection.recv(_RECEIVE_BYTES)
    if not chunk:
        raise ConnectionResetError("the server closed the connection within an answer")
    return chunk


def _parsed(raw: bytes) -> tuple[int, str, bytes]:
    head, _, content = raw.partition(b"\r\n\r\n")
    fields = head.decode("latin-1").lower()
    if "transfer-encoding: chunked" in fields:
        content = _joined(content)
    return int(head.split(b" ", 2)[1]), fields, content


def _joined(chunked: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while True:
        line_end = chunked.index(b"\r\n", at)
        size = int(chunked[at:line_end].partition(b";")[0], 16)
        if not size:
            return b"".join(parts)
        parts.append(chunked[line_end + 2 : line_end + 2 + size])
        at = line_end + size + 4
