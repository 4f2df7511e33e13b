"""A WebSocket server by the `websockets` library, and frames without a socket for clients over HTTP/2.

The server's reply to a message depends on its first word: `echo` (or any other message) sends it back,
`close CODE REASON` closes the connection accordingly, `large N` sends N bytes.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.ports import LOOPBACK

MAX_BYTES = 8 << 20


class WebSocketServer:
    def __init__(self) -> None:
        self.closed: queue.Queue[tuple[int | None, str]] = queue.Queue()
        """Code and reason of each connection that has ended, as seen by the server."""
        self.handshakes: queue.Queue[tuple[str, dict[str, str]]] = queue.Queue()
        """Path and fields of each handshake."""
        self._server = serve(
            self._talk, LOOPBACK, 0, max_size=MAX_BYTES, select_subprotocol=_first_offered, ping_interval=None
        )
        self.address = f"{LOOPBACK}:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="websocket server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join(20)

    def _talk(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        fields = {name.lower(): value for name, value in connection.request.headers.raw_items()}
        self.handshakes.put((connection.request.path, fields))
        with contextlib.suppress(ConnectionClosed):
            for message in connection:
                self._answer(connection, message)
        self.closed.put((connection.close_code, connection.close_reason or ""))

    def _answer(self, connection: ServerConnection, message: str | bytes) -> None:
        if isinstance(message, str) and message.startswith("close "):
            _, code, reason = message.split(" ", 2)
            connection.close(int(code), reason)
        elif isinstance(message, str) and message.startswith("large "):
            connection.send(bytes(int(message.split()[1])))
        else:
            connection.send(message)


def client_frame(payload: bytes) -> bytes:
    """A short text message (RFC 6455, 5.2), masked with zeros."""
    return bytes((0x81, 0x80 | len(payload), 0, 0, 0, 0)) + payload


def server_frame(payload: bytes) -> bytes:
    """The same message from the server."""
    return bytes((0x81, len(payload))) + payload


def _first_offered(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return offered[0] if offered else None
