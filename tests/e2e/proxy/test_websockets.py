"""WebSockets through the proxy: the `websockets` library on both sides, and clients over HTTP/2 (RFC 8441).

Also switches to other protocols.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from h2.settings import SettingCodes
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol
from websockets.utils import accept_key

from tests.e2e.proxy.doors import through_both_doors
from tests.support.asking import ask
from tests.support.gateway import Gateway, route_to
from tests.support.h2peer import H2Client
from tests.support.recordingbackend import RecordingBackend, Reply
from tests.support.servers import nginx
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.support.websocketpeer import MAX_BYTES, WebSocketServer

WAIT_S = 20.0


@pytest.fixture
def server(gateway: Gateway) -> Iterator[WebSocketServer]:
    with WebSocketServer() as server:
        gateway.serve(route_to(server.address))
        yield server


def dial(gateway: Gateway, path: str = "/", *, scheme: str = "ws", **options: Any) -> ClientConnection:
    tls = gateway.doors.authority.client_context() if scheme == "wss" else None
    if tls is not None:
        # The library reads in a thread of its own. TLS 1.3 sends tickets after the handshake, and what another
        # thread writes meanwhile is lost: OpenSSL's connections are for one thread, and Python 3.11 has no lock.
        tls.maximum_version = ssl.TLSVersion.TLSv1_2
    port = gateway.tls[1] if scheme == "wss" else gateway.clear[1]
    uri = f"{scheme}://localhost:{port}{path}"
    return connect(uri, ssl=tls, proxy=None, max_size=MAX_BYTES, ping_interval=None, legacy=True, **options)


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_messages_pass_in_both_directions(gateway: Gateway, server: WebSocketServer, scheme: str) -> None:
    with dial(gateway, "/chat?room=7", scheme=scheme) as client:
        for message in ("hello", b"\x00\x01\xff", "", "grüße"):
            client.send(message)
            assert message == client.recv(WAIT_S)

    path, fields = server.handshakes.get(timeout=WAIT_S)
    assert "/chat?room=7" == path
    assert "127.0.0.1" == fields["x-forwarded-for"]


@through_both_doors
@pytest.mark.parametrize("size_bytes", [125, 126, 65_535, 65_536, 5_000_000])
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_frames_of_any_size_pass(
    gateway: Gateway, server: WebSocketServer, size_bytes: int, compression: str | None
) -> None:
    message = (b"0123456789abcdef" * (size_bytes // 16 + 1))[:size_bytes]

    with dial(gateway, compression=compression) as client:
        client.send(message)
        assert message == client.recv(WAIT_S)
        client.send(f"large {size_bytes}")
        assert bytes(size_bytes) == client.recv(WAIT_S)


@through_both_doors
def test_a_thousand_messages_each_way_cross(gateway: Gateway, server: WebSocketServer) -> None:
    """Neither side waits for the other."""
    messages = [b"%d " % number * 1000 for number in range(1000)]
    with dial(gateway, compression=None) as client:

        def send_all() -> None:
            for message in messages:
                client.send(message)

        sender = threading.Thread(target=send_all, daemon=True)
        sender.start()

        assert messages == [client.recv(WAIT_S) for _ in messages]
        sender.join(WAIT_S)


@through_both_doors
def test_subprotocol_and_extension_are_negotiated_end_to_end(gateway: Gateway, server: WebSocketServer) -> None:
    wanted = [Subprotocol("superchat"), Subprotocol("chat")]
    with dial(gateway, subprotocols=wanted, compression="deflate") as client:
        assert "superchat" == client.subprotocol
        assert client.protocol.extensions


@through_both_doors
@pytest.mark.parametrize("code", [1000, 1001, 3000, 4999])
def test_close_codes_of_the_client_reach_the_server(gateway: Gateway, server: WebSocketServer, code: int) -> None:
    client = dial(gateway)
    client.close(code, "for a reason")

    assert (code, "for a reason") == server.closed.get(timeout=WAIT_S)


@through_both_doors
@pytest.mark.parametrize("code", [1000, 1001, 1011, 4000])
def test_close_codes_of_the_server_reach_the_client(gateway: Gateway, server: WebSocketServer, code: int) -> None:
    with dial(gateway) as client:
        client.send(f"close {code} enough of it")
        with pytest.raises(ConnectionClosed):
            client.recv(WAIT_S)

        assert (code, "enough of it") == (client.close_code, client.close_reason)


@through_both_doors
def test_pings_are_answered_by_the_other_side(gateway: Gateway, server: WebSocketServer) -> None:
    with dial(gateway) as client:
        assert client.ping(b"are you there").wait(WAIT_S)


@through_both_doors
def test_a_client_that_vanishes_is_disconnected_at_the_server(gateway: Gateway, server: WebSocketServer) -> None:
    client = dial(gateway)
    client.send("hello")
    assert "hello" == client.recv(WAIT_S)

    client.socket.shutdown(2)

    assert (1006, "") == server.closed.get(timeout=WAIT_S)


@through_both_doors
def test_a_server_that_vanishes_is_disconnected_at_the_client(gateway: Gateway) -> None:
    def accept_and_reset(dialogue: Dialogue) -> None:
        dialogue.send(accepting(dialogue.read_until(b"\r\n\r\n")))
        dialogue.read_exactly(6)
        dialogue.reset()

    with SocketBackend(accept_and_reset) as backend:
        gateway.serve(route_to(backend.address))
        with dial(gateway) as client:
            client.send("")
            with pytest.raises(ConnectionClosed):
                client.recv(WAIT_S)


def accepting(request: bytes) -> bytes:
    """A 101 to this request."""
    lines = [line.partition(b": ") for line in request.split(b"\r\n")]
    key = next(value for name, _, value in lines if name.lower() == b"sec-websocket-key")
    accept = accept_key(key.decode()).encode()
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    return upgrade + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"


@through_both_doors
def test_bytes_right_after_the_handshake_are_not_lost(gateway: Gateway) -> None:
    """Frames that arrive in one segment with the heads, on both sides."""

    def talk_first(dialogue: Dialogue) -> None:
        head = dialogue.read_until(b"\r\n\r\n")
        dialogue.send(accepting(head) + Frame(Opcode.TEXT, b"first").serialize(mask=False))
        dialogue.read_to_end()

    with SocketBackend(talk_first) as backend:
        gateway.serve(route_to(backend.address))
        with dial(gateway, close_timeout=0.1) as client:
            assert "first" == client.recv(WAIT_S)


@through_both_doors
@pytest.mark.parametrize("framing", [b"Content-Length: 0", b"Transfer-Encoding: chunked"])
def test_content_length_and_transfer_encoding_of_a_101_are_ignored_and_dropped(
    gateway: Gateway, framing: bytes
) -> None:
    """RFC 9112, 6.3: such a response ends at its empty line, whatever its header fields."""

    def talk(dialogue: Dialogue) -> None:
        head = accepting(dialogue.read_until(b"\r\n\r\n"))
        dialogue.send(head.replace(b"\r\n\r\n", b"\r\n" + framing + b"\r\n\r\n"))
        dialogue.send(Frame(Opcode.TEXT, b"hello").serialize(mask=False))
        dialogue.read_to_end()

    with SocketBackend(talk) as backend:
        gateway.serve(route_to(backend.address))
        with dial(gateway, close_timeout=0.1) as client:
            assert "hello" == client.recv(WAIT_S)
            assert client.response is not None
            assert framing.partition(b":")[0].decode() not in client.response.headers


@through_both_doors
def test_a_refused_handshake_is_forwarded(gateway: Gateway, backend: RecordingBackend) -> None:
    backend.respond = lambda _: Reply(status_code=403, body=b"not you")
    gateway.serve(route_to(backend.address))

    with pytest.raises(InvalidStatus) as refused:
        dial(gateway)

    assert (403, b"not you") == (refused.value.response.status_code, refused.value.response.body)


@through_both_doors
def test_host_rewrites_apply_to_handshakes(gateway: Gateway, server: WebSocketServer) -> None:
    gateway.serve(route_to(server.address, filters={"urlRewrite": {"hostname": "inner.example"}}))

    with dial(gateway):
        pass

    _, fields = server.handshakes.get(timeout=WAIT_S)
    assert "inner.example" == fields["host"]


def test_a_client_that_offers_another_protocol_beside_websocket_gets_a_websocket(
    gateway: Gateway, server: WebSocketServer
) -> None:
    """As some clients of Teleport do."""
    with dial(gateway, additional_headers={"Upgrade": "alpn-ping"}) as client:
        client.send("hello")
        assert "hello" == client.recv(WAIT_S)

    _, fields = server.handshakes.get(timeout=WAIT_S)
    assert "websocket" == fields["upgrade"]


@pytest.mark.parametrize("transport", ["clear", "tls"])
def test_an_upgrade_to_another_protocol_is_forwarded_with_the_bytes_after_it(gateway: Gateway, transport: str) -> None:
    """As Headscale's clients do for their control protocol."""
    offer = b"Connection: upgrade\r\nUpgrade: tailscale-control-protocol\r\n"

    def talk(dialogue: Dialogue) -> None:
        assert offer.lower() in dialogue.read_until(b"\r\n\r\n").lower()
        dialogue.send(b"HTTP/1.1 101 Switching Protocols\r\n" + offer + b"\r\n\xff first")
        assert b"\x00 early, and later" == dialogue.read_exactly(18)
        dialogue.send(b"last")

    with SocketBackend(talk) as backend, contextlib.ExitStack() as stack:
        gateway.serve(route_to(backend.address))
        client = stack.enter_context(socket.create_connection(gateway.clear if transport == "clear" else gateway.tls))
        client.settimeout(WAIT_S)
        if transport == "tls":
            context = gateway.doors.authority.client_context()
            client = stack.enter_context(context.wrap_socket(client, server_hostname="localhost"))
        head = b"POST /ts2021 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" + offer
        client.sendall(head + b"\r\n\x00 early,")
        answer = stack.enter_context(client.makefile("rb"))
        lines = list(iter(answer.readline, b"\r\n"))

        assert b"HTTP/1.1 101 Switching Protocols\r\n" == lines[0]
        assert b"Upgrade: tailscale-control-protocol\r\n" in lines
        assert b"\xff first" == answer.read(7)
        client.sendall(b" and later")
        assert b"last" == answer.read()


