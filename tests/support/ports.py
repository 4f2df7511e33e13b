"""Ports that are ours before the program that will listen on them has started.

A reserved port is bound with SO_REUSEPORT and never listens: the kernel gives it to nobody who asks for any free port,
and queues no connection here, while programs that set SO_REUSEPORT themselves can bind it, several at a time.
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


def free_port() -> int:
    """A port that nobody had a moment ago, for programs that do not set SO_REUSEPORT."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])
