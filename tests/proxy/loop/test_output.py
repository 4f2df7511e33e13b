"""Output over real sockets: what is sent at once, what is queued, in which order, and when credit is returned."""

import select
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle

import pytest
import trustme

from proxy.loop.output import Buffer, Output
from proxy.loop.unsent import Unsent
from tests.proxy.loop.sides import PATIENCE_S, SEND_BUFFER_BYTES, Owed, receive, tcp_pair

MANY_BYTES = 4 * 1024 * 1024
SIZES = [1, 0, 700, 16_384, 16_385, 33_000, 300_000]
Sockets = Callable[[], AbstractContextManager[tuple[socket.socket, socket.socket]]]


@contextmanager
def plain() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, peer = tcp_pair(SEND_BUFFER_BYTES)
    with ours, peer:
        yield ours, peer


@contextmanager
def secure() -> Iterator[tuple[socket.socket, socket.socket]]:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("a.example").configure_cert(server)
    authority.configure_trust(client)
    ours, peer = tcp_pair(SEND_BUFFER_BYTES)
    ours.settimeout(PATIENCE_S)
    secured: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: secured.append(client.wrap_socket(peer, server_hostname="a.example")))
    thread.start()
    ours = server.wrap_socket(ours, server_side=True)
    thread.join(PATIENCE_S)
    ours.setblocking(False)
    with ours, secured[0]:
        yield ours, secured[0]


def send_all(output: Output, ours: socket.socket) -> None:
    """As the loop would: whenever the socket can be written to."""

    while output.queue:
        assert select.select([], [ours], [], PATIENCE_S)[1], "never writable again"
        output.send_queued()


@contextmanager
def receiving(peer: socket.socket, size_bytes: int) -> Iterator[list[bytes]]:
    """A peer that reads meanwhile; the list has the received data after the block."""
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(receive(peer, size_bytes)))
    thread.start()
    yield got
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("sockets", [plain, secure])
def test_a_small_output_is_sent_at_once_and_nothing_is_queued(sockets: Sockets) -> None:
    with sockets() as (ours, peer):
        output = Output(ours, Unsent())

        assert output.send([b"hello ", memoryview(b"world")])
        assert output.send([])
        assert output.send([b""])

        assert (output.queued_bytes, len(output.queue)) == (0, 0)
        assert receive(peer, 11) == b"hello world"


def test_queued_output_does_not_keep_the_whole_read_in_memory() -> None:
    read_bytes, piece_bytes, count = 1024 * 1024, 16 * 1024, 20
    with plain() as (ours, _):
        output = Output(ours, Unsent())
        fills_the_socket = bytes(MANY_BYTES)
        tracemalloc.start()
        try:
            # The first of them waits behind nothing, the others behind it.
            output.send([memoryview(bytes(read_bytes))[:piece_bytes], fills_the_socket])
            for _ in range(count):
                output.send([memoryview(bytes(read_bytes))[:piece_bytes]])
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert output.queued_bytes > count * piece_bytes
        assert kept_bytes < 4 * count * piece_bytes


def test_partly_sent_output_does_not_keep_the_whole_read_in_memory() -> None:
    read_bytes = 16 * MANY_BYTES
    with plain() as (ours, _):
        output = Output(ours, Unsent())
        tracemalloc.start()
        try:
            output.send([memoryview(bytes(read_bytes))[:MANY_BYTES]])
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert output.queue
        assert kept_bytes < 2 * MANY_BYTES


@pytest.mark.parametrize("sockets", [plain, secure])
def test_pieces_of_all_sizes_leave_in_order_whatever_the_socket_takes(sockets: Sockets) -> None:
    pieces: list[list[Buffer]] = []
    size_bytes = 0
    for number, size in enumerate(cycle(SIZES)):
        piece = bytes([number % 251]) * size
        pieces.append([piece, memoryview(piece)] if number % 3 else [piece])
        size_bytes += sum(map(len, pieces[-1]))
        if size_bytes > MANY_BYTES:
            break
    with sockets() as (ours, peer):
        output = Output(ours, Unsent())
        for group in pieces:
            output.send(group)
        assert output.queued_bytes > 0
        with receiving(peer, size_bytes) as got:
            send_all(output, ours)

        assert got == [b"".join(piece for group in pieces for piece in group)]
        assert output.queued_bytes == 0


def test_credit_for_queued_output_is_returned_only_after_it_is_sent() -> None:
    with plain() as (ours, peer):
        output = Output(ours, Unsent())
        first, second = Owed(), Owed()
        output.debts.owe(first, MANY_BYTES)
        assert not output.send([bytes(MANY_BYTES)])
        output.debts.owe(second, 5)
        assert not output.send([b"after"]), "it waits behind the first"

        output.debts.repay(output.sent_bytes)
        assert (first.released_bytes, second.released_bytes) == (0, 0)
        with receiving(peer, MANY_BYTES + 5) as got:
            send_all(output, ours)
        output.debts.repay(output.sent_bytes)

        assert (first.released_bytes, second.released_bytes) == (MANY_BYTES, 5)
        assert got[0].endswith(b"after")


def test_what_lies_in_the_buffer_of_the_kernel_is_sent_but_not_acknowledged() -> None:
    with plain() as (ours, _):
        output = Output(ours, Unsent())
        output.send([bytes(MANY_BYTES)])
        while select.select([], [ours], [], 0)[1]:
            output.send_queued()

        assert 0 < output.acknowledged_bytes < output.sent_bytes < MANY_BYTES
        assert output.acknowledged_bytes + output.unacknowledged_bytes == MANY_BYTES


def test_many_tiny_pieces_are_queued_as_one() -> None:
    with plain() as (ours, _):
        output = Output(ours, Unsent())
        output.send([bytes(MANY_BYTES)])
        before = len(output.queue)

        output.send([b"tiny"] * 1000)

        assert len(output.queue) == before + 1


def test_tiny_pieces_of_many_turns_take_little_more_memory_than_their_bytes() -> None:
    """A chunk of one byte per turn of the loop, for a client or a backend that does not read."""
    count = 10_000
    with plain() as (ours, peer):
        output, owed = Output(ours, Unsent()), Owed()
        output.send([bytes(MANY_BYTES)])
        tracemalloc.start()
        try:
            for number in range(count):
                output.debts.owe(owed, 1)
                output.send([b"1\r\n", b"%d" % (number % 10), b"\r\n"])
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert kept_bytes < 3 * 6 * count
        output.debts.repay(output.sent_bytes)
        assert owed.released_bytes == 0
        with receiving(peer, MANY_BYTES + 6 * count) as got:
            send_all(output, ours)
        output.debts.repay(output.sent_bytes)
        assert owed.released_bytes == count
        assert got[0].endswith(b"".join(b"1\r\n%d\r\n" % (number % 10) for number in range(count)))


@pytest.mark.parametrize("size", [5, MANY_BYTES], ids=["at once", "queued"])
def test_sending_on_a_broken_connection_raises(size: int) -> None:
    with plain() as (ours, _):
        ours.shutdown(socket.SHUT_WR)

        with pytest.raises(BrokenPipeError):
            Output(ours, Unsent()).send([bytes(size)])


def test_credit_for_dropped_output_is_returned() -> None:
    with plain() as (ours, _):
        output = Output(ours, Unsent())
        owed = Owed()
        output.debts.owe(owed, MANY_BYTES)
        output.send([bytes(MANY_BYTES)])

        output.drop()

        assert owed.released_bytes == MANY_BYTES
        assert not output.queue
