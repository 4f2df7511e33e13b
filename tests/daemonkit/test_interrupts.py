"""Ctrl-C before a daemon takes its signals, and of a command for people."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.site import DEADLINE_S, eventually
from tests.support.daemon import Daemon


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """As at a terminal: what a shell starts in the background ignores interrupts, and so do its children."""
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
def test_an_interrupt_ends_it_without_a_word(tmp_path: Path, package: str, command: str, secret: str) -> None:
    fifo = tmp_path / "secret"
    os.mkfifo(fifo)
    daemon = Daemon(package, [command], {secret: str(fifo)}).start()

    def is_read() -> bool:
        """And as long as this end of it is open, there is something to wait for."""
        with contextlib.suppress(OSError):
            ends.callback(os.close, os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            return True
        return False

    def waits() -> bool:
        """A signal just before it does would be acted on when the waiting is over: Python acts between its steps."""
        return Path(f"/proc/{daemon.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "S"

    with contextlib.ExitStack() as ends:
        eventually(is_read, "the secret is read")
        eventually(waits, "there is nothing of it yet")
        daemon.send_signal(signal.SIGINT)

        assert daemon.wait(DEADLINE_S) == -signal.SIGINT
    assert daemon.lines == ()
