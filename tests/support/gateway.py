"""The proxy as a real process to which tests push documents.

    with Gateway() as gateway:
        gateway.serve(route_to(backend.address))
        requests.get(gateway.url("/"), headers={"Host": "a.example"})

Its document has two listeners unless a test specifies others: one without and one with TLS, each on a reserved port.
Its log is collected as for every daemon; the access log is on, so that a test can check the outcome of an exchange.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import requests

from tests.support.certificates import Authority
from tests.support.daemon import LogLine
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.proxydaemon import ProxyDaemon

Json = Mapping[str, Any]


class Doors:
    """The two ports of a proxy; overlapping proxies share one instance."""

    def __init__(self) -> None:
        self.clear = ReservedPort()
        self.tls = ReservedPort()
        self.authority = Authority()
        self._certificate = self.authority.issue("localhost", "*.example", "127.0.0.1", "a.example")

    def listeners(self) -> list[Json]:
        certificates = [self._certificate.pair]
        return [
            {"name": "clear", "address": LOOPBACK, "port": self.clear.number},
            {
                "name": "tls",
                "address": LOOPBACK,
                "port": self.tls.number,
                "protocol": "HTTPS",
                "tls": {"certificates": certificates},
            },
        ]

    def close(self) -> None:
        self.clear.close()
        self.tls.close()
        self.authority.close()


class Gateway(ProxyDaemon):
    """`tunnelgw-proxy run` without a document; stopping it fails if it does not end by itself."""

    def __init__(
        self,
        *,
        doors: Doors | None = None,
        workers: int = 1,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        common = ["--allow-unauthenticated-config", "--access-log", "all", "--workers", str(workers)]
        super().__init__([*common, *arguments], env)
        self._owns_doors = doors is None
        self.doors = doors or Doors()

    # -- its configuration -------------------------------------------------------------------------------------------

    def serve(self, *routes: Json, **settings: Any) -> Json:
        """Replace the document; returns the response to the PUT, once every worker uses the document."""
        return self.put(self.document(*routes, **settings))

    def document(self, *routes: Json, **settings: Any) -> dict[str, Any]:
        settings.setdefault("listeners", self.doors.listeners())
        return {**settings, "routes": list(routes)}

    def put(self, document: Json) -> Json:
        reply = self.try_put(json.dumps(document).encode())
        assert reply.status_code == 200, f"PUT /config: {reply.status_code} {reply.text}\n{self.tail}"
        answer: Json = reply.json()
        assert not answer.get("problems"), answer
        return answer

    def try_put(self, body: bytes) -> requests.Response:
        return self.send(body, {})

    # -- what it says of itself --------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        return requests.get(f"{self.api}/readyz", timeout=5).status_code == 200

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric; 0.0 if there is no such sample yet."""
        return super().metric(name, **labels) or 0.0

    def access_line(self, request_id: str, timeout_s: float = 10.0) -> LogLine:
        """The access log entry for this request."""
        found: LogLine = json.loads(
            self.wait_for_line(lambda line: request_id in line, f"request {request_id}", timeout_s)
        )
        return found

    @property
    def worker_pids(self) -> list[int]:
        """The processes that serve requests, according to the kernel."""
        found = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                found += [int(child) for child in (task / "children").read_text().split()]
        return found

    # -- where clients find it ---------------------------------------------------------------------------------------

    @property
    def clear(self) -> tuple[str, int]:
        return LOOPBACK, self.doors.clear.number

    @property
    def tls(self) -> tuple[str, int]:
        return LOOPBACK, self.doors.tls.number

    def url_of(self, path: str, *, scheme: str = "http") -> str:
        port = self.doors.tls if scheme == "https" else self.doors.clear
        return f"{scheme}://localhost:{port.number}{path}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self._owns_doors:
                self.doors.close()


def route_to(address: str, *, name: str = "all", **fields: Any) -> dict[str, Any]:
    """A route for every host and path with one backend; keywords are fields of the route, the rule or the backend."""
    target = {key: fields.pop(key) for key in ("protocol", "tls", "addresses") if key in fields}
    route: dict[str, Any] = {key: fields.pop(key) for key in ("hostnames", "kind", "listeners") if key in fields}
    addresses = {} if "addresses" in target else {"address": address}
    return {"name": name, **route, "rules": [{"backends": [{**addresses, **target}], **fields}]}


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def thread_count(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