def test_an_upgrade_request_may_have_a_body_before_the_bytes_of_the_other_protocol(gateway: Gateway) -> None:
    """As `docker exec` does, with the command to run."""
    offer = b"Connection: Upgrade\r\nUpgrade: tcp\r\n"
    request = b'{"Tty":false}'

    def talk(dialogue: Dialogue) -> None:
        head = dialogue.read_until(b"\r\n\r\n")
        assert offer in head
        assert b"\r\nContent-Length: 13\r\n" in head
        assert request == dialogue.read_exactly(13)
        dialogue.send(b"HTTP/1.1 101 UPGRADED\r\n" + offer + b"\r\n\xff first")
        assert b"early, and later" == dialogue.read_exactly(16)
        assert dialogue.receive() == b""
        dialogue.send(b"last")

    with SocketBackend(talk) as backend, contextlib.ExitStack() as stack:
        gateway.serve(route_to(backend.address))
        client = stack.enter_context(socket.create_connection(gateway.clear))
        client.settimeout(WAIT_S)
        head = b"POST /exec/1/start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n" + offer + b"\r\n"
        client.sendall(head + request + b"early,")
        answer = stack.enter_context(client.makefile("rb"))
        lines = list(iter(answer.readline, b"\r\n"))

        assert b"HTTP/1.1 101 Switching Protocols\r\n" == lines[0]
        assert b"\xff first" == answer.read(7)
        client.sendall(b" and later")
        client.shutdown(socket.SHUT_WR)
        assert b"last" == answer.read()


