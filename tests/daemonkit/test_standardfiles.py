"""Processes that are started without standard files, and commands whose output is closed or full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import REPOSITORY

PROGRAM = """
import json, os, socket, subprocess, sys
from daemonkit import standardfiles
standardfiles.open_missing()
sys.stdout.write(sys.stdin.read())
with socket.socket() as opened:
    files = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
    lister = "import os; print(*(os.readlink(f'/proc/self/fd/{number}') for number in (0, 2)))"
    of_child = subprocess.run([sys.executable, "-c", lister], stdout=subprocess.PIPE, text=True).stdout.split()
    with open(sys.argv[1], "w") as report:
        json.dump({"files": files, "of_child": of_child, "opened": opened.fileno()}, report)
"""


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_missing_standard_files_are_dev_null_and_their_numbers_are_not_reused(
    tmp_path: Path, redirections: str
) -> None:
    report = tmp_path / "report"
    command = f'exec "$@" {redirections}'
    started = ["sh", "-c", command, "sh", sys.executable, "-c", PROGRAM, str(report)]
    null = subprocess.DEVNULL
    subprocess.run(started, stdin=null, stdout=null, stderr=null, timeout=30, check=True)

    found = json.loads(report.read_text())
    assert (found["files"], found["of_child"]) == (3 * ["/dev/null"], 2 * ["/dev/null"])
    assert found["opened"] > 2


def test_standard_files_that_are_open_stay_as_they_are(tmp_path: Path) -> None:
    report = tmp_path / "report"
    with (tmp_path / "log").open("w") as log:
        started = [sys.executable, "-c", PROGRAM, str(report)]
        subprocess.run(started, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=30, check=True)

    found = json.loads(report.read_text())
    assert found["files"] == ["/dev/null", log.name, log.name]
    assert found["opened"] > 2


@pytest.mark.parametrize(
    "command",
    [
        ["dnswebhook", "check"],
        ["dnswebhook", "check", "--json"],
        ["dnswebhook", "--help"],
        ["proxy", "--version"],
        ["proxy", "check", "--help"],
        ["tunnelgw", "check", "--json", "."],
    ],
    ids=" ".join,
)
def test_a_command_whose_output_is_closed_ends_by_sigpipe_without_a_message(tmp_path: Path, command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    package, *arguments = command
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "DNSWEBHOOK_STORE": "embedded"}
    env["DNSWEBHOOK_STATE_DIR"] = str(tmp_path)
    try:
        asked = [sys.executable, "-m", package, *arguments]
        done = subprocess.run(
            asked, check=False, cwd=tmp_path, env=env, stdout=writing, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize("command", ["dnswebhook check", "tunnelgw-proxy schema", "tunnelgw check --json ."])
def test_a_command_whose_output_cannot_be_written_reports_the_error(tmp_path: Path, command: str) -> None:
    done = ask_with_full_disk(tmp_path, command, subprocess.PIPE)

    said = f"{command.partition(' -')[0]}: the answer cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("flag", ["--help", "--version"])
@pytest.mark.parametrize("program", ["dnswebhook", "tunnelgw-proxy", "tunnelgw"])
def test_help_that_cannot_be_written_is_reported(tmp_path: Path, program: str, flag: str) -> None:
    done = ask_with_full_disk(tmp_path, f"{program} {flag}", subprocess.PIPE)

    assert (done.returncode, done.stderr) == (2, f"{program}: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize("command", ["tunnelgw-proxy schema", "tunnelgw-proxy explain", "tunnelgw status"])
def test_help_of_a_command_that_cannot_be_written_is_reported(tmp_path: Path, command: str) -> None:
    done = ask_with_full_disk(tmp_path, f"{command} --help", subprocess.PIPE)

    assert (done.returncode, done.stderr) == (2, f"{command}: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize("command", ["dnswebhook check", "tunnelgw-proxy schema", "tunnelgw check --json ."])
def test_the_exit_code_is_2_where_the_error_cannot_be_written_either(tmp_path: Path, command: str) -> None:
    """As with `> answer 2>&1`."""
    assert ask_with_full_disk(tmp_path, command, subprocess.STDOUT).returncode == 2


@pytest.mark.parametrize(
    "command",
    [
        "dnswebhook check --store unifi --unifi-host https://127.0.0.1 --unifi-ca-cert missing.pem",
        "tunnelgw-proxy check missing.json",
        "tunnelgw-proxy run --config-addr 127.0.0.1:0 --config missing.json",
        "tunnelgw status --manifests missing",
    ],
)
def test_the_exit_code_of_wrong_arguments_is_2_where_that_cannot_be_written(tmp_path: Path, command: str) -> None:
    """systemd must not start such a daemon again (RestartPreventExitStatus)."""
    assert ask_with_full_disk(tmp_path, command, subprocess.STDOUT).returncode == 2


def ask_with_full_disk(directory: Path, command: str, stderr: int) -> subprocess.CompletedProcess[str]:
    program, *arguments = command.split()
    package = "proxy" if program == "tunnelgw-proxy" else program
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "DNSWEBHOOK_STORE": "embedded"}
    env["DNSWEBHOOK_STATE_DIR"] = str(directory)
    env["UNIFI_API_KEY"] = "key"
    asked = [sys.executable, "-m", package, *arguments]
    with Path("/dev/full").open("wb") as full:
        return subprocess.run(
            asked, check=False, cwd=directory, env=env, stdout=full, stderr=stderr, text=True, timeout=60
        )
