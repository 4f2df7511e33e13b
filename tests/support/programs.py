"""Third-party programs that the tests need: where they are, and short runs of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.programs.install import program_path
from tests.support.requirements import not_possible_here

SHORT_LIVED = {"GOGC": "off"}
"""For programs in Go that end by themselves: collecting garbage is an eighth of their work, or more."""
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def program(name: str, package: str = "") -> str:
    """The path of an installed program; without it, the test is skipped, or fails in continuous integration."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        not_possible_here(f"{name} is not installed (Debian: apt install {package or name})")
    return found


def built_program(name: str) -> Path:
    """A Go program built by `tests/programs/install.py`."""
    path = program_path(name)
    if not path.exists():
        not_possible_here(f"{name} is not built: run `tests/programs/install.py {name}`")
    return path


def run(command: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, whatever its exit code."""
    try:
        return subprocess.run(
            command, input=stdin, env={**os.environ, **SHORT_LIVED}, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{command[0]} still ran after {timeout_s:g} s: {error.stdout!r}") from error


def curl(*arguments: str, stdin: bytes = b"", timeout_s: float = 30.0) -> subprocess.CompletedProcess[bytes]:
    """`curl` with only the output that the test requests, and a limited time."""
    command = [program("curl"), "--silent", "--show-error", "--max-time", str(int(timeout_s)), *arguments]
    return run(command, stdin=stdin, timeout_s=timeout_s + 5)