def test_an_upgrade_to_h2c_is_not_forwarded(gateway: Gateway, backend: RecordingBackend) -> None:
    gateway.serve(route_to(backend.address))
    fields = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}

    seen = ask(gateway.clear[1], headers=fields).seen

    assert seen.value("upgrade") is None
    assert seen.value("http2-settings") is None


# -- over HTTP/2 -----------------------------------------------------------------------------------------------------


class H2WebSocket:
    """Frames of one stream, by the library's sans-IO protocol, which begins after the handshake."""

    def __init__(self, client: H2Client, stream_id: int) -> None:
        self._client = client
        self._stream_id = stream_id
        self._protocol = Protocol(Side.CLIENT, state=State.OPEN, max_size=MAX_BYTES)
        self._read_bytes = 0
        self._frames: list[Frame] = []

    def send(self, opcode: Opcode, data: bytes, *, end_stream: bool = False) -> None:
        self._client.send(self._stream_id, Frame(opcode, data).serialize(mask=True), end_stream=end_stream)

    def receive(self) -> Frame:
        self._client.wait_for(self._has_frame, "a frame")
        return self._frames.pop(0)

    def _has_frame(self) -> bool:
        data = self._client.data(self._stream_id)
        self._protocol.receive_data(data[self._read_bytes :])
        self._read_bytes = len(data)
        self._frames += [event for event in self._protocol.events_received() if isinstance(event, Frame)]
        return bool(self._frames)


