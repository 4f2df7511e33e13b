"""What both parts of the demo need: a console, free addresses, and daemons as processes of their own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from rich.console import Console

from daemonkit.optionspec import OptionSpec

READY_S = 20.0
PROGRAMS = Path(sys.executable).parent
"""Where the commands are that the demo tells to try."""

console = Console(highlight=False)


def say(text: str) -> None:
    console.print(text, soft_wrap=True)


def show_lines(lines: Iterable[str]) -> None:
    """As they are, to be copied."""
    for line in lines:
        console.print(f"   {line}", soft_wrap=True, markup=False)


def free_address(port: int) -> str:
    """The wanted port on loopback, or any free one when something else has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.bind(("127.0.0.1", 0))
            say(f"   port {port} is in use here, taking {probe.getsockname()[1]}")
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Running:
    """A daemon that answers on its health address, or the part of it that can be told already."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def memory_mib(self) -> float:
        """Resident, of the process that was started."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def wait_until(self, url: str, status_codes: Sequence[int] = (200,)) -> None:
        """Ends the demo, with the log, when it takes too long."""
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s and self.process.poll() is None:
            try:
                if requests.get(url, timeout=1).status_code in status_codes:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.02)
        name = self.log.stem
        sys.exit(f"demo: {name} did not answer {url} within {READY_S:.0f} s; its log:\n{self.log.read_text()}")


@contextmanager
def running(package: str, arguments: Sequence[str], options: Iterable[OptionSpec], log: Path) -> Iterator[Running]:
    """`python -m PACKAGE run ARGUMENTS`, without the settings of the reader's shell; ends with the block."""
    ours = {name for spec in options for name in (spec.env, spec.file_env)}
    environ = {name: value for name, value in os.environ.items() if name not in ours}  # the demo looks alike everywhere
    with log.open("wb") as file:
        command = [sys.executable, "-m", package, "run", *arguments]
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=file)
    try:
        yield Running(process, log)
    finally:
        process.terminate()
        process.wait(timeout=READY_S)
