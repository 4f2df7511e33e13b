"""Backends that speak HTTP/2, against the h2 package."""

import socket
import threading
from functools import partial

import h2.events
import msgspec
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from proxy import document
from proxy.backend.keeping import MAX_AGE_S, SILENCE_S
from proxy.backend.stream import Reason
from tests.proxy.backend.h2peer import H2Peer, answers, h2c, opened, speaks
from tests.proxy.backend.servers import PATIENCE_S, Conn, backend, of
from tests.proxy.backend.world import Answer, Owed, world


def all_over(answers_: list[Answer]) -> bool:
    return all(answer.is_over for answer in answers_)


def test_many_requests_share_one_connection() -> None:
    with backend(speaks()) as peer, world() as w:
        w.use(h2c(peer.address))
        requests = [w.get() for _ in range(20)]
        w.until(lambda: all_over(requests))

        assert all((a.status_code, bytes(a.body)) == (200, b"ok") for a in requests)
        assert peer.connections == 1
        assert (w.backend().in_flight, w.backend().connections_opened) == (0, 1)
        assert w.get().request.is_open  # type: ignore[union-attr]


def test_the_preface_is_sent_to_a_backend_that_waits_for_it() -> None:
    """A backend may have to recognize HTTP/2 by it."""

    def listen(conn: Conn) -> None:
        if conn.sock.recv(1, socket.MSG_PEEK):
            speaks()(conn)

    with backend(listen) as peer, world() as w:
        w.use(h2c(peer.address))

        assert w.fetch().status_code == 200


def test_a_waiting_request_is_notified_when_its_connection_is_open() -> None:
    """Only then does it send its body."""
    with backend(speaks()) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.get(method=b"POST", end_stream=False)
        assert answer.request is not None
        w.until(lambda: answer.is_open_told == 1)
        answer.request.send_data(b"order", True, Owed())
        w.until(lambda: answer.is_over)

        assert (answer.status_code, answer.is_open_told) == (200, 1)


