"""One request of the front door on its way to a connector and back: the edge's exchange.

Bodies flow both ways as far as the other side takes them. Nothing is ever sent twice: if a connector fails, the request
fails for the client, who gets the edge's own response (502, or 530 if there is no connector).
"""

from __future__ import annotations

import base64
import secrets
from typing import Protocol

import msgspec

from proxy.exchange.client import ClientStream
from proxy.exchange.hopbyhop import interim_fields, trailer_fields
from proxy.exchange.relay import NOBODY, Relay
from proxy.h2 import ErrorCode
from proxy.heads import Field, Fields, RequestHead, ResponseHead
from proxy.loop import Loop
from tests.support.edge.connection import EdgeConnection
from tests.support.edge.heads import client_head, read_response, request_head
from tests.support.edge.ledger import Ledger
from tests.support.edge.stream import EdgeStream

NO_TUNNEL = 530
"""The provider's status code for a tunnel without a connector."""


class Switchboard(Protocol):
    ledger: Ledger
    loop: Loop

    def choose(self, authority: bytes) -> EdgeConnection | None:
        """The connection whose turn it is."""


class Passage:
    def __init__(self, switchboard: Switchboard, client: ClientStream, head: RequestHead, end_stream: bool) -> None:
        self._switchboard = switchboard
        self._ledger = switchboard.ledger
        self._client = client
        self._head = head
        self._end_stream = end_stream
        self._ray = b""
        self._stream: EdgeStream | None = None
        self._connection: EdgeConnection | None = None
        self._upload = Relay()
        self._download = Relay()
        self._is_answered = False
        self._is_over = False

    def begin(self) -> None:
        with self._ledger.writing():
            self._ledger.requests += 1
        connection = self._switchboard.choose(self._head.authority)
        if connection is None:
            self._fail(NO_TUNNEL, "no connector is registered for this host, or none has room")
        elif connection.behaviour.request_delay_s:
            later = self._switchboard.loop.deadline(lambda: self._send(connection))
            later.set(self._switchboard.loop.now_s + connection.behaviour.request_delay_s)
        else:
            self._send(connection)

    def _send(self, connection: EdgeConnection) -> None:
        if self._is_over:
            return
        if connection.is_gone or not connection.has_room:
            self._fail(502, "the connection to the connector is gone, or full")
            return
        if self._head.protocol is not None and not _values(self._head.fields, b"sec-websocket-key"):
            # RFC 8441 has no key.
            key = base64.b64encode(secrets.token_bytes(16))
            self._head = msgspec.structs.replace(
                self._head, fields=[*self._head.fields, (b"sec-websocket-key", key), _VERSION]
            )
        arrival = self._client.arrival
        head = request_head(self._head, arrival.address, arrival.scheme, connection.behaviour.location)
        (self._ray,) = _values(head.fields, b"cf-ray")
        self._connection = connection
        is_open = not self._end_stream or self._head.protocol is not None
        self._stream = connection.open(head, not is_open, self)
        self._pump_up()

    # -- from the client ---------------------------------------------------------------------------------------------

    def on_request_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        self._upload.add(data, end_stream, self._client)
        self._pump_up()

    def on_request_trailers(self, fields: Fields) -> None:
        self._upload.add_trailers(fields)
        self._pump_up()

    def on_client_writable(self) -> None:
        self._pump_down()

    def on_client_gone(self, reason: str) -> None:
        with self._ledger.writing():
            self._ledger.failures.append(f"client gone: {reason}")
        self._finish(ErrorCode.CANCEL)

    # -- from the connector ------------------------------------------------------------------------------------------

    def on_interim(self, head: ResponseHead) -> None:
        self._client.send_interim(ResponseHead(head.status_code, interim_fields(head.fields)))

    def on_head(self, head: ResponseHead, end_stream: bool) -> None:
        response = read_response(head)
        with self._ledger.writing():
            self._ledger.responses.append(response)
        answer = client_head(response, self._ray)
        is_switch = self._head.protocol is not None and head.status_code == 200 and response.values(b"upgrade")
        if is_switch:
            assert not end_stream, "a WebSocket that ends with its head"
            is_extended = self._client.arrival.protocol == "HTTP/2"
            gone = b"content-length" if not is_extended else b"sec-websocket-accept"
            answer.fields = [field for field in answer.fields if field[0] != gone]
            answer.status_code = 200 if is_extended else 101
        self._answer(answer, end_stream)
        if is_switch:
            self._pump_up()

    def on_data(self, data: bytes | memoryview, end_stream: bool) -> None:
        assert self._stream is not None
        if self._is_over:
            self._stream.release(len(data))
            return
        self._download.add(data, end_stream, self._stream)
        self._pump_down()

    def on_trailers(self, fields: Fields) -> None:
        if not self._is_over:
            self._download.add_trailers(trailer_fields(fields))
            self._pump_down()

    def on_writable(self) -> None:
        self._pump_up()

    def on_lost(self, error: str, code: int | None) -> None:
        if self._is_over:
            return
        self._stream = None
        if not self._is_answered:
            self._fail(502, error)
            return
        with self._ledger.writing():
            self._ledger.failures.append(error)
        self._client.reset()
        self._finish()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _pump_up(self) -> None:
        if self._stream is not None:
            self._upload.pump(self._stream)

    def _pump_down(self) -> None:
        if not self._is_over and self._download.pump(self._client):
            self._finish(ErrorCode.NO_ERROR)

    def _answer(self, head: ResponseHead, end_stream: bool) -> None:
        self._is_answered = True
        with self._ledger.writing():
            self._ledger.answered[head.status_code] += 1
        self._client.send_headers(head, end_stream)
        if end_stream:
            self._finish(ErrorCode.NO_ERROR)

    def _fail(self, status_code: int, error: str) -> None:
        """Send the edge's own error response."""
        with self._ledger.writing():
            self._ledger.failures.append(error)
        body = f"{status_code} from the edge: {error}\n".encode()
        fields = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body)), (b"server", b"edge")]
        self._upload.drop()
        self._answer(ResponseHead(status_code, fields), False)
        self._download.add(body, True, NOBODY)
        self._pump_down()

    def _finish(self, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """End both sides; what is still open at the connector is reset."""
        if self._is_over:
            return
        self._is_over = True
        self._upload.drop()
        self._download.drop()
        if self._stream is not None:
            self._stream.reset(code)


_VERSION: Field = (b"sec-websocket-version", b"13")


def _values(fields: Fields, wanted: bytes) -> list[bytes]:
    return [value for name, value in fields if name == wanted]
