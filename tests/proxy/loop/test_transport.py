"""Transports over plain TCP: output, credit, pauses, and every way to end."""

import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

from proxy.loop import LITTLE_BYTES, Transport
from proxy.loop.unsent import LARGE_BYTES
from tests.proxy.backend.world import readable
from tests.proxy.loop.sides import (
    PATIENCE_S,
    Clock,
    Link,
    Owed,
    has_ended,
    is_silent,
    linked,
    receive,
    turns,
    wait_for_the_end_of,
)
from tests.support.lettinggo import uncollected
from tests.support.watches import watches_refused

MANY_BYTES = 8 * 1024 * 1024
PIECE_BYTES = 64 * 1024


def drain_in_thread(sock: socket.socket, size_bytes: int) -> tuple[threading.Thread, list[bytes]]:
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(receive(sock, size_bytes)))
    thread.start()
    return thread, got


def test_output_of_a_turn_is_sent_at_its_end_and_credit_given_back() -> None:
    with linked() as link:
        owed = link.send(b"hello ", b"world")
        assert owed.released_bytes == 0
        link.loop.turn()

        assert receive(link.peer, 11) == b"hello world"
        assert owed.released_bytes == 11
        assert link.transport.queued_bytes == 0


@pytest.mark.parametrize("pieces", [[b""], [b"", b"x"], [b"x", b""], [b"a" * 40_000, b""], [b"a" * 40_000, b"", b"b"]])
def test_empty_pieces_are_no_output(pieces: list[bytes]) -> None:
    """An empty piece at the end of a large output would be offered to the socket forever."""
    with linked() as link:
        owed = link.send(*pieces)
        link.until(lambda: owed.released_bytes == len(b"".join(pieces)))
        turns(link.loop)

        assert receive(link.peer, len(b"".join(pieces))) == b"".join(pieces)
        assert is_silent(link.peer)


