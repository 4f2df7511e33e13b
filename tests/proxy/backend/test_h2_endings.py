"""Requests over HTTP/2 that end prematurely, and the state left of them and of their connection."""

import gc
import socket
import threading
import weakref
from collections.abc import Callable

import h2.events
import msgspec
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from proxy import document
from proxy.backend.h2link import H2Link
from proxy.backend.stream import Reason
from proxy.heads import Field
from tests.proxy.backend.h2peer import H2Peer, OnEvent, h2c, opened, speaks
from tests.proxy.backend.servers import PATIENCE_S, backend
from tests.proxy.backend.world import Answer, Owed, World, world

WINDOW_BYTES = 65_535
HEAD = [(b":status", b"200")]
BODILESS = [(b"HEAD", b"200"), (b"GET", b"204"), (b"GET", b"304")]


def say_interim(peer: H2Peer) -> None:
    peer.h2.send_headers(3, [(b":status", b"103")])


def say_trailers(peer: H2Peer) -> None:
    peer.h2.send_headers(3, HEAD)
    peer.h2.send_data(3, b"more")
    peer.h2.send_headers(3, [(b"grpc-status", b"0")], end_stream=True)


def say_whole(peer: H2Peer) -> None:
    peer.answer(3)


def reset(peer: H2Peer) -> None:
    peer.h2.reset_stream(3, ErrorCodes.INTERNAL_ERROR)


def widen(peer: H2Peer) -> None:
    peer.h2.increment_flow_control_window(WINDOW_BYTES, 3)


@pytest.mark.parametrize("say", [say_interim, say_trailers, say_whole, reset, widen])
def test_frames_for_a_request_cancelled_within_the_same_read_are_ignored(say: Callable[[H2Peer], None]) -> None:
    """One read has frames of several streams, and the receiver of the first may cancel another."""
    got: list[int] = []

    def tell_both(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            got.append(len(event.data))
            if sum(got) == WINDOW_BYTES:
                peer.h2.increment_flow_control_window(WINDOW_BYTES)
                peer.h2.send_headers(1, HEAD, end_stream=True)
                say(peer)
        elif isinstance(event, h2.events.StreamEnded) and event.stream_id > 3:
            peer.answer(event.stream_id)

    with backend(speaks(tell_both)) as peer, world() as w:
        w.use(h2c(peer.address))
        first = opened(w, w.get())
        second = w.get(method=b"POST", end_stream=False)
        assert second.request is not None
        assert second.request.send_data(b"x" * (WINDOW_BYTES + 1), False, Owed()) == WINDOW_BYTES
        first.on_head = second.request.cancel
        w.until(lambda: first.is_over)

        assert w.fetch().status_code == 200
        assert (second.head, second.interim, second.failure) == (None, [], None)
        assert (w.backend().in_flight, peer.connections) == (0, 1)


def cancels(answer: Answer) -> None:
    assert answer.request is not None
    answer.request.cancel()


def leaves_to_the_backend(_: Answer) -> None:
    """It answers, or resets."""


def stall(_peer: H2Peer, _event: h2.events.Event) -> None:
    """Give no credit."""


def refuse(peer: H2Peer, event: h2.events.Event) -> None:
    if isinstance(event, h2.events.RequestReceived):
        peer.answer(event.stream_id, b"", b"413")


def reset_upload(peer: H2Peer, event: h2.events.Event) -> None:
    if isinstance(event, h2.events.RequestReceived):
        peer.h2.reset_stream(event.stream_id, ErrorCodes.INTERNAL_ERROR)


@pytest.mark.parametrize(
    ("behave", "end"), [(stall, cancels), (refuse, leaves_to_the_backend), (reset_upload, leaves_to_the_backend)]
)
def test_an_upload_that_ended_while_it_waited_for_the_window_is_not_kept_in_memory(
    behave: Callable[[H2Peer, h2.events.Event], None], end: Callable[[Answer], None]
) -> None:
    with backend(speaks(behave)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = opened(w, w.get(method=b"POST", end_stream=False))
        assert answer.request is not None
        assert answer.request.send_data(b"x" * (WINDOW_BYTES + 1), False, Owed()) == WINDOW_BYTES
        end(answer)
        w.until(lambda: not w.backend().in_flight)
        w.turns()
        left = weakref.ref(answer)
        del answer
        gc.collect()

        assert left() is None
        assert w.backend().connections == 1


def test_a_response_that_takes_several_turns_to_decode_survives_a_reset_of_its_connection() -> None:
    """The reset is noticed when more of the upload is sent. A request that follows meanwhile was not sent."""
    gone = threading.Event()

    def answer_and_leave(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"413")])
            for _ in range(3_000):
                peer.h2.send_data(event.stream_id, b"too large ")
            peer.h2.end_stream(event.stream_id)
            peer.flush()
            peer.conn.reset()
            gone.set()

    with backend(speaks(answer_and_leave)) as peer, world() as w:
        w.use(h2c(peer.address))
        upload = opened(w, w.get(method=b"POST", end_stream=False))
        assert gone.wait(PATIENCE_S)
        assert upload.request is not None
        upload.request.send_data(b"x" * 1_000, False, Owed())
        w.loop.turn()
        assert not upload.is_over
        late = w.get(method=b"POST")
        w.until(lambda: upload.is_over and late.is_over)

        assert (upload.failure, upload.status_code, bytes(upload.body)) == (None, 413, b"too large " * 3_000)
        assert late.failure is not None
        assert (late.failure.reason, late.failure.is_unprocessed) == (Reason.RESET, True)
        assert (w.backend().connections, peer.connections) == (0, 1)


