"""The driver of processes: nothing outlives the tests, and a wait that fails shows the log."""

import os
import shlex
import signal
import sys

import pytest

from tests.kube.processes import started_ticks, wait_until
from tests.support.process import Process
from tests.support.tied import tied

PATIENCE_S = 20.0
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def is_up(line: str) -> bool:
    return line == "up"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_tied_program_dies_with_the_process_that_started_it() -> None:
    code = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(600)"
    # The tie names the starter, which is not known yet: the shell fills in its own id and becomes the starter.
    program = [word if word != str(os.getpid()) else "$$" for word in tied(["sleep", "600"])]
    with Process("starter", ["sh", "-c", f"exec {shlex.join(python(code))} {' '.join(program)}"]) as starter:
        child = int(starter.wait_for_line(str.isdigit, "a process id", PATIENCE_S))
        ticks = started_ticks(child)
        starter.kill()

    assert ticks is not None
    assert wait_until(lambda: started_ticks(child) != ticks, PATIENCE_S)


def test_a_program_is_stopped_by_sigterm_when_the_block_ends() -> None:
    with Process("sleeper", python(SLEEPER)) as process:
        process.wait_for_line(is_up, "that it is up", PATIENCE_S)

    assert not process.is_running
    assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_program_that_ignores_sigterm_is_killed_and_reported() -> None:
    process = Process("stubborn", python(STUBBORN)).start()
    process.wait_for_line(is_up, "that it is up", PATIENCE_S)

    with pytest.raises(AssertionError, match="stubborn still runs after"):
        process.stop(grace_s=0.2)

    assert not process.is_running


def test_a_program_that_leaves_a_process_with_its_log_is_reported() -> None:
    leaver = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    process = Process("leaver", python(leaver)).start()
    left = int(process.wait_for_line(str.isdigit, "a process id", PATIENCE_S))
    try:
        assert wait_until(lambda: not process.is_running, PATIENCE_S)
        with pytest.raises(AssertionError, match="leaver has ended, but a process that it left holds its log open"):
            process.wait(1.0)
    finally:
        os.kill(left, signal.SIGKILL)

    assert process.wait(PATIENCE_S) == 0


def test_a_wait_for_a_line_that_never_comes_shows_the_log() -> None:
    with (
        Process("brief", python("print('something else')")) as process,
        pytest.raises(AssertionError, match=r"brief ended without logging a greeting[\s\S]*something else"),
    ):
        process.wait_for_line(is_up, "a greeting", PATIENCE_S)


def test_a_program_does_not_inherit_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIFI_HOST", "https://192.0.2.1")
    with Process(
        "env", python("import os; print(os.environ.get('UNIFI_HOST'), os.environ['GIVEN'])"), {"GIVEN": "x"}
    ) as process:
        process.wait(PATIENCE_S)

    assert process.lines == ("None x",)
