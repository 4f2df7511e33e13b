"""The control channel: messages and descriptors arrive whole, or the other side has ended."""

import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from proxy.accesslog import AccessLogSettings
from proxy.control import (
    MAX_DESCRIPTORS,
    Begin,
    Channel,
    Drain,
    FromWorker,
    Incomplete,
    Snapshot,
    TakeDocument,
    Taken,
    TakeSockets,
    ToWorker,
    channel_pair,
    mapped,
    sealed_file,
)

Pair = tuple[Channel[FromWorker], Channel[ToWorker]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The supervisor's end and the worker's."""
    ours, theirs = channel_pair()
    ends = Channel[FromWorker](ours, FromWorker), Channel[ToWorker](theirs, ToWorker)
    for sock in (ours, theirs):
        sock.settimeout(10)
    yield ends
    for end in ends:
        end.close()


@pytest.mark.parametrize(
    "message",
    [Begin(3, "info", "json", AccessLogSettings("all", 0.5, "text")), Drain(), TakeDocument(7, 2**63 - 1, 6)],
    ids=lambda message: type(message).__name__,
)
def test_messages_to_a_worker_arrive_as_they_were_sent(pair: Pair, message: ToWorker) -> None:
    supervisor, worker = pair
    supervisor.send(message)

    assert worker.receive() == (message, [])


def test_messages_keep_their_order_and_their_boundaries(pair: Pair) -> None:
    supervisor, worker = pair
    sent: list[FromWorker] = [Taken(number) for number in range(20)]
    for message in sent:
        worker.send(message)

    received = [supervisor.receive() for _ in sent]

    assert received == [(message, []) for message in sent]


def test_a_document_is_passed_as_a_sealed_memory_file(pair: Pair) -> None:
    supervisor, worker = pair
    content = os.urandom(3 * 1024 * 1024)
    descriptor = sealed_file("test", content)
    supervisor.send(TakeDocument(1, 1, 0), [descriptor])
    os.close(descriptor)

    received = worker.receive()

    assert received is not None
    (arrived,) = received[1]
    with pytest.raises(PermissionError):
        os.write(arrived, b"x")
    view = mapped(arrived)
    assert view.readonly
    assert bytes(view) == content
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arrived)


def test_as_many_sockets_as_allowed_cross_in_one_message(pair: Pair) -> None:
    supervisor, worker = pair
    doors = tuple(f"[2001:db8::{number:x}]:{number}" for number in range(MAX_DESCRIPTORS))
    with socket.socket() as sock:
        supervisor.send(TakeSockets(doors), [sock.fileno()] * len(doors))

        received = worker.receive()

        assert received is not None
        message, descriptors = received
        assert message == TakeSockets(doors)
        assert len(descriptors) == MAX_DESCRIPTORS
        for descriptor in descriptors:
            assert not os.get_inheritable(descriptor)
            assert os.path.sameopenfile(descriptor, sock.fileno())
            os.close(descriptor)


def test_a_message_whose_descriptors_do_not_fit_raises_incomplete(pair: Pair) -> None:
    supervisor, worker = pair
    with socket.socket() as sock:
        supervisor.send(TakeSockets(("a", "b", "c")), [sock.fileno()] * 3)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 2, hard))
        try:
            with pytest.raises(Incomplete, match="raise the limit of open files") as raised:
                worker.receive()
            assert raised.value.message == TakeSockets(("a", "b", "c"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_end_of_the_other_process_is_the_end_of_the_channel(pair: Pair) -> None:
    supervisor, worker = pair
    worker.send(Snapshot(1.0, 2, 3))
    worker.close()

    assert supervisor.receive() == (Snapshot(1.0, 2, 3), [])
    assert supervisor.receive() is None
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        supervisor.send(Drain())


def test_hanging_up_ends_receiving_on_both_sides(pair: Pair) -> None:
    supervisor, worker = pair
    supervisor.hang_up()

    assert supervisor.receive() is None
    assert worker.receive() is None


def test_a_worker_that_reads_nothing_fails_the_sender_after_its_time_limit() -> None:
    ours, theirs = channel_pair()
    with ours, theirs:
        supervisor: Channel[FromWorker] = Channel(ours, FromWorker)
        supervisor.limit_sending(0.1)
        with contextlib.suppress(BlockingIOError):
            for _ in range(1_000_000):
                supervisor.send(Drain())
            pytest.fail("a million messages that nobody takes were sent")
