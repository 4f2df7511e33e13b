"""Workers with the interpreter's JIT: where it is available, and what happens after a crash.

Interpreters without a JIT take no notice of `PYTHON_JIT`, so most of this can be seen with all of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.supervisor import jit
from proxy.supervisor.firstworkers import first_workers
from tests.proxy.site import Proxy, ask, eventually, fixed, reserved_port
from tests.proxy.supervisor.fleets import fleet_of

ON, OFF = "PYTHON_JIT=1", "PYTHON_JIT=0"
REPOSITORY = Path(__file__).parents[3]
WITHOUT_EXECUTABLE_MEMORY = """
import ctypes, sys, types

PR_SET_MDWE = 65
assert ctypes.CDLL(None).prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0
sys._jit = types.SimpleNamespace(is_available=lambda: True)
from proxy.supervisor import jit

print(jit.missing())
"""
"""As systemd's MemoryDenyWriteExecute has it, for an interpreter with a JIT; Linux has known it since 6.3."""


def setting_of(pid: int | None) -> str | None:
    """PYTHON_JIT in the environment of the process."""
    environment = Path(f"/proc/{pid}/environ")
    # A process that has just been started has no environment for a moment, during exec.
    eventually(lambda: bool(environment.read_text()), "an environment")
    variables = environment.read_text().split("\0")
    return next((variable for variable in variables if variable.startswith("PYTHON_JIT=")), None)


@pytest.mark.parametrize(("asked", "setting"), [(True, ON), (False, OFF), (None, None)])
def test_the_jit_of_a_worker_is_set_as_requested(
    asked: bool | None, setting: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHON_JIT", raising=False)
    with first_workers(1, asked) as first:
        assert setting_of(first[0].pid) == setting


def test_without_the_option_the_environment_decides_on_the_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_JIT", "1")
    with first_workers(1) as first:
        assert setting_of(first[0].pid) == ON


@pytest.mark.parametrize(
    ("fault", "setting"), [(signal.SIGSEGV, OFF), (signal.SIGABRT, OFF), (signal.SIGILL, OFF), (signal.SIGKILL, ON)]
)
def test_the_successor_of_a_worker_that_crashed_has_no_jit(fault: signal.Signals, setting: str) -> None:
    with first_workers(1, jit=True) as first, fleet_of(first, jit=True) as fleet:
        slot = fleet.slots[0]
        crashed = slot.pid
        assert crashed is not None
        assert setting_of(crashed) == ON

        os.kill(crashed, fault)

        eventually(lambda: slot.is_running and slot.pid != crashed, "a successor runs")
        assert setting_of(slot.pid) == setting
        assert slot.jit is (setting == ON)


def test_the_jit_stays_off_where_memory_cannot_be_made_executable() -> None:
    """There the interpreter aborts the process as soon as the JIT compiles something."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXECUTABLE_MEMORY], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )

    assert done.stdout == (
        "memory cannot be made executable here: Permission denied; under systemd set MemoryDenyWriteExecute=no\n"
    )


def test_a_proxy_with_jit_enables_it_or_warns_why_not_and_serves_either_way() -> None:
    reason = jit.missing()
    with reserved_port() as port, Proxy("--jit") as proxy:
        proxy.use(fixed(port))

        assert ask(port).text == "fixed"
        warnings = [line["error"] for line in proxy.log if line["msg"].startswith("PROXY_JIT is set")]
        assert warnings == ([] if reason is None else [reason])
        assert setting_of(proxy.worker_pid()) == (ON if reason is None else OFF)
        assert proxy.metric("tunnelgw_proxy_worker_jit", worker="0") == (reason is None)
