"""`dnswebhook check` and `dnswebhook records` as a person runs them: real processes, in a pipe and on a terminal."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dnswebhook import commands
from dnswebhook.deadline import Deadline
from dnswebhook.model import Record, RecordSpec
from dnswebhook.stores.embedded import FILE_NAME, EmbeddedStore
from tests.support.memory_store import MemoryStore
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here
from tests.support.strategies import HERITAGE

WAIT_S = 60.0
SPECS = [
    RecordSpec("b.example.com", "TXT", HERITAGE),
    RecordSpec("a.example.com", "A", "192.0.2.2", 300),
    RecordSpec("a.example.com", "A", "192.0.2.1", 300),
]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """The state directory of a store that holds `SPECS`."""
    store = EmbeddedStore(tmp_path)
    for spec in SPECS:
        store.create(spec, Deadline.after(WAIT_S))
    store.close()
    return tmp_path


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dnswebhook", *arguments]


def environment(state_dir: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "DNSWEBHOOK_STATE_DIR": str(state_dir), **more}


def run(state_dir: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_command(state_dir, command_line(*arguments))


def run_command(state_dir: Path, command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(state_dir),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def run_on_terminal(state_dir: Path, *arguments: str) -> tuple[int, str]:
    """Exit code, and what a terminal of 200 columns shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command_line(*arguments),
        cwd=REPOSITORY,
        env=environment(state_dir, TERM="xterm", COLUMNS="200"),
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    return process.wait(WAIT_S), shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def test_records_in_a_pipe_are_one_sorted_line_each(state_dir: Path) -> None:
    finished = run(state_dir, "records")

    assert (0, "") == (finished.returncode, finished.stderr)
    assert [
        "a.example.com\tA\t300\t192.0.2.1\tuser-defined",
        "a.example.com\tA\t300\t192.0.2.2\tuser-defined",
        f"b.example.com\tTXT\tauto\t{HERITAGE}\tuser-defined",
    ] == finished.stdout.splitlines()


def test_records_as_json_hold_every_field(state_dir: Path) -> None:
    finished = run(state_dir, "records", "--json")

    assert 0 == finished.returncode
    assert {
        "id": "3",
        "name": "a.example.com",
        "type": "A",
        "value": "192.0.2.1",
        "ttl_s": 300,
        "is_enabled": True,
        "origin": "user-defined",
    } == json.loads(finished.stdout)[0]


def test_records_on_a_terminal_are_a_table(state_dir: Path) -> None:
    exit_code, shown = run_on_terminal(state_dir, "records")

    assert 0 == exit_code
    assert "192.0.2.1" in shown
    assert "TTL" in shown
    assert "3 records" in shown
    assert "\t" not in shown


def test_a_record_that_the_controller_does_not_serve_is_shown_as_disabled(capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryStore.holding(Record("1", "a.example.com", "A", "192.0.2.1", 300, is_enabled=False))

    assert 0 == commands.records(store, where="memory", as_json=False)
    assert "a.example.com\tA\t300\t192.0.2.1\tdisabled\n" == capsys.readouterr().out


def test_an_empty_store_has_no_records_to_print_and_its_location_is_named(tmp_path: Path) -> None:
    finished = run(tmp_path, "records")

    assert (0, "") == (finished.returncode, finished.stdout)
    assert f"dnswebhook records: no records in the embedded store in {tmp_path}" in finished.stderr
    assert [] == json.loads(run(tmp_path, "records", "--json").stdout)
    assert [] == list(tmp_path.iterdir())


def test_records_that_cannot_be_read_end_with_exit_code_1_and_point_to_the_check(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("no database")

    finished = run(tmp_path, "records")

    assert (1, "") == (finished.returncode, finished.stdout)
    assert "`dnswebhook check` looks for the cause" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_check_of_a_sound_store_ends_with_exit_code_0(state_dir: Path) -> None:
    finished = run(state_dir, "check")

    assert (0, "") == (finished.returncode, finished.stderr)
    assert [
        f"ok\tstore\tembedded, {state_dir / FILE_NAME}",
        f"ok\tstate directory\t{state_dir} is writable",
        "ok\trecords\t3 records",
    ] == finished.stdout.splitlines()


@pytest.mark.parametrize("state_dir", ["", "not-made-yet"])
def test_a_check_finds_a_full_file_system(tmp_path: Path, state_dir: str) -> None:
    """The log asks for it; readiness may not notice."""
    fill = 'mount -t tmpfs -o size=128k tmpfs "$0" || exit 77; head -c 1M /dev/zero > "$0/fill" 2>&-; exec "$@"'
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", fill, str(tmp_path), *command_line("check")]

    finished = run_command(tmp_path / state_dir, namespace)
    if finished.returncode == 77 or finished.stderr.startswith("unshare:"):
        not_possible_here(f"a file system cannot be mounted here: {finished.stderr}")

    *told, remedy = finished.stdout.splitlines()[-1].split("\t")
    assert (1, ["failed", "state directory", f"the file system of {tmp_path} is full"]) == (finished.returncode, told)
    assert remedy == "free some space, or choose another --state-dir"


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    assert 0 == run(tmp_path / "state", "check").returncode
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_check_that_fails_ends_with_exit_code_1_and_says_what_to_do(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / FILE_NAME).write_text("no database")

    finished = run(tmp_path, "check", *flags)

    assert 1 == finished.returncode
    if flags:
        last = json.loads(finished.stdout)[-1]
        assert ("records", "failed") == (last["subject"], last["grade"])
        assert last["remedy"]
    else:
        grade, subject, detail, remedy = finished.stdout.splitlines()[-1].split("\t")
        assert ("failed", "records") == (grade, subject)
        assert FILE_NAME in detail
        assert remedy


def test_a_check_on_a_terminal_is_a_table_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("no database")

    exit_code, shown = run_on_terminal(tmp_path, "check")

    assert 1 == exit_code
    assert "what to do" in shown
    assert "check the disk" in shown
