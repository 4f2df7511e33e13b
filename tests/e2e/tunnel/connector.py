"""The proxy as a connector of an edge: started with the tunnel's token, and sent requests through the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import requests

from tests.support.daemon import LogLine
from tests.support.edge.edge import Edge
from tests.support.gateway import Gateway, Json

BOOTSTRAP_LINE = "tunnel bootstrap dial failed, retrying"
RETRY_LINE = "edge connection failed, retrying"
WAITING_LINE = "edge reachable, waiting for the first configuration"
REGISTERED_LINE = "edge connection registered"


class Connector(Gateway):
    """Has no direct listeners unless a test says so; clients reach it through the edge."""

    def __init__(
        self,
        edge: Edge,
        *,
        connections: int = 1,
        workers: int = 1,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        has_token: bool = True,
    ) -> None:
        given = ["--edge", ",".join(edge.addresses), "--edge-ca-file", ca_file or str(edge.ca_file)]
        given += ["--ha-connections", str(connections), *arguments]
        token = {"TUNNEL_TOKEN": edge.tunnel.token} if has_token else {}
        super().__init__(workers=workers, arguments=given, env={**token, **(env or {})})
        self.edge = edge

    def document(self, *routes: Json, **settings: Any) -> dict[str, Any]:
        """Without listeners the tunnel serves every route."""
        return super().document(*routes, **{"listeners": [], **settings})

    @property
    def clear(self) -> tuple[str, int]:
        return address_of(self.edge.front)

    @property
    def secure(self) -> tuple[str, int]:
        """For clients whose TLS ends at the edge: this port is cleartext."""
        return address_of(self.edge.secure_front)

    def url_of(self, path: str, *, scheme: str = "http") -> str:
        return f"http://{self.edge.secure_front if scheme == 'https' else self.edge.front}{path}"

    def readiness(self, part: str = "") -> tuple[int, str]:
        reply = requests.get(f"{self.api}/readyz{part and f'/{part}'}", timeout=10)
        return reply.status_code, reply.json()["message"]

    def wait_for_request(self, path: str) -> LogLine:
        """Its access log line."""
        return self.wait_for_message("request", path=path)

    def ask(self, path: str = "/", *, host: str = "a.example", is_secure: bool = True) -> requests.Response:
        front = self.edge.secure_front if is_secure else self.edge.front
        return requests.get(f"http://{front}{path}", headers={"Host": host}, timeout=30, allow_redirects=False)


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
