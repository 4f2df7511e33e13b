"""The webhooks to be measured: ours once per store, and peers, each as a separate process.

Peers get the settings of both known peers at once, so that one recipe serves any of them; `{api_port}` and
`{health_port}` in a peer's command are replaced by free ports.
"""

import shlex
import shutil
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from benchmarks.dns import data
from benchmarks.httpcall import Answer, CallFailed, Connection
from tests.support.controller.simulator import API_KEY
from tests.support.daemon import Daemon
from tests.support.process import Process

MEDIA_TYPE = "application/external.dns.webhook+json;version=1"
READY_TIMEOUT_S = 30.0
_POLL_S = 0.002
_FILL_SETS = 5000
_GET = {"Accept": MEDIA_TYPE}
_POST = {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE}


class Webhook(ABC):
    """One process while it runs; leaving the block stops it."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        began = time.perf_counter()
        self.process = process.start()
        try:
            self._wait_until_ready(began + READY_TIMEOUT_S)
            self.startup_s = time.perf_counter() - began
            self.connection = Connection(self.api_address)
        except BaseException:
            process.kill()
            raise

    @property
    @abstractmethod
    def api_address(self) -> str: ...

    @property
    @abstractmethod
    def health_address(self) -> str: ...

    @property
    def pid(self) -> int:
        return self.process.pid

    def listing(self, connection: Connection | None = None) -> Answer:
        return (connection or self.connection).call("GET", "/records", headers=_GET)

    def adjust(self, body: bytes) -> Answer:
        return self.connection.call("POST", "/adjustendpoints", body, _POST)

    def apply(self, body: bytes) -> Answer:
        return self.connection.call("POST", "/records", body, _POST)

    def fill(self, sets: list[data.Endpoint]) -> None:
        """Store `sets` through the API, in parts small enough for the deadline of a call."""
        for start in range(0, len(sets), _FILL_SETS):
            answer = self.apply(data.changes(create=sets[start : start + _FILL_SETS]))
            if answer.status_code != 204:
                raise RuntimeError(f"{self.name} answered {answer.status_code} to creates: {answer.body[:200]!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.process.stop()

    def _wait_until_ready(self, until: float) -> None:
        probe = Connection(self.health_address, timeout_s=READY_TIMEOUT_S)
        while time.perf_counter() < until and self.process.is_running:
            try:
                if probe.call("GET", "/readyz").status_code == 200:
                    probe.close()
                    return
            except CallFailed:
                pass
            time.sleep(_POLL_S)
        raise RuntimeError(f"{self.name} was not ready within {READY_TIMEOUT_S:g} s; its log:\n{self.process.tail}")


class OurWebhook(Webhook):
    process: Daemon

    @property
    def api_address(self) -> str:
        return self.process.address("api")

    @property
    def health_address(self) -> str:
        return self.process.address("health")


class PeerWebhook(Webhook):
    def __init__(self, name: str, process: Process, api_port: int, health_port: int) -> None:
        self._ports = api_port, health_port
        super().__init__(name, process)

    @property
    def api_address(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def health_address(self) -> str:
        return f"127.0.0.1:{self._ports[1]}"


class Candidate(msgspec.Struct, frozen=True):
    """A program to measure. `start` creates a new process; the path is an empty directory for its state."""

    name: str
    uses_controller: bool
    start: Callable[[Path], Webhook]


def our_environment(store: str, controller_url: str, state_dir: Path) -> dict[str, str]:
    """`store` is `embedded`, `v2` or `integration`."""
    env = {"DNSWEBHOOK_STATE_DIR": str(state_dir), "DNSWEBHOOK_STORE": "embedded"}
    if store != "embedded":
        env |= {
            "DNSWEBHOOK_STORE": "unifi",
            "UNIFI_HOST": controller_url,
            "UNIFI_API_KEY": API_KEY,
            "UNIFI_API": store,
        }
    return env


def ours(store: str, controller_url: str, writers: int = 5) -> Candidate:
    """`writers` is the value of `--write-parallelism`."""

    def start(state_dir: Path) -> Webhook:
        env = our_environment(store, controller_url, state_dir) | {"DNSWEBHOOK_WRITE_PARALLELISM": str(writers)}
        return OurWebhook(store, Daemon.dnswebhook(env))

    return Candidate(store, uses_controller=store != "embedded", start=start)


KNOWN_PEERS = {
    "lexfrei": ("external-dns-unifios-webhook", None),
    "kashalls": ("external-dns-unifi-webhook", 8080),
}
"""By the owner of their repository: the program on the PATH, and the health port if it is fixed."""


def installed_peers(controller_url: str) -> list[Candidate]:
    return [
        _peer(name, program, controller_url, health_port)
        for name, (program, health_port) in KNOWN_PEERS.items()
        if shutil.which(program)
    ]


def named_peer(name_and_command: str, controller_url: str) -> Candidate:
    """A peer given as `NAME=COMMAND`; raises ValueError."""
    name, separator, command = name_and_command.partition("=")
    if not (name and separator and shlex.split(command)):
        raise ValueError(f"--peer {name_and_command!r}, want NAME=COMMAND")
    return _peer(name, command, controller_url, None)


def _peer(name: str, command: str, controller_url: str, fixed_health_port: int | None) -> Candidate:
    def start(state_dir: Path) -> Webhook:
        api_port, free_port = _free_ports()
        health_port = fixed_health_port or free_port
        words = [word.format(api_port=api_port, health_port=health_port) for word in shlex.split(command)]
        env = _peer_environment(controller_url, api_port, health_port) | {"HOME": str(state_dir)}
        return PeerWebhook(name, Process(name, words, env), api_port, health_port)

    return Candidate(name, uses_controller=True, start=start)


def _peer_environment(controller_url: str, api_port: int, health_port: int) -> dict[str, str]:
    return {
        "WEBHOOK_UNIFI_HOST": controller_url,
        "WEBHOOK_UNIFI_API_KEY": API_KEY,
        "WEBHOOK_SERVER_HOST": "127.0.0.1",
        "WEBHOOK_SERVER_PORT": str(api_port),
        "WEBHOOK_HEALTH_HOST": "127.0.0.1",
        "WEBHOOK_HEALTH_PORT": str(health_port),
        "UNIFI_HOST": controller_url,
        "UNIFI_API_KEY": API_KEY,
        "SERVER_HOST": "127.0.0.1",
        "SERVER_PORT": str(api_port),
        "HEALTH_SERVER_ADDR": f"127.0.0.1:{health_port}",
    }


def _free_ports() -> tuple[int, int]:
    """For programs that cannot report which port the kernel gave them; another process may take one in between."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


class ProfiledDaemon(Daemon):
    """`dnswebhook run` under the profiler of `benchmarks.dns.profiled`, which writes to `snapshots`."""

    def __init__(self, store: str, controller_url: str, state_dir: Path, snapshots: Path) -> None:
        addresses = ["--api-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"]
        env = our_environment(store, controller_url, state_dir)
        command = [sys.executable, "-m", "benchmarks.dns.profiled", str(snapshots), "run", *addresses]
        Process.__init__(self, f"profiled {store}", command, env)
