"""A worker's answers to requests for a report, and to messages that it cannot handle."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from proxy import document
from proxy.control import Ready, Snapshot, Taken
from proxy.document import handover
from tests.proxy.site import eventually
from tests.proxy.worker.supervisor import WAIT_S, Supervisor
from tests.support.limits import no_memory_files


def test_a_worker_without_memory_for_its_report_still_answers() -> None:
    """A worker that is silent for a while is killed, and one missing answer makes all later ones too late."""
    supervisor = Supervisor()
    assert supervisor.hear() == Ready()

    with no_memory_files():
        supervisor.ask()
        assert isinstance(supervisor.hear(), Snapshot)

    supervisor.close()


def test_a_worker_serves_while_its_supervisor_reads_nothing_and_sends_all_reports_later() -> None:
    """A supervisor that is paused, or gets no CPU time, keeps no client waiting."""
    supervisor = Supervisor()
    assert supervisor.hear() == Ready()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        listener = {"name": "main", "address": "127.0.0.1", "port": sock.getsockname()[1]}
        routes = [{"rules": [{"respond": {"statusCode": 218}}]}]
        content = document.Reader().read(msgspec.json.encode({"listeners": [listener], "routes": routes})).content
        supervisor.give(sock)
        supervisor.tell(1, 0, handover.pack(None, content))
        assert supervisor.hear() == Taken(1)

        supervisor.narrow()
        for _ in range(50):
            supervisor.ask()
        eventually(lambda: supervisor.has_been_heard, "a worker that has read them")
        with socket.create_connection(sock.getsockname(), timeout=WAIT_S / 2) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 218")

    assert [type(supervisor.hear()) for _ in range(50)] == [Snapshot] * 50
    supervisor.close()


def test_a_worker_keeps_no_descriptor_of_its_reports() -> None:
    supervisor = Supervisor()
    assert supervisor.hear() == Ready()

    def tell() -> int:
        """How many descriptors are open afterwards: the second answer shows that the first is finished."""
        for _ in range(2):
            supervisor.ask()
            assert isinstance(supervisor.hear(), Snapshot)
        return len(list(Path("/proc/self/fd").iterdir()))

    before = tell()
    for _ in range(20):
        after = tell()

    assert after <= before + 1
    supervisor.close()
    assert supervisor.is_drained


def test_a_worker_that_cannot_handle_a_message_ends() -> None:
    """It would serve something else than its supervisor believes, whereas a new one serves what it should."""
    supervisor = Supervisor()
    assert supervisor.hear() == Ready()

    supervisor.say(Ready())

    supervisor.wait_for_end()
    assert not supervisor.is_drained
    supervisor.close()
