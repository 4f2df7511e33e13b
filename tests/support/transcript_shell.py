"""What all worlds of transcripts share: a home directory, a shell in it, and the two names of each thing.

Documents name the addresses and paths of a usual installation; a world uses free ports and a directory of its own, and
translates both ways.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

CURLRC = 'silent\nshow-error\nwrite-out = "\\n%{http_code}\\n"\n'
"""What the documents tell their readers to use: body and status code, nothing else."""
COMMAND_S = 40.0


class Shell:
    def __init__(self) -> None:
        self._resources = ExitStack()
        self._env: dict[str, str] = {}
        self._places: list[tuple[str, str]] = []
        """Pairs of the documented text and its meaning here."""

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
