"""Proxies that end with requests in flight; `make limits-tunnel` restarts them for a minute under load."""

import hashlib
import signal

from tests.e2e.tunnel.connector import Connector
from tests.e2e.tunnel.rolling import restart_in_turns
from tests.support.edge.edge import Edge
from tests.support.edge.heads import WEBSOCKET
from tests.support.gateway import route_to
from tests.support.recordingbackend import RecordingBackend
from tests.support.websocketpeer import WebSocketServer, client_frame, server_frame

RATE_PER_S = 500
EXIT_S = 30.0
PIECE = b"0123456789abcdef" * 4096
PIECES = 20


def test_a_rolling_restart_under_load_loses_no_request() -> None:
    outcome = restart_in_turns(RATE_PER_S, lambda outcome: outcome.restarts == 2)

    assert not outcome.failures, outcome.failures[:5]
    assert len(outcome.durations_s) >= 5 * RATE_PER_S


def test_an_upload_and_a_websocket_continue_after_unregistration() -> None:
    with WebSocketServer() as chat, RecordingBackend() as backend, Edge() as edge, Connector(edge) as proxy:
        rooms = route_to(chat.address, name="chat", matches=[{"path": {"type": "PathPrefix", "value": "/chat"}}])
        proxy.serve(rooms, route_to(backend.address))
        (record,) = edge.wait_for_registered(1)
        key = [WEBSOCKET, (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="), (b"sec-websocket-version", b"13")]
        talk = edge.call("/chat", fields=key, end_stream=False)
        assert talk.response().values(b"upgrade") == [b"websocket"]
        upload = edge.call("/upload", "POST", end_stream=False)
        upload.send(PIECE)

        proxy.send_signal(signal.SIGTERM)
        edge.wait_for(lambda: not record.is_in_rotation, "the edge's turn to others")

        for number in range(1, PIECES):
            upload.send(PIECE)
            talk.send(client_frame(b"%04d" % number))
            assert talk.read(6) == server_frame(b"%04d" % number)
        upload.end()
        talk.end()
        assert hashlib.sha256(PIECE * PIECES).hexdigest().encode() in upload.read_all()
        assert proxy.wait(EXIT_S) == 0
