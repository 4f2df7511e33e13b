"""Backends with a name, and what it leads to."""

import socket
import threading
from typing import Any

from proxy import document

V4, V6 = socket.AF_INET, socket.AF_INET6


class Names:
    """A resolver that a test writes into. Called in threads of the proxy."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self.addresses: tuple[tuple[str, int], ...] | None = addresses
        self.fault = socket.EAI_NONAME
        """What is said without addresses."""
        self.asked = 0
        self.answered = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, host: str, _port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked += 1
        assert self.may_answer.wait(10)
        self.answered += 1
        if self.addresses is None:
            raise socket.gaierror(self.fault, f"no such host {host}")
        return [
            (V6 if ":" in ip else V4, socket.SOCK_STREAM, 6, "", (ip, port, 0, 0) if ":" in ip else (ip, port))
            for ip, port in self.addresses
        ]


def named(name: str = "b", **options: Any) -> document.Backend:
    return document.Backend(name=name, addresses=("backend.example:80",), **options)
