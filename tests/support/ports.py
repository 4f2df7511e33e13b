"""Ports that are reserved before the program that will listen on them has started.

A reserved port is bound but never listens: the kernel gives it to nobody who asks for any free port, and queues no
connection on it. Programs that set SO_REUSEPORT themselves can bind it, several at a time; of those that only set
SO_REUSEADDR, as most servers do, one can listen.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"


class ReservedPort:
    """A port of a loopback address, held until `close`."""

    def __init__(self, host: str = LOOPBACK) -> None:
        self._host = host
        self._sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sock.bind((host, 0))
        self.number: int = self._sock.getsockname()[1]

    @property
    def address(self) -> str:
        return f"[{self._host}]:{self.number}" if ":" in self._host else f"{self._host}:{self.number}"

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
