"""Bodies to and from backends that speak HTTP/1.1: their ends, their credit, and bytes of another protocol."""

import fcntl
import os
import select
import termios
import threading
import time

import pytest

from proxy.backend.h1link import MAX_HELD_BYTES
from proxy.backend.stream import Reason
from proxy.loop import LITTLE_BYTES, unsent
from tests.proxy.backend.servers import OK, Conn, backend
from tests.proxy.backend.world import PATIENCE_S, Answer, Owed, one, world

LARGE_BYTES = 8 * 1024 * 1024


def pour(conn: Conn) -> None:
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % LARGE_BYTES)
    conn.send(b"x" * LARGE_BYTES)
    conn.wait_for_end()


def test_a_body_is_sent_and_its_credit_returned() -> None:
    def echo(conn: Conn) -> None:
        request = conn.request()
        assert request is not None
        body = request.partition(b"\r\n\r\n")[2]
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        conn.wait_for_end()

    with backend(echo) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", fields=[(b"content-length", b"11")], end_stream=False)
        assert answer.request is not None
        owed = Owed()
        assert answer.request.send_data(b"too early", False, owed) == 0
        w.until(lambda: answer.is_open_told == 1)
        assert answer.request.send_data(b"hello ", False, owed) == 6
        assert answer.request.send_data(b"world", True, owed) == 5
        w.until(lambda: answer.is_over)

        assert bytes(answer.body) == b"hello world"
        assert owed.released_bytes == 11


def test_a_body_without_a_length_is_sent_chunked_with_trailers() -> None:
    got: list[bytes] = []

    def take(conn: Conn) -> None:
        got.append(conn.read_until(b"\r\n\r\n"))
        if not got[0].endswith(b"0\r\nX-Sum: 1\r\n\r\n"):
            got.append(conn.read_until(b"0\r\nX-Sum: 1\r\n\r\n"))
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-done: yes\r\n\r\n")
        conn.serve()

    with backend(take) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", end_stream=False)
        request = answer.request
        assert request is not None
        w.until(lambda: answer.is_open_told == 1)
        request.send_data(b"abc", False, Owed())
        request.send_trailers([(b"x-sum", b"1")])
        w.until(lambda: answer.is_over)

        assert b"Transfer-Encoding: chunked" in b"".join(got)
        assert answer.trailers == [(b"x-done", b"yes")]
        assert (w.backend().in_flight, w.fetch().status_code, peer.connections) == (0, 200, 1)


@pytest.mark.parametrize("with_trailers", [True, False], ids=["with trailers", "without"])
def test_the_end_of_a_body_is_sent_as_soon_as_it_is_known(with_trailers: bool) -> None:
    has_body = threading.Event()
    end = b"0\r\nX-Sum: 1\r\n\r\n" if with_trailers else b"0\r\n\r\n"

    def take(conn: Conn) -> None:
        conn.read_until(b"3\r\nabc\r\n")
        has_body.set()
        conn.read_until(end)
        conn.send(OK)
        conn.serve()

    with backend(take) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", end_stream=False)
        request = answer.request
        assert request is not None
        w.until(lambda: answer.is_open_told == 1)
        request.send_data(b"abc", False, Owed())
        w.until(has_body.is_set)
        w.turns()
        if with_trailers:
            request.send_trailers([(b"x-sum", b"1")])
        else:
            request.send_data(b"", True, Owed())
        w.until(lambda: answer.is_over)

        assert answer.status_code == 200


@pytest.mark.parametrize("holds", [False, True])
def test_tiny_chunks_of_a_large_read_are_delivered_over_many_turns(holds: bool) -> None:
    """All those of one read at once would block all others for a tenth of a second."""
    count = 8_000

    def dribble(conn: Conn) -> None:
        for _ in range(2):
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * count + b"0\r\n\r\n")
        conn.wait_for_end()

    with backend(dribble) as peer, world() as w:
        w.use(one(peer.address))
        for _ in range(2):
            answer = w.get(holds=holds)

            assert w.most_in_a_turn(answer) <= 2_000
            assert bytes(answer.body) == b"a" * count
        assert w.backend().connections_opened == 1


def test_a_response_cancelled_among_its_chunks_closes_its_connection() -> None:
    def dribble(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 8_000)
        conn.wait_for_end()

    with backend(dribble) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get()
        w.until(lambda: len(answer.body) > 0)
        assert answer.request is not None
        answer.request.cancel()
        taken_bytes = len(answer.body)

        w.until(lambda: w.backend().connections == 0)
        w.turns()
        assert len(answer.body) == taken_bytes


