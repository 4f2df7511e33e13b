"""The notifications to systemd, over a real datagram socket."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemonkit.systemd import Notifier

Manager = tuple[socket.socket, str]
"""What stands for systemd, and the name of its socket."""


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@tunnelgw-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0") if name.startswith("@") else name)
        receiver.settimeout(5)
        yield receiver, name


def test_ready_and_stopping_are_sent(manager: Manager) -> None:
    receiver, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})

    notifier.ready()
    notifier.stopping()

    assert [receiver.recv(100), receiver.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_the_watchdog_interval_is_half_of_the_limit_that_is_set_for_this_process(manager: Manager) -> None:
    receiver, name = manager
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier(environ)

    notifier.watchdog()

    assert notifier.watchdog_interval_s == 1.5
    assert receiver.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "\u00b2"},
        {"WATCHDOG_USEC": "\u0663"},
        {"WATCHDOG_USEC": "+9"},
        {"WATCHDOG_USEC": "1_000"},
        {"WATCHDOG_USEC": " 9"},
        {"WATCHDOG_USEC": "9\n"},
        {"WATCHDOG_USEC": "9" * 5000},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "18446744073709551615"},  # WatchdogSec=infinity
    ],
)
def test_without_a_watchdog_for_this_process_there_is_no_interval(environ: dict[str, str]) -> None:
    assert Notifier({"NOTIFY_SOCKET": "/x", **environ}).watchdog_interval_s is None


def test_the_interval_of_a_watchdog_of_centuries_is_one_that_can_be_waited_for() -> None:
    assert Notifier({"WATCHDOG_USEC": "99999999999999999"}).watchdog_interval_s == threading.TIMEOUT_MAX


def test_a_missing_notify_socket_is_not_an_error(tmp_path: Path) -> None:
    Notifier({}).ready()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    Notifier({"NOTIFY_SOCKET": "relative"}).ready()


def test_a_manager_that_reads_nothing_does_not_hold_up_the_daemon(manager: Manager) -> None:
    receiver, name = manager
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filling:
        filling.setblocking(False)
        filling.connect(receiver.getsockname())
        with contextlib.suppress(BlockingIOError):
            while True:
                filling.send(b"WATCHDOG=1")
    notifying = threading.Thread(target=Notifier({"NOTIFY_SOCKET": name}).ready, daemon=True)
    notifying.start()

    notifying.join(20)

    assert not notifying.is_alive()
