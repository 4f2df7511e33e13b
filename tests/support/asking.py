"""One request to the proxy by the standard library's client, which sends targets and fields verbatim."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.headerlist import HeaderList
from tests.support.ports import LOOPBACK

TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Answer(HeaderList):
    status_code: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def seen(self) -> Seen:
        """The request that a `RecordingBackend` reports as received."""
        assert self.status_code == 200, f"{self.status_code}: {self.body[:500]!r}"
        return Seen(json.loads(self.body))


class Seen(HeaderList):
    """A request as a backend received it."""

    def __init__(self, shown: Mapping[str, Any]) -> None:
        self.backend: str = shown["backend"]
        self.connection: int = shown["connection"]
        self.method: str = shown["method"]
        self.target: str = shown["target"]
        self.body_bytes: int = shown["body_bytes"]
        self.trailers: list[tuple[str, str]] = [(name, value) for name, value in shown["trailers"]]
        self.headers: list[tuple[str, str]] = [(name, value) for name, value in shown["headers"]]


def ask(
    port: int,
    target: str = "/",
    method: str = "GET",
    *,
    host: str = "a.example",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    connection: http.client.HTTPConnection | None = None,
) -> Answer:
    """Send a request, on a connection of its own unless one is given."""
    used = connection or connect(port, tls)
    try:
        used.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        used.putheader("Host", host)
        for name, value in (headers or {}).items():
            used.putheader(name, value)
        if body is not None:
            used.putheader("Content-Length", str(len(body)))
        used.endheaders(body)
        response = used.getresponse()
        content = response.read()
        fields = tuple((name.lower(), value) for name, value in response.getheaders())
        return Answer(response.status, fields, content)
    finally:
        if connection is None:
            used.close()


def connect(port: int, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
    if tls is not None:
        return http.client.HTTPSConnection("localhost", port, timeout=TIMEOUT_S, context=tls)
    return http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)