def test_a_response_delimited_by_close_is_complete() -> None:
    def close(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    with backend(close) as peer, world() as w:
        w.use(one(peer.address))
        assert bytes(w.fetch().body) == b"all of it"
        w.until(lambda: w.backend().connections == 0)


def test_a_response_to_half_a_request_ends_both_and_the_connection() -> None:
    def refuse(conn: Conn) -> None:
        conn.read_until(b"\r\n\r\n")
        conn.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
        conn.wait_for_end()

    with backend(refuse) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", fields=[(b"content-length", b"1000000")], end_stream=False)
        w.until(lambda: answer.is_over)
        request = answer.request
        assert request is not None
        owed = Owed()

        assert answer.status_code == 413
        assert request.send_data(b"x" * 1000, False, owed) == 1000
        assert owed.released_bytes == 1000
        w.until(lambda: w.backend().connections == 0)


@pytest.mark.parametrize("is_sent_whole", [False, True], ids=["still sending", "sent"])
def test_a_slow_reader_gets_a_whole_early_response_even_if_the_backend_then_resets(is_sent_whole: bool) -> None:
    """Backends that close with unread upload data do so; our kernel has the whole response by then."""
    may_end = threading.Event()
    has_ended = threading.Event()
    held_bytes = 257 * 1024
    body_bytes = held_bytes + 16 * 1024

    def refuse(conn: Conn) -> None:
        if conn.place:
            conn.serve()
            return
        conn.read_until(b"\r\n\r\n")
        conn.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: %d\r\n\r\n" % body_bytes + b"x" * held_bytes)
        may_end.wait(PATIENCE_S)
        conn.send(b"x" * (body_bytes - held_bytes))
        end_s = time.monotonic() + PATIENCE_S
        while any(fcntl.ioctl(conn.sock, termios.TIOCOUTQ, bytes(4))):
            assert time.monotonic() < end_s
            os.sched_yield()
        conn.reset()
        has_ended.set()

    with backend(refuse) as peer, world() as w:
        w.use(one(peer.address))
        fields = [(b"content-length", b"%d" % LARGE_BYTES)]
        answer = w.get(method=b"POST", fields=fields, end_stream=False, holds=True)
        request = answer.request
        assert request is not None
        w.until(lambda: answer.held_bytes == held_bytes)
        w.turns()
        may_end.set()
        assert has_ended.wait(PATIENCE_S)
        owed = Owed()
        sent_bytes = LARGE_BYTES if is_sent_whole else LARGE_BYTES // 2
        request.send_data(b"u" * (sent_bytes // 2), False, owed)
        w.turns()
        request.send_data(b"u" * (sent_bytes // 2), is_sent_whole, owed)
        w.turns()

        assert answer.failure is None
        assert owed.released_bytes == sent_bytes
        answer.holds = False
        answer.release()
        w.until(lambda: answer.is_over)
        assert (answer.failure, len(answer.body)) == (None, body_bytes)
        assert w.fetch(method=b"POST").status_code == 200
        w.until(lambda: w.backend().in_flight == 0)


def test_a_connection_that_broke_before_its_response_was_read_is_not_reused() -> None:
    has_ended = threading.Event()
    # A thousand are delivered per turn, and as many before the end of the request is sent.
    chunks = b"1\r\na\r\n" * 2500 + b"0\r\n\r\n"

    def answer_and_break(conn: Conn) -> None:
        if conn.place:
            conn.serve()
            return
        conn.read_until(b"\r\n\r\n")
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
        conn.reset()
        has_ended.set()

    with backend(answer_and_break) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", fields=[(b"content-length", b"4")], end_stream=False)
        request = answer.request
        assert request is not None
        nexts: list[Answer] = []
        answer.on_end = lambda: nexts.append(w.get(method=b"POST"))
        w.until(lambda: answer.is_open_told == 1)
        w.turns()
        assert has_ended.wait(PATIENCE_S)
        request.send_data(b"last", True, Owed())
        w.until(lambda: bool(nexts) and nexts[0].is_over)

        assert len(answer.body) == 2500
        assert (nexts[0].failure, peer.connections) == (None, 2)


def test_a_reader_that_holds_bytes_pauses_and_resumes_the_backend() -> None:
    sent = [0]
    has_sent_all = threading.Event()

    def pour(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % LARGE_BYTES)
        while sent[0] < LARGE_BYTES:
            sent[0] += conn.sock.send(b"x" * 65536)
        has_sent_all.set()
        conn.wait_for_end()

    with backend(pour) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(holds=True)
        w.until(lambda: answer.held_bytes > 256 * 1024)
        w.turns(50)
        held_bytes = answer.held_bytes

        assert held_bytes <= 2 * 256 * 1024
        assert not has_sent_all.is_set()
        answer.holds = False
        answer.release()
        w.until(lambda: answer.is_over)
        assert len(answer.body) == LARGE_BYTES
        # The connection reads again for the next one.
        assert w.get().request is not None


def test_a_reader_that_takes_a_response_in_small_pieces_does_not_make_more_of_it_wait() -> None:
    """Reading takes far more than such a piece, so it goes on once no more than half of what may wait is left."""
    with backend(pour) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(holds=True)
        assert answer.request is not None
        w.until(lambda: answer.held_bytes > 256 * 1024)
        w.turns(50)
        received_bytes = len(answer.body)
        many = received_bytes - 20 * 1024 - MAX_HELD_BYTES * 3 // 4
        for size_bytes in [*20 * [1024], many]:
            answer.request.release(size_bytes)
            w.turns(2)
        assert len(answer.body) == received_bytes

        answer.request.release(MAX_HELD_BYTES * 3 // 4)
        w.until(lambda: len(answer.body) > received_bytes)
        answer.request.cancel()


def test_little_of_a_response_is_held_while_much_waits_for_all_clients() -> None:
    with backend(pour) as peer, world() as w:
        w.use(one(peer.address))
        w.loop.unsent.size_bytes = unsent.LARGE_BYTES + 1
        w.turns(1)
        answer = w.get(holds=True)
        w.until(lambda: answer.held_bytes > LITTLE_BYTES)
        w.turns(50)
        held_bytes = answer.held_bytes

        assert held_bytes <= 2 * LITTLE_BYTES
        answer.release()
        w.until(lambda: answer.held_bytes > LITTLE_BYTES)
        assert answer.held_bytes <= 2 * LITTLE_BYTES
        w.loop.unsent.size_bytes = 0
        answer.holds = False
        answer.release()
        w.until(lambda: answer.is_over)
        assert len(answer.body) == LARGE_BYTES


def test_a_response_that_was_paused_and_resumed_can_be_paused_again() -> None:
    with backend(pour) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(holds=True)
        for _ in range(2):
            w.until(lambda: answer.held_bytes > 256 * 1024)
            w.turns(50)

            assert answer.held_bytes <= 2 * 256 * 1024
            answer.release()
        assert answer.request is not None
        answer.request.cancel()


def test_credit_of_the_sender_is_withheld_while_the_backend_is_slow() -> None:
    go_on = threading.Event()

    has_head = threading.Event()

    def slow(conn: Conn) -> None:
        conn.read_until(b"\r\n\r\n")
        has_head.set()
        go_on.wait(10)
        left = LARGE_BYTES
        while left:
            left -= len(conn.sock.recv(65536))
        conn.send(OK)
        conn.wait_for_end()

    with backend(slow) as peer, world() as w:
        w.use(one(peer.address))
        length = b"%d" % LARGE_BYTES
        answer = w.get(method=b"PUT", fields=[(b"content-length", length)], end_stream=False)
        w.until(lambda: answer.is_open_told == 1)
        request = answer.request
        assert request is not None
        w.until(has_head.is_set)
        owed = Owed()
        assert request.send_data(b"x" * LARGE_BYTES, True, owed) == LARGE_BYTES
        w.turns(20)
        assert owed.released_bytes == 0
        go_on.set()
        w.until(lambda: answer.is_over)

        assert owed.released_bytes == LARGE_BYTES


def test_a_body_longer_than_its_content_length_fails_only_its_request() -> None:
    def swallow(conn: Conn) -> None:
        if conn.place:
            conn.serve()
        else:
            conn.wait_for_end()

    with backend(swallow) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"PUT", fields=[(b"content-length", b"1")], end_stream=False)
        w.until(lambda: answer.is_open_told == 1)
        owed = Owed()
        assert answer.request is not None
        assert answer.request.send_data(b"too long", True, owed) == 8

        assert owed.released_bytes == 8
        assert answer.failure is not None
        assert answer.failure.reason is Reason.UNSENDABLE
        assert w.fetch().status_code == 200


def test_after_a_switch_cancelling_a_half_closed_request_resets_the_connection() -> None:
    """The backend may still send, and has seen our FIN already: it would not notice the cancellation otherwise."""
    told: list[str] = []

    def listen(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
        conn.wait_for_end()
        told.append("end")
        gone = select.poll()
        gone.register(conn.sock, select.POLLHUP)
        told.extend("reset" for _ in gone.poll(1000 * PATIENCE_S))

    with backend(listen) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(protocol=b"websocket", fields=[(b"sec-websocket-key", b"x")])
        w.until(lambda: answer.head is not None)
        assert answer.request is not None
        answer.request.send_data(b"", True, Owed())
        w.until(lambda: told == ["end"])
        answer.request.cancel()
        w.until(lambda: told == ["end", "reset"])


def test_after_a_switch_of_protocols_bytes_pass_both_ways_until_both_sides_have_ended() -> None:
    def chat(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhi")
        conn.read_until(b"ping")
        conn.send(b"pong")
        # Our end of output reaches the backend, which still has something to say.
        conn.wait_for_end()
        conn.send(b"bye")

    with backend(chat) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(protocol=b"websocket", fields=[(b"sec-websocket-key", b"x")])
        w.until(lambda: bytes(answer.body) == b"hi")
        request = answer.request
        assert request is not None
        owed = Owed()
        assert request.send_data(b"ping", False, owed) == 4
        w.until(lambda: bytes(answer.body) == b"hipong")
        assert owed.released_bytes == 4
        request.send_data(b"", True, owed)
        w.until(lambda: answer.is_over)

        assert answer.has_ended
        assert bytes(answer.body) == b"hipongbye"
        w.until(lambda: w.backend().connections == 0)
