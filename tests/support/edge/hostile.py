"""One address of an edge that speaks HTTP/2 by the `h2` package: tests send frames that our own codec never sends.

It belongs to an `Edge` that serves beside it, and shares its tunnel and its authority. Only the test's thread uses a
connection, so nothing is answered while the test does something else.
"""

from __future__ import annotations

import socket
import ssl
import uuid
from types import TracebackType
from typing import Self

from proxy.h2 import frames
from proxy.tunnel.registration import ConnectionDetails, Registration
from tests.support.edge.controlserver import ControlServer, RegistrationAsked
from tests.support.edge.edge import SERVER_NAMES, Edge
from tests.support.edge.heads import CONTROL_STREAM
from tests.support.h2peer import TIMEOUT_S, H2Peer
from tests.support.ports import LOOPBACK

GOAWAY_HEAD_BYTES = 8
DIGEST_S = 60.0
"""A flood is a lot of work for a connector, especially on a slow machine."""


class HostileEdge:
    def __init__(self, edge: Edge) -> None:
        self._context = edge.authority.server_context(SERVER_NAMES)
        self._listener = socket.create_server((LOOPBACK, 0))
        self._listener.settimeout(TIMEOUT_S)
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"

    def accept(self) -> HostilePeer:
        """The next connector, to which only our preface and SETTINGS have been sent."""
        sock, _ = self._listener.accept()
        sock.settimeout(TIMEOUT_S)
        try:
            return HostilePeer(self._context.wrap_socket(sock, server_side=True))
        except BaseException:
            sock.close()
            raise

    def register(self) -> HostilePeer:
        """The next connector, registered and after one request: both sides then agree on how fields are compressed."""
        peer = self.accept()
        try:
            peer.accept_registration()
            peer.head(peer.request("/first"))
        except BaseException:
            peer.close()
            raise
        return peer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()


class HostilePeer(H2Peer):
    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock, is_strict=False)
        self.registration: Registration | None = None

    def accept_registration(self) -> None:
        name, value = CONTROL_STREAM
        control_id = self.request(fields=[(name.decode(), value.decode())], end_stream=False)
        server = ControlServer()
        said = b""
        while self.registration is None:
            seen_bytes, said = len(said), self._more_than(said, control_id)
            for question in server.receive(said[seen_bytes:]):
                if isinstance(question, RegistrationAsked):
                    self.registration = question.registration
                    server.accept(question.question_id, ConnectionDetails(uuid.uuid4(), "EVL", True))
            self.send(control_id, server.data_to_send())

    def _more_than(self, said: bytes, stream_id: int) -> bytes:
        """Everything received on the stream, once that is more than `said`."""
        self.wait_for(lambda: self.data(stream_id) != said, "a message of the connector")
        return self.data(stream_id)

    def send_raw(self, data: bytes) -> None:
        """Send frames or other bytes, as far as the connector takes them."""
        self.sock.settimeout(DIGEST_S)
        try:
            self.sock.sendall(data)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise AssertionError(f"the connector took no more for {DIGEST_S:g} s") from error

    def read_to_end(self) -> tuple[int, str] | None:
        """Error code and text of the GOAWAY with which the connector left; None if it left without one."""
        raw = bytearray()
        self.sock.settimeout(DIGEST_S)
        try:
            while data := self.sock.recv(65536):
                raw += data
        except TimeoutError as error:
            raise AssertionError(f"the connector did not leave; it sent {bytes(raw[-100:])!r}") from error
        except OSError:
            pass  # it closed before it had read everything
        while len(raw) >= frames.HEAD_BYTES:
            size_bytes = int.from_bytes(raw[:3], "big")
            kind, payload = raw[3], raw[frames.HEAD_BYTES : frames.HEAD_BYTES + size_bytes]
            if kind == frames.GOAWAY and len(payload) >= GOAWAY_HEAD_BYTES:
                return int.from_bytes(payload[4:8], "big"), payload[8:].decode()
            del raw[: frames.HEAD_BYTES + size_bytes]
        return None
