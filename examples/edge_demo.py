"""The tunnel in `make demo`: a simulated provider's edge, as a process that can be killed and comes back.

The proxy dials it as it would dial the provider; clients send requests to it as they would to the provider's servers.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import requests

from examples.stage import READY_S, Running, free_address, say, show_lines

LOG = "edge.log"
CONNECTIONS = 2
LOST, REGISTERED = "edge connection failed, retrying", "edge connection registered"
AWAY_S = 5.0


class Edge:
    """Keeps its addresses, its certificate and the tunnel across restarts."""

    def __init__(self, directory: Path, front: str) -> None:
        self.front = front
        self._addresses = [free_address(0) for _ in range(CONNECTIONS)]
        self._authority, self._ca_file = directory / "edge-authority.pem", directory / "edge-ca.pem"
        self._token_file = directory / "tunnel-token"
        self._log = directory / LOG
        self.program = self._started()
        self._token_file.touch(0o600)
        self.token = self.program.wait_for_line("token ").partition(" ")[2]
        self._token_file.write_text(self.token, encoding="ascii")

    @property
    def proxy_arguments(self) -> list[str]:
        """The proxy's options for its tunnel; with the provider's edge, the token is enough."""
        arguments = ["--tunnel-token-file", str(self._token_file), "--ha-connections", str(CONNECTIONS)]
        return [*arguments, "--edge", ",".join(self._addresses), "--edge-ca-file", str(self._ca_file)]

    @property
    def is_running(self) -> bool:
        return self.program.process.poll() is None

    def kill(self) -> None:
        """End the edge as if its machine lost power."""
        self.program.process.kill()
        self.program.process.wait()

    def start_again(self) -> None:
        self.program = self._started()

    def _started(self) -> Running:
        """A new process, ready for connectors and clients."""
        command = [sys.executable, "-m", "tests.support.edge", "--secure-front", self.front]
        command += ["--authority", str(self._authority), "--ca-out", str(self._ca_file)]
        command += [part for address in self._addresses for part in ("--listen", address)]
        program = Running(command, os.environ, self._log)
        try:
            program.wait_for_line("token ")
        except BaseException:
            program.end()
            raise
        return program


@contextmanager
def edge(directory: Path, front: str) -> Iterator[Edge]:
    """An edge that runs for the duration of the block."""
    edge = Edge(directory, front)
    try:
        yield edge
    finally:
        edge.program.end()


def show_outage(edge: Edge, proxy: Running, config: str) -> None:
    """Kill the edge and start it again, showing what the proxy reports in the meantime."""
    start = len(proxy.lines)
    say("   the edge is killed")
    edge.kill()
    proxy.wait_for_line(LOST, start)
    tell_readiness(config, 503)
    edge.start_again()
    say("   the edge is started again")
    tell_readiness(config, 200)
    say("   what the proxy logged:")
    show_lines(f"   {told}" for told in map(_told, proxy.lines[start:]) if told)


def tell_readiness(config: str, wanted: int) -> None:
    """Show each response of /readyz that differs from the previous one, until it is the wanted one."""
    end_s, before = time.monotonic() + READY_S, None
    while time.monotonic() < end_s:
        reply = requests.get(f"http://{config}/readyz", timeout=10)
        said = f"GET /readyz → {reply.status_code} {reply.json()['message']}"
        if said != before:
            say(f"   {said}")
        if reply.status_code == wanted:
            return
        before = said
        time.sleep(0.01)
    sys.exit(f"demo: /readyz is not {wanted} after {READY_S:.0f} s")


def _told(line: str) -> str:
    """A line of the proxy's log about the edge, shortened; empty for other lines."""
    said = msgspec.json.decode(line)
    if said["msg"] not in (LOST, REGISTERED):
        return ""
    names = ("error", "attempt", "delay_s", "conn_index", "location")
    return f"{said['level']} {said['msg']}: " + ", ".join(f"{name} {said[name]}" for name in names if name in said)


def print_hints(edge: Edge, host: str) -> None:
    show_lines(
        (
            f"curl -i -H 'Host: {host}' http://{edge.front}/api/orders    # the edge's client: through the tunnel",
            f"kill -9 {edge.program.process.pid}    # the edge; {AWAY_S:.0f} s later it is back: see /readyz, the log",
        )
    )


def look_after(edge: Edge) -> None:
    """Start the edge again some time after somebody has ended it. To be called now and then."""
    if not edge.is_running:
        say(f"   the edge has exited; it is started again in {AWAY_S:.0f} s")
        time.sleep(AWAY_S)
        edge.start_again()
        say(f"   the edge runs again, as process {edge.program.process.pid}")
