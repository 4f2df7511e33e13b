"""Requests that wait for a multiplexed connection, and what happens to them when one ends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import h2.events
from h2.settings import SettingCodes

from proxy import document
from proxy.backend.keeping import MAX_AGE_S, SILENCE_S
from proxy.backend.stream import Reason
from tests.proxy.backend.h2peer import H2Peer, OnEvent, answers, h2c, opened, speaks
from tests.proxy.backend.servers import PATIENCE_S, Backend, Conn, backend, of
from tests.proxy.backend.world import world

ONE = document.Circuit(max_connections=1)
LATE_S = 7.0
"""How long a connection waits for the SETTINGS of `late`: so much later than its age ends somebody looks at that."""


def answers_from(stream_id: int, go_on: threading.Event) -> OnEvent:
    """Answers; from this stream on not before `go_on`."""

    def answer(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.StreamEnded):
            assert event.stream_id < stream_id or go_on.wait(PATIENCE_S)
            peer.answer(event.stream_id)

    return answer


@contextmanager
def late(on_event: OnEvent) -> Iterator[tuple[Backend, threading.Event]]:
    """A backend whose SETTINGS come when the event is set."""
    is_late = threading.Event()

    def behave(conn: Conn) -> None:
        assert is_late.wait(PATIENCE_S)
        H2Peer(conn, on_event).serve()

    with backend(behave) as peer:
        yield peer, is_late


def test_a_connection_without_requests_makes_room_for_one_to_another_address() -> None:
    go_on = threading.Event()
    serve = speaks(answers_from(1, go_on))
    with backend(serve) as one, backend(serve) as other, world() as w:
        w.use(of(one, other, protocol="h2c", circuit=ONE))
        first = opened(w, w.get())
        second = w.get()
        assert first.request is not None
        assert second.request is not None
        assert first.request.address != second.request.address
        go_on.set()
        w.until(lambda: first.is_over and second.is_over)

        assert (first.status_code, second.failure) == (200, None)
        assert (w.backend().connections, w.backend().connections_opened) == (1, 2)


def test_a_connection_over_the_maximum_age_makes_room_after_its_last_response() -> None:
    go_on = threading.Event()
    with late(answers_from(3, go_on)) as (peer, is_late), world() as w:
        w.clock.stop()
        w.use(of(peer, protocol="h2c", circuit=ONE), connect_timeout="10s", backend_idle_timeout="0s")
        warm = w.get()
        w.until(lambda: w.backend().connections == 1)
        w.pass_time(LATE_S)
        is_late.set()
        w.until(lambda: warm.is_over)
        for _ in range(int((MAX_AGE_S - LATE_S) / SILENCE_S)):
            w.pass_time(SILENCE_S)
        first = w.get()
        assert first.request is not None
        assert first.request.is_open
        w.pass_time(LATE_S + 1)
        second = w.get()
        go_on.set()
        w.until(lambda: first.is_over and second.is_over)

        assert (first.status_code, second.failure) == (200, None)
        assert w.backend().connections_opened == 2


def test_a_probe_does_not_wait_for_a_connection_that_is_too_old_for_it() -> None:
    probes: list[int] = []

    def note(peer: H2Peer, event: h2.events.Event) -> None:
        answers(peer, event)
        if isinstance(event, h2.events.StreamEnded):
            probes.append(event.stream_id)

    policy = document.ActiveHealth(interval=f"{MAX_AGE_S + 3:g}s", timeout="60s", unhealthy_threshold=1)
    with late(note) as (peer, is_late), world() as w:
        w.clock.stop()
        w.use(of(peer, protocol="h2c", active_health=policy), connect_timeout="10s", backend_idle_timeout="0s")
        w.until(lambda: peer.connections == 1)
        w.turns()
        w.pass_time(LATE_S)
        is_late.set()
        w.until(lambda: len(probes) == 1)
        w.turns()
        for _ in range(int((MAX_AGE_S - LATE_S) / SILENCE_S)):
            w.pass_time(SILENCE_S)
        w.pass_time(LATE_S + 4)
        w.until(lambda: len(probes) == 2)

        assert peer.connections == 2


def test_a_failed_connection_attempt_does_not_fail_a_request_served_elsewhere_meanwhile() -> None:
    """Nor does that request keep later ones from being notified: the first one notified may free a stream for it."""
    go_on, leave = threading.Event(), threading.Event()
    peers: list[H2Peer] = []
    serve = speaks(answers_from(3, go_on), {SettingCodes.MAX_CONCURRENT_STREAMS: 1}, peers)

    def serve_one(conn: Conn) -> None:
        if not conn.place:
            serve(conn)
        elif conn.place == 1:
            assert leave.wait(PATIENCE_S)
        else:
            conn.wait_for_end()

    with backend(serve_one) as peer, world() as w:
        w.use(h2c(peer.address))
        w.fetch()
        running = opened(w, w.get())
        assert running.request is not None
        waiting = [w.get() for _ in range(3)]
        waiting[0].on_end = running.request.cancel
        w.until(lambda: peers[0].requests == [1, 3] and peer.connections == 2)
        leave.set()
        w.until(lambda: waiting[0].is_over)
        go_on.set()
        w.until(lambda: all(answer.is_over for answer in waiting))

        assert [answer.failure and answer.failure.reason for answer in waiting] == [Reason.RESET, None, Reason.RESET]
        assert waiting[1].status_code == 200
        assert w.backend().in_flight == 0


def test_a_request_not_sent_when_its_connection_ends_was_not_processed() -> None:
    go_on = threading.Event()

    def leave(peer: H2Peer, event: h2.events.Event) -> None:
        answers(peer, event)
        if isinstance(event, h2.events.RequestReceived) and event.stream_id == 3:
            assert go_on.wait(PATIENCE_S)
            peer.conn.reset()

    with backend(speaks(leave)) as peer, world() as w:
        w.use(h2c(peer.address))
        w.fetch()
        sent = opened(w, w.get())
        w.turns()
        go_on.set()
        # It has arrived, but the loop has not read it.
        assert w.loop._selector.select(PATIENCE_S)
        unsent = w.get(method=b"POST")
        w.until(lambda: sent.is_over and unsent.is_over)

        assert sent.failure is not None
        assert unsent.failure is not None
        assert (sent.failure.reason, sent.failure.is_unprocessed) == (Reason.RESET, False)
        assert (unsent.failure.reason, unsent.failure.is_unprocessed) == (Reason.RESET, True)


def test_a_new_connection_whose_request_was_cancelled_counts_as_reused() -> None:
    is_ready = threading.Event()

    def break_off(peer: H2Peer, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.SettingsAcknowledged):
            is_ready.set()
        elif isinstance(event, h2.events.StreamEnded):
            peer.conn.reset()

    with backend(speaks(break_off)) as peer, world() as w:
        w.use(h2c(peer.address))
        request = w.get().request
        assert request is not None
        request.cancel()
        w.until(is_ready.is_set)
        failure = w.fetch().failure

        assert failure is not None
        assert (failure.reason, failure.is_unprocessed, failure.was_reused) == (Reason.RESET, False, True)
        assert peer.connections == 1
