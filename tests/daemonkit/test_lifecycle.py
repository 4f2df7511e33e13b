"""A daemon as a real process, with real signals."""

import http.client
import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import daemonkit
from tests.support.process import Process

DEADLINE_S = 20.0


class Subject(Process):
    """The program of tests/daemonkit/apps/daemon.py."""

    def __init__(self, *arguments: str, address: str = "127.0.0.1:0", **env: str) -> None:
        command = [sys.executable, "-m", "tests.daemonkit.apps.daemon", address, *arguments]
        super().__init__("daemon", command, env)

    def line(self, msg: str, **fields: object) -> dict[str, Any]:
        """The first line with that message and those fields."""

        def is_wanted(text: str) -> bool:
            if not text.startswith("{"):
                return False
            line = json.loads(text)
            return line["msg"] == msg and all(line.get(key) == value for key, value in fields.items())

        line: dict[str, Any] = json.loads(self.wait_for_line(is_wanted, f"{msg} {fields}", DEADLINE_S))
        return line

    def port(self, server: str) -> int:
        return int(self.line("listening", server=server)["address"].rpartition(":")[2])

    def request(self, server: str, path: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port(server), timeout=DEADLINE_S)
        connection.request("GET", path)
        return connection

    def messages(self) -> list[str]:
        return [json.loads(line)["msg"] for line in self.lines if line.startswith("{")]


class Start(Protocol):
    def __call__(self, *arguments: str, address: str = "127.0.0.1:0", **env: str) -> Subject: ...


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Subject] = []

    def start(*arguments: str, address: str = "127.0.0.1:0", **env: str) -> Subject:
        subject = Subject(*arguments, address=address, **env)
        running.append(subject)
        subject.start()
        return subject

    yield start
    for subject in running:
        if subject.is_running:
            subject.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_in_order_with_exit_code_0(start: Start, number: signal.Signals) -> None:
    subject = start()
    assert subject.line("started")["version"] == daemonkit.__version__

    subject.send_signal(number)

    assert subject.wait(DEADLINE_S) == 0
    assert subject.line("stopping")["signal"] == number.name
    assert subject.messages()[-3:] == ["stopping", "no longer ready", "stopped"]


def test_a_running_request_is_finished_before_the_daemon_ends(start: Start) -> None:
    subject = start()
    connection = subject.request("api", "/slow")
    subject.line("slow request runs")

    subject.send_signal(signal.SIGTERM)

    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"done\n")
    connection.close()
    assert subject.wait(DEADLINE_S) == 0


def test_readiness_is_false_while_a_request_drains(start: Start) -> None:
    subject = start("--hang")
    slow = subject.request("api", "/slow")
    subject.line("slow request runs")
    subject.send_signal(signal.SIGTERM)
    subject.line("no longer ready")

    connection = subject.request("ops", "/readyz")
    response = connection.getresponse()

    assert (response.status, json.loads(response.read())) == (503, {"status": "error", "message": "stopping"})
    connection.close()
    slow.close()


def test_a_request_that_never_ends_is_cut_off_after_the_grace_period(start: Start) -> None:
    subject = start("--hang", "--grace", "0.5")
    slow = subject.request("api", "/slow")
    subject.line("slow request runs")
    began_s = time.monotonic()

    subject.send_signal(signal.SIGTERM)

    assert subject.wait(DEADLINE_S) == 0
    assert time.monotonic() - began_s < 5
    assert subject.line("requests still running, cut off")["server"] == "api"
    slow.close()


def test_a_bug_in_one_step_of_stopping_is_logged_and_does_not_keep_the_others(start: Start) -> None:
    subject = start("--broken-stop")
    subject.line("started")

    subject.send_signal(signal.SIGTERM)

    assert subject.wait(DEADLINE_S) == 0
    assert "in fail" in subject.line("stop callback failed")["stack"]
    assert subject.messages()[-2:] == ["no longer ready", "stopped"]


def test_a_thread_with_something_left_to_do_is_waited_for(start: Start) -> None:
    subject = start("--tidy-thread")
    subject.line("started")

    subject.send_signal(signal.SIGTERM)

    assert subject.wait(DEADLINE_S) == 0
    assert subject.messages()[-2:] == ["tidied", "stopped"]