@pytest.mark.parametrize(("method", "status"), BODILESS)
def test_a_response_that_has_no_body_is_complete_even_if_one_is_sent(method: bytes, status: bytes) -> None:
    """Servers that leave HEAD to applications send the body that those return. Even many of them do not affect others
    on the connection."""

    def say_too_much(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", status), (b"content-length", b"5")])
            peer.h2.send_data(event.stream_id, b"hel")
            peer.h2.send_data(event.stream_id, b"lo", end_stream=True)

    with backend(speaks(say_too_much)) as peer, world() as w:
        w.use(h2c(peer.address))
        other = w.get(method=b"POST", end_stream=False)
        answers = [w.fetch(method=method) for _ in range(300)]

        assert {(int(status), b"", None)} == {
            (answer.status_code, bytes(answer.body), answer.failure) for answer in answers
        }
        assert (other.failure, w.backend().in_flight, peer.connections) == (None, 1, 1)


def test_a_body_after_a_head_that_allows_none_ends_the_exchange_although_its_upload_goes_on() -> None:
    """Its stream is reset, so nothing else would end it before a timeout."""

    def say_too_much(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"204")])
            peer.h2.send_data(event.stream_id, b"hello")

    with backend(speaks(say_too_much)) as peer, world() as w:
        w.use(h2c(peer.address))
        upload = opened(w, w.get(method=b"POST", end_stream=False))
        w.until(lambda: upload.is_over)

        assert (upload.status_code, bytes(upload.body), upload.failure) == (204, b"", None)
        assert (w.backend().in_flight, peer.connections) == (0, 1)