@pytest.mark.parametrize("with_trailers", [True, False], ids=["trailers", "the head"])
def test_a_response_without_data_is_complete(with_trailers: bool) -> None:
    def end_bare(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")], end_stream=not with_trailers)
            if with_trailers:
                peer.h2.send_headers(event.stream_id, [(b"grpc-status", b"0")], end_stream=True)

    with backend(speaks(end_bare)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.fetch()

        assert (answer.status_code, w.backend().in_flight) == (200, 0)
        w.use()
        w.until(lambda: not w.backend().connections)


def test_error_status_codes_count_against_an_address() -> None:
    def refuse(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.answer(event.stream_id, status=b"503")

    policy = document.PassiveHealth(consecutive_failures=2, max_ejected_percent=100)
    with backend(speaks(refuse)) as peer, world() as w:
        w.use(of(peer, protocol="h2c", passive_health=policy))
        assert [w.fetch().status_code for _ in range(2)] == [503, 503]

        assert w.backend().ejected == 1


def test_trailers_of_a_request_are_sent_as_soon_as_they_are_known() -> None:
    has_body = threading.Event()
    trailers: list[object] = []

    def note(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            has_body.set()
        elif isinstance(event, h2.events.TrailersReceived):
            trailers.extend(event.headers)
        answers(peer, event)

    with backend(speaks(note)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = opened(w, w.get(method=b"POST", end_stream=False))
        assert answer.request is not None
        answer.request.send_data(b"message", False, Owed())
        w.until(has_body.is_set)
        w.turns()
        answer.request.send_trailers([(b"checksum", b"1")])
        w.until(lambda: answer.is_over)

        assert (answer.status_code, trailers) == (200, [(b"checksum", b"1")])


@pytest.mark.parametrize("is_used", [True, False], ids=["in use", "kept"])
def test_a_connection_of_a_removed_backend_closes_with_its_last_response(is_used: bool) -> None:
    go_on = threading.Event()

    def answer_later(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            assert go_on.wait(PATIENCE_S)
            peer.answer(event.stream_id)

    with backend(speaks(answer_later)) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address))
        answer = opened(w, w.get())
        if not is_used:
            go_on.set()
            w.until(lambda: answer.is_over)
        w.use()
        w.turns()
        assert w.backend().connections == int(is_used)
        go_on.set()
        w.until(lambda: not w.backend().connections)

        assert answer.status_code == 200


def test_goaway_is_sent_after_the_last_response() -> None:
    """Backends based on the h2 package do not respond after a GOAWAY; hypercorn closes at once."""
    heard: list[type[h2.events.Event]] = []

    def answer_and_note(peer: H2Peer, event: h2.events.Event) -> None:
        heard.append(type(event))
        answers(peer, event)

    with backend(speaks(answer_and_note)) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address))
        answer = opened(w, w.get(method=b"POST", end_stream=False))
        w.use()
        w.turns()
        assert w.backend().connections == 1
        assert answer.request is not None
        answer.request.send_data(b"order", True, Owed())
        w.until(lambda: not w.backend().connections)

        assert (answer.status_code, bytes(answer.body)) == (200, b"ok")
        w.until(lambda: h2.events.ConnectionTerminated in heard)
        assert heard.index(h2.events.StreamEnded) < heard.index(h2.events.ConnectionTerminated)


def test_requests_over_the_backends_limit_of_streams_wait_in_order() -> None:
    peers: list[H2Peer] = []
    settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 1}
    with backend(speaks(settings=settings, peers=peers)) as peer, world() as w:
        spec = document.Backend(
            name="b", addresses=(peer.address,), protocol="h2c", circuit=document.Circuit(max_connections=1)
        )
        w.use(spec)
        ended: list[int] = []
        requests = [w.get() for _ in range(6)]
        for place, answer in enumerate(requests):
            answer.on_end = partial(ended.append, place)
        w.until(lambda: all_over(requests))

        assert ended == list(range(6))
        assert peer.connections == 1
        assert peers[0].most_open == 1


def test_more_connections_are_opened_when_one_has_too_few_streams() -> None:
    together = threading.Barrier(3, timeout=10)

    def meet(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            together.wait()
            peer.answer(event.stream_id)

    with backend(speaks(meet, {SettingCodes.MAX_CONCURRENT_STREAMS: 1})) as peer, world() as w:
        w.use(h2c(peer.address))
        requests = [w.get() for _ in range(3)]
        w.until(lambda: all_over(requests))

        assert peer.connections == 3


def test_a_refused_stream_was_not_processed_and_affects_no_other() -> None:
    def refuse_first(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            if event.stream_id == 1:
                peer.h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            else:
                peer.answer(event.stream_id)

    with backend(speaks(refuse_first)) as peer, world() as w:
        w.use(h2c(peer.address))
        requests = [w.get() for _ in range(2)]
        w.until(lambda: all_over(requests))

        failure = requests[0].failure
        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.RESET, True, False)
        assert requests[1].status_code == 200


@pytest.mark.parametrize("code", [ErrorCodes.INTERNAL_ERROR, ErrorCodes.ENHANCE_YOUR_CALM])
@pytest.mark.parametrize("leaves", [False, True])
def test_a_reset_stream_may_have_been_processed(leaves: bool, code: ErrorCodes) -> None:
    def reset(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            if leaves:
                peer.conn.send(goaway(event.stream_id))
            peer.h2.reset_stream(event.stream_id, code)

    with backend(speaks(reset)) as peer, world() as w:
        w.use(h2c(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.RESET, False, False)
        assert w.backend().connections == (0 if leaves else 1)


@pytest.mark.parametrize(
    ("code", "timeout", "blames_address"),
    [
        (ErrorCodes.CANCEL, b"1m", False),
        (ErrorCodes.CANCEL, None, True),
        (ErrorCodes.INTERNAL_ERROR, b"1m", True),
    ],
)
def test_calls_with_short_deadlines_do_not_count_against_an_address(
    code: ErrorCodes, timeout: bytes | None, blames_address: bool
) -> None:
    """Otherwise a client could get an address ejected, as servers cancel calls that exceed their deadline."""

    def reset(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.reset_stream(event.stream_id, code)

    with backend(speaks(reset)) as peer, world() as w:
        w.use(h2c(peer.address))
        failure = w.fetch(fields=[(b"grpc-timeout", timeout)] if timeout else []).failure

        assert failure is not None
        assert (failure.error_code, failure.blames_address) == (code, blames_address)


def test_a_malformed_response_fails_only_its_request() -> None:
    def lie(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded) and event.stream_id == 1:
            peer.h2.send_headers(1, [(b":status", b"200"), (b"content-length", b"1")])
            peer.h2.send_data(1, b"more", end_stream=True)
        else:
            answers(peer, event)

    with backend(speaks(lie)) as peer, world() as w:
        w.use(h2c(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.PROTOCOL, False)
        assert w.fetch().status_code == 200
        assert peer.connections == 1


def test_after_a_goaway_running_requests_finish_and_new_ones_use_a_new_connection() -> None:
    peers: list[H2Peer] = []
    go_on = threading.Event()

    def leave(peer: H2Peer, event: h2.events.Event) -> None:
        if not isinstance(event, h2.events.StreamEnded):
            return
        if peer is peers[0]:
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
            peer.conn.send(peer.h2.data_to_send() + goaway(event.stream_id))
            assert go_on.wait(10)
            peer.h2.send_data(event.stream_id, b"finished", end_stream=True)
        else:
            peer.answer(event.stream_id)

    with backend(speaks(leave, peers=peers)) as peer, world() as w:
        w.use(h2c(peer.address))
        first = w.get()
        w.until(lambda: first.head is not None)
        w.turns()
        second = w.fetch()
        assert second.status_code == 200
        go_on.set()
        w.until(lambda: first.is_over)

        assert bytes(first.body) == b"finished"
        assert peer.connections == 2
        w.until(lambda: w.backend().connections == 1)


def test_an_idle_connection_is_closed_after_a_goaway() -> None:
    """By us: the backend may wait for that."""
    peers: list[H2Peer] = []
    with backend(speaks(peers=peers)) as peer, world() as w:
        w.use(h2c(peer.address))
        assert w.fetch().status_code == 200
        peers[0].conn.send(goaway(1))
        w.until(lambda: not w.backend().connections)

        assert w.fetch().status_code == 200
        assert peer.connections == 2


def test_a_stream_beyond_the_last_one_of_a_goaway_was_not_processed() -> None:
    def leave(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.conn.send(goaway(0))

    with backend(speaks(leave)) as peer, world() as w:
        w.use(h2c(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.is_unprocessed, failure.was_reused, failure.blames_address) == (True, True, False)
        w.until(lambda: w.backend().connections == 0)


def goaway(last_stream_id: int) -> bytes:
    return b"\0\0\x08\x07\0\0\0\0\0" + last_stream_id.to_bytes(4, "big") + bytes(4)


def test_a_lost_connection_fails_all_its_requests() -> None:
    """And no later ones."""

    def vanish(peer: H2Peer, event: h2.events.Event) -> None:
        if peer.conn.place:
            answers(peer, event)
        elif isinstance(event, h2.events.StreamEnded) and len(peer.requests) == 3:
            peer.conn.reset()

    with backend(speaks(vanish)) as peer, world() as w:
        w.use(h2c(peer.address))
        requests = [w.get() for _ in range(3)]
        w.until(lambda: all_over(requests))

        assert {a.failure.reason for a in requests if a.failure} == {Reason.RESET}
        assert all(a.failure and not a.failure.is_unprocessed and not a.failure.was_reused for a in requests)
        assert (w.backend().in_flight, w.backend().connections) == (0, 0)
        assert w.fetch().status_code == 200


def test_a_lost_connection_does_not_fail_requests_that_wait_for_another() -> None:
    def vanish_once(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded) and peer.conn.place == 0:
            peer.conn.reset()
        else:
            answers(peer, event)

    settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 1}
    with backend(speaks(vanish_once, settings)) as peer, world() as w:
        w.use(of(peer, protocol="h2c", circuit=document.Circuit(max_connections=1)))
        requests = [w.get() for _ in range(2)]
        w.until(lambda: all_over(requests))

        assert requests[0].failure is not None
        assert requests[1].status_code == 200


def test_a_used_connection_that_breaks_before_a_response_is_reported_as_reused() -> None:
    def once(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            if event.stream_id == 1:
                peer.answer(1)
            else:
                peer.conn.reset()

    with backend(speaks(once)) as peer, world() as w:
        w.use(h2c(peer.address))
        assert w.fetch().status_code == 200
        failure = w.fetch().failure

        assert failure is not None
        assert failure.was_reused


@pytest.mark.parametrize("is_answered", [True, False], ids=["in the midst of an answer", "by a protocol error"])
def test_a_used_connection_that_breaks_in_a_response_or_by_a_protocol_error_blames_its_address(
    is_answered: bool,
) -> None:
    def once(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            if event.stream_id == 1:
                peer.answer(1)
            elif is_answered:
                peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
                peer.flush()
                peer.conn.sock.shutdown(socket.SHUT_RDWR)
            else:
                peer.conn.send(BAD_PING)

    with backend(speaks(once)) as peer, world() as w:
        w.use(h2c(peer.address))
        assert w.fetch().status_code == 200
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.was_reused, failure.blames_address) == (False, True)


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\0\0\0\0\0\0", b""])
def test_a_peer_that_does_not_speak_http2_fails_the_waiting_requests(greeting: bytes) -> None:
    """A later request tries again."""

    def babble(conn: Conn) -> None:
        if conn.place:
            speaks()(conn)
            return
        conn.send(greeting)
        if greeting:
            conn.wait_for_end()

    with backend(babble) as peer, world() as w:
        w.use(h2c(peer.address))
        requests = [w.get() for _ in range(2)]
        w.until(lambda: all_over(requests))

        assert {a.failure.reason for a in requests if a.failure} <= {Reason.PROTOCOL, Reason.RESET}
        assert all(a.failure and a.failure.is_unprocessed and a.failure.was_connecting for a in requests)
        assert w.backend().connections == 0
        assert w.fetch().status_code == 200


@pytest.mark.parametrize(("connect_timeout", "patience_s"), [("3s", 3), ("0s", SILENCE_S)], ids=["3 s", "no limit"])
def test_a_backend_that_never_sends_its_settings_times_out(connect_timeout: str, patience_s: float) -> None:
    with backend(Conn.wait_for_end) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address), connect_timeout=connect_timeout)
        answer = w.get()
        w.until(lambda: w.backend().connections == 1 if "b" in w.stats.backends else False)
        w.pass_time(patience_s - 1)
        assert not answer.is_over
        w.pass_time(2)
        w.until(lambda: answer.is_over)

        assert answer.failure is not None
        assert (answer.failure.reason, answer.failure.is_unprocessed) == (Reason.CONNECT_TIMEOUT, True)
        w.until(lambda: w.backend().connections == 0)


BAD_PING = b"\0\0\x01\x06\0\0\0\0\0x"


def test_a_protocol_error_of_the_backend_fails_its_requests_and_is_sent_in_goaway() -> None:
    named: list[int | None] = []

    def err(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.conn.send(BAD_PING)
        elif isinstance(event, h2.events.ConnectionTerminated):
            named.append(event.error_code)

    with backend(speaks(err)) as peer, world() as w:
        w.use(h2c(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert failure.reason is Reason.PROTOCOL
        w.until(lambda: w.backend().connections == 0 and bool(named))
        assert named == [ErrorCodes.FRAME_SIZE_ERROR]


def test_a_field_list_over_the_limit_fails_only_its_request() -> None:
    def boast(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            fields = [(b":status", b"200")]
            if event.stream_id == 1:
                fields += [(b"x", b"y" * 16_000)] * 5
            peer.h2.send_headers(event.stream_id, fields, end_stream=True)

    with backend(speaks(boast)) as peer, world() as w:
        w.use(h2c(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.FIELDS_TOO_LARGE, False)
        assert w.fetch().status_code == 200
        assert peer.connections == 1


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ([(b"accept-encoding", b"gzip, deflate")] * 5_000, "field list over 262144 bytes"),
        ([(b"x", b"y" * 16_000)] * 12, "want at most 131072 in 17"),
    ],
    ids=["large list", "large block"],
)
def test_fields_that_are_too_large_to_be_decoded_do_not_count_against_an_address(
    fields: list[tuple[bytes, bytes]], detail: str
) -> None:
    """They end the connection, but a client may be able to provoke them, as over HTTP/1.1."""

    def boast(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", b"200"), *fields])

    with backend(speaks(boast)) as peer, world() as w:
        w.use(h2c(peer.address))
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed) == (Reason.FIELDS_TOO_LARGE, False)
        assert failure.detail.endswith(detail)
        assert not failure.blames_address
        w.until(lambda: w.backend().connections == 0)


def test_cancelling_resets_the_stream_and_keeps_the_connection() -> None:
    resets: list[int] = []

    def stall(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamReset):
            resets.append(event.error_code)
        elif isinstance(event, h2.events.StreamEnded) and event.stream_id > 1:
            peer.answer(event.stream_id)

    with backend(speaks(stall)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = opened(w, w.get())
        w.turns()
        assert answer.request is not None
        answer.request.cancel()
        assert w.fetch().status_code == 200

        assert resets == [ErrorCodes.CANCEL]
        assert not answer.is_over
        assert peer.connections == 1


def test_a_response_to_half_a_request_ends_both_and_resets_the_stream_with_no_error() -> None:
    resets: list[int] = []

    def refuse(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamReset):
            resets.append(event.error_code)
        elif isinstance(event, h2.events.RequestReceived):
            peer.answer(event.stream_id, status=b"413")

    with backend(speaks(refuse)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.get(method=b"POST", end_stream=False)
        w.until(lambda: answer.is_over)
        assert answer.status_code == 413
        w.until(lambda: bool(resets))

        assert resets == [ErrorCodes.NO_ERROR]


def test_trailers_and_interim_heads_are_passed_on() -> None:
    def grpc(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            peer.h2.send_headers(event.stream_id, [(b":status", b"103")])
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
            peer.h2.send_data(event.stream_id, b"message")
            peer.h2.send_headers(event.stream_id, [(b"grpc-status", b"0")], end_stream=True)

    with backend(speaks(grpc)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.fetch()

        assert (answer.interim, answer.trailers) == ([103], [(b"grpc-status", b"0")])


def test_a_silent_connection_with_requests_is_pinged_and_then_closed() -> None:
    pings: list[bytes] = []

    def note(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.PingReceived):
            pings.append(event.ping_data)
            # The acknowledgement must not be sent.
            peer.h2.clear_outbound_data_buffer()
        elif isinstance(event, h2.events.StreamEnded) and event.stream_id == 1:
            peer.answer(1)

    with backend(speaks(note)) as peer, world() as w:
        w.use(h2c(peer.address), backend_idle_timeout="0s")
        w.fetch()
        answer = opened(w, w.get())
        w.pass_time(16)
        w.pass_time(16)
        w.until(lambda: bool(pings) or answer.is_over)
        w.pass_time(16)
        w.until(lambda: answer.is_over)

        assert pings
        assert answer.failure is not None
        assert answer.failure.reason is Reason.RESET
        assert "silent" in answer.failure.detail


def test_a_slow_backend_that_responds_after_a_ping_is_waited_for() -> None:
    def slow(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.PingReceived):
            peer.answer(3)
        elif isinstance(event, h2.events.StreamEnded) and event.stream_id == 1:
            peer.answer(1)

    with backend(speaks(slow)) as peer, world() as w:
        w.use(h2c(peer.address))
        w.fetch()
        answer = opened(w, w.get())
        w.pass_time(16)
        w.pass_time(16)
        w.until(lambda: answer.is_over)

        assert answer.status_code == 200


def test_a_backend_that_acknowledges_pings_may_take_minutes() -> None:
    def tell_each(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.PingReceived):
            peer.h2.send_headers(1, [(b":status", b"103")])
        elif isinstance(event, h2.events.StreamEnded) and event.stream_id > 1:
            peer.answer(event.stream_id)

    with backend(speaks(tell_each)) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address))
        answer = opened(w, w.get())
        # All else that is sent on a new connection has arrived with that.
        assert w.fetch().status_code == 200
        for count in range(1, 9):
            # Silence is noticed only when nothing has arrived since the last check.
            w.pass_time(SILENCE_S)
            w.pass_time(SILENCE_S)
            w.until(lambda count=count: len(answer.interim) == count)  # type: ignore[misc]
        assert w.fetch().status_code == 200

        assert (len(answer.interim), answer.is_over, peer.connections) == (8, False, 1)


def test_a_recently_used_connection_is_kept() -> None:
    with backend(speaks()) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address), backend_idle_timeout="60s")
        for _ in range(10):
            assert w.fetch().status_code == 200
            w.pass_time(SILENCE_S)

        assert peer.connections == 1


def test_an_old_connection_is_closed_even_if_there_is_no_idle_timeout() -> None:
    with backend(speaks()) as peer, world() as w:
        w.clock.stop()
        w.use(h2c(peer.address), backend_idle_timeout="0s")
        assert w.fetch().status_code == 200
        w.pass_time(MAX_AGE_S)
        w.until(lambda: not w.backend().connections)


def test_an_unused_connection_sends_goaway_after_the_idle_timeout() -> None:
    said: list[str] = []

    def note(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            said.append("goodbye")
        answers(peer, event)

    with backend(speaks(note)) as peer, world() as w:
        w.use(h2c(peer.address), backend_idle_timeout="30s")
        w.fetch()
        for _ in range(4):
            w.pass_time(16)
        w.until(lambda: w.backend().connections == 0 and bool(said))


def test_a_websocket_fails_unsent_if_the_backend_has_not_enabled_extended_connect() -> None:
    with backend(speaks()) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.fetch(method=b"CONNECT", protocol=b"websocket", end_stream=False)

        assert answer.failure is not None
        assert (answer.failure.reason, answer.failure.is_unprocessed) == (Reason.UNSENDABLE, True)
        assert ": request that cannot be sent: " in answer.failure.detail
        assert not answer.is_open_told
        assert w.fetch().status_code == 200


def test_an_extended_connect_that_the_backend_has_enabled_carries_bytes_both_ways() -> None:
    def chat(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.send_headers(event.stream_id, [(b":status", b"200")])
        elif isinstance(event, h2.events.DataReceived):
            peer.h2.send_data(event.stream_id, event.data.upper())
        elif isinstance(event, h2.events.StreamEnded):
            peer.h2.end_stream(event.stream_id)

    with backend(speaks(chat, {SettingCodes.ENABLE_CONNECT_PROTOCOL: 1})) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.get(method=b"CONNECT", protocol=b"websocket", end_stream=False)
        w.until(lambda: answer.head is not None)
        request = answer.request
        assert request is not None
        request.send_data(b"ping", False, Owed())
        w.until(lambda: bytes(answer.body) == b"PING")
        request.send_data(b"", True, Owed())
        w.until(lambda: answer.is_over)


def test_a_backend_that_sends_without_reading_is_closed_when_too_much_output_is_queued() -> None:
    """Cancelled requests, here all of one turn, leave their heads in the queue, and each PING of the backend an
    acknowledgement."""
    is_filled, has_gone = threading.Event(), threading.Event()

    def listen_no_more(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            assert is_filled.wait(PATIENCE_S)
            peer.h2.ping(b"are you?")
            peer.flush()
            assert has_gone.wait(PATIENCE_S)

    with backend(speaks(listen_no_more)) as peer, world() as w:
        w.use(h2c(peer.address))
        first = opened(w, w.get())
        for _ in range(700):
            gone = w.get(fields=[(b"cookie", b"x" * 60_000)])
            assert gone.request is not None
            gone.request.cancel()
        w.turns(1)
        is_filled.set()
        w.until(lambda: first.is_over)
        has_gone.set()

        assert first.failure is not None
        assert first.failure.reason is Reason.PROTOCOL
        assert "it keeps sending, but has not read" in first.failure.detail
        assert w.backend().connections == 0


def test_a_backend_that_does_not_read_gets_no_more_requests_on_that_connection_until_it_does() -> None:
    """The heads of cancelled requests wait for it, however few requests it allows at a time."""
    reads_on = threading.Event()

    def listen_later(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            assert reads_on.wait(PATIENCE_S)
            if (b":path", b"/last") in event.headers:
                peer.answer(event.stream_id)
                peer.answer(1)

    with backend(speaks(listen_later)) as peer, world() as w:
        w.use(msgspec.structs.replace(h2c(peer.address), circuit=document.Circuit(max_connections=1)))
        first = opened(w, w.get())
        is_begun, count = True, 0
        while is_begun:
            gone = w.get(fields=[(b"cookie", b"x" * 60_000)])
            w.turns(1)
            assert gone.request is not None
            is_begun = gone.request.is_open
            gone.request.cancel()
            count += 1
            assert count < 700, "40 MB of heads wait for the backend"
        last = w.get(path=b"/last")
        w.turns()
        assert not last.is_open_told
        reads_on.set()
        w.until(lambda: all_over([first, last]))

        assert (first.status_code, last.status_code) == (200, 200)
        assert w.backend().connections_opened == 1


def test_a_backend_that_sends_while_a_large_upload_is_queued_is_not_closed() -> None:
    """The upload is bounded by its client's credit, and the backend may read it later."""
    is_filled = threading.Event()

    def read_later(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.h2.increment_flow_control_window(2**30)
            peer.flush()
            assert is_filled.wait(PATIENCE_S)
            peer.h2.ping(b"are you?")
        elif isinstance(event, h2.events.StreamEnded):
            peer.answer(event.stream_id)

    with backend(speaks(read_later, {SettingCodes.INITIAL_WINDOW_SIZE: 2**30})) as peer, world() as w:
        w.use(h2c(peer.address))
        upload, body, owed = opened(w, w.get(method=b"POST", end_stream=False)), bytes(30 * 1024 * 1024), Owed()
        assert upload.request is not None
        taken_bytes = upload.request.send_data(body, True, owed)
        w.until(lambda: upload.is_writable_told == 1)
        assert upload.request.send_data(memoryview(body)[taken_bytes:], True, owed) == len(body) - taken_bytes
        w.turns(1)
        is_filled.set()
        w.until(lambda: upload.is_over)

        assert (upload.status_code, owed.released_bytes) == (200, len(body))
