"""Listening sockets that come with a document which the worker refuses: they serve with the next one."""

import os
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from proxy import document
from proxy.accesslog import AccessLogSettings
from proxy.accesslog.writer import AccessLogWriter
from proxy.control import (
    Channel,
    Drain,
    FromWorker,
    Ready,
    Refused,
    TakeDocument,
    Taken,
    TakeSockets,
    ToWorker,
    channel_pair,
    sealed_file,
)
from proxy.document import handover
from proxy.loop import Loop
from proxy.routing import socket_door
from proxy.stats import Stats
from proxy.worker.dataplane import DataPlane
from proxy.worker.worker import Worker

WAIT_S = 30.0


class Supervisor:
    """The other end of the channel of a worker that runs in a thread."""

    def __init__(self) -> None:
        ours, theirs = channel_pair()
        ours.settimeout(WAIT_S)
        self._channel = Channel[FromWorker](ours, FromWorker)
        self._theirs = Channel[ToWorker](theirs, ToWorker)
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        loop, stats = Loop(), Stats()
        access_log = AccessLogWriter(loop, stats, AccessLogSettings("off"))
        data_plane = DataPlane(loop, stats, access_log)
        worker = Worker(loop, self._theirs, data_plane, stats)
        worker.start()
        loop.run()
        data_plane.close()
        loop.close()

    def give(self, sock: socket.socket, door: str = "") -> None:
        self._channel.send(TakeSockets((door or door_of(sock),)), [sock.fileno()])

    def tell(self, generation: int, since: int, content: bytes) -> None:
        descriptor = sealed_file("test", content)
        self._channel.send(TakeDocument(generation, generation, since), [descriptor])
        os.close(descriptor)

    def hear(self) -> FromWorker:
        received = self._channel.receive()
        assert received is not None
        return received[0]

    def close(self) -> None:
        self._channel.send(Drain())
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._channel.close()
        self._theirs.close()


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    made = Supervisor()
    assert made.hear() == Ready()
    yield made
    made.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def door_of(sock: socket.socket) -> str:
    return socket_door(*sock.getsockname())


def whole(*socks: socket.socket) -> bytes:
    """A document with listeners on these sockets, for a worker that serves nothing."""
    listeners = [
        {"name": f"l{place}", "address": "127.0.0.1", "port": sock.getsockname()[1]} for place, sock in enumerate(socks)
    ]
    content = document.Reader().read(msgspec.json.encode({"listeners": listeners, "routes": []})).content
    return handover.pack(None, content)


def is_served(sock: socket.socket) -> bool:
    with socket.create_connection(sock.getsockname(), timeout=WAIT_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n")
        return client.recv(100).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(("since", "content"), [(7, None), (0, b"\0")], ids=["builds on another", "cannot be read"])
def test_sockets_of_a_refused_document_serve_with_the_next(
    supervisor: Supervisor, listening: socket.socket, since: int, content: bytes | None
) -> None:
    supervisor.give(listening)
    supervisor.tell(1, since, content or whole(listening))
    assert supervisor.hear() == Refused(1, since)
    supervisor.tell(2, 0, whole(listening))
    assert supervisor.hear() == Taken(2)

    assert is_served(listening)


def test_sockets_of_a_refused_document_serve_also_where_the_next_has_come_already(
    supervisor: Supervisor, listening: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        supervisor.give(listening)
        supervisor.tell(1, 7, whole(listening))
        supervisor.give(other)
        supervisor.tell(2, 0, whole(listening, other))
        assert [supervisor.hear(), supervisor.hear()] == [Refused(1, 7), Taken(2)]

        assert is_served(listening)
        assert is_served(other)


def test_of_two_sockets_for_a_door_the_one_that_came_last_serves(
    supervisor: Supervisor, listening: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stale:
        supervisor.give(stale, door_of(listening))
        supervisor.tell(1, 7, whole(listening))
        supervisor.give(listening)
        supervisor.tell(2, 0, whole(listening))
        assert [supervisor.hear(), supervisor.hear()] == [Refused(1, 7), Taken(2)]

        assert is_served(listening)
