"""Ctrl-C before a daemon handles signals, and for a one-shot command; a container that is stopped as it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemonkit.interrupts import end_on_interrupt
from tests.proxy.site import DEADLINE_S, eventually
from tests.support.daemon import Daemon
from tests.support.process import Process
from tests.support.requirements import not_possible_here


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """As at a terminal: a process that a shell starts in the background ignores interrupts, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("package", "command", "secret"),
    [
        ("proxy", "run", "PROXY_AUTH_TOKEN_FILE"),
        ("tunnelgw", "run", "PROXY_AUTH_TOKEN_FILE"),
        ("dnswebhook", "run", "UNIFI_API_KEY_FILE"),
        ("dnswebhook", "check", "UNIFI_API_KEY_FILE"),
    ],
)
def test_an_interrupt_ends_the_process_without_output(tmp_path: Path, package: str, command: str, secret: str) -> None:
    fifo = tmp_path / "secret"
    os.mkfifo(fifo)
    daemon = Daemon(package, [command], {secret: str(fifo)}).start()

    with read_by(lambda: daemon.pid, fifo):
        daemon.send_signal(signal.SIGINT)

        assert daemon.wait(DEADLINE_S) == -signal.SIGINT
    assert daemon.lines == ()


@pytest.mark.parametrize(
    ("package", "secret"),
    [
        ("proxy", "PROXY_AUTH_TOKEN_FILE"),
        ("tunnelgw", "PROXY_AUTH_TOKEN_FILE"),
        ("dnswebhook", "UNIFI_API_KEY_FILE"),
    ],
)
def test_a_hangup_does_not_end_a_daemon_that_starts(tmp_path: Path, package: str, secret: str) -> None:
    fifo = tmp_path / "secret"
    os.mkfifo(fifo)
    daemon = Daemon(package, ["run"], {secret: str(fifo)}).start()

    with read_by(lambda: daemon.pid, fifo):
        daemon.send_signal(signal.SIGHUP)
        daemon.send_signal(signal.SIGTERM)

        assert daemon.wait(DEADLINE_S) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("package", "secret"),
    [
        ("proxy", "PROXY_AUTH_TOKEN_FILE"),
        ("tunnelgw", "PROXY_AUTH_TOKEN_FILE"),
        ("dnswebhook", "UNIFI_API_KEY_FILE"),
    ],
)
def test_the_first_process_of_a_container_can_be_stopped_while_it_starts(
    tmp_path: Path, package: str, secret: str, number: signal.Signals
) -> None:
    fifo = tmp_path / "secret"
    os.mkfifo(fifo)
    command = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", sys.executable, "-m", package, "run"]

    with Process(package, command, {secret: str(fifo)}) as container:
        eventually(lambda: bool(child_of(container)) or not container.is_running, "it has started, or cannot")
        if not container.is_running:
            not_possible_here(f"no process namespace can be made here: {container.tail}")
        with read_by(lambda: child_of(container), fifo):
            os.kill(child_of(container), number)

            assert container.wait(DEADLINE_S) == 128 + number
    assert container.lines == ()


def child_of(process: Process) -> int:
    """Its number, or 0."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8") or 0)
    return 0


@contextlib.contextmanager
def read_by(pid: Callable[[], int], fifo: Path) -> Iterator[None]:
    """While the process reads the FIFO, in which there is nothing."""

    def is_read() -> bool:
        """As long as this end of the FIFO is open, the reader waits instead of seeing its end."""
        with contextlib.suppress(OSError):
            ends.callback(os.close, os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            return True
        return False

    def waits() -> bool:
        """Python would handle a signal that comes just before the wait only after it, between its own instructions."""
        return Path(f"/proc/{pid()}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "S"

    with contextlib.ExitStack() as ends:
        eventually(is_read, "the secret is read")
        eventually(waits, "there is nothing of it yet")
        yield


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    """As of a command that a shell without job control has put into the background: Ctrl-C is for another one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    end_on_interrupt()

    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
