"""Who leaves what in the state directory: the daemon what it has learnt, the commands of a person nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.controller.simulator import Controller
from tests.support.daemon import Daemon
from tests.support.process import REPOSITORY


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "not" / "yet" / "made"


@pytest.fixture
def env(state_dir: Path) -> Iterator[dict[str, str]]:
    with Controller() as controller:
        controller.add_row("app.example.com", "A", "192.0.2.10")
        yield {
            "UNIFI_HOST": controller.url,
            "UNIFI_API_KEY": controller.api_key,
            "DNSWEBHOOK_STATE_DIR": str(state_dir),
        }


def run(command: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "dnswebhook", command],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("command", ["check", "records"])
def test_a_command_prints_its_table_and_leaves_nothing_behind(
    command: str, env: dict[str, str], state_dir: Path
) -> None:
    finished = run(command, env)

    assert (finished.returncode, finished.stderr) == (0, "")
    assert "records" in finished.stdout or "app.example.com" in finished.stdout
    assert not state_dir.exists()


@pytest.mark.parametrize("command", ["check", "records"])
def test_a_command_makes_no_embedded_database(command: str, state_dir: Path) -> None:
    """It would belong to the person, and the daemon's user could not open it."""
    finished = run(command, {"DNSWEBHOOK_STORE": "embedded", "DNSWEBHOOK_STATE_DIR": str(state_dir)})

    assert finished.returncode == 0, finished.stderr
    assert "records" in finished.stdout + finished.stderr
    assert not state_dir.exists()


def test_the_daemon_makes_its_state_directory_for_itself_alone(env: dict[str, str], state_dir: Path) -> None:
    with Daemon.dnswebhook(env) as daemon:
        daemon.wait_for_message("record store is ready")

    assert [path.name for path in state_dir.iterdir()] == ["unifi-api.json"]
    assert state_dir.stat().st_mode & 0o777 == 0o700
