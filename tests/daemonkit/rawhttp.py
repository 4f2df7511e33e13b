"""A client that writes bytes and reads answers, with nothing between it and the server."""

import json
import socket
from typing import Any, NamedTuple

DEADLINE_S = 20.0


class Answer(NamedTuple):
    status_code: int
    fields: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RawClient:
    """One connection; every receive has a deadline."""

    def __init__(self, port: int = 0, family: int = socket.AF_INET, path: str = "") -> None:
        if path:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(path)
        else:
            self.socket = socket.socket(family, socket.SOCK_STREAM)
            self.socket.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        self.socket.settimeout(DEADLINE_S)
        self._buffer = b""

    def send(self, octets: bytes) -> None:
        self.socket.sendall(octets)

    def get(self, path: str = "/", extra: str = "") -> Answer:
        self.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n{extra}\r\n".encode())
        return self.answer()

    def answer(self) -> Answer:
        status_code, fields, _ = self.head()
        length = int(fields.get("content-length", 0))
        while len(self._buffer) < length:
            assert self._more(), "closed inside a body"
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Answer(status_code, fields, body)

    def head(self) -> Answer:
        """An answer without content, as to HEAD."""
        while b"\r\n\r\n" not in self._buffer:
            assert self._more(), f"closed inside a head: {self._buffer!r}"
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return Answer(int(status_line.split()[1]), fields, b"")

    def is_closed_by_server(self) -> bool:
        """Waits until the server closes (True), or sends something (False)."""
        return not self._buffer and not self._more()

    def _more(self) -> bool:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self._buffer += data
        return bool(data)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
