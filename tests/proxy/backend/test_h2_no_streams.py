"""Backends that speak HTTP/2 and allow no streams, temporarily or permanently."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from h2.events import Event, SettingsAcknowledged, StreamEnded
from h2.settings import SettingCodes

from proxy import document
from proxy.backend.stream import Reason
from tests.proxy.backend.h2peer import H2Peer, speaks
from tests.proxy.backend.servers import PATIENCE_S, Conn, backend
from tests.proxy.backend.world import world


def h2c(address: str) -> document.Backend:
    circuit = document.Circuit(max_connections=20)
    return document.Backend(name="b", addresses=(address,), protocol="h2c", circuit=circuit)


def takes_no_stream(knows: threading.Event) -> Callable[[Conn], None]:
    """`knows` is set when the proxy has heard of it."""

    def watch(_: H2Peer, event: Event) -> None:
        if isinstance(event, SettingsAcknowledged):
            knows.set()

    return speaks(watch, {SettingCodes.MAX_CONCURRENT_STREAMS: 0})


def test_no_further_connection_is_opened_to_a_backend_that_allows_no_streams() -> None:
    knows = threading.Event()
    with backend(takes_no_stream(knows)) as peer, world() as w:
        w.use(h2c(peer.address))
        first = w.get()
        w.until(knows.is_set)
        second = w.get()
        w.pass_time(6)
        w.until(lambda: first.is_over and second.is_over)

        assert first.failure is not None
        assert (first.failure.reason, first.failure.is_unprocessed) == (Reason.OVERLOAD, True)
        assert peer.connections == 1


def test_waiting_requests_are_served_when_the_backend_allows_streams() -> None:
    """Those that exceed the streams of this connection are served on others."""
    opened: list[Event] = []
    together = threading.Barrier(3, timeout=PATIENCE_S)

    def opens_later(peer: H2Peer, event: Event) -> None:
        if isinstance(event, SettingsAcknowledged) and not opened:
            opened.append(event)
            peer.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 1})
        elif isinstance(event, StreamEnded):
            together.wait()
            peer.answer(event.stream_id)

    def behave(conn: Conn) -> None:
        speaks(opens_later, {SettingCodes.MAX_CONCURRENT_STREAMS: 1 if conn.place else 0})(conn)

    with backend(behave) as peer, world() as w:
        w.use(h2c(peer.address))
        requests = [w.get() for _ in range(3)]
        w.until(lambda: all(a.is_over for a in requests))

        assert [a.status_code for a in requests] == [200, 200, 200]
        assert peer.connections == 3


SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
NO_STREAMS = b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x03" + bytes(4)
GOAWAY = b"\0\0\x08\x07\0\0\0\0\0" + bytes(8)


@pytest.mark.parametrize(
    ("greeting", "was_connecting"), [(SETTINGS + GOAWAY, False), (NO_STREAMS + GOAWAY, False), (NO_STREAMS, True)]
)
def test_a_backend_that_closes_before_the_first_request_is_not_reconnected_in_a_loop(
    greeting: bytes, was_connecting: bool
) -> None:
    def leave(conn: Conn) -> None:
        conn.send(greeting)
        # The proxy may have closed already.
        with suppress(OSError):
            conn.sock.shutdown(socket.SHUT_WR)
        conn.wait_for_end()

    with backend(leave) as peer, world() as w:
        w.use(h2c(peer.address))
        requests = [w.get() for _ in range(3)]
        w.until(lambda: all(a.is_over for a in requests))

        for answer in requests:
            assert answer.failure is not None
            assert (answer.failure.reason, answer.failure.is_unprocessed) == (Reason.RESET, True)
            assert answer.failure.was_connecting is was_connecting
        w.until(lambda: w.backend().connections == 0)
        w.turns()
        assert w.backend().connections_opened == 1


def test_a_removed_backend_that_allows_no_streams_is_not_reconnected_in_a_loop() -> None:
    knows = threading.Event()
    with backend(takes_no_stream(knows)) as peer, world() as w:
        w.use(h2c(peer.address))
        answer = w.get()
        w.until(knows.is_set)
        w.use()
        w.turns()

        assert (w.backend().connections, w.backend().connections_opened) == (1, 1)
        w.pass_time(6)
        w.until(lambda: answer.is_over)