def test_a_thread_that_does_not_end_does_not_keep_the_process(start: Start) -> None:
    subject = start("--stubborn-thread", "--grace", "0.5")
    subject.line("started")

    subject.send_signal(signal.SIGTERM)

    assert subject.wait(DEADLINE_S) == 0
    assert [line["thread"] for line in map(json.loads, subject.lines) if "thread" in line] == ["stubborn"]


def test_a_second_signal_ends_the_process_at_once_with_exit_code_1(start: Start) -> None:
    subject = start("--hang", "--grace", "600")
    slow = subject.request("api", "/slow")
    subject.line("slow request runs")
    subject.send_signal(signal.SIGTERM)
    subject.line("no longer ready")

    subject.send_signal(signal.SIGINT)

    assert subject.wait(DEADLINE_S) == 1
    assert subject.line("second signal, exiting at once")["signal"] == "SIGINT"
    slow.close()


def test_sighup_and_sigpipe_do_not_stop_the_daemon(start: Start) -> None:
    subject = start()
    subject.line("started")

    subject.send_signal(signal.SIGHUP)
    subject.send_signal(signal.SIGPIPE)

    with_answer = subject.request("api", "/")
    assert with_answer.getresponse().status == 200
    with_answer.close()
    assert subject.stop() == 0


def test_a_thread_that_raises_takes_the_process_down_with_its_stack(start: Start) -> None:
    subject = start("--dying-thread", "raises")
    subject.request("api", "/die").close()

    assert subject.wait(DEADLINE_S) == 1
    line = subject.line("thread failed", thread="mortal")
    assert line["error"] == "LookupError: lost it"
    assert "in die" in line["stack"]


def test_a_thread_that_returns_early_takes_the_process_down(start: Start) -> None:
    subject = start("--dying-thread", "returns")
    subject.request("api", "/die").close()

    assert subject.wait(DEADLINE_S) == 1
    assert subject.line("thread ended unexpectedly")["thread"] == "mortal"


def test_a_request_that_never_ends_does_not_keep_a_broken_process_from_its_restart(start: Start) -> None:
    """Whoever restarts it waits for its end, and the grace period may be an hour."""
    subject = start("--dying-thread", "raises", "--hang", "--grace", "3600")
    slow = subject.request("api", "/slow")
    subject.line("slow request runs")
    subject.request("api", "/die").close()

    assert subject.wait(DEADLINE_S) == 1
    slow.close()


def test_a_port_in_use_is_one_error_line_and_exit_code_1(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        subject = start(address=address)

        assert subject.wait(DEADLINE_S) == 1

    errors = [line for line in map(json.loads, subject.lines) if line["level"] == "ERROR"]
    assert len(errors) == 1
    assert errors[0]["msg"] == "exiting"
    assert f"cannot listen on {address}: Address already in use" in errors[0]["error"]
    assert "stack" not in errors[0]
    assert subject.messages()[-1] == "no longer ready", "what had started before is stopped"


@pytest.mark.parametrize("threads", [0, 1, 2, 35], ids=["for signals", "of a server", "of its pool", "of the daemon"])
def test_a_thread_that_cannot_be_started_is_one_error_line_and_exit_code_1(start: Start, threads: int) -> None:
    subject = start("--threads", str(threads))

    assert subject.wait(DEADLINE_S) == 1
    (error,) = [line for line in map(json.loads, subject.lines) if line["level"] == "ERROR"]
    assert error["msg"] == "exiting"
    assert "can't start new thread: raise the limit of tasks" in error["error"]
    assert "Docker 20.10.10" in error["error"]
    assert "stack" not in error


def test_systemd_is_notified_of_ready_watchdog_and_stopping(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        subject = start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="100000")

        assert manager.recv(100) == b"READY=1"
        assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        subject.send_signal(signal.SIGTERM)
        heard = set()
        while b"STOPPING=1" not in heard:
            heard.add(manager.recv(100))
        assert heard <= {b"WATCHDOG=1", b"STOPPING=1"}
    assert subject.wait(DEADLINE_S) == 0
