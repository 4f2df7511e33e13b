"""Restarts that lose nothing: two proxies overlap on the same ports, as in an upgrade."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.asking import ask, connect
from tests.support.gateway import Doors, Gateway, route_to
from tests.support.load import Load
from tests.support.ports import LOOPBACK
from tests.support.recordingbackend import Received, RecordingBackend, Reply, echo
from tests.support.socketbackend import Dialogue, SocketBackend

WAIT_S = 20.0


@pytest.fixture
def doors() -> Iterator[Doors]:
    doors = Doors()
    yield doors
    doors.close()


def test_a_restart_under_load_with_overlap_fails_no_request(doors: Doors) -> None:
    with RecordingBackend() as backend, contextlib.ExitStack() as proxies:
        old = proxies.enter_context(Gateway(doors=doors, workers=2))
        old.serve(route_to(backend.address))

        with Load(old.clear[1], threads=3) as anew, Load(old.clear[1], threads=3, keeps_alive=True) as kept:
            anew.wait_for(100)
            for _ in range(3):
                new = proxies.enter_context(Gateway(doors=doors, workers=2))
                new.serve(route_to(backend.address))
                anew.wait_for(50)
                assert 0 == old.stop()
                anew.wait_for(50)
                kept.wait_for(50)
                old = new

        assert [] == anew.failures
        assert [] == kept.failures


def test_a_stopping_proxy_finishes_active_requests_and_accepts_no_new_ones(doors: Doors) -> None:
    go_on = threading.Event()

    def answer_late(received: Received) -> Reply:
        go_on.wait(20)
        return echo(received)

    with RecordingBackend(respond=answer_late) as backend:
        gateway = Gateway(doors=doors).start()
        gateway.serve(route_to(backend.address))
        running = connect(gateway.clear[1])
        running.request("GET", "/", headers={"Host": "a.example"})
        backend.wait_for_requests(1)

        stopped = threading.Thread(target=gateway.stop)
        stopped.start()
        gateway.wait_for_log(lambda entry: "stopping" in str(entry.get("msg")), "that it stops")
        wait_until_refused(gateway.clear[1])
        go_on.set()

        response = running.getresponse()
        assert (200, "close") == (response.status, response.getheader("connection"))
        assert response.read()
        stopped.join(20)
        assert not gateway.is_running
        running.close()


def wait_until_refused(port: int) -> None:
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        try:
            socket.create_connection((LOOPBACK, port), timeout=WAIT_S).close()
        except ConnectionRefusedError:
            return
    raise AssertionError("connections are still accepted")


def test_the_document_outlives_a_restart_with_a_state_directory(doors: Doors, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with RecordingBackend() as backend:
        with Gateway(doors=doors, arguments=["--state-dir", str(state)]) as gateway:
            version = gateway.serve(route_to(backend.address))["version"]
        with Gateway(doors=doors, arguments=["--state-dir", str(state)]) as gateway:
            gateway.wait_for_log(lambda entry: entry.get("msg") == "worker started", "a worker")

            assert 200 == ask(gateway.clear[1]).status_code
            assert not gateway.put({**gateway.document(route_to(backend.address)), "version": version})["changed"]


def test_a_download_longer_than_the_grace_period_is_cut_off_and_the_process_ends(doors: Doors) -> None:
    def pour_for_ever(dialogue: Dialogue) -> None:
        dialogue.read_request()
        dialogue.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        while not dialogue.backend.over.is_set():
            dialogue.send(bytes(65536))

    with SocketBackend(pour_for_ever) as backend:
        gateway = Gateway(doors=doors, arguments=["--grace-period", "1s"]).start()
        gateway.serve(route_to(backend.address))
        connection = connect(gateway.clear[1])
        connection.request("GET", "/", headers={"Host": "a.example"})
        response = connection.getresponse()
        assert response.read(100)

        gateway.stop(grace_s=20)

        assert not gateway.is_running
        connection.close()
