"""What all worlds of transcripts share: a home directory, a shell in it, a log, and the two names of each thing.

Documents name the addresses and paths of a usual installation; a world uses free ports and a directory of its own, and
translates both ways.
"""

import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.daemon import Daemon

CURLRC = 'silent\nshow-error\nwrite-out = "\\n%{http_code}\\n"\n'
"""What the documents tell their readers to use: body and status code, nothing else."""
COMMAND_S = 40.0
WAIT_S = 30.0


class Shell(ABC):
    def __init__(self) -> None:
        self._resources = ExitStack()
        self._env: dict[str, str] = {}
        self._places: list[tuple[str, str]] = []
        """Pairs of the documented text and its meaning here."""

    def __enter__(self) -> Self:
        return self

    @property
    def log(self) -> tuple[str, ...]:
        """The log as the document would show it."""
        return tuple(map(self._as_documented, self._running.lines))

    def wait_for_log(self, is_wanted: Callable[[str], bool]) -> None:
        self._running.wait_for_line(lambda line: is_wanted(self._as_documented(line)), "a documented line", WAIT_S)

    @property
    @abstractmethod
    def _running(self) -> Daemon:
        """The daemon whose log the document shows."""

    def run(self, command: str) -> list[str]:
        """The output, both streams in order, as the document would show it."""
        finished = subprocess.run(
            ["bash", "-c", self._as_meant(command)],
            env=self._env,
            cwd=self._env["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_S,
            check=False,
        )
        return self._as_documented(finished.stdout.decode("utf-8", "replace")).splitlines()

    def _make_home(self, env: Mapping[str, str]) -> Path:
        """Make a new home directory, and set the variables of shell and daemon."""
        home = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="transcript-")))
        (home / ".curlrc").write_text(CURLRC, encoding="utf-8")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._env = {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", **env}
        return home

    def _as_meant(self, text: str) -> str:
        for documented, meant in self._places:
            text = text.replace(documented, meant)
        return text

    def _as_documented(self, text: str) -> str:
        for documented, meant in self._places:
            text = text.replace(meant, documented)
        return text
