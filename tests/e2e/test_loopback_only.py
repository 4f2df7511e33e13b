"""With nothing set, the webhook API is for this host only, while health and metrics are for everybody.

The defaults have fixed ports, so the daemon runs in a network namespace of its own, which has one address more than
loopback. The probe is this very file, run in there.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request

import pytest

from tests.support.daemon import Daemon
from tests.support.netns import NOT_ALLOWED
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here

OTHER_ADDRESS = "198.51.100.7"
API_PORT, HEALTH_PORT = 8888, 8080
TIMEOUT_S = 60.0


def probe(state_directory: str) -> dict[str, str]:
    """What a client gets at each address and port of a daemon without options."""
    env = {"DNSWEBHOOK_STORE": "embedded", "DNSWEBHOOK_STATE_DIR": state_directory}
    with Daemon("dnswebhook", ["run"], env) as daemon:
        daemon.wait_for_message("started")
        found = {
            f"{host}:{port}{path}": status(host, port, path)
            for host in ("127.0.0.1", OTHER_ADDRESS)
            for port, path in ((API_PORT, "/records"), (HEALTH_PORT, "/healthz"))
        }
        assert daemon.stop() == 0, daemon.tail
    return found


def status(host: str, port: int, path: str) -> str:
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S):
            pass
    except ConnectionRefusedError:
        return "refused"
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=TIMEOUT_S) as response:
        return str(response.status)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The probe's findings. If namespaces cannot be created: a skip, or a failure where everything is required."""
    state = str(tmp_path_factory.mktemp("state"))
    command = [sys.executable, "-m", "tests.support.netns", OTHER_ADDRESS, sys.executable, "-m", __name__, state]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode == NOT_ALLOWED:
        not_possible_here(f"no network namespace can be made here, want root: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    findings: dict[str, str] = json.loads(done.stdout)
    return findings


def test_the_api_answers_on_loopback(found: dict[str, str]) -> None:
    assert found[f"127.0.0.1:{API_PORT}/records"] == "200"


def test_the_api_refuses_connections_to_another_address_of_the_host(found: dict[str, str]) -> None:
    assert found[f"{OTHER_ADDRESS}:{API_PORT}/records"] == "refused"


def test_health_answers_on_every_address(found: dict[str, str]) -> None:
    assert found[f"127.0.0.1:{HEALTH_PORT}/healthz"] == "200"
    assert found[f"{OTHER_ADDRESS}:{HEALTH_PORT}/healthz"] == "200"


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1])))