@pytest.mark.parametrize("piece_bytes", [1000, 30_000, 300_000, MANY_BYTES])
def test_credit_comes_back_only_as_the_peer_takes_bytes(piece_bytes: int) -> None:
    with linked() as link:
        data = bytes(range(256)) * (MANY_BYTES // 256)
        debts = [(place, link.send(data[place : place + piece_bytes])) for place in range(0, MANY_BYTES, piece_bytes)]
        turns(link.loop)
        stuck = sum(owed.released_bytes for _, owed in debts)
        # Owed in one turn, released at once: only when all has gone.
        assert stuck == 0
        assert link.transport.queued_bytes > 0
        thread, got = drain_in_thread(link.peer, MANY_BYTES)
        link.until(lambda: sum(owed.released_bytes for _, owed in debts) == MANY_BYTES)
        thread.join()

        assert got == [data]
        assert link.side.drained == 1


def test_credit_of_earlier_turns_comes_back_first() -> None:
    with linked() as link:
        first = link.send(b"a" * 100)
        link.loop.turn()
        second = link.send(b"b" * MANY_BYTES)
        turns(link.loop)

        assert (first.released_bytes, second.released_bytes) == (100, 0)


def test_output_queued_while_the_socket_is_full_follows_in_order() -> None:
    with linked() as link:
        link.send(b"a" * MANY_BYTES)
        turns(link.loop)
        for _ in range(3):
            link.send(b"b" * 10, b"c" * 100_000)
            turns(link.loop, 1)
        thread, got = drain_in_thread(link.peer, MANY_BYTES + 3 * 100_010)
        link.until(lambda: not link.transport.queued_bytes)
        thread.join()

        assert got == [b"a" * MANY_BYTES + (b"b" * 10 + b"c" * 100_000) * 3]


def test_nothing_is_read_while_paused_and_all_of_it_afterwards() -> None:
    with linked() as link:
        link.transport.pause_reading()
        link.peer.sendall(b"x" * 1000)
        turns(link.loop)
        assert not link.side.received
        link.transport.resume_reading()
        link.until(lambda: len(link.side.received) == 1000)


def test_what_waits_for_peers_is_counted_until_they_take_it_or_their_connections_end() -> None:
    with linked() as link:
        unsent = link.loop.unsent
        link.send(b"a" * MANY_BYTES)
        turns(link.loop)
        assert unsent.size_bytes == link.transport.queued_bytes > 0
        thread, got = drain_in_thread(link.peer, MANY_BYTES)
        link.until(lambda: not link.transport.is_sending)
        thread.join(PATIENCE_S)
        assert (unsent.size_bytes, len(got)) == (0, 1)
        link.send(b"b" * MANY_BYTES)
        link.send(b"c" * 10)
        turns(link.loop)
        assert unsent.size_bytes > 0
        link.transport.abort()

        assert unsent.size_bytes == 0


def test_sockets_are_read_in_small_pieces_while_much_waits_for_peers() -> None:
    with linked() as link:
        link.loop.unsent.size_bytes = LARGE_BYTES + 1
        turns(link.loop)
        link.transport.read_little()
        link.peer.sendall(b"x" * 4 * LITTLE_BYTES)
        link.until(lambda: len(link.side.received) == 4 * LITTLE_BYTES)
        most_bytes = max(link.side.reads)
        link.loop.unsent.size_bytes = 0
        turns(link.loop)
        link.peer.sendall(b"x" * 4 * LITTLE_BYTES)
        link.until(lambda: len(link.side.received) == 8 * LITTLE_BYTES)

        assert most_bytes == LITTLE_BYTES < max(link.side.reads)


def test_a_pause_from_within_a_read_lets_no_second_read_through() -> None:
    with linked() as link:
        link.side.on_read = link.transport.pause_reading
        thread = threading.Thread(target=lambda: link.peer.sendall(b"x" * MANY_BYTES))
        thread.start()
        link.until(lambda: bool(link.side.reads))
        turns(link.loop)
        assert len(link.side.reads) == 1
        link.side.on_read = lambda: None
        link.transport.resume_reading()
        link.until(lambda: len(link.side.received) == MANY_BYTES)
        thread.join()


def test_the_peers_eof_is_reported_and_output_still_flows() -> None:
    with linked() as link:
        link.peer.sendall(b"bye")
        link.peer.shutdown(socket.SHUT_WR)
        link.until(lambda: link.side.has_eof)
        owed = link.send(b"answer")
        turns(link.loop)

        assert receive(link.peer, 6) == b"answer"
        assert owed.released_bytes == 6
        assert bytes(link.side.received) == b"bye"


def test_our_eof_reaches_the_peer_and_input_still_flows() -> None:
    with linked() as link:
        link.send(b"that was all")
        link.transport.half_close()
        turns(link.loop)
        assert receive(link.peer, 12) == b"that was all"
        assert has_ended(link.peer)
        link.peer.sendall(b"heard")
        link.until(lambda: bytes(link.side.received) == b"heard")


def test_finishing_sends_all_that_is_queued_then_ends_in_order() -> None:
    with linked() as link:
        owed = link.send(b"z" * MANY_BYTES)
        link.transport.finish()
        thread, got = drain_in_thread(link.peer, MANY_BYTES)
        link.until(lambda: owed.released_bytes == MANY_BYTES)
        thread.join()
        assert has_ended(link.peer)
        assert not link.side.closed
        link.peer.close()
        link.until(lambda: link.side.closed == 1)

        assert got == [b"z" * MANY_BYTES]
        assert link.transport.is_closed
        assert not link.side.drained, "asked for more"


def test_input_while_finishing_is_dropped_and_queued_output_still_arrives() -> None:
    """Closing a socket with unread data would reset the connection, and the last answer with it."""
    with linked() as link:
        link.peer.sendall(b"a request that nobody reads")
        link.send(b"last words")
        link.transport.finish()
        turns(link.loop)
        link.peer.sendall(b"and more")
        turns(link.loop)

        assert receive(link.peer, 10) == b"last words"
        assert has_ended(link.peer)
        assert not link.side.received


def test_a_finishing_connection_drops_input_though_its_reading_was_paused() -> None:
    with linked() as link:
        link.transport.pause_reading()
        link.peer.sendall(b"what nobody had room for")
        link.transport.finish()
        turns(link.loop)
        link.peer.shutdown(socket.SHUT_WR)
        turns(link.loop)

        assert link.side.closed == 1, "the end was not read, so closing will be a reset"


def test_a_peer_that_ends_first_keeps_no_finishing_connection_busy() -> None:
    """Its end stays readable for as long as it takes the queued output."""
    with linked() as link:
        link.send(b"z" * MANY_BYTES)
        link.transport.finish()
        turns(link.loop)
        link.peer.shutdown(socket.SHUT_WR)
        turns(link.loop)

        assert link.transport.is_writing
        assert not link.loop._selector.select(0)
        thread, _ = drain_in_thread(link.peer, MANY_BYTES)
        link.until(lambda: not link.transport.is_writing)
        thread.join()
        assert link.side.closed == 1, "there is nothing more to wait for"


def test_finishing_waits_only_briefly_for_a_peer_that_does_not_close() -> None:
    clock = Clock()
    with linked(clock) as link:
        link.transport.finish()
        turns(link.loop)
        assert link.side.closed == 0
        clock.passed_s += 3
        turns(link.loop)

        assert link.side.closed == 1


def test_a_peer_that_never_reads_cannot_hold_a_finishing_connection() -> None:
    clock = Clock()
    with linked(clock) as link:
        owed = link.send(b"z" * MANY_BYTES)
        link.transport.finish()
        turns(link.loop)
        clock.passed_s += 21
        turns(link.loop)

        assert link.side.closed == 1
        assert owed.released_bytes == MANY_BYTES


def test_a_peer_that_reads_slowly_gets_all_before_a_finishing_connection_is_closed() -> None:
    clock = Clock()
    # So many that some wait all the time, however much the kernel takes.
    size_bytes = 4 * MANY_BYTES
    with linked(clock) as link:
        owed = link.send(b"z" * size_bytes)
        link.transport.finish()
        turns(link.loop)
        for _ in range(10):
            unseen_bytes = link.transport._output.unacknowledged_bytes
            received_bytes = len(receive(link.peer, MANY_BYTES // 8))
            link.until(partial(lambda before: link.transport._output.unacknowledged_bytes < before, unseen_bytes))
            clock.passed_s += 3
            turns(link.loop)
        assert not link.transport.is_closed
        rest_bytes = size_bytes - 10 * received_bytes
        thread, got = drain_in_thread(link.peer, rest_bytes)
        link.until(lambda: owed.released_bytes == size_bytes)
        thread.join()

        assert got == [b"z" * rest_bytes]
        assert has_ended(link.peer)


def test_a_peer_that_stops_reading_cannot_hold_a_finishing_connection() -> None:
    clock = Clock()
    with linked(clock) as link:
        link.send(b"z" * (4 * MANY_BYTES))
        link.transport.finish()
        turns(link.loop)
        unseen_bytes = link.transport._output.unacknowledged_bytes
        receive(link.peer, MANY_BYTES // 8)
        link.until(lambda: link.transport._output.unacknowledged_bytes < unseen_bytes)
        # Seen at the first of these, at the latest.
        for _ in range(3):
            clock.passed_s += 19
            turns(link.loop)

        assert link.side.closed == 1


@pytest.mark.parametrize("goes_on", [True, False], ids=["reads on", "stops"])
def test_finishing_waits_for_output_in_the_kernel_as_long_as_the_peer_reads(goes_on: bool) -> None:
    """A peer that is still uploading would lose it to the reset that closing causes."""
    clock = Clock()
    with linked(clock) as link:
        link.send(b"z" * MANY_BYTES)
        link.transport.finish()
        received_bytes = 0
        turns(link.loop)
        while not link.transport.is_output_ended:
            received_bytes += len(link.peer.recv(PIECE_BYTES))
            turns(link.loop)
        looks = 0
        while link.transport._output.unacknowledged_bytes > PIECE_BYTES and (goes_on or not looks):
            before = link.transport._output.unacknowledged_bytes
            while link.transport._output.unacknowledged_bytes >= before:
                received_bytes += len(link.peer.recv(PIECE_BYTES))
            clock.passed_s += 3
            turns(link.loop)
            looks += 1
            assert not link.transport.is_closed
        assert looks
        if goes_on:
            link.peer.sendall(b"and the upload goes on")
            rest_bytes = MANY_BYTES - received_bytes
            assert len(receive(link.peer, rest_bytes)) == rest_bytes
            assert has_ended(link.peer)
        for _ in range(3):
            clock.passed_s += 3
            turns(link.loop)
        assert link.side.closed == 1


def test_closing_a_broken_connection_does_not_notify_its_owner() -> None:
    with linked() as link:
        link.transport.pause_reading()
        link.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        link.peer.close()
        assert readable(link.transport._sock)
        owed = link.send(b"last words")
        link.transport.close()
        turns(link.loop)

        assert link.transport.is_closed
        assert owed.released_bytes == 10
        assert (link.side.error, link.side.closed) == (None, 0)


def test_closing_sends_what_the_socket_takes_and_ends_cleanly_without_a_callback() -> None:
    with linked() as link:
        owed = link.send(b"last words")
        link.transport.close()

        assert receive(link.peer, 10) == b"last words"
        assert has_ended(link.peer)
        assert owed.released_bytes == 10
        turns(link.loop)
        assert (link.side.error, link.side.closed, link.side.has_eof) == (None, 0, False)


def test_closing_returns_credit_for_what_the_socket_does_not_take() -> None:
    with linked() as link:
        owed = link.send(b"a" * MANY_BYTES)
        link.transport.close()

        assert owed.released_bytes == MANY_BYTES
        assert link.transport.is_closed


def test_aborting_resets_the_connection_and_returns_credit_without_a_callback() -> None:
    with linked() as link:
        sent = link.send(b"a" * MANY_BYTES)
        turns(link.loop)
        fresh = link.send(b"b")
        link.transport.abort()
        turns(link.loop)

        assert (sent.released_bytes, fresh.released_bytes) == (MANY_BYTES, 1)
        with pytest.raises(ConnectionResetError):
            receive(link.peer, MANY_BYTES)
        assert (link.side.error, link.side.closed, link.side.has_eof) == (None, 0, False)


def test_a_reset_by_the_peer_is_reported_as_an_error_and_returns_credit() -> None:
    with linked() as link:
        owed = link.send(b"a" * MANY_BYTES)
        turns(link.loop)
        reset(link.peer)
        link.until(lambda: link.side.error is not None)

        assert owed.released_bytes == MANY_BYTES
        assert link.transport.is_closed


def test_input_before_a_reset_is_delivered_when_sending_discovers_the_reset() -> None:
    with linked() as link:
        link.send(b"unread, so closing resets")
        turns(link.loop)
        link.peer.sendall(b"no more, please")
        link.peer.close()
        end_s = time.monotonic() + PATIENCE_S
        while link.side.error is None:
            assert time.monotonic() < end_s
            link.send(b"more")
            link.transport.flush()

        assert link.side.received == b"no more, please"
        assert not link.side.has_eof
        assert link.transport.is_closed


def test_an_eof_before_a_reset_is_delivered_when_sending_discovers_the_reset() -> None:
    """It ends a response without a length, from a server that closes during an upload."""
    with linked() as link:
        link.peer.sendall(b"no more, please")
        link.peer.shutdown(socket.SHUT_WR)
        reset(link.peer)
        wait_for_the_end_of(link.transport._sock)
        link.send(b"more")
        link.transport.flush()

        assert link.side.received == b"no more, please"
        assert link.side.has_eof
        assert link.transport.is_closed


def test_no_eof_is_delivered_when_sending_discovers_a_reset_without_one() -> None:
    with linked() as link:
        link.peer.sendall(b"no more, ple")
        reset(link.peer)
        wait_for_the_end_of(link.transport._sock)
        link.send(b"more")
        link.transport.flush()

        assert link.side.received == b"no more, ple"
        assert not link.side.has_eof
        assert link.side.error is not None


def test_input_before_a_reset_is_not_delivered_to_a_paused_reader() -> None:
    with linked() as link:
        link.transport.pause_reading()
        link.peer.sendall(b"too much already")
        reset(link.peer)
        end_s = time.monotonic() + PATIENCE_S
        while link.side.error is None:
            assert time.monotonic() < end_s
            link.send(b"more")
            link.transport.flush()

        assert not link.side.received


def test_a_paused_reader_that_wants_it_gets_the_rest_before_a_reset_when_it_resumes() -> None:
    with linked() as link:
        link.transport.reads_rest_before_loss = True
        link.transport.pause_reading()
        queued = link.send(b"z" * MANY_BYTES)
        turns(link.loop)
        assert link.transport.is_writing
        link.peer.sendall(b"no more, please")
        reset(link.peer)
        link.until(lambda: link.transport.is_output_ended)
        late = link.send(b"z" * MANY_BYTES)
        turns(link.loop)

        assert (queued.released_bytes, late.released_bytes) == (MANY_BYTES, MANY_BYTES)
        assert not link.side.output
        assert not link.transport.is_closed
        assert not link.side.received
        link.transport.resume_reading()
        turns(link.loop)
        assert link.side.received == b"no more, please"
        assert not link.side.has_eof
        assert link.side.error is not None


def test_a_reader_that_wants_the_rest_may_pause_again_before_and_within_it() -> None:
    with linked() as link:
        link.transport.reads_rest_before_loss = True
        link.transport.pause_reading()
        link.side.on_read = link.transport.pause_reading
        link.peer.sendall(b"no more, please")
        reset(link.peer)
        wait_for_the_end_of(link.transport._sock)
        link.send(b"more")
        link.transport.flush()
        link.transport.resume_reading()
        link.transport.pause_reading()
        turns(link.loop)
        assert not link.side.received
        link.transport.resume_reading()
        turns(link.loop)

        assert link.side.received == b"no more, please"
        assert link.side.error is None
        link.transport.resume_reading()
        turns(link.loop)
        assert link.side.error is not None


@pytest.mark.parametrize("end", [Transport.finish, Transport.close, Transport.abort])
def test_a_connection_that_broke_while_reading_was_paused_can_be_ended(end: Callable[[Transport], None]) -> None:
    with linked() as link:
        link.transport.reads_rest_before_loss = True
        link.transport.pause_reading()
        link.peer.sendall(b"no more, please")
        reset(link.peer)
        wait_for_the_end_of(link.transport._sock)
        link.send(b"more")
        link.transport.flush()
        end(link.transport)
        link.until(lambda: link.transport.is_closed)

        assert (link.side.error, bytes(link.side.received)) == (None, b"")


def test_a_loss_that_was_told_late_leaves_no_reference_cycle() -> None:
    with uncollected() as garbage:
        with linked() as link:
            link.transport.reads_rest_before_loss = True
            link.transport.pause_reading()
            reset(link.peer)
            wait_for_the_end_of(link.transport._sock)
            link.send(b"more")
            link.transport.flush()
            assert not link.transport.is_closed
            link.transport.resume_reading()
            turns(link.loop)
            assert link.side.error is not None
        del link

        assert not [each for each in garbage("proxy") if isinstance(each, Transport)]


def test_credit_for_output_to_a_closed_transport_is_returned() -> None:
    with linked() as link:
        link.transport.abort()
        owed = link.send(b"too late")
        turns(link.loop)

        assert owed.released_bytes == 8


def test_a_connection_that_the_kernel_does_not_watch_again_after_a_pause_is_lost() -> None:
    with linked() as link, watches_refused(Transport):
        link.transport.pause_reading()
        link.transport.resume_reading()
        assert link.side.error is None, "never from within a call of its owner"
        turns(link.loop)

        assert link.side.error is not None
        assert link.transport.is_closed


@pytest.mark.usefixtures("with_an_error")
def test_an_owner_that_raises_loses_its_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with linked() as link:
        other = Link(link.loop)

        def bug() -> None:
            raise ZeroDivisionError("a bug")

        link.side.on_read = bug
        link.peer.sendall(b"x")
        other.peer.sendall(b"x")
        link.until(lambda: link.side.error is not None and bool(other.side.received))
        other.close()

        assert isinstance(link.side.error, ConnectionAbortedError)
        assert "bug in the handler of a socket" in caplog.text


def test_a_creditor_may_abort_the_transport_while_its_credit_is_returned() -> None:
    class Aborter:
        released_bytes = 0

        def release(self, size_bytes: int) -> None:
            self.released_bytes += size_bytes
            link.transport.abort()

    with linked() as link:
        aborter = Aborter()
        link.side.output.append(b"ab")
        link.transport.owe(aborter, 1)
        link.transport.owe(aborter, 1)
        turns(link.loop)

        assert aborter.released_bytes == 2
        assert link.transport.is_closed


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    sock.close()


def test_queued_tiny_pieces_cost_little_more_than_their_bytes() -> None:
    with linked() as link:
        filling = link.send(bytes(MANY_BYTES))
        turns(link.loop)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        creditors = [Owed(), Owed()]
        for _ in range(10):
            for number in range(5000):
                link.side.output.append(b"%03x" % (number % 4096))
                link.transport.owe(creditors[number % 2], 3)
            turns(link.loop)
        held_bytes = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()

        assert held_bytes < 2 * 150_000
        thread, got = drain_in_thread(link.peer, MANY_BYTES + 150_000)
        link.until(lambda: all(owed.released_bytes == 75_000 for owed in creditors))
        thread.join()
        assert filling.released_bytes == MANY_BYTES
        assert got[0].endswith(b"".join(b"%03x" % (number % 4096) for number in range(5000)))
