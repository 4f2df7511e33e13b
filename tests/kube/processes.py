"""Processes that are found again later by process id *and* start time, so that nothing else is ever signalled.

`up` and `down` of the command line are two processes of their own; what they share is the state file that holds these
records.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
LOG_TAIL_CHARACTERS = 3000


@dataclass(frozen=True, slots=True)
class Recorded:
    name: str
    pid: int
    started_ticks: int | None
    """Start time in clock ticks since boot; with the pid it names one process for good."""
    log: str
    """Path of the file with its output."""

    @property
    def is_alive(self) -> bool:
        # When we are its parent, a process that has ended stays a zombie until somebody asks.
        if started_ticks(self.pid) is None:
            _reap(self.pid)
        return self.started_ticks is not None and started_ticks(self.pid) == self.started_ticks

    @property
    def resident_mib(self) -> int | None:
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), None)


def started_ticks(pid: int) -> int | None:
    """None: there is no such process, or it has ended and only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else int(fields[19])


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def spawn(name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Recorded:
    """Start `command` in a session of its own, so that Ctrl-C in a terminal does not reach it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=env
        )
    process.returncode = 0  # followed by its record from here on; Popen must not warn about it
    return Recorded(name, process.pid, started_ticks(process.pid), str(log))


def stop(process: Recorded, grace_s: float) -> None:
    """SIGTERM, and SIGKILL when it has not ended after `grace_s`."""
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        if not process.is_alive:
            return
        os.kill(process.pid, number)
        if wait_until(lambda: not process.is_alive, patience_s):
            return
    raise RuntimeError(f"{process.name} (pid {process.pid}) does not end, not even after SIGKILL")


def wait_until(is_true: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() >= end:
            return False
        time.sleep(POLL_S)
    return True


def wait_ready(process: Recorded, is_ready: Callable[[], bool], seconds: float) -> None:
    """Return once `is_ready` says so; raises with the end of the log when the process ends or time is up."""
    if wait_until(lambda: not process.is_alive or is_ready(), seconds) and process.is_alive:
        return
    seen = f"not ready after {seconds:g} s" if process.is_alive else "ended while starting"
    tail = Path(process.log).read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
    raise RuntimeError(f"{process.name}: {seen}; the end of its log:\n{tail}")
