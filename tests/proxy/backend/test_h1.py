"""Backends that speak HTTP/1.1: their responses, and whether the connection is kept."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy import document
from proxy.backend.stream import Reason, Wish
from tests.proxy.backend.servers import OK, Conn, backend, dead_port, of
from tests.proxy.backend.world import PATIENCE_S, Owed, one, world

CHUNKED_OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def test_requests_share_a_kept_connection() -> None:
    with backend() as peer, world() as w:
        w.use(one(peer.address))
        answers = [w.fetch() for _ in range(3)]

        assert [(a.status_code, bytes(a.body)) for a in answers] == [(200, b"ok")] * 3
        assert peer.connections == 1
        stats = w.backend()
        assert (stats.requests, stats.in_flight, stats.connections, stats.connections_opened) == (3, 0, 1, 1)


def test_a_kept_connection_is_open_at_once_and_a_new_one_notifies_when_it_is() -> None:
    with backend() as peer, world() as w:
        w.use(one(peer.address))
        first = w.get()
        assert first.request is not None
        assert (first.request.is_open, first.request.address) == (False, peer.address)
        w.until(lambda: first.is_over)
        assert first.is_open_told == 1
        second = w.get()
        assert second.request is not None

        assert second.request.is_open
        w.until(lambda: second.is_over)
        assert second.is_open_told == 0


def test_concurrent_requests_have_separate_connections() -> None:
    together = threading.Barrier(3, timeout=10)

    def meet(conn: Conn) -> None:
        conn.request()
        together.wait()
        conn.send(OK)
        conn.serve()

    with backend(meet) as peer, world() as w:
        w.use(one(peer.address))
        answers = [w.get() for _ in range(3)]
        w.until(lambda: all(a.is_over for a in answers))
        again = [w.get() for _ in range(3)]
        w.until(lambda: all(a.is_over for a in again))

        assert all(a.status_code == 200 for a in answers + again)
        assert peer.connections == 3


def test_the_most_recently_used_connection_is_used_first() -> None:
    def serve(conn: Conn) -> None:
        conn.serve(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % conn.place)

    with backend(serve) as peer, world() as w:
        w.use(one(peer.address))
        both = [w.get(), w.get()]
        ended: list[bytes] = []
        for answer in both:
            answer.on_end = lambda answer=answer: ended.append(bytes(answer.body))
        w.until(lambda: len(ended) == 2)

        assert bytes(w.fetch().body) == ended[-1]


def test_interim_responses_are_delivered_before_the_final_one() -> None:
    def hint(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
        conn.wait_for_end()

    with backend(hint) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.fetch()

        assert (answer.interim, answer.status_code) == ([103], 204)


def test_a_refused_connection_fails_as_refused_and_unprocessed() -> None:
    with world() as w:
        w.use(one(f"127.0.0.1:{dead_port()}"))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.REFUSED, True, False)
        assert w.backend().failures == {"refused": 1}
        assert (w.backend().in_flight, w.backend().connections) == (0, 0)


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 O", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegin"])
def test_a_request_on_a_new_connection_that_breaks_may_have_been_processed(way: str, sent: bytes) -> None:
    def break_off(conn: Conn) -> None:
        conn.request()
        conn.send(sent)
        if way == "reset":
            conn.reset()

    with backend(break_off) as peer, world() as w:
        w.use(one(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.RESET, False, False)
        assert peer.address in failure.detail
        assert w.backend().connections == 0


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_kept_connection_that_breaks_before_a_response_is_reported_as_reused(way: str) -> None:
    def once(conn: Conn) -> None:
        conn.request()
        conn.send(OK)
        conn.request()
        if way == "reset":
            conn.reset()

    with backend(once) as peer, world() as w:
        w.use(one(peer.address))
        assert w.fetch().status_code == 200
        failure = w.fetch().failure
        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.RESET, False, True)
        # Kept connections break again and again: a new one is requested.
        assert w.fetch(wish=Wish(needs_new_connection=True)).status_code == 200

        assert peer.connections == 2


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_connection_kept_before_its_first_request_is_reported_as_reused_too(way: str) -> None:
    """The request that it was opened for was cancelled, or took another connection that became free."""

    def break_off(conn: Conn) -> None:
        conn.request()
        if way == "reset":
            conn.reset()

    policy = document.PassiveHealth(consecutive_failures=1, max_ejected_percent=100)
    with backend(break_off) as peer, world() as w:
        w.use(of(peer, passive_health=policy))
        request = w.get().request
        assert request is not None
        request.cancel()
        w.until(lambda: w.backend().connections == 1)
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.RESET, False, True)
        assert (peer.connections, w.backend().ejected) == (1, 0)


def test_a_kept_connection_that_breaks_within_a_response_is_not_reported_as_reused() -> None:
    def once(conn: Conn) -> None:
        conn.request()
        conn.send(OK)
        conn.request()
        conn.send(b"HTTP/1.1 200")

    with backend(once) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch()
        failure = w.fetch().failure

        assert failure is not None
        assert not failure.was_reused


def test_a_request_that_needs_a_new_connection_does_not_get_a_kept_one() -> None:
    with backend() as peer, world() as w:
        w.use(one(peer.address))
        w.fetch()
        w.fetch(wish=Wish(needs_new_connection=True))

        assert peer.connections == 2


def says_unasked(words: bytes, go_on: threading.Event) -> Callable[[Conn], None]:
    """Sends `words` on its first connection while that is idle; if empty, closes it."""

    def serve(conn: Conn) -> None:
        conn.request()
        conn.send(OK)
        is_first = conn.place == 0
        if is_first:
            go_on.wait(10)
            conn.send(words)
        if words or not is_first:
            conn.wait_for_end()

    return serve


@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"])
def test_an_idle_connection_that_ends_or_receives_unsolicited_data_is_not_reused(unasked: bytes) -> None:
    go_on = threading.Event()
    with backend(says_unasked(unasked, go_on)) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch()
        go_on.set()
        w.until(lambda: w.backend().connections == 0)

        assert bytes(w.fetch().body) == b"ok"
        assert peer.connections == 2


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_unsolicited_data_is_not_taken_for_the_response_to_the_next_request(method: bytes) -> None:
    """Such as a 408 from a server whose idle timeout has expired."""
    go_on = threading.Event()
    unasked = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 4\r\n\r\nevil"
    with backend(says_unasked(unasked, go_on)) as peer, world() as w:
        w.use(one(peer.address))
        w.fetch()
        go_on.set()
        # It has arrived, but the loop has not read it.
        assert w.loop._selector.select(PATIENCE_S)
        failure = w.fetch(method=method).failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.RESET, True, True)
        assert bytes(w.fetch(wish=Wish(needs_new_connection=True)).body) == b"ok"
        assert peer.connections == 2


def test_data_after_a_response_closes_the_connection_and_is_dropped() -> None:
    def twice(conn: Conn) -> None:
        conn.request()
        conn.send(OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
        conn.wait_for_end()

    with backend(twice) as peer, world() as w:
        w.use(one(peer.address))
        assert [bytes(w.fetch().body) for _ in range(2)] == [b"ok", b"ok"]
        assert peer.connections == 2


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\x03",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        CHUNKED_OK + b"zz\r\n",
    ],
)
def test_a_response_that_is_not_http_is_a_protocol_failure(garbage: bytes) -> None:
    def babble(conn: Conn) -> None:
        conn.request()
        conn.send(garbage)
        conn.wait_for_end()

    with backend(babble) as peer, world() as w:
        w.use(one(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.PROTOCOL, False)
        assert w.backend().connections == 0


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 257 + b"\r\n", "257 fields, want at most 256"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 65_536 + b"\r\n\r\n", "head larger than 65536 bytes"),
        (CHUNKED_OK + b"0\r\n" + b"x: y\r\n" * 257 + b"\r\n", "257 trailer fields, want at most 256"),
        (CHUNKED_OK + b"0\r\nx: " + b"y" * 16_384 + b"\r\n\r\n", "trailers larger than 16384 bytes"),
    ],
    ids=["many fields", "large head", "many trailers", "large trailers"],
)
def test_too_many_fields_are_distinguished_from_invalid_http(answer: bytes, detail: str) -> None:
    def boast(conn: Conn) -> None:
        conn.request()
        conn.send(answer)
        conn.wait_for_end()

    with backend(boast) as peer, world() as w:
        w.use(one(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.FIELDS_TOO_LARGE, False)
        assert failure.detail.endswith(detail)
        assert not failure.blames_address
        assert w.backend().failures == {"fields_too_large": 1}


def test_cancelling_closes_the_connection_without_a_callback() -> None:
    gone = threading.Event()

    def stall(conn: Conn) -> None:
        conn.request()
        conn.wait_for_end()
        gone.set()

    with backend(stall) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get()
        w.until(lambda: answer.is_open_told == 1)
        assert answer.request is not None
        w.turns()
        answer.request.cancel(timed_out=True)
        w.until(gone.is_set)

        assert not answer.is_over
        assert (w.backend().in_flight, w.backend().connections) == (0, 0)
        assert w.backend().failures == {"timeout": 1}


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 102 Processing\r\n\r\n"], ids=["silent", "speaking first"])
def test_a_complete_request_that_is_cancelled_is_sent_before_its_connection_closes(said: bytes) -> None:
    """TLS servers send first: their tickets. A closed socket would then reset, and the rest would be lost."""
    body = bytes(1_000_000)
    is_cancelled = threading.Event()
    taken: list[bytes | None] = []

    def take_late(conn: Conn) -> None:
        assert is_cancelled.wait(PATIENCE_S)
        conn.send(said)
        taken.extend((conn.request(), conn.request()))

    with backend(take_late) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", fields=[(b"content-length", b"%d" % len(body))], end_stream=False)
        request = answer.request
        assert request is not None
        w.until(lambda: answer.is_open_told == 1)
        owed = Owed()
        request.send_data(body, True, owed)
        w.until(lambda: owed.released_bytes == len(body))
        request.cancel()
        assert (w.backend().in_flight, w.backend().connections) == (0, 1)
        is_cancelled.set()
        w.until(lambda: len(taken) == 2)

        whole, end = taken
        assert whole is not None
        assert whole.endswith(b"\r\n\r\n" + body)
        assert end is None
        w.until(lambda: w.backend().connections == 0)


def test_a_request_that_trailers_ended_is_sent_before_its_connection_closes_if_it_is_cancelled() -> None:
    is_cancelled = threading.Event()
    taken: list[bytes] = []

    def take_late(conn: Conn) -> None:
        assert is_cancelled.wait(PATIENCE_S)
        taken.append(conn.read_until(b"\r\n0\r\nX-Sum: 1\r\n\r\n"))

    with backend(take_late) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", end_stream=False)
        request = answer.request
        assert request is not None
        w.until(lambda: answer.is_open_told == 1)
        owed = Owed()
        request.send_data(bytes(1_000_000), False, owed)
        request.send_trailers([(b"x-sum", b"1")])
        w.until(lambda: owed.released_bytes == 1_000_000)
        request.cancel()
        is_cancelled.set()
        w.until(lambda: bool(taken))

        w.until(lambda: w.backend().connections == 0)


def test_cancelling_during_an_upload_resets_the_connection() -> None:
    """The rest will never come, so nothing that is still on its way is of use."""
    is_cancelled = threading.Event()
    told: list[str] = []

    def read_late(conn: Conn) -> None:
        assert is_cancelled.wait(PATIENCE_S)
        try:
            while conn.sock.recv(65_536):
                pass
            told.append("closed")
        except ConnectionResetError:
            told.append("reset")

    with backend(read_late) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get(method=b"POST", fields=[(b"content-length", b"2000000")], end_stream=False)
        request = answer.request
        assert request is not None
        w.until(lambda: answer.is_open_told == 1)
        request.send_data(bytes(1_000_000), False, Owed())
        w.turns()
        request.cancel()
        is_cancelled.set()
        w.until(lambda: bool(told))

        assert told == ["reset"]
        assert (w.backend().in_flight, w.backend().connections) == (0, 0)


def test_cancelling_during_a_response_resets_the_connection() -> None:
    """A backend that only writes, perhaps a line per minute, would notice a FIN two lines later."""
    told: list[str] = []

    def answer_for_ever(conn: Conn) -> None:
        conn.request()
        conn.send(CHUNKED_OK)
        try:
            told.append(repr(conn.sock.recv(1)))
        except ConnectionResetError:
            told.append("reset")

    with backend(answer_for_ever) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get()
        w.until(lambda: answer.head is not None)
        assert answer.request is not None
        answer.request.cancel()
        w.until(lambda: bool(told))

        assert told == ["reset"]


def test_cancelling_within_a_callback_ends_the_callbacks() -> None:
    def answer_all(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok")
        conn.wait_for_end()

    with backend(answer_all) as peer, world() as w:
        w.use(one(peer.address))
        answer = w.get()
        request = answer.request
        assert request is not None
        answer.on_head = request.cancel
        w.until(lambda: answer.head is not None)
        w.turns()

        assert not answer.body
        assert not answer.is_over


def test_calls_after_the_end_are_ignored_and_return_credit() -> None:
    with backend() as peer, world() as w:
        w.use(one(peer.address))
        answer = w.fetch()
        request = answer.request
        assert request is not None
        owed = Owed()
        request.cancel()
        request.send_trailers([])
        request.release(100)

        assert request.send_data(b"late", True, owed) == 4
        assert owed.released_bytes == 4
        assert w.fetch().status_code == 200
        assert peer.connections == 1


@pytest.mark.parametrize("fields", [[(b"bad name", b"x")], [(b"x", b"line\r\nbreak")], [(b"content-length", b"5")]])
def test_a_request_that_cannot_be_sent_fails_asynchronously_and_keeps_its_connection(
    fields: list[tuple[bytes, bytes]],
) -> None:
    with backend() as peer, world() as w:
        w.use(one(peer.address))
        w.fetch()
        answer = w.get(fields=fields)
        assert not answer.is_over
        w.until(lambda: answer.is_over)

        assert answer.failure is not None
        assert (answer.failure.reason, answer.failure.is_unprocessed) == (Reason.UNSENDABLE, True)
        assert ": request that cannot be sent: " in answer.failure.detail
        assert w.fetch().status_code == 200
        assert peer.connections == 1
        assert w.backend().in_flight == 0


def test_an_unused_connection_is_closed_after_the_idle_timeout() -> None:
    with backend() as peer, world() as w:
        w.use(one(peer.address), backend_idle_timeout="30s")
        w.fetch()
        w.pass_time(20)
        w.fetch()
        w.pass_time(20)
        assert w.backend().connections == 1
        w.pass_time(11)

        assert w.backend().connections == 0


def test_a_request_that_outlasts_the_idle_timeout_of_its_kept_connection_is_answered() -> None:
    may_answer = threading.Event()

    def answer_late(conn: Conn) -> None:
        conn.request()
        conn.send(OK)
        conn.request()
        assert may_answer.wait(PATIENCE_S)
        conn.send(OK)
        conn.wait_for_end()

    with backend(answer_late) as peer, world() as w:
        w.use(one(peer.address), backend_idle_timeout="30s")
        w.fetch()
        answer = w.get()
        w.pass_time(31)
        may_answer.set()
        w.until(lambda: answer.is_over)

        assert (answer.failure, answer.status_code, peer.connections) == (None, 200, 1)


def keeping(seconds: bytes) -> bytes:
    return OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: timeout=%b\r\n\r\n" % seconds)


@pytest.mark.parametrize(
    ("announced_s", "used_for_s"), [(b"1", 0.5), (b"2", 1), (b"5", 4), (b"60", 30), (b"999999999", 30), (b"soon", 30)]
)
def test_an_idle_connection_is_closed_before_the_keep_alive_timeout_and_by_the_idle_timeout(
    announced_s: bytes, used_for_s: float
) -> None:
    with backend(lambda conn: conn.serve(keeping(announced_s))) as peer, world() as w:
        w.clock.stop()
        w.use(one(peer.address), backend_idle_timeout="30s")
        for _ in range(2):
            w.fetch(method=b"POST")
            w.pass_time(used_for_s - 0.1)
        assert (peer.connections, w.backend().connections) == (1, 1)
        w.pass_time(0.2)

        assert w.backend().connections == 0


def test_a_connection_with_a_keep_alive_timeout_of_0_is_used_once_even_if_others_wait() -> None:
    with backend(lambda conn: conn.serve(keeping(b"0"))) as peer, world() as w:
        w.use(document.Backend(name="b", addresses=(peer.address,), circuit=document.Circuit(max_connections=1)))
        answers = [w.get() for _ in range(3)]
        w.until(lambda: all(answer.is_over for answer in answers))

        assert [answer.status_code for answer in answers] == [200] * 3
        assert peer.connections == 3


def test_a_keep_alive_timeout_applies_until_the_backend_sends_another() -> None:
    def vary(conn: Conn) -> None:
        for answer in (keeping(b"20"), OK, keeping(b"5")):
            conn.request()
            conn.send(answer)
        conn.wait_for_end()

    with backend(vary) as peer, world() as w:
        w.clock.stop()
        w.use(one(peer.address))
        for used_for_s in (18.9, 18.9, 3.9):
            w.fetch()
            w.pass_time(used_for_s)
        assert (peer.connections, w.backend().connections) == (1, 1)
        w.pass_time(0.2)

        assert w.backend().connections == 0


def ending_when(may_end: threading.Event) -> Callable[[Conn], None]:
    """Keeps back the last byte of a response whose keep-alive timeout is 5 s."""

    def serve(conn: Conn) -> None:
        conn.request()
        conn.send(keeping(b"5")[:-1])
        assert may_end.wait(PATIENCE_S)
        conn.send(keeping(b"5")[-1:])
        conn.wait_for_end()

    return serve


def test_the_keep_alive_timeout_counts_from_the_head_of_the_response() -> None:
    """The backend may have sent the end long before it is read, if a slow client delayed the rest."""
    may_end = threading.Event()
    with backend(ending_when(may_end)) as peer, world() as w:
        w.clock.stop()
        w.use(one(peer.address))
        answer = w.get()
        w.until(lambda: bool(answer.body))
        w.pass_time(3)
        may_end.set()
        w.until(lambda: answer.is_over)
        w.pass_time(0.9)
        assert w.backend().connections == 1
        w.pass_time(0.2)

        assert w.backend().connections == 0


def test_a_connection_whose_keep_alive_timeout_expires_during_a_response_is_closed_after_it() -> None:
    may_end = threading.Event()
    with backend(ending_when(may_end)) as peer, world() as w:
        w.clock.stop()
        w.use(one(peer.address))
        answer = w.get()
        w.until(lambda: bool(answer.body))
        w.pass_time(4.1)
        assert w.backend().connections == 1
        may_end.set()
        w.until(lambda: answer.is_over)

        assert (answer.status_code, bytes(answer.body)) == (200, b"ok")
        assert w.backend().connections == 0


def test_a_keep_alive_timeout_does_not_extend_the_maximum_age() -> None:
    with backend(lambda conn: conn.serve(keeping(b"900"))) as peer, world() as w:
        w.use(one(peer.address), backend_idle_timeout="0s")
        w.fetch()
        w.pass_time(599)
        w.fetch()
        assert (peer.connections, w.backend().connections) == (1, 1)
        w.pass_time(2)

        assert w.backend().connections == 0


def test_an_old_connection_is_closed_after_its_request() -> None:
    may_answer = threading.Event()

    def slowly(conn: Conn) -> None:
        conn.request()
        assert may_answer.wait(10)
        conn.send(OK)
        conn.wait_for_end()

    with backend(slowly) as peer, world() as w:
        w.use(one(peer.address), backend_idle_timeout="0s")
        answer = w.get()
        w.until(lambda: answer.is_open_told == 1)
        w.pass_time(601)
        assert w.backend().connections == 1
        may_answer.set()
        w.until(lambda: answer.is_over)

        assert answer.status_code == 200
        assert w.backend().connections == 0


def test_an_old_connection_gets_no_request_however_recently_it_was_used() -> None:
    with backend() as peer, world() as w:
        w.use(one(peer.address), backend_idle_timeout="0s")
        w.fetch()
        w.pass_time(599)
        w.fetch()
        assert peer.connections == 1
        w.pass_time(2)
        assert w.backend().connections == 0
        w.fetch()

        assert peer.connections == 2


def test_fifty_rounds_leak_no_descriptor() -> None:
    def vary(conn: Conn) -> None:
        if conn.place % 3 == 0:
            conn.serve()
        elif conn.place % 3 == 1:
            conn.reset()

    with backend(vary) as peer:
        before = open_descriptors()
        for _ in range(50):
            with world() as w:
                w.use(one(peer.address))
                w.fetch()
        peer.close()

        assert open_descriptors() <= before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_closing_with_running_requests_makes_no_callback_and_refuses_later_ones() -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.use(one(peer.address))
        answers = [w.get() for _ in range(3)]
        w.until(lambda: sum(a.is_open_told for a in answers) == 3)
        waiting = w.get()
        w.pools.close()
        w.turns()
        assert not any(a.is_over for a in [*answers, waiting])
        assert (w.backend().in_flight, w.backend().connections) == (0, 0)
        failure = w.fetch().failure

        assert failure is not None
        assert failure.reason is Reason.STOPPING