def only_heads(status: bytes) -> OnEvent:
    """The streams are left open."""

    def say_head(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", status)])

    return say_head


@pytest.mark.parametrize(("method", "status"), BODILESS)
def test_a_response_that_has_no_body_is_complete_before_its_stream_ends(method: bytes, status: bytes) -> None:
    """Such as from a Go handler that flushes 204 and continues; an HTTP/1.1 client sends its next request meanwhile.
    However the stream ends later, that is no failure."""
    peers: list[H2Peer] = []
    with backend(speaks(only_heads(status), peers=peers)) as peer, world() as w:
        w.use(h2c(peer.address))
        answers = [w.fetch(method=method) for _ in range(2)]

        assert {(int(status), None)} == {(answer.status_code, answer.failure) for answer in answers}
        assert (w.backend().in_flight, peer.connections, peers[0].h2.open_inbound_streams) == (0, 1, 2)
        peers[0].conn.sock.shutdown(socket.SHUT_RDWR)
        w.until(lambda: not w.backend().connections)
        assert not w.backend().failures


@pytest.mark.parametrize(("method", "status"), BODILESS)
def test_a_reset_right_after_a_response_that_has_no_body_is_no_failure(method: bytes, status: bytes) -> None:
    def give_up(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", status)])
            peer.h2.reset_stream(event.stream_id, ErrorCodes.INTERNAL_ERROR)

    with backend(speaks(give_up)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.fetch(method=method)

        assert (answer.status_code, answer.failure) == (int(status), None)
        assert (w.backend().in_flight, w.backend().failures) == (0, {})


def test_a_response_without_a_body_is_not_complete_while_its_request_goes_on() -> None:
    """The backend may still read it."""

    def say_head(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"204")])

    with backend(speaks(say_head)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.get(method=b"POST", end_stream=False)
        w.until(lambda: answer.head is not None)

        assert (answer.status_code, answer.is_over, w.backend().in_flight) == (204, False, 1)


@pytest.mark.parametrize("with_trailers", [False, True])
def test_a_head_request_with_a_body_is_not_over_before_it_is_answered(*, with_trailers: bool) -> None:
    def answer_head(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")], end_stream=True)

    with backend(speaks(answer_head)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = opened(w, w.get(method=b"HEAD", end_stream=False))
        assert answer.request is not None
        answer.request.send_data(b"abc", not with_trailers, Owed())
        if with_trailers:
            answer.request.send_trailers([(b"x-sum", b"1")])
        w.until(lambda: answer.is_over)

        assert (answer.status_code, answer.failure, w.backend().in_flight) == (200, None, 0)


@pytest.mark.parametrize("with_trailers", [False, True])
def test_a_response_without_a_body_is_complete_with_its_request(*, with_trailers: bool) -> None:
    peers: list[H2Peer] = []

    def say_head(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"204")])

    with backend(speaks(say_head, peers=peers)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.get(method=b"POST", end_stream=False)
        w.until(lambda: answer.head is not None)
        assert answer.request is not None
        answer.request.send_data(b"abc", not with_trailers, Owed())
        if with_trailers:
            answer.request.send_trailers([(b"x-sum", b"1")])
        w.until(lambda: answer.is_over)

        assert (answer.status_code, bytes(answer.body), answer.failure) == (204, b"", None)
        assert (w.backend().in_flight, peers[0].h2.open_inbound_streams) == (0, 1)
        peers[0].conn.sock.shutdown(socket.SHUT_RDWR)
        w.until(lambda: not w.backend().connections)
        assert not w.backend().failures


class Traced(list[Field]):
    """Fields to which there can be weak references."""


def test_a_request_cancelled_right_after_its_last_byte_is_not_kept_although_its_response_has_no_body() -> None:
    """Its connection lasts for up to an hour."""

    def say_head(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"204")])

    with backend(speaks(say_head)) as peer, world() as w:
        w.use(h2c(peer.address))
        fields = Traced([(b"x-head", b"of the request")])
        answer = w.get(method=b"POST", fields=fields, end_stream=False)
        w.until(lambda answer=answer: answer.head is not None)  # type: ignore[misc]
        assert answer.request is not None
        answer.request.send_data(b"abc", True, Owed())
        answer.request.cancel()
        w.turns()
        left = weakref.ref(fields)
        del answer, fields
        gc.collect()

        assert left() is None
        assert (w.backend().in_flight, w.backend().connections) == (0, 1)


def test_a_stream_counts_against_the_limit_until_it_ends_even_if_its_response_is_complete() -> None:
    peers: list[H2Peer] = []
    limit = {SettingCodes.MAX_CONCURRENT_STREAMS: 1}

    def end_at_last(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", b"204")], end_stream=event.stream_id > 1)

    spec = msgspec.structs.replace(h2c(""), circuit=document.Circuit(max_connections=1))
    with backend(speaks(end_at_last, limit, peers)) as peer, world() as w:
        w.use(msgspec.structs.replace(spec, addresses=(peer.address,)))
        first = w.fetch()
        second = w.get()
        w.turns()

        assert (first.status_code, second.head) == (204, None)
        peers[0].h2.end_stream(1)
        peers[0].flush()
        w.until(lambda: second.is_over)
        assert (second.status_code, peer.connections, peers[0].most_open) == (204, 1, 1)


def test_a_stream_that_does_not_end_after_its_response_is_cancelled_after_five_minutes() -> None:
    resets: list[int | None] = []

    def note(peer: H2Peer, event: h2.events.Event) -> None:
        only_heads(b"204")(peer, event)
        if isinstance(event, h2.events.StreamReset):
            resets.append(event.error_code)

    with backend(speaks(note)) as peer, world() as w:
        w.use(h2c(peer.address))
        w.fetch()
        w.clock.passed_s += 299.0
        w.turns()
        assert w.fetch().status_code == 204
        assert not resets
        w.clock.passed_s += 16.0
        w.until(lambda: bool(resets))

        assert resets == [ErrorCodes.CANCEL]
        assert w.fetch().status_code == 204
        assert peer.connections == 1


def test_the_oldest_of_many_streams_that_do_not_end_after_their_responses_are_cancelled() -> None:
    """They would accumulate for five minutes at a backend without a limit of streams."""
    resets: list[int] = []

    def note(peer: H2Peer, event: h2.events.Event) -> None:
        only_heads(b"204")(peer, event)
        if isinstance(event, h2.events.StreamReset):
            resets.append(event.stream_id)

    with backend(speaks(note)) as peer, world() as w:
        w.use(h2c(peer.address))
        answers = {w.fetch().status_code for _ in range(1_002)}
        w.until(lambda: len(resets) >= 2)

        assert (answers, resets) == ({204}, [1, 3])
        assert (w.backend().failures, peer.connections) == ({}, 1)


def test_a_cancelled_request_resets_its_stream_at_once() -> None:
    resets: list[int | None] = []

    def note(_peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamReset):
            resets.append(event.error_code)

    with backend(speaks(note)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = opened(w, w.get())
        w.turns()
        cancels(answer)
        w.until(lambda: bool(resets))

        assert resets == [ErrorCodes.CANCEL]


def test_trailers_not_allowed_in_http2_fail_their_request() -> None:
    with backend(speaks()) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = opened(w, w.get(method=b"POST", end_stream=False))
        assert answer.request is not None
        answer.request.send_trailers([(b"connection", b"close")])

        assert answer.failure is not None
        assert (answer.failure.reason, answer.failure.is_unprocessed) == (Reason.UNSENDABLE, False)
        assert w.fetch().status_code == 200
        assert (w.backend().in_flight, peer.connections) == (0, 1)


def links_to(address: str) -> list[H2Link]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, H2Link) and address in repr(one)]


def end_it(peer: H2Peer, _: World) -> None:
    peer.conn.sock.shutdown(socket.SHUT_RDWR)


def leave_the_document(_: H2Peer, w: World) -> None:
    w.use()


@pytest.mark.parametrize("end", [end_it, leave_the_document])
def test_a_connection_that_has_ended_is_not_kept_in_memory(end: Callable[[H2Peer, World], None]) -> None:
    """A check for silence that is still scheduled would keep each of them forever."""
    peers: list[H2Peer] = []
    with backend(speaks(peers=peers)) as peer, world() as w:
        w.use(h2c(peer.address))
        assert w.fetch().status_code == 200
        assert len(links_to(peer.address)) == 1
        end(peers[0], w)
        w.until(lambda: not w.backend().connections)
        w.turns()

        assert links_to(peer.address) == []
