"""What all parts of the demo need: a console, free addresses, and daemons as separate processes."""

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from rich.console import Console

from daemonkit.optionspec import OptionSpec

READY_S = 20.0
END_S = 5.0
"""For running requests; the daemons themselves would give them half a minute."""
PROGRAMS = Path(sys.executable).parent
"""The directory of the commands that the demo suggests."""

console = Console(highlight=False)


def say(text: str) -> None:
    console.print(text, soft_wrap=True)


def show_lines(lines: Iterable[str]) -> None:
    """Print the lines verbatim, so that they can be copied."""
    for line in lines:
        console.print(f"   {line}", soft_wrap=True, markup=False)


def free_address(port: int) -> str:
    """The wanted port on loopback, or any free one if that is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                sys.exit("the demo needs 127.0.0.1, which this machine lacks: ip address add 127.0.0.1/8 dev lo")
            probe.bind(("127.0.0.1", 0))
            say(f"   port {port} is in use here, using {probe.getsockname()[1]}")
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Running:
    """A program that the demo has started, with its log."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, env=environ, stdout=file, stderr=file)

    @property
    def memory_mib(self) -> float:
        """Resident memory of the started process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    @property
    def lines(self) -> list[str]:
        """The complete lines of its log so far."""
        return self.log.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()

    def wait_until(self, url: str, status_codes: Sequence[int] = (200,)) -> None:
        """Wait for one of `status_codes`; ends the demo, with the log, if that takes too long."""

        def is_answered() -> bool:
            try:
                return requests.get(url, timeout=1).status_code in status_codes
            except requests.RequestException:
                return False

        self._wait_for(is_answered, f"did not answer {url}")

    def wait_for_line(self, text: str, start: int = 0) -> str:
        """The first line from line `start` on that contains `text`; ends the demo as `wait_until` does."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [line for line in self.lines[start:] if text in line]
            return bool(found)

        self._wait_for(is_there, f"did not say {text!r}")
        return found[0]

    def _wait_for(self, is_there: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s and self.process.poll() is None:
            if is_there():
                return
            time.sleep(0.02)
        sys.exit(f"demo: {self.log.stem} {what} within {READY_S:.0f} s; its log:\n{self.log.read_text()}")

    def end(self) -> None:
        try:
            self.process.terminate()
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when stopped while this waits
            self.process.kill()
            self.process.wait(READY_S)


@contextmanager
def running(package: str, arguments: Sequence[str], options: Iterable[OptionSpec], log: Path) -> Iterator[Running]:
    """`python -m PACKAGE run ARGUMENTS`, without the settings of the user's shell; ends with the block."""
    ours = {name for spec in options for name in (spec.env, spec.file_env)}
    # The demo looks the same everywhere
    environ = {name: value for name, value in os.environ.items() if name not in ours}
    daemon = Running([sys.executable, "-m", package, "run", *arguments], environ, log)
    try:
        yield daemon
    finally:
        daemon.end()
