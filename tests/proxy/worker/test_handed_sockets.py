"""Listening sockets that arrive with a document which the worker refuses: they serve with the next one."""

import os
import socket
from collections.abc import Iterator

import msgspec
import pytest

from proxy import document
from proxy.control import Missed, Ready, Refused, Taken, sealed_file
from proxy.document import handover
from proxy.doors.acceptor import Acceptor
from tests.proxy.site import eventually
from tests.proxy.worker.supervisor import WAIT_S, Supervisor, door_of
from tests.support.limits import out_of_descriptors
from tests.support.watches import watches_refused


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


def test_sockets_of_a_refused_document_serve_though_the_next_one_has_already_arrived(
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


def test_the_last_of_two_sockets_for_a_door_serves(supervisor: Supervisor, listening: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stale:
        supervisor.give(stale, door_of(listening))
        supervisor.tell(1, 7, whole(listening))
        supervisor.give(listening)
        supervisor.tell(2, 0, whole(listening))
        assert [supervisor.hear(), supervisor.hear()] == [Refused(1, 7), Taken(2)]

        assert is_served(listening)


def test_sockets_that_do_not_arrive_are_reported_and_no_document_is_used_without_them(
    supervisor: Supervisor, listening: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with out_of_descriptors():
            supervisor.give(listening)
            assert supervisor.hear() == Missed((door_of(listening),))
        supervisor.give(other)
        supervisor.tell(1, 0, whole(listening, other))
        assert supervisor.hear() == Missed()

        supervisor.give(listening)
        supervisor.tell(1, 0, whole(listening, other))
        assert supervisor.hear() == Taken(1)
        assert is_served(listening)
        assert is_served(other)


def test_sockets_of_a_document_that_does_not_arrive_serve_when_it_is_sent_again(
    supervisor: Supervisor, listening: socket.socket
) -> None:
    supervisor.give(listening)
    eventually(lambda: supervisor.has_been_heard, "the sockets with the worker")
    content = sealed_file("test", whole(listening))
    with out_of_descriptors():
        supervisor.hand(1, 0, content)
        assert supervisor.hear() == Missed()
    supervisor.hand(1, 0, content)
    os.close(content)
    assert supervisor.hear() == Taken(1)

    assert is_served(listening)


def test_sockets_that_the_kernel_does_not_watch_serve_when_their_document_is_sent_again(
    supervisor: Supervisor, listening: socket.socket
) -> None:
    """The limit of what epoll watches may have been reached for a moment only."""
    supervisor.give(listening)
    with watches_refused(Acceptor):
        supervisor.tell(1, 0, whole(listening))
        assert supervisor.hear() == Missed()
    supervisor.tell(1, 0, whole(listening))
    assert supervisor.hear() == Taken(1)

    assert is_served(listening)
