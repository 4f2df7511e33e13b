"""An HTTP/2 client by the `h2` package, for what other clients cannot do on request: RFC 8441, windows, silence.

One thread, one connection, many streams; every wait has a deadline.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeAlias, cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from tests.support.ports import LOOPBACK

TIMEOUT_S = 20.0

Fields: TypeAlias = list[tuple[str, str]]


class H2Peer:
    """With `grants_credit` False, received data is not returned to the peer's windows.

    With `is_strict` False, it sends any fields it is given, even those that no request may have.
    """

    def __init__(self, sock: socket.socket, *, grants_credit: bool = True, is_strict: bool = True) -> None:
        self.sock = sock
        config = h2.config.H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_outbound_headers=is_strict,
            normalize_outbound_headers=is_strict,
        )
        self.connection = h2.connection.H2Connection(config)
        self.events: list[h2.events.Event] = []
        """All events so far."""
        self._grants_credit = grants_credit
        self._unread = b""
        self.connection.initiate_connection()
        self.flush()

    # -- requests ----------------------------------------------------------------------------------------------------

    def request(
        self, path: str = "/", method: str = "GET", fields: Iterable[tuple[str, str]] = (), *, end_stream: bool = True
    ) -> int:
        """Send a request; returns the new stream's id."""
        pseudo = [(":method", method), (":scheme", "http"), (":authority", "a.example"), (":path", path)]
        return self.begin([*pseudo, *fields], end_stream=end_stream)

    def connect_websocket(self, path: str = "/", *, end_stream: bool = False) -> int:
        """Send an extended CONNECT (RFC 8441)."""
        pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", path)]
        fields = [*pseudo, (":authority", "a.example"), ("sec-websocket-version", "13")]
        return self.begin(fields, end_stream=end_stream)

    def begin(self, fields: Fields, *, end_stream: bool = False) -> int:
        stream_id = self.connection.get_next_available_stream_id()
        self.connection.send_headers(stream_id, fields, end_stream=end_stream)
        self.flush()
        return stream_id

    def send(self, stream_id: int, data: bytes, *, end_stream: bool = False) -> None:
        """Send data as the windows allow."""
        while data:
            room = min(self.connection.local_flow_control_window(stream_id), self.connection.max_outbound_frame_size)
            if room <= 0:  # negative if SETTINGS made it smaller than what had been sent
                self.receive(time.monotonic() + TIMEOUT_S)
                continue
            self.connection.send_data(stream_id, data[:room])
            data = data[room:]
            self.flush()
        if end_stream:
            self.connection.end_stream(stream_id)
            self.flush()

    def reset(self, stream_id: int) -> None:
        self.connection.reset_stream(stream_id, 8)
        self.flush()

    # -- what comes --------------------------------------------------------------------------------------------------

    def wait_for(self, is_there: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
        end_s = time.monotonic() + timeout_s
        while not is_there():
            if not self.receive(end_s):
                raise AssertionError(f"never came: {what}; seen {self.events[-10:]}")

    def receive(self, end_s: float) -> bool:
        """Receive once; returns False if the time is over or the peer has closed."""
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        self.sock.settimeout(left_s)
        try:
            data = self.sock.recv(65536)
        except TimeoutError:
            return False
        if not data:
            return False
        self._unread += data
        for frame in iter(self._next_frame, b""):
            self._take(frame)
        self.flush()
        return True

    def _next_frame(self) -> bytes:
        """Returns complete frames only, so that nothing is lost of what preceded a frame that the library refuses."""
        size_bytes = 9 + int.from_bytes(self._unread[:3], "big")
        if len(self._unread) < size_bytes:
            return b""
        frame, self._unread = self._unread[:size_bytes], self._unread[size_bytes:]
        return frame

    def _take(self, frame: bytes) -> None:
        try:
            events = self.connection.receive_data(frame)
        except h2.exceptions.ProtocolError:
            # The library accepts nothing after a GOAWAY, though streams with lower ids go on.
            if not self.has_goaway:
                raise
            return
        for event in events:
            self.events.append(event)
            if isinstance(event, h2.events.DataReceived) and self._grants_credit:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def flush(self) -> None:
        self.sock.settimeout(TIMEOUT_S)
        self.sock.sendall(self.connection.data_to_send())

    def head(self, stream_id: int) -> dict[str, str]:
        """Wait for the response head."""

        def found() -> list[dict[str, str]]:
            responses = [event for event in self.events if isinstance(event, h2.events.ResponseReceived)]
            # Text, as `header_encoding` says.
            return [dict(cast(Fields, event.headers)) for event in responses if event.stream_id == stream_id]

        self.wait_for(lambda: bool(found()) or self.is_reset(stream_id), f"a response on stream {stream_id}")
        assert found(), f"stream {stream_id} was reset"
        return found()[0]

    def data(self, stream_id: int) -> bytes:
        """The stream's data so far."""
        parts = [event for event in self.events if isinstance(event, h2.events.DataReceived)]
        return b"".join(event.data for event in parts if event.stream_id == stream_id)

    def has_ended(self, stream_id: int) -> bool:
        ended = [event for event in self.events if isinstance(event, h2.events.StreamEnded)]
        return any(event.stream_id == stream_id for event in ended)

    def is_reset(self, stream_id: int) -> bool:
        resets = [event for event in self.events if isinstance(event, h2.events.StreamReset)]
        return any(event.stream_id == stream_id for event in resets)

    def reset_code(self, stream_id: int) -> int:
        """Error code of a stream that was reset."""
        resets = [event for event in self.events if isinstance(event, h2.events.StreamReset)]
        return next(int(event.error_code) for event in resets if event.stream_id == stream_id)

    def body(self, stream_id: int) -> bytes:
        """Wait for the end of the body, and return it."""
        self.wait_for(lambda: self.has_ended(stream_id), f"the end of stream {stream_id}")
        return self.data(stream_id)

    def is_refused(self, stream_id: int) -> bool:
        """By a GOAWAY, after which the h2 package reports no reset."""
        goaways = [event for event in self.events if isinstance(event, h2.events.ConnectionTerminated)]
        return any(event.last_stream_id is not None and event.last_stream_id < stream_id for event in goaways)

    @property
    def has_goaway(self) -> bool:
        return any(isinstance(event, h2.events.ConnectionTerminated) for event in self.events)

    def setting(self, code: h2.settings.SettingCodes) -> int | None:
        """The peer's announced value of a setting."""
        self.wait_for(lambda: any(isinstance(e, h2.events.RemoteSettingsChanged) for e in self.events), "SETTINGS")
        changes = [event for event in self.events if isinstance(event, h2.events.RemoteSettingsChanged)]
        found = [event.changed_settings[code].new_value for event in changes if code in event.changed_settings]
        return found[-1] if found else None

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class H2Client(H2Peer):
    """A peer on a connection that it opens itself."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, *, grants_credit: bool = True) -> None:
        sock = socket.create_connection((LOOPBACK, port), timeout=TIMEOUT_S)
        super().__init__(
            tls.wrap_socket(sock, server_hostname="localhost") if tls else sock, grants_credit=grants_credit
        )
