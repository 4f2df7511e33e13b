"""A program under test as a real process: its log is collected, every wait has a deadline, signals are real.

One thread reads standard output and standard error as one stream of lines, and wakes those who wait for a line. A
failed wait shows the log. The environment is what the caller gives plus PATH and HOME, so that no setting of the
machine reaches the program. The process is tied to this one (see `tests.support.tied`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.tied import tied

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_GRACE_S = 20.0
LOG_TAIL_LINES = 60
SHOWN_CHARACTERS = 400


class Process:
    """Starts with `start` or `with`; leaving the block stops it, and fails if it had to be killed."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._command = list(command)
        self._env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **(env or {})}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._news = threading.Condition()
        self._lines: list[str] = []
        self._is_read_to_end = False

    def start(self) -> Self:
        self._process = subprocess.Popen(
            tied(self._command),
            cwd=REPOSITORY,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, name=f"log of {self.name}", daemon=True)
        self._reader.start()
        return self

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def lines(self) -> tuple[str, ...]:
        """The log so far."""
        with self._news:
            return tuple(self._lines)

    @property
    def tail(self) -> str:
        return shown(self.lines[-LOG_TAIL_LINES:])

    def wait_for_line(self, is_wanted: Callable[[str], bool], what: str, timeout_s: float, nth: int = 1) -> str:
        """The first (or `nth`) wanted line, past or future."""

        def seen() -> bool:
            return self._is_read_to_end or sum(map(is_wanted, self._lines)) >= nth

        with self._news:
            self._news.wait_for(seen, timeout_s)
            found = [line for line in self._lines if is_wanted(line)]
        if len(found) < nth:
            state = "ended" if self._is_read_to_end else f"still runs after {timeout_s:g} s"
            seen_times = f" ({len(found)} of {nth} times)" if nth > 1 else ""
            raise AssertionError(f"{self.name} {state} without logging {what}{seen_times}; its log:\n{self.tail}")
        return found[nth - 1]

    def send_signal(self, number: signal.Signals) -> None:
        self._running.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """The exit code, negative for a signal; the log is complete afterwards."""
        try:
            exit_code = self._running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout_s:g} s; its log:\n{self.tail}") from None
        assert self._reader is not None
        self._reader.join(timeout_s)
        if self._reader.is_alive():
            raise AssertionError(f"{self.name} has ended, but a process that it left holds its log open:\n{self.tail}")
        assert self._running.stdout is not None
        self._running.stdout.close()
        return exit_code

    def stop(self, grace_s: float = STOP_GRACE_S) -> int:
        """Send SIGTERM and return the exit code; if `grace_s` is not enough, SIGKILL and an AssertionError."""
        if self.is_running:
            self.send_signal(signal.SIGTERM)
        try:
            return self.wait(grace_s)
        except AssertionError:
            self.kill()
            raise

    def kill(self) -> None:
        """Send SIGKILL; leaves behind what a power cut would."""
        self._running.kill()
        self.wait(STOP_GRACE_S)

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, f"{self.name} has not been started"
        return self._process

    def _read(self) -> None:
        assert self._running.stdout is not None
        for line in self._running.stdout:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._is_read_to_end = True
            self._news.notify_all()


def shown(lines: Iterable[str]) -> str:
    """Log lines, shortened for a failure message."""
    return "\n".join(line if len(line) <= SHOWN_CHARACTERS else line[:SHOWN_CHARACTERS] + "…" for line in lines)
