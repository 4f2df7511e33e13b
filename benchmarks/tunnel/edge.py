"""The load edge: a Go program of ours (`loadedge/`) with which connectors register, and which generates the load.

It is built once for each state of its sources, into `$TUNNELGW_TOOLS` (default `~/.cache/tunnelgw/tools`) like the
programs of the tests, and communicates in lines of JSON.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import trustme

from tests.programs.install import go, tools_dir

SERVER_NAMES = ("h2.cftunnel.com", "quic.cftunnel.com", "probe.cftunnel.com")
"""The server names that connectors request, whatever address they dial."""
WAIT_S = 60.0
_SOURCES = Path(__file__).parent / "loadedge"


class Seen(msgspec.Struct, frozen=True):
    """The edge's results of a load. Latencies start when a request was handed to the connection."""

    requests: int
    """Requests with the expected response."""
    failed: int
    failure: str
    """Reason of the first failure."""
    wall_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float

    @property
    def per_s(self) -> float:
        return self.requests / self.wall_s if self.wall_s else 0.0


class LoadEdge:
    def __init__(self, program: Path, directory: Path) -> None:
        authority = trustme.CA()
        self.ca_file = directory / "edge-ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = directory / "edge.pem"
        authority.issue_cert(*SERVER_NAMES).private_key_and_cert_chain_pem.write_to_path(str(certificate))
        self._process = subprocess.Popen(
            [str(program), "-certificate", str(certificate)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.addresses: list[str] = self._read()["addresses"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # ends the program
        self._process.wait(10)

    def wait_for_registered(self, connections: int) -> list[float]:
        """When each registered, in seconds of the clock of `time.time`, in ascending order."""
        return list(self._do("wait", registered=connections, timeout_s=WAIT_S)["registered_at_s"])

    def drop(self) -> float:
        """Break all connections; returns when, by the same clock."""
        return float(self._do("drop")["at_s"])

    def load(self, op: str, **how: object) -> Seen:
        """`op` and its parameters as in `loadedge/edge.go`: closed, open, down, up, beside."""
        seen = msgspec.convert(self._do(op, **how), Seen)
        if seen.failed:
            print(f"load edge, {op}: {seen.failed} failed, the first: {seen.failure}", file=sys.stderr)
        return seen

    def _do(self, op: str, **how: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **how}) + "\n")
        reply = self._read()
        if "error" in reply:
            raise RuntimeError(f"load edge, {op}: {reply['error']}")
        return reply

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the load edge ended with code {self._process.wait()}; it said why above")
        reply: dict[str, Any] = json.loads(line)
        return reply


def build() -> Path:
    """The program built from these sources."""
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    program = tools_dir() / f"loadedge-{digest.hexdigest()[:16]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".new")
        go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(unfinished), ".", cwd=_SOURCES)
        unfinished.replace(program)
    return program
