"""A PUT /config of which only a part has arrived."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Self

from tests.proxy.site import DEADLINE_S, TOKEN, Document, Proxy

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BegunPut:
    """The proxy has received its head, as its 100 (Continue) shows, and is about to wait for the body.

    `is_asked` False: the proxy is expected to answer at once instead."""

    def __init__(self, proxy: Proxy, document: Document, *, is_asked: bool = True) -> None:
        self._body = json.dumps(document).encode()
        host, _, port = proxy.api.removeprefix("http://").rpartition(":")
        self._sock = socket.create_connection((host, int(port)), DEADLINE_S)
        head = [
            "PUT /config HTTP/1.1",
            f"Host: {host}",
            f"Authorization: Bearer {TOKEN}",
            f"Content-Length: {len(self._body)}",
            "Connection: close",
            "Expect: 100-continue",
        ]
        self._sock.sendall("\r\n".join([*head, "", ""]).encode())
        if is_asked:
            assert self._sock.recv(len(_CONTINUE), socket.MSG_WAITALL) == _CONTINUE

    def finish(self) -> bytes:
        """Send the body; returns the answer."""
        self._sock.sendall(self._body)
        return self.answer()

    def answer(self) -> bytes:
        """All that the proxy sends from now on."""
        answer = b""
        while data := self._sock.recv(65536):
            answer += data
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.close()
