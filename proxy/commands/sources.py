"""Where a document comes from: a file, standard input, or a proxy that runs."""

import http.client
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_TIMEOUT_S: Final = 10.0


class SourceError(Exception):
    """There is no document to be had, or the question makes no sense; the text says why."""


def read_file(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read {name}: {error.strerror}") from error


def read_running(address: str, environ: Mapping[str, str]) -> bytes:
    """The document of a running proxy, private keys left out."""
    connection = _connection(address)
    token = environ.get("PROXY_AUTH_TOKEN", "").strip()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request("GET", "/config", headers=headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(f"cannot ask the proxy at {address}: {error}") from error
    finally:
        connection.close()
    if response.status == 401:
        raise SourceError(f"the proxy at {address} wants its token: set PROXY_AUTH_TOKEN to it")
    if response.status != 200:
        raise SourceError(f"the proxy at {address} answered {response.status}: {body[:500].decode(errors='replace')}")
    return body


def _connection(address: str) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return _UnixConnection(address.removeprefix("unix:"))
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SourceError(f"seen {address!r}, want a URL such as http://127.0.0.1:8082, or unix:/path")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        return kind(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    except ValueError as error:
        raise SourceError(f"seen {address!r}: {error}") from error


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