@pytest.mark.parametrize("transport", ["clear", "tls"])
def test_an_http_2_client_talks_to_a_server_of_http_1_1(
    gateway: Gateway, server: WebSocketServer, transport: str
) -> None:
    tls = gateway.doors.authority.client_context("h2") if transport == "tls" else None
    with H2Client(gateway.tls[1] if tls else gateway.clear[1], tls) as client:
        assert 1 == client.setting(SettingCodes.ENABLE_CONNECT_PROTOCOL)
        stream_id = client.connect_websocket("/chat?room=8")
        assert "200" == client.head(stream_id)[":status"]
        websocket = H2WebSocket(client, stream_id)

        websocket.send(Opcode.TEXT, b"hello")
        assert b"hello" == websocket.receive().data
        websocket.send(Opcode.BINARY, b"x" * 300_000)
        assert b"x" * 300_000 == websocket.receive().data
        websocket.send(Opcode.CLOSE, b"\x03\xe8bye")
        assert Opcode.CLOSE == websocket.receive().opcode

    assert "/chat?room=8" == server.handshakes.get(timeout=WAIT_S)[0]
    assert (1000, "bye") == server.closed.get(timeout=WAIT_S)


@through_both_doors
@pytest.mark.parametrize("transport", ["clear", "tls"])
def test_a_close_frame_that_ends_the_clients_side_is_answered_behind_nginx(
    gateway: Gateway, server: WebSocketServer, transport: str
) -> None:
    """Chromium's does. nginx drops the answer once it sees the end; without nginx, TLS could not carry it."""
    certificate = gateway.doors.authority.issue("backend.internal") if transport == "tls" else None
    passing_on = (
        f"location /chat {{ proxy_pass http://{server.address}; proxy_http_version 1.1;"
        " proxy_set_header Upgrade websocket; proxy_set_header Connection upgrade; }"
    )
    with nginx(certificate, passing_on) as between, H2Client(gateway.clear[1]) as client:
        tls = {"serverName": "backend.internal", "ca": gateway.doors.authority.pem}
        route = route_to(between.address, protocol="https", tls=tls) if certificate else route_to(between.address)
        gateway.serve(route)
        stream_id = client.connect_websocket("/chat")
        assert "200" == client.head(stream_id)[":status"]
        websocket = H2WebSocket(client, stream_id)

        websocket.send(Opcode.CLOSE, b"\x03\xe8bye", end_stream=True)

        answer = websocket.receive()
        assert (Opcode.CLOSE, b"\x03\xe8bye") == (answer.opcode, answer.data)
        client.wait_for(lambda: client.has_ended(stream_id), "the end of the stream")
    assert (1000, "bye") == server.closed.get(timeout=WAIT_S)


@through_both_doors
def test_websockets_and_requests_share_a_connection(gateway: Gateway, server: WebSocketServer) -> None:
    with H2Client(gateway.clear[1]) as client:
        streams = [client.connect_websocket(f"/{number}") for number in range(5)]
        sockets = []
        for stream_id in streams:
            assert "200" == client.head(stream_id)[":status"]
            sockets.append(H2WebSocket(client, stream_id))
        plain = client.request("/")
        for number, websocket in enumerate(sockets):
            websocket.send(Opcode.TEXT, b"%d" % number)

        assert [b"0", b"1", b"2", b"3", b"4"] == [websocket.receive().data for websocket in sockets]
        assert "426" == client.head(plain)[":status"]


@through_both_doors
def test_a_reset_stream_disconnects_at_the_server(gateway: Gateway, server: WebSocketServer) -> None:
    with H2Client(gateway.clear[1]) as client:
        stream_id = client.connect_websocket()
        client.head(stream_id)

        client.reset(stream_id)

        assert (1006, "") == server.closed.get(timeout=WAIT_S)


@through_both_doors
def test_a_websocket_that_the_client_ends_with_its_head_is_ended_at_the_server(
    gateway: Gateway, server: WebSocketServer
) -> None:
    with H2Client(gateway.clear[1]) as client:
        stream_id = client.connect_websocket(end_stream=True)

        assert "200" == client.head(stream_id)[":status"]
        assert (1006, "") == server.closed.get(timeout=WAIT_S)
        assert client.body(stream_id) == b""


@through_both_doors
def test_a_refusal_over_http_2_is_a_plain_response(gateway: Gateway, backend: RecordingBackend) -> None:
    backend.respond = lambda _: Reply(status_code=403, body=b"not you")
    gateway.serve(route_to(backend.address))

    with H2Client(gateway.clear[1]) as client:
        stream_id = client.connect_websocket()

        assert "403" == client.head(stream_id)[":status"]
        assert b"not you" == client.body(stream_id)
