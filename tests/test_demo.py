"""What `make demo` stands on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from examples import stage

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); signal.pause()"


def test_the_demo_leaves_no_program_behind_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a proxy that a client keeps waiting for the rest of its request."""
    monkeypatch.setattr(stage, "END_S", 0.1)
    program = stage.Running([sys.executable, "-c", DEAF], os.environ, tmp_path / "deaf.log")
    program.wait_for_line("here")

    program.end()

    assert program.process.returncode == -signal.SIGKILL
