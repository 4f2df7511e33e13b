"""Clients that reset just after a request, which is not begun if sending another response discovers the reset."""

import select
import socket
from collections.abc import Callable

import pytest

from proxy.doors.h1connection import H1Connection
from proxy.doors.h2connection import H2Connection
from proxy.h2 import frames
from tests.proxy.doors.h2client import H2Client
from tests.proxy.doors.rig import WAIT_S, Rig, ask, serving
from tests.proxy.doors.tlsrig import A, TLSRig, https

RESET_ON_CLOSE = b"\1\0\0\0\0\0\0\0"

Ask = Callable[[str], object]


def over_h1(sock: socket.socket) -> Ask:
    return lambda path: ask(sock, path, method="POST", extra="Content-Length: 0\r\n")


def over_h2(sock: socket.socket) -> Ask:
    client = H2Client(sock)
    return lambda path: client.ask(path, method="POST")


def servers_socket(rig: Rig) -> socket.socket:
    (connection,) = rig.doors._registry
    assert isinstance(connection, H1Connection | H2Connection)
    return connection._transport._sock


def wait_for_the_reset_of(sock: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, 0)
    assert poll.poll(1000 * WAIT_S), "the reset never came"


@pytest.mark.parametrize("over", [over_h1, over_h2])
def test_a_request_is_not_begun_when_sending_an_earlier_response_discovers_a_reset(
    over: Callable[[socket.socket], Ask],
) -> None:
    with serving() as rig, rig.connect() as client:
        ask_for = over(client)
        ask_for("/hold")
        rig.services.begun.get(timeout=WAIT_S)

        def ask_and_break_off_before_the_answer() -> None:
            """In one turn of the loop, which sends before it reads again."""
            ask_for("/count")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            client.close()
            wait_for_the_reset_of(servers_socket(rig))
            rig.services.let_go()

        rig.call(ask_and_break_off_before_the_answer)
        rig.wait_for_connections(0)

        assert rig.services.begun.empty()


def test_pipelined_requests_of_a_client_that_has_reset_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """More of them than are held, in several TLS records, which are received one at a time."""
    with TLSRig().open(https("web", A)) as rig, rig.handshake() as client:
        ask(client, "/hold")
        rig.services.begun.get(timeout=WAIT_S)
        (connection,) = rig.call(lambda: [*rig.doors._registry])
        assert isinstance(connection, H1Connection)
        for _ in range(5):
            client.sendall(b"GET /count HTTP/1.1\r\nHost: a.example\r\n\r\n" * 400)
        rig.wait_for(lambda: not connection._codec.wants_data, "the limit of held requests")

        def ask_and_break_off_before_the_answer() -> None:
            for _ in range(3):
                ask(client, "/count")
            sock = servers_socket(rig)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            client.close()
            wait_for_the_reset_of(sock)
            rig.services.let_go()

        rig.call(ask_and_break_off_before_the_answer)
        rig.wait_for_connections(0)

        assert rig.services.begun.empty()
        assert "bug" not in caplog.text


def test_an_http2_client_that_resets_before_its_settings_lacks_no_descriptor() -> None:
    with serving() as rig:
        with rig.connect() as client:
            client.sendall(frames.PREFACE)
            rig.wait_for(lambda: any(isinstance(each, H2Connection) for each in rig.doors._registry), "HTTP/2")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        rig.wait_for_connections(0)

        assert not rig.door_stats.refused
