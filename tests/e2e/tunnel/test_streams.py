"""Long streams through the tunnel: events, WebSockets, stalled bodies; and many at a time."""

from __future__ import annotations

import base64
import hashlib
import os
import threading

import websockets.sync.server

from tests.e2e.tunnel.connector import Connector
from tests.support.edge.heads import WEBSOCKET
from tests.support.gateway import route_to
from tests.support.recordingbackend import Received, RecordingBackend, Reply
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.support.websocketpeer import client_frame, server_frame

EVENTS = 200
MESSAGES = 1000
STREAMS = 500
STALLED = 15
SMALL_BYTES = 10_000


def test_each_event_arrives_before_the_next_is_sent(proxy: Connector) -> None:
    confirmed = threading.Semaphore(0)

    def talk(dialogue: Dialogue) -> None:
        dialogue.sock.recv(65536)
        dialogue.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(EVENTS):
            event = b"data: %04d\n\n" % number
            dialogue.send(b"%x\r\n%b\r\n" % (len(event), event))
            assert confirmed.acquire(timeout=20), f"event {number} was never confirmed"
        dialogue.send(b"0\r\n\r\n")

    backend = SocketBackend(talk)
    try:
        proxy.put({"listeners": [], "routes": [route_to(backend.address)]})
        call = proxy.edge.call("/events")
        for number in range(EVENTS):
            assert call.read(12) == b"data: %04d\n\n" % number
            confirmed.release()
        assert call.read_all() == b""
    finally:
        backend.close()


def test_websocket_messages_pass_in_both_directions(proxy: Connector) -> None:
    def echo(connection: websockets.sync.server.ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    # Without the library's own PINGs, which are sent every 20 s and are no echo.
    with websockets.sync.server.serve(echo, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            port = server.socket.getsockname()[1]
            proxy.put({"listeners": [], "routes": [route_to(f"127.0.0.1:{port}")]})
            key = base64.b64encode(os.urandom(16))
            fields = [WEBSOCKET, (b"sec-websocket-key", key), (b"sec-websocket-version", b"13")]
            call = proxy.edge.call("/ws", fields=fields, end_stream=False)
            response = call.response()
            assert response.status_code == 200
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            assert response.values(b"sec-websocket-accept") == [accept]
            assert response.values(b"upgrade") == [b"websocket"]
            for number in range(MESSAGES):
                payload = b"message %04d" % number
                call.send(client_frame(payload))
                assert call.read(2 + len(payload)) == server_frame(payload)
            call.end()
        finally:
            server.shutdown()
            thread.join()


def test_many_streams_at_once_share_a_connection(proxy: Connector) -> None:
    gate = threading.Event()

    def respond(received: Received) -> Reply:
        assert gate.wait(30)
        return Reply(body=received.target.encode())

    with RecordingBackend(respond=respond) as backend:
        proxy.put({"listeners": [], "routes": [route_to(backend.address)]})
        calls = [proxy.edge.call(f"/{number}") for number in range(STREAMS)]
        proxy.edge.wait_for(lambda: proxy.edge.ledger.in_flight == STREAMS, "all of them at once")
        gate.set()
        assert [call.read_all() for call in calls] == [b"/%d" % number for number in range(STREAMS)]


def test_stalled_uploads_delay_no_other(proxy: Connector) -> None:
    stalled = threading.Event()

    def talk(dialogue: Dialogue) -> None:
        while head := dialogue.read_head():
            if head.startswith(b"POST /stalled "):
                assert stalled.wait(30)
                return
            dialogue.read_exactly(SMALL_BYTES)
            dialogue.answer(b"ok")

    backend = SocketBackend(talk)
    try:
        proxy.put({"listeners": [], "routes": [route_to(backend.address)]})
        blocked = [proxy.edge.call("/stalled", "POST", end_stream=False) for _ in range(STALLED)]
        for call in blocked:
            call.send(bytes(32 << 20), waits=False)
        for _ in range(300):
            length = (b"content-length", b"%d" % SMALL_BYTES)
            other = proxy.edge.call("/other", "POST", [length], end_stream=False)
            other.send(bytes(SMALL_BYTES), True)
            assert other.read_all() == b"ok"
        for call in blocked:
            call.reset()
    finally:
        stalled.set()
        backend.close()
