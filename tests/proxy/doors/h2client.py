"""An HTTP/2 client on a real socket: the `h2` package does the protocol, and this class the waiting."""

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    PingReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import StreamClosedError
from hpack import NeverIndexedHeaderTuple

Headers = list[tuple[bytes, bytes]]
E = TypeVar("E", bound=Event)


class Answer:
    """What has come on a stream."""

    def __init__(self) -> None:
        self.interim: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.trailers: dict[bytes, bytes] = {}
        self.secret_trailers: list[bytes] = []
        """Names of those among them that are never indexed."""
        self.has_ended = False
        self.reset_code: int | None = None

    @property
    def status_code(self) -> int:
        return int(self.headers[b":status"])


class H2Client:
    """`sock` is connected, TLS included. With `gives_credit` false, windows that the server uses up stay closed."""

    def __init__(self, sock: socket.socket, *, gives_credit: bool = True, windows_bytes: int | None = None) -> None:
        self.sock = sock
        self._gives_credit = gives_credit
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.answers: dict[int, Answer] = {}
        self.goaways: list[ConnectionTerminated] = []
        self.pings: list[bytes] = []
        self.is_closed = False
        self._received = b""
        if windows_bytes is not None:
            self.h2.local_settings.initial_window_size = windows_bytes
        self.h2.initiate_connection()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.sock.close()

    def flush(self) -> None:
        self.sock.sendall(self.h2.data_to_send())

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        authority: str = "a.example",
        has_body: bool = False,
        fields: Headers | None = None,
    ) -> int:
        stream_id: int = self.h2.get_next_available_stream_id()
        head = request_head(path, method, authority)
        self.h2.send_headers(stream_id, head + (fields or []), end_stream=not has_body)
        self.answers[stream_id] = Answer()
        self.flush()
        return stream_id

    def send(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        """As windows let it through."""
        while data:
            room = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size, len(data))
            if room > 0:
                self.h2.send_data(stream_id, data[:room])
                data = data[room:]
                self.flush()
            else:
                self.read()
        if ends:
            self.h2.end_stream(stream_id)
            self.flush()

    def answer(self, stream_id: int) -> Answer:
        """Waits for its end."""
        found = self.answers[stream_id]
        self.read_until(lambda: found.has_ended or found.reset_code is not None)
        return found

    def get(self, path: str, **more: str) -> Answer:
        return self.answer(self.ask(path, **more))  # type: ignore[arg-type]

    def read_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert not self.is_closed, "connection closed while waiting"
            self.read()

    def read(self) -> None:
        """What comes next; the socket's timeout is the deadline."""
        data = self.sock.recv(65536)
        if not data:
            self.is_closed = True
            return
        self._received += data
        while len(self._received) >= 9:
            size_bytes = 9 + int.from_bytes(self._received[:3], "big")
            if len(self._received) < size_bytes:
                break
            frame, self._received = self._received[:size_bytes], self._received[size_bytes:]
            self._receive_frame(frame)
        self.flush()

    def _receive_frame(self, frame: bytes) -> None:
        """The package knows no graceful GOAWAY: after any, it refuses all that follows."""
        for event in self.h2.receive_data(frame):
            self._take(event)
            if isinstance(event, ConnectionTerminated) and event.error_code == 0:
                self.h2.state_machine.state = ConnectionState.CLIENT_OPEN

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.goaways.append(event)
            return
        if isinstance(event, PingReceived):
            self.pings.append(event.ping_data)
            return
        found = self.answers.get(getattr(event, "stream_id", None) or 0)
        if found is None:
            return
        if isinstance(event, InformationalResponseReceived):
            found.interim.append(dict(event.headers)[b":status"])
        elif isinstance(event, ResponseReceived):
            found.headers = dict(event.headers)
        elif isinstance(event, TrailersReceived):
            found.trailers = dict(event.headers)
            found.secret_trailers = [name for name, _ in filter(_is_never_indexed, event.headers)]
        elif isinstance(event, DataReceived):
            found.body += event.data
            if self._gives_credit and event.flow_controlled_length:
                try:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                except StreamClosedError:
                    self.h2.increment_flow_control_window(event.flow_controlled_length)
        elif isinstance(event, StreamEnded):
            found.has_ended = True
        elif isinstance(event, StreamReset):
            found.reset_code = event.error_code


def request_head(path: str, method: str = "GET", authority: str = "a.example") -> Headers:
    return [
        (b":method", method.encode()),
        (b":scheme", b"http"),
        (b":authority", authority.encode()),
        (b":path", path.encode()),
    ]


def _is_never_indexed(field: tuple[bytes, bytes]) -> bool:
    return isinstance(field, NeverIndexedHeaderTuple)
