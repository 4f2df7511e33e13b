"""Documents that fail on their way into use: the worker serves the previous one as if they had never come, or ends."""

import contextlib
import socket
from collections.abc import Iterator

import msgspec
import pytest

from proxy import document
from proxy.control import Ready, Refused, Taken
from proxy.document import Content, handover
from proxy.loop import Loop
from tests.proxy.worker.supervisor import WAIT_S, Supervisor, door_of


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    made = Supervisor()
    assert made.hear() == Ready()
    yield made
    # Sockets that wait for a usable document are released with the next one.
    made.tell(9, 0, handover.pack(None, content_of(219)))
    assert made.hear() == Taken(9)
    made.close()


@pytest.fixture
def doors() -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]


@pytest.fixture
def unusable() -> Iterator[socket.socket]:
    """A socket that cannot accept connections."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


READER = document.Reader()
"""One for all: what two documents differ in is known by the numbers that it gave."""


def content_of(status_code: int, *socks: socket.socket) -> Content:
    """Every request is answered by this status code."""
    listeners = [
        {"name": f"l{place}", "address": "127.0.0.1", "port": sock.getsockname()[1]} for place, sock in enumerate(socks)
    ]
    rule = {"backends": [{"respond": {"statusCode": status_code}}]}
    routes = [{"name": f"r{status_code}", "rules": [rule]}]
    return READER.read(msgspec.json.encode({"listeners": listeners, "routes": routes})).content


def answer(client: socket.socket) -> int:
    client.sendall(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n")
    return int(client.recv(4096).split(b" ")[1])


def ask(sock: socket.socket) -> int:
    with socket.create_connection(sock.getsockname(), timeout=WAIT_S) as client:
        return answer(client)


def test_the_previous_document_is_still_served(
    supervisor: Supervisor, doors: list[socket.socket], unusable: socket.socket
) -> None:
    first, second, new = doors
    before, after = content_of(211, first, second), content_of(212, new, first, unusable)
    for sock in (first, second):
        supervisor.give(sock)
    supervisor.tell(1, 0, handover.pack(None, before))
    assert supervisor.hear() == Taken(1)
    with socket.create_connection(first.getsockname(), timeout=WAIT_S) as client:
        assert answer(client) == 211

        for sock in (new, unusable):
            supervisor.give(sock)
        supervisor.tell(2, 1, handover.pack(before, after))
        assert supervisor.hear() == Refused(2, 1)

        assert answer(client) == 211
    assert [ask(first), ask(second)] == [211, 211]


def test_the_next_document_may_build_on_the_previous_one_and_has_the_sockets_of_both(
    supervisor: Supervisor, doors: list[socket.socket], unusable: socket.socket
) -> None:
    first, second, new = doors
    before, after = content_of(211, first, second), content_of(213, first, second, new)
    for sock in (first, second):
        supervisor.give(sock)
    supervisor.tell(1, 0, handover.pack(None, before))
    for sock in (new, unusable):
        supervisor.give(sock)
    supervisor.tell(2, 1, handover.pack(before, content_of(212, new, unusable)))
    assert [supervisor.hear(), supervisor.hear()] == [Taken(1), Refused(2, 1)]
    with socket.create_connection(new.getsockname(), timeout=WAIT_S) as early:
        supervisor.tell(3, 1, handover.pack(before, after))
        assert supervisor.hear() == Taken(3)

        assert answer(early) == 213
    assert [ask(sock) for sock in doors] == [213, 213, 213]


def test_a_first_document_that_cannot_be_used_leaves_nothing_served(
    supervisor: Supervisor, doors: list[socket.socket], unusable: socket.socket
) -> None:
    door = doors[0]
    for sock in (door, unusable):
        supervisor.give(sock)
    supervisor.tell(1, 0, handover.pack(None, content_of(211, door, unusable)))
    assert supervisor.hear() == Refused(1, 0)
    with socket.create_connection(door.getsockname(), timeout=WAIT_S) as early:
        supervisor.tell(2, 0, handover.pack(None, content_of(212, door)))
        assert supervisor.hear() == Taken(2)

        assert answer(early) == 212


def test_a_socket_given_again_serves_though_the_first_one_was_unusable(
    supervisor: Supervisor, doors: list[socket.socket], unusable: socket.socket
) -> None:
    door = doors[0]
    supervisor.give(unusable, door_of(door))
    content = handover.pack(None, content_of(211, door))
    supervisor.tell(1, 0, content)
    supervisor.give(door)
    supervisor.tell(2, 0, content)

    assert [supervisor.hear(), supervisor.hear()] == [Refused(1, 0), Taken(2)]
    assert ask(door) == 211


class FullLoop(Loop):
    """Refuses more work while some is in progress, so no table can be used: neither the next nor the previous one."""

    def __init__(self) -> None:
        super().__init__()
        self._is_working = False

    def work_through(self, slices: Iterator[None]) -> None:
        if self._is_working:
            raise MemoryError("no room for more work")
        super().work_through(self._working(slices))

    def _working(self, slices: Iterator[None]) -> Iterator[None]:
        self._is_working = True
        yield from slices


def test_a_worker_that_can_use_neither_the_next_nor_the_previous_document_ends() -> None:
    supervisor = Supervisor(FullLoop())
    assert supervisor.hear() == Ready()
    supervisor.tell(1, 0, handover.pack(None, content_of(211)))

    supervisor.wait_for_end()

    assert not supervisor.is_drained
    supervisor.close()
