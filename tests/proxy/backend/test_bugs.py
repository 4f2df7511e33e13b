"""A receiver that raises, a bug of ours: only its own request fails, even on a shared connection."""

import contextlib
from collections.abc import Iterator

import h2.events
import h2.exceptions
import pytest

from proxy import document
from proxy.backend.connectionpool import ConnectionPool
from proxy.backend.h2link import H2Link
from tests.proxy.backend.h2peer import H2Peer, answers, h2c, speaks
from tests.proxy.backend.servers import Behaviour, Conn, backend, dead_port, of
from tests.proxy.backend.world import Answer, World, one, world


@pytest.fixture(autouse=True)
def one_bug(with_an_error: None, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """It is logged once."""
    yield
    (bug,) = [record for record in caplog.get_records("call") if record.levelname == "ERROR"]
    assert bug.getMessage() == "bug in the handling of a response"


def stumble() -> None:
    raise ZeroDivisionError


def clumsy(w: World) -> Answer:
    answer = w.get()
    answer.on_head = stumble
    return answer


def answers_whole(conn: Conn) -> None:
    conn.serve()


def answers_in_pieces(conn: Conn) -> None:
    while conn.request():
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
        conn.send(b"ok")


@pytest.mark.parametrize("behave", [answers_whole, answers_in_pieces], ids=lambda behave: behave.__name__)
def test_a_receiver_that_raises_over_http1_loses_its_connection_too(behave: Behaviour) -> None:
    with backend(behave) as peer, world() as w:
        w.use(of(peer))
        answer = clumsy(w)
        w.until(lambda: answer.had_bug)
        w.turns()

        assert not answer.body
        assert w.backend().in_flight == 0
        assert w.fetch().status_code == 200


def test_a_receiver_that_raises_over_http2_does_not_affect_others_on_the_connection() -> None:
    with backend(speaks()) as peer, world() as w:
        w.use(h2c(peer.address))
        before, answer, after = w.get(), clumsy(w), w.get()
        w.until(lambda: answer.had_bug and before.is_over and after.is_over)

        assert (before.status_code, after.status_code) == (200, 200)
        assert (w.backend().in_flight, w.backend().connections) == (0, 1)
        assert w.fetch().status_code == 200
        assert peer.connections == 1


@pytest.mark.parametrize("with_trailers", [False, True], ids=["in the body", "in trailers"])
def test_a_receiver_that_raises_at_the_end_of_a_response_over_http2_is_told(*, with_trailers: bool) -> None:
    def answer_in_pieces(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
            peer.h2.send_data(event.stream_id, b"ok", end_stream=not with_trailers)
            if with_trailers:
                peer.h2.send_headers(event.stream_id, [(b"grpc-status", b"0")], end_stream=True)

    with backend(speaks(answer_in_pieces)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.get()
        answer.on_end = stumble
        w.until(lambda: answer.had_bug)

        assert (w.backend().in_flight, w.backend().connections) == (0, 1)
        assert (w.fetch().status_code, peer.connections) == (200, 1)


def test_a_pool_that_raises_at_the_end_of_a_response_over_http2_does_not_affect_others_on_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_first = iter([True])

    def stumble_once(pool: ConnectionPool, link: H2Link) -> None:
        if next(is_first, False):
            raise ZeroDivisionError
        tell_pool(pool, link)

    tell_pool = ConnectionPool.on_streams_left
    with backend(speaks()) as peer, world() as w:
        w.use(h2c(peer.address))
        assert w.fetch().status_code == 200
        monkeypatch.setattr(ConnectionPool, "on_streams_left", stumble_once)
        answer, after = w.get(), w.get()
        w.until(lambda: answer.had_bug and after.is_over)

        assert after.status_code == 200
        assert (w.backend().in_flight, w.backend().connections, peer.connections) == (0, 1, 1)


def test_a_receiver_that_raises_in_handling_a_failure_leaves_nothing_open() -> None:
    with world() as w:
        w.use(one(f"127.0.0.1:{dead_port()}"))
        answer = w.get()
        answer.on_end = stumble
        w.until(lambda: answer.had_bug)

        assert (w.backend().in_flight, w.backend().connections) == (0, 0)


def test_a_receiver_that_raises_when_its_turn_comes_over_http1_does_not_affect_the_request_before_it() -> None:
    with backend(answers_whole) as peer, world() as w:
        w.use(of(peer, circuit=document.Circuit(max_connections=1)))
        before, answer, after = w.get(), w.get(), w.get()
        answer.on_open = stumble
        w.until(lambda: answer.had_bug and before.is_over and after.is_over)

        assert (before.had_bug, before.status_code, after.status_code) == (False, 200, 200)
        assert w.backend().in_flight == 0


def test_a_receiver_that_raises_when_its_turn_comes_over_http2_does_not_affect_others_that_wait() -> None:
    def answer_unless_reset(peer: H2Peer, event: h2.events.Event) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):
            answers(peer, event)

    with backend(speaks(answer_unless_reset)) as peer, world() as w:
        w.use(h2c(peer.address))
        before, answer, after = w.get(), w.get(), w.get()
        answer.on_open = stumble
        w.until(lambda: answer.had_bug and before.is_over and after.is_over)

        assert (before.status_code, after.status_code) == (200, 200)
        assert (w.backend().in_flight, w.backend().connections, peer.connections) == (0, 1, 1)
