"""A machine under a real systemd, for tests: commands run on it as root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.process import REPOSITORY, Process

BOOT_S: Final = 60.0
COMMAND_S: Final = 60.0
_PAUSE_S = 0.05
SYSTEMD: Final = Path("/usr/lib/systemd/systemd")


class NotPossible(Exception):
    """The message says what is missing."""


class Machine:
    """Booted within `with`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is empty; the machine's mounts in it are invisible to others.

        Raises NotPossible.
        """
        if os.geteuid() != 0:
            raise NotPossible("only root can boot systemd")
        for program, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("pivot_root", "util-linux")):
            if shutil.which(program) is None:
                raise NotPossible(f"{program} is not on PATH: install {package}")
        if not SYSTEMD.exists():
            raise NotPossible(f"{SYSTEMD} is missing: install systemd")
        boot = [sys.executable, "-m", "tests.systemd.boot", str(folder)]
        self._process = Process("systemd", ["unshare", "--mount", "--propagation=private", *boot])
        self._pid = 0
        """The PID of systemd, as seen by this process."""

    def __enter__(self) -> Self:
        self._process.start()
        deadline = time.monotonic() + BOOT_S
        while not self._has_booted():
            if not self._process.is_running:
                raise NotPossible(f"systemd cannot be booted here: {self._process.tail}")
            assert time.monotonic() < deadline, f"systemd has not booted after {BOOT_S:g} s: {self._process.tail}"
            time.sleep(_PAUSE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
        self._process.wait(COMMAND_S)

    def run(self, script: str, *, stdin: str = "", fails: bool = False) -> str:
        """Returns standard output and standard error of `script`, which stops at its first failure."""
        done = self._run("bash", "-euc", script, stdin=stdin)
        has_failed = done.returncode != 0
        assert has_failed is fails, f"{script} ended with {done.returncode}:\n{done.stdout}\n{self.journal()}"
        return done.stdout

    def until(self, script: str, what: str) -> None:
        """Wait for `script` to succeed."""
        deadline = time.monotonic() + COMMAND_S
        while (done := self._run("bash", "-euc", script)).returncode:
            assert time.monotonic() < deadline, f"not {what} after {COMMAND_S:g} s:\n{done.stdout}\n{self.journal()}"
            time.sleep(_PAUSE_S)

    def until_said(self, unit: str, words: str) -> None:
        """Wait for words in a unit's journal, where lines appear a moment after they were written."""
        deadline = time.monotonic() + COMMAND_S
        while words not in (said := self.journal(unit)):
            assert time.monotonic() < deadline, f"{words!r} is not in the journal after {COMMAND_S:g} s:\n{said}"
            time.sleep(_PAUSE_S)

    def journal(self, unit: str = "") -> str:
        return self._run("journalctl", "--no-pager", "--output=cat", *(["--unit", unit] if unit else [])).stdout

    def _run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", f"--target={self._pid}", "--all"]
        return subprocess.run(
            [*enter, *command],
            cwd=REPOSITORY,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def _has_booted(self) -> bool:
        pid = _child_of(_child_of(self._process.pid))
        if not pid or Path(f"/proc/{pid}/comm").read_text().strip() != "systemd":
            return False
        self._pid = pid
        return self._run("systemctl", "is-system-running").stdout.strip() == "running"


def _child_of(pid: int) -> int:
    """The first one; 0 if there is none."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0
