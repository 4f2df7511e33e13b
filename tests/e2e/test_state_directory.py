"""What is written to the state directory: the daemon's notes, and nothing by interactive commands."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dnswebhook.journal import FILE_NAME, MAX_AGE_S
from dnswebhook.model import Endpoint
from tests.support.client_model import HardError, SoftError
from tests.support.controller import Hang, faults
from tests.support.controller.simulator import Controller
from tests.support.daemon import Daemon
from tests.support.passes import Loop, endpoint, rows_of
from tests.support.process import REPOSITORY
from tests.support.storeviews import UnifiView


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
def test_a_command_creates_no_embedded_database(command: str, state_dir: Path) -> None:
    """It would belong to the caller, and the daemon's user could not open it."""
    finished = run(command, {"DNSWEBHOOK_STORE": "embedded", "DNSWEBHOOK_STATE_DIR": str(state_dir)})

    assert finished.returncode == 0, finished.stderr
    assert "records" in finished.stdout + finished.stderr
    assert not state_dir.exists()


def test_the_daemon_creates_its_state_directory_with_mode_0700(env: dict[str, str], state_dir: Path) -> None:
    with Daemon.dnswebhook(env) as daemon:
        daemon.wait_for_message("record store is ready")

    assert [path.name for path in state_dir.iterdir()] == ["unifi-api.json"]
    assert state_dir.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def view(tmp_path: Path) -> Iterator[UnifiView]:
    opened = UnifiView("v2", tmp_path / "first")
    yield opened
    opened.close()


def test_notes_of_an_old_state_directory_remove_no_ownership_record(view: UnifiView, tmp_path: Path) -> None:
    """Its node was lost in the middle of an apply, and a daemon elsewhere went on, whose writes are not noted here."""
    before, after = [endpoint("app.example.org", "A", value) for value in ("192.0.2.1", "192.0.2.2")]
    first, second = view.env, {**view.env, "DNSWEBHOOK_STATE_DIR": str(tmp_path / "second")}
    hang = view.controller.fault(Hang(), "create", name="app.example.org")
    with Daemon.dnswebhook(first) as daemon:
        interrupted = threading.Thread(target=_until_the_crash, args=(daemon.url("api"), before), daemon=True)
        interrupted.start()
        hang.wait_for_strikes(timeout_s=20.0)
        daemon.kill()
    interrupted.join(20.0)
    view.controller.faults.clear()
    view.controller.release_hangs()
    with Daemon.dnswebhook(second) as daemon:
        for desired in (before, after):
            assert Loop(daemon.url("api")).settle([desired])
    notes = tmp_path / "first" / FILE_NAME
    content = json.loads(notes.read_bytes())
    notes.write_text(json.dumps({**content, "written_at": content["written_at"] - MAX_AGE_S}))

    with Daemon.dnswebhook(first) as daemon:
        assert Loop(daemon.url("api")).settle([after], max_passes=1)

    assert view.held() == rows_of([after])


def test_overlapping_daemons_leave_no_notes_that_remove_ownership_records_after_a_restart(view: UnifiView) -> None:
    """Otherwise the third daemon would follow the notes of the first, although the second has written since."""
    before, after = ([endpoint("app.example.org", "A", value)] for value in ("192.0.2.1", "192.0.2.2"))
    fault = view.controller.fault(faults.bad_gateway(), "write", name="app.example.org")
    with Daemon.dnswebhook(view.env) as first:
        assert isinstance(Loop(first.url("api")).try_pass(before), SoftError)
        with Daemon.dnswebhook(view.env) as second:
            second.wait_for_message("started")
            assert first.stop() == 0
            view.controller.faults.remove(fault)
            assert Loop(second.url("api")).settle(after)
    assert view.held() == rows_of(after)

    with Daemon.dnswebhook(view.env) as third:
        assert Loop(third.url("api")).settle(after, max_passes=1)

    assert view.held() == rows_of(after)


def _until_the_crash(url: str, desired: Endpoint) -> None:
    with pytest.raises(HardError):
        Loop(url).reconcile([desired])
