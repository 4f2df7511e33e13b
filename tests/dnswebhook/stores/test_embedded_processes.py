"""The embedded store under real processes: killed in the middle, side by side, on a full disk, without write access."""

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from dnswebhook.deadline import Deadline
from dnswebhook.errors import StoreFailed
from dnswebhook.model import RecordSpec
from dnswebhook.stores.base import Grade
from dnswebhook.stores.embedded import FILE_NAME, EmbeddedStore
from tests.support.process import REPOSITORY
from tests.support.requirements import not_possible_here

WAIT_S = 60.0


def soon() -> Deadline:
    return Deadline.after(20.0)


def child(directory: Path, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.embedded_child", str(directory), *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def output(process: "subprocess.Popen[str]") -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def names(directory: Path) -> set[str]:
    store = EmbeddedStore(directory)
    found = {record.name for record in store.list_records(soon()).records}
    store.close()
    return found


def assert_sound(directory: Path) -> None:
    connection = sqlite3.connect(directory / FILE_NAME)
    assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()


@pytest.mark.parametrize("acknowledged", random.Random(7).sample(range(1, 400), 4))
def test_a_store_killed_in_the_middle_of_writing_holds_every_acknowledged_record(
    tmp_path: Path, acknowledged: int
) -> None:
    with child(tmp_path, "write", "host", 1_000_000) as process:
        numbers = [int(output(process).readline()) for _ in range(acknowledged)]
        process.kill()
        numbers += [int(line) for line in output(process).read().splitlines()]

    held = names(tmp_path)

    assert {f"host-{number}.example.com" for number in numbers} <= held
    assert len(held) <= len(numbers) + 1  # the last one may lack its acknowledgement only
    assert_sound(tmp_path)


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    with child(tmp_path, "write", "one", 200) as one, child(tmp_path, "write", "two", 200) as two:
        assert 200 == len(one.communicate(timeout=WAIT_S)[0].splitlines())
        assert 200 == len(two.communicate(timeout=WAIT_S)[0].splitlines())

    assert (0, 0) == (one.returncode, two.returncode)
    assert {f"{prefix}-{number}.example.com" for prefix in ("one", "two") for number in range(200)} == names(tmp_path)
    assert_sound(tmp_path)


def test_rows_of_another_process_are_seen_while_it_writes(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    assert () == store.list_records(soon()).records
    with child(tmp_path, "write", "host", 50) as process:
        for line in output(process):
            assert int(line) < len(store.list_records(soon()).records)
    store.close()

    assert 0 == process.returncode


def test_a_full_disk_is_a_failure_of_the_store_and_loses_nothing(tmp_path: Path) -> None:
    with child(tmp_path, "fill", 300_000) as process:
        error, written = output(process).read().splitlines()

    assert error.startswith("StoreFailed: ")
    assert "is the disk full" in error
    assert int(written) > 10
    assert int(written) == len(names(tmp_path))
    assert_sound(tmp_path)


def test_writes_succeed_again_once_a_full_disk_has_room(tmp_path: Path) -> None:
    with child(tmp_path, "fill", 300_000) as process:
        output(process).read()
    store = EmbeddedStore(tmp_path)

    store.probe(soon())
    store.create(RecordSpec("later.example.com", "A", "192.0.2.1"), soon())
    store.close()

    assert "later.example.com" in names(tmp_path)


READ_ONLY = """
import sys
from pathlib import Path
from tests.dnswebhook.stores.test_embedded_processes import assert_read_only
assert_read_only(Path(sys.argv[1]), sys.argv[2])
"""
BY_MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1" read-only'
BY_MODE = 'chmod 0500 "$1" && "$2" -c "$3" "$1" "write access"; code=$?; chmod 0700 "$1"; exit $code'


def without_write_access() -> list[str]:
    """The shell and script that remove it: a private read-only mount, since root may write whatever the mode."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0:
        return ["unshare", "-rm", "sh", "-c", BY_MOUNT]
    if os.geteuid() == 0:
        not_possible_here("root without the right to mount cannot be kept from writing")
    return ["sh", "-c", BY_MODE]


@pytest.mark.parametrize("is_used", [False, True])
def test_a_store_in_a_read_only_directory_is_not_ready_and_fails_its_check(tmp_path: Path, is_used: bool) -> None:
    if is_used:
        store = EmbeddedStore(tmp_path)
        store.create(RecordSpec("app.example.com", "A", "192.0.2.1"), soon())
        store.close()
    command = [*without_write_access(), "sh", str(tmp_path), sys.executable, READ_ONLY]

    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert 0 == finished.returncode, finished.stderr


def assert_read_only(directory: Path, why: str) -> None:
    """Run where `directory` cannot be written; `why` is in the error."""
    store = EmbeddedStore(directory)
    with pytest.raises(StoreFailed, match=why):
        store.probe(soon())
    with pytest.raises(StoreFailed):
        store.create(RecordSpec("new.example.com", "A", "192.0.2.1"), soon())
    findings = {finding.subject: finding for finding in store.check(soon())}
    assert Grade.FAILED is findings["state directory"].grade
    assert "write access" in findings["state directory"].remedy
    store.close()
