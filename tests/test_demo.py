"""What `make demo` stands on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from examples import stage

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); signal.pause()"
INTERRUPTS = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getppid(), signal.SIGUSR1))
print('here', flush=True)
while True:
    signal.pause()
"""


def test_the_demo_leaves_no_program_behind_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a proxy that a client keeps waiting for the rest of its request."""
    monkeypatch.setattr(stage, "END_S", 0.1)
    program = stage.Running([sys.executable, "-c", DEAF], os.environ, tmp_path / "deaf.log")
    program.wait_for_line("here")

    program.end()

    assert program.process.returncode == -signal.SIGKILL


def test_the_demo_leaves_no_program_behind_when_it_is_stopped_while_it_ends(tmp_path: Path) -> None:
    """As by a second Ctrl-C, here from the program itself."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        program = stage.Running([sys.executable, "-c", INTERRUPTS], os.environ, tmp_path / "interrupts.log")
        program.wait_for_line("here")

        with pytest.raises(KeyboardInterrupt):
            program.end()
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert program.process.returncode == -signal.SIGKILL
