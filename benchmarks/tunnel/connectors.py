"""The connectors of a run, as real processes that dial the same kind of edge and serve the same kind of routes."""

import base64
import contextlib
import json
import secrets
import sys
import tempfile
import time
import uuid
from pathlib import Path

import requests

from benchmarks import procfs
from benchmarks.comparison import OURS
from benchmarks.proxy.programs import Program, document, free_port
from benchmarks.tunnel.edge import LoadEdge

CONNECTIONS = 4
"""Both programs' default."""
USED_HOST = "127.0.0.1"
"""Host of the route that the load uses, the last of all."""


class Connector(Program):
    """A process tree that has registered at `edge`; `port` is that of its health server."""

    def __init__(
        self, name: str, command: list[str], port: int, directory: Path, edge: LoadEdge, env: dict[str, str]
    ) -> None:
        self.edge = edge
        self.began_s = time.time()
        super().__init__(name, command, port, directory, {**env, "TUNNEL_TOKEN": _new_token()})
        self.registered_at_s = edge.wait_for_registered(CONNECTIONS)

    def _is_serving(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"http://127.0.0.1:{self.port}{self._ready_path}", timeout=1).ok
        return False

    _ready_path = "/readyz"

    def largest_rss_bytes(self) -> int:
        return max(procfs.rss_bytes(pid) for pid in self.pids)


class Ours(Connector):
    """As shipped: metrics, timeouts, and an access log that shows one request in a hundred."""

    def __init__(self, workers: int, backend: str, directory: Path, edge: LoadEdge, routes: int = 1) -> None:
        port = free_port()
        initial = Path(tempfile.mkdtemp(dir=directory)) / "document.json"
        # Without listeners, the tunnel serves every route.
        initial.write_text(json.dumps({**document(free_port(), backend, routes=routes), "listeners": []}))
        command = [sys.executable, "-m", "proxy", "run", "--config", str(initial), "--workers", str(workers)]
        command += ["--config-addr", f"127.0.0.1:{port}", "--allow-unauthenticated-config"]
        command += ["--edge", ",".join(edge.addresses), "--edge-ca-file", str(edge.ca_file)]
        command += ["--access-log", "all", "--access-log-sample", "0.01"]
        name = OURS if workers == 1 else f"{OURS}, {workers} workers"
        super().__init__(name, command, port, directory, edge, {})


class Cloudflared(Connector):
    _ready_path = "/ready"

    def __init__(self, backend: str, directory: Path, edge: LoadEdge, routes: int = 1) -> None:
        port = free_port()
        hosts = [*(f"h{n}.bench.example" for n in range(routes - 1)), USED_HOST]
        rules: list[dict[str, str]] = [{"hostname": host, "service": f"http://{backend}"} for host in hosts]
        config = Path(tempfile.mkdtemp(dir=directory)) / "config.yml"
        # JSON is YAML.
        config.write_text(json.dumps({"ingress": [*rules, {"service": "http_status:404"}]}))
        command = ["cloudflared", "tunnel", "--no-autoupdate", "--config", str(config), "--protocol", "http2"]
        command += ["--cacert", str(edge.ca_file), "--metrics", f"127.0.0.1:{port}"]
        for address in edge.addresses:
            command += ["--edge", address]
        super().__init__("cloudflared", [*command, "run"], port, directory, edge, {})


def _new_token() -> str:
    """The token of a tunnel that does not exist: the load edge accepts any."""
    secret = base64.b64encode(secrets.token_bytes(32)).decode()
    content = {"a": secrets.token_hex(16), "t": str(uuid.uuid4()), "s": secret}
    return base64.b64encode(json.dumps(content).encode()).decode()
