"""WebSockets of the edge at their start and end, in raw bytes: the edge frames nothing, and neither do we."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator

import pytest

from proxy.h2 import ErrorCode
from tests.e2e.tunnel.connector import Connector
from tests.support.edge.call import Call
from tests.support.edge.heads import WEBSOCKET
from tests.support.gateway import route_to
from tests.support.socketbackend import Dialogue, SocketBackend

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
PATIENCE_S = 20.0

Script = Callable[[Dialogue], None]


@contextlib.contextmanager
def switched(
    proxy: Connector,
    script: Script,
    fields: bytes = b"",
    *,
    asking: tuple[tuple[bytes, bytes], ...] = (),
    end_stream: bool = False,
) -> Iterator[Call]:
    """A WebSocket whose backend does `script` once it has switched; `asking`: further fields of the request."""

    def talk(dialogue: Dialogue) -> None:
        head = dialogue.read_until(b"\r\n\r\n")
        assert b"\r\nsec-websocket-key: " + KEY.lower() in head.lower()
        assert b"\r\nupgrade: websocket" in head.lower()
        dialogue.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (ACCEPT, fields)
        )
        script(dialogue)

    with SocketBackend(talk) as backend:
        proxy.put({"listeners": [], "routes": [route_to(backend.address)]})
        call = proxy.edge.call("/ws", fields=[WEBSOCKET, (b"sec-websocket-key", KEY), *asking], end_stream=end_stream)
        yield call


def echo(dialogue: Dialogue) -> None:
    with contextlib.suppress(ConnectionError):
        while data := dialogue.sock.recv(65536):
            dialogue.send(data)


def test_the_test_vector_is_that_of_rfc_6455() -> None:
    digest = hashlib.sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    assert base64.b64encode(digest) == ACCEPT


def test_a_101_of_the_backend_is_forwarded_as_200_with_the_fields_of_the_handshake(proxy: Connector) -> None:
    with switched(proxy, echo, b"Sec-WebSocket-Protocol: chat\r\nX-Other: 1\r\n") as call:
        response = call.response()
        assert (response.status_code, response.source) == (200, "origin")
        assert response.values(b"sec-websocket-accept") == [ACCEPT]
        assert response.values(b"sec-websocket-protocol") == [b"chat"]
        assert response.values(b"x-other") == [b"1"]
        assert [value.lower() for value in response.values(b"upgrade")] == [b"websocket"]
        assert [value.lower() for value in response.values(b"connection")] == [b"upgrade"]
        assert not response.values(b"content-length")
        call.reset()


def test_bytes_pass_after_a_handshake_with_content_length_zero(proxy: Connector) -> None:
    with switched(proxy, echo, asking=((b"content-length", b"0"),)) as call:
        assert call.response().status_code == 200
        call.send(b"\x81\x85\0\0\0\0hello")
        assert call.read(11) == b"\x81\x85\0\0\0\0hello"
        call.reset()


def test_bytes_pass_unchanged_in_both_directions_as_they_arrive(proxy: Connector) -> None:
    every_byte = bytes(range(256))
    with switched(proxy, echo) as call:
        for size in (1, 2, 125, 126, 16_384, 70_000):
            data = (every_byte * (size // 256 + 1))[:size]
            call.send(data, waits=False)
            assert call.read(size) == data
        call.reset()


def test_a_backend_may_send_first(proxy: Connector) -> None:
    with switched(proxy, lambda dialogue: dialogue.send(b"hello")) as call:
        assert call.read(5) == b"hello"


def test_the_stream_ends_when_the_backend_has_ended(proxy: Connector) -> None:
    with switched(proxy, lambda dialogue: dialogue.send(b"bye")) as call:
        assert call.read_all() == b"bye"
        proxy.edge.wait_for(lambda: not proxy.edge.ledger.in_flight, "the end of the stream")


@pytest.mark.parametrize("how", [Call.end, Call.reset], ids=["ends", "resets"])
def test_the_backend_connection_is_closed_when_the_edge_ends_or_resets_the_stream(
    proxy: Connector, how: Callable[[Call], None]
) -> None:
    over = threading.Event()

    def wait_for_end(dialogue: Dialogue) -> None:
        dialogue.send(b"ready")
        with contextlib.suppress(ConnectionError):
            assert dialogue.sock.recv(1) == b""
        over.set()

    with switched(proxy, wait_for_end) as call:
        assert call.read(5) == b"ready"
        how(call)
        assert over.wait(PATIENCE_S), "the backend's connection was kept"
        proxy.edge.wait_for(lambda: not proxy.edge.ledger.in_flight, "the end of the stream")


def test_a_backend_that_keeps_sending_is_disconnected_soon_after_the_edge_ends_the_stream(proxy: Connector) -> None:
    """The edge has no half-closed streams, so the backend's bytes would go nowhere, for ever."""
    is_left = threading.Event()

    def talk_on(dialogue: Dialogue) -> None:
        with contextlib.suppress(ConnectionError):
            while not is_left.wait(0.01):
                dialogue.send(b"tick")
        is_left.set()

    with switched(proxy, talk_on) as call:
        assert call.read(4) == b"tick"
        call.end()
        assert call.read_all().endswith(b"tick")
        assert is_left.wait(PATIENCE_S), "the backend's connection was kept"
        proxy.edge.wait_for(lambda: not proxy.edge.ledger.in_flight, "the end of the stream")


def test_a_backends_last_bytes_are_forwarded_after_the_edge_ends_the_stream(proxy: Connector) -> None:
    def answer(dialogue: Dialogue) -> None:
        dialogue.send(b"ready")
        assert dialogue.read_to_end() == b"bye"
        dialogue.send(b"bye, too")

    with switched(proxy, answer) as call:
        assert call.read(5) == b"ready"
        call.send(b"bye", True)
        assert call.read_all() == b"bye, too"


def test_a_stream_that_the_edge_ends_with_its_head_ends_at_the_backend_too(proxy: Connector) -> None:
    def answer(dialogue: Dialogue) -> None:
        assert dialogue.read_to_end() == b""
        dialogue.send(b"bye")

    with switched(proxy, answer, end_stream=True) as call:
        assert call.response().status_code == 200
        assert call.read_all() == b"bye"
        proxy.edge.wait_for(lambda: not proxy.edge.ledger.in_flight, "the end of the stream")


def test_a_backend_that_breaks_off_resets_the_stream(proxy: Connector) -> None:
    def break_off(dialogue: Dialogue) -> None:
        dialogue.send(b"some")
        assert dialogue.read_exactly(2) == b"go"
        dialogue.reset()

    with switched(proxy, break_off) as call:
        assert call.read(4) == b"some"
        call.send(b"go", waits=False)
        assert call.wait_until_lost() == ErrorCode.INTERNAL_ERROR


def test_a_websocket_without_a_key_is_refused(proxy: Connector) -> None:
    proxy.put({"listeners": [], "routes": [route_to("127.0.0.1:1")]})
    call = proxy.edge.call("/ws", fields=[WEBSOCKET], end_stream=False)
    assert (call.response().status_code, call.response().source) == (400, "origin")
