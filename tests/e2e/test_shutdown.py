"""SIGTERM while there is work: what runs is finished or answered, nothing is written after the end, and a later process
goes on from there.

The controller takes 300 ms for each write here, so that there is always something in flight.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemonkit.rawhttp import RawClient
from tests.support.client_model import MEDIA_TYPE, Pass, SoftError
from tests.support.controller import Hang
from tests.support.controller.faults import Operation
from tests.support.daemon import Daemon
from tests.support.desired import HeldRow
from tests.support.passes import Loop, assert_survived, endpoint, rows_of
from tests.support.storeviews import EmbeddedView, UnifiView

GRACE_S = 15.0
FOREIGN = {HeldRow("nas.lan", "A", "198.51.100.1"), HeldRow("host-7.example.org", "TXT", '"kept, by hand"')}
WANTED = [endpoint(f"host-{number}.example.org", "A", f"10.0.{number // 250}.{number % 250}") for number in range(250)]
"""500 creates, with their ownership records."""


@pytest.fixture(params=["v2", "integration"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UnifiView]:
    view = UnifiView(request.param, tmp_path)
    view.add(FOREIGN)
    yield view
    view.close()


class Background:
    """One pass of external-dns in a thread of its own."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._outcome: Pass | Exception | None = None
        self._thread = threading.Thread(target=self._run, name="external-dns", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._loop.reconcile(WANTED)
        except Exception as error:
            self._outcome = error

    def outcome(self) -> Pass | Exception | None:
        self._thread.join(GRACE_S)
        assert not self._thread.is_alive(), "the pass was never answered"
        return self._outcome


def test_sigterm_in_the_middle_of_an_apply_answers_it_and_writes_nothing_after_the_end(view: UnifiView) -> None:
    controller = view.controller
    controller.latency_s = 0.3
    with Daemon.dnswebhook(view.env, ["--grace-period", f"{GRACE_S:g}s"]) as daemon:
        loop = Loop(daemon.url("api"))
        interrupted = Background(loop)
        controller.calls.wait_for(Operation.CREATE, 50, timeout_s=30)
        daemon.send_signal(signal.SIGTERM)
        exit_code = daemon.wait(GRACE_S)
        created, held = controller.calls.count(Operation.CREATE), view.held()
        outcome = interrupted.outcome()

    assert exit_code == 0, daemon.tail
    assert isinstance(outcome, SoftError), outcome
    assert (loop.replies[-1].status_code, json.loads(loop.replies[-1].body)["error"]) == (503, "stopping")
    assert 50 <= created < 2 * len(WANTED)
    assert held - FOREIGN <= rows_of(WANTED)
    assert len(held) == len(FOREIGN) + created, "a create was in flight when the process ended"

    controller.latency_s = 0.0
    with Daemon.dnswebhook(view.env) as successor:
        loop = Loop(successor.url("api"))
        loop.list_records()
        assert view.held() == held, "something was written after the end"
        assert controller.calls.count(Operation.CREATE) == created

        assert loop.settle(WANTED)
        assert view.held() == rows_of(WANTED) | FOREIGN
        assert controller.calls.count(Operation.CREATE) == 2 * len(WANTED), "rows were created twice"
    assert_survived(loop.replies)


def test_a_short_apply_is_finished_and_answered_before_the_process_ends(view: UnifiView) -> None:
    controller = view.controller
    hang = controller.fault(Hang(), Operation.CREATE, nth=2, count=1)
    with Daemon.dnswebhook(view.env) as daemon:
        loop = Loop(daemon.url("api"))
        finished: list[Pass | SoftError] = []
        thread = threading.Thread(target=lambda: finished.append(loop.try_pass(WANTED[:1])), daemon=True)
        thread.start()
        hang.wait_for_strikes()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait_for_message("stopping")
        controller.release_hangs()
        thread.join(GRACE_S)

        assert daemon.wait(GRACE_S) == 0, daemon.tail
    assert isinstance(finished[0], Pass), finished
    assert view.held() == rows_of(WANTED[:1]) | FOREIGN


def test_a_second_signal_ends_the_process_at_once(view: UnifiView) -> None:
    hang = view.controller.fault(Hang(), Operation.CREATE)
    with Daemon.dnswebhook(view.env) as daemon:
        thread = threading.Thread(target=_ignoring_errors, args=(Loop(daemon.url("api")),), daemon=True)
        thread.start()
        hang.wait_for_strikes()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait_for_message("stopping")
        assert daemon.is_running

        daemon.send_signal(signal.SIGTERM)

        assert daemon.wait(5) == 1, daemon.tail
        assert daemon.log[-1]["msg"] == "second signal, exiting at once"
        thread.join(GRACE_S)


def _ignoring_errors(loop: Loop) -> None:
    """The daemon ends in the middle of this pass."""
    try:
        loop.reconcile(WANTED[:1])
    except Exception:
        return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /records HTTP/1.1\r\nX-Slow: ",
        b"GET /records HTTP/1.1\r\nHost: x\r\n\r\n",
        f"POST /records HTTP/1.1\r\nHost: x\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: 50\r\n\r\n{{".encode(),
    ],
    ids=["silent", "half a head", "kept alive", "half a body"],
)
def test_an_open_client_connection_does_not_delay_the_end_of_the_process(
    tmp_path: Path, begun: bytes, number: signal.Signals
) -> None:
    with Daemon.dnswebhook(EmbeddedView(tmp_path).env, ["--grace-period", "1s"]) as daemon:
        host, _, port = daemon.address("api").rpartition(":")
        assert daemon.wait_for_message("started")
        with RawClient(int(port)) as client:
            client.send(begun)
            if begun.endswith(b"\r\n\r\n"):
                assert client.answer().status_code == 200
            daemon.send_signal(number)

            assert daemon.wait(10) == 0, daemon.tail
            client.socket.settimeout(5)
            while client._more():  # whatever was answered, the connection ends
                pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
