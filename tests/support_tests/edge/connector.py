"""A connector for tests of the edge: a thread and a socket around the codecs of the proxy, and a few fixed answers.

/hello           200 and a short body, with two cookies
/echo            the body as it arrives; also for a WebSocket
/bulk/N          N bytes, as the windows permit
/hold            nothing; WINDOW_UPDATE for the body is withheld until `let_go`
/trailers        a body with trailers
/interim         103, then 200
/nothing         204
/reset           RST_STREAM before any head; /half: after half of a body
/foul            a head without `cf-cloudflared-response-meta`
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from proxy import h2
from proxy.heads import Fields, RequestHead, ResponseHead
from proxy.tunnel.controlevents import ControlEvent
from proxy.tunnel.controlstream import ControlStream
from proxy.tunnel.identity import client_info, connection_options
from proxy.tunnel.registration import Registration
from proxy.tunnel.remoteconfig import NO_VERSION, Update, decode_update, encode_answer, flaw_of
from proxy.tunnel.responses import CONFIGURATION_HEAD, CONTROL_HEAD, ResponseHeads
from proxy.tunnel.token import TunnelToken

WAIT_S = 20.0
WINDOW_BYTES = 256 * 1024
_SETTINGS = h2.Settings(max_concurrent_streams=1000, stream_window_bytes=WINDOW_BYTES, connection_window_bytes=64 << 20)
CLIENT_ID = uuid.UUID("aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee")
TEXT = (b"content-type", b"text/plain")


def dial(address: str, ca_file: Path) -> ssl.SSLSocket:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(ca_file))
    sock = socket.create_connection((host, int(port)), WAIT_S)
    try:
        return context.wrap_socket(sock, server_hostname="h2.cftunnel.com")
    except OSError:
        sock.close()
        raise


class Connector:
    """Dials when it is created; unless `is_polite`, it answers the control stream with an error."""

    def __init__(self, address: str, ca_file: Path, token: str, conn_index: int = 0, *, is_polite: bool = True) -> None:
        self._sock = dial(address, ca_file)
        self._is_polite = is_polite
        options = connection_options(client_info(CLIENT_ID, "1.2.3", "Linux", "x86_64"), "127.0.0.1", 0)
        self._control = ControlStream(Registration(TunnelToken.decode(token), conn_index, options))
        self._control_id = 0
        self._codec = h2.Connection.server(h2.Caches(), _SETTINGS)
        self._heads = ResponseHeads()
        self._news = threading.Condition()
        self._pending: dict[int, tuple[memoryview, bool]] = {}
        self.said: list[ControlEvent] = []
        """What the edge said on the control stream."""
        self.requests: list[RequestHead] = []
        self.received: dict[str, int] = {}
        """Body bytes by path."""
        self.resets: list[int] = []
        self.held: list[tuple[int, int]] = []
        """Withheld WINDOW_UPDATE: streams and bytes."""
        self.goaways: list[int] = []
        self.configuration = Update(NO_VERSION, b"null")
        self.control_streams = 0
        self.is_closed = False
        self._paths: dict[int, str] = {}
        self._flush()
        self._thread = threading.Thread(target=self._run, name="connector", daemon=True)
        self._thread.start()

    # -- what tests do -----------------------------------------------------------------------------------------------

    def wait_for(self, is_there: Callable[[], bool], what: str) -> None:
        with self._news:
            assert self._news.wait_for(is_there, WAIT_S), f"never came: {what}; said {self.said}"

    def wait_for_event(self) -> ControlEvent:
        """Returns the first event."""
        self.wait_for(lambda: bool(self.said), "an answer to the registration")
        return self.said[0]

    def wait_until_closed(self) -> None:
        self.wait_for(lambda: self.is_closed, "the end of the connection")

    @property
    def is_stalled(self) -> bool:
        """There is more to send than the windows permit."""
        return bool(self._pending)

    def unregister(self) -> None:
        with self._news:
            self._control.unregister()
            self._flush_control()

    def upload(self, config: bytes) -> None:
        """Send a local configuration."""
        with self._news:
            self._control.update_local_configuration(config)
            self._flush_control()

    def let_go(self) -> None:
        with self._news:
            held, self.held = self.held, []
            for stream_id, size_bytes in held:
                self._codec.release(stream_id, size_bytes)
                self._paths[stream_id] = "/hello"
            self._flush()

    def answer_held(self) -> None:
        """Answers the requests for `/hold` without a body."""
        with self._news:
            for stream_id, path in self._paths.items():
                if path == "/hold" and self._codec.is_live(stream_id):
                    self._hello(stream_id)
            self._flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.is_closed:
            select.select([self._sock], [], [])
            # Two threads must not use a TLS socket at once, so only the wait for data is outside the lock.
            with self._news:
                self._read()
                self._flush()
                self._news.notify_all()

    def _read(self) -> None:
        while True:
            self._sock.settimeout(0)
            try:
                data = self._sock.recv(65536)
            except ssl.SSLWantReadError:
                return
            except OSError:
                data = b""
            if not data:
                self.is_closed = True
                return
            for event in self._codec.receive(data, time.monotonic()):
                self._on_event(event)

    def _on_event(self, event: h2.Event) -> None:
        if isinstance(event, h2.RequestReceived):
            self._on_request(event)
        elif isinstance(event, h2.DataReceived):
            self._on_data(event)
        elif isinstance(event, h2.StreamReset):
            self.resets.append(event.error_code)
            self._pending.pop(event.stream_id, None)
        elif isinstance(event, h2.WindowUpdated):
            for stream_id in list(self._pending):
                self._pump(stream_id)
        elif isinstance(event, h2.GoawayReceived):
            self.goaways.append(event.error_code)

    def _on_request(self, event: h2.RequestReceived) -> None:
        stream_id, head = event.stream_id, event.head
        upgrade = dict(head.fields).get(b"cf-cloudflared-proxy-connection-upgrade")
        if upgrade == b"control-stream":
            self.control_streams += 1
            if self.control_streams > 1:
                self._codec.reset_stream(stream_id, h2.ErrorCode.REFUSED_STREAM)
                return
            self._control_id = stream_id
            self._codec.send_headers(stream_id, CONTROL_HEAD if self._is_polite else ResponseHead(500, []))
            self._control.register()
            self._flush_control()
            return
        if upgrade == b"update-configuration":
            self._paths[stream_id] = "/configuration"
            return
        self.requests.append(head)
        path = head.path.decode().partition("?")[0]
        self._paths[stream_id] = path
        if upgrade == b"websocket":
            accept = (b"sec-websocket-accept", b"accepted")
            self._codec.send_headers(stream_id, self._heads.encode(ResponseHead(101, [accept])))
            self._paths[stream_id] = "/echo"
        elif path == "/echo":
            self._send_head(stream_id, 200, [TEXT])
        elif head.method == b"HEAD":
            self._send_head(stream_id, 200, [TEXT, (b"content-length", b"6")], True)
        elif event.end_stream or path not in ("/hello", "/hold"):
            self._answer(stream_id, path)

    def _on_data(self, event: h2.DataReceived) -> None:
        stream_id, size_bytes = event.stream_id, len(event.data)
        if stream_id == self._control_id:
            self._codec.release(stream_id, size_bytes)
            self.said += self._control.receive(event.data)
            if event.end_stream:
                self.said += self._control.receive_end()
            self._flush_control()
            return
        path = self._paths[stream_id]
        self.received[path] = self.received.get(path, 0) + size_bytes
        if path == "/configuration":
            # Small enough for one frame.
            self._take_configuration(stream_id, bytes(event.data))
            return
        if path == "/hold":
            self.held.append((stream_id, size_bytes))
            return
        self._codec.release(stream_id, size_bytes)
        if path == "/echo":
            self._put(stream_id, bytes(event.data), event.end_stream)
        elif event.end_stream:
            self._answer(stream_id, path)

    def _take_configuration(self, stream_id: int, body: bytes) -> None:
        update = decode_update(body)
        if update.version > self.configuration.version:
            self.configuration = update
        self._codec.send_headers(stream_id, CONFIGURATION_HEAD)
        self._codec.send_data(stream_id, encode_answer(self.configuration.version, flaw_of(update)), True)

    def _answer(self, stream_id: int, path: str) -> None:
        name, _, argument = path[1:].partition("/")
        if name == "bulk":
            self._send_head(stream_id, 200, [TEXT, (b"content-length", argument.encode())])
            self._put(stream_id, bytes(int(argument)), True)
        elif name == "trailers":
            self._send_head(stream_id, 200, [TEXT])
            self._codec.send_data(stream_id, b"body\n")
            self._codec.send_trailers(stream_id, [(b"grpc-status", b"0")])
        elif name == "interim":
            self._codec.send_headers(stream_id, ResponseHead(103, [(b"link", b"</a.css>")]))
            self._hello(stream_id)
        elif name == "nothing":
            self._send_head(stream_id, 204, [], True)
        elif name == "reset":
            self._codec.reset_stream(stream_id, h2.ErrorCode.INTERNAL_ERROR)
        elif name == "half":
            self._send_head(stream_id, 200, [TEXT, (b"content-length", b"10")])
            self._codec.send_data(stream_id, b"half ")
            self._codec.reset_stream(stream_id, h2.ErrorCode.INTERNAL_ERROR)
        elif name == "foul":
            self._codec.send_headers(stream_id, ResponseHead(200, [TEXT]), True)
        elif name == "hello":
            self._hello(stream_id)

    def _hello(self, stream_id: int) -> None:
        body = b"hello\n"
        cookies = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        self._send_head(stream_id, 200, [TEXT, *cookies, (b"content-length", b"%d" % len(body))])
        self._codec.send_data(stream_id, body, True)

    def _send_head(self, stream_id: int, status_code: int, fields: Fields, end_stream: bool = False) -> None:
        self._codec.send_headers(stream_id, self._heads.encode(ResponseHead(status_code, fields)), end_stream)

    def _put(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        before, _ = self._pending.get(stream_id, (b"", False))
        self._pending[stream_id] = memoryview(bytes(before) + data), end_stream
        self._pump(stream_id)

    def _pump(self, stream_id: int) -> None:
        data, end_stream = self._pending.pop(stream_id)
        taken = self._codec.send_data(stream_id, data, end_stream)
        if taken < len(data):
            self._pending[stream_id] = data[taken:], end_stream

    def _flush_control(self) -> None:
        self._codec.send_data(self._control_id, self._control.data_to_send())
        self._flush()

    def _flush(self) -> None:
        self._sock.settimeout(WAIT_S)
        with contextlib.suppress(OSError):
            self._sock.sendall(self._codec.data_to_send())
