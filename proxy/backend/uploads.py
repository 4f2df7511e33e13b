"""Request bodies over one HTTP/2 connection: how much of each is sent, and which wait, for a window or for the socket.

What is handed over stays here until the backend reads it, even if the request is cancelled. So once the backend has
stopped reading, bodies wait in their exchanges, however wide its windows are.
"""

from typing import Final

from proxy.backend.request import Request
from proxy.h2 import Connection
from proxy.loop import Creditor, Transport

ENOUGH_BYTES: Final = 256 * 1024
"""If more than that waits for the socket, the backend has stopped reading."""
_LEAST_WINDOW_BYTES: Final = 16 * 1024
"""A quarter of the initial 65,535 bytes. Backends that send a WINDOW_UPDATE after each half or quarter of the window
leave at least that much, unless they stop reading."""


class Uploads:
    __slots__ = ("_codec", "_transport", "waiting")

    def __init__(self, codec: Connection, transport: Transport) -> None:
        self._codec = codec
        self._transport = transport
        self.waiting: dict[Request, None] = {}
        """Requests whose body waits. Others only read it."""

    @property
    def are_stopped(self) -> bool:
        """Bodies that the backend is not reading have used up the send window: others may wait for a long time."""
        return self._codec.send_window_bytes < _LEAST_WINDOW_BYTES

    def send(self, request: Request, data: bytes | memoryview, end_stream: bool, creditor: Creditor) -> int:
        """Returns how many bytes were taken. If not all, the receiver is called when more can be.

        Raises LocalProtocolError if it cannot be sent at all.
        """
        size_bytes = len(data)
        transport = self._transport
        if size_bytes and transport.is_writing and transport.queued_bytes > ENOUGH_BYTES:
            self.waiting[request] = None
            return 0
        taken_bytes = self._codec.send_data(request.stream_id, data, end_stream)
        if taken_bytes:
            transport.owe(creditor, taken_bytes)
        elif not size_bytes:
            transport.flush_later()
        if taken_bytes < size_bytes:
            self.waiting[request] = None
        return taken_bytes

    def progress_of(self, request: Request, creditor: Creditor) -> int | None:
        transport = self._transport
        if request in self.waiting and transport.is_writing and self._codec.has_stream_window(request.stream_id):
            # It waits for its turn, which comes once the backend has read what is before it. That may use up the
            # connection's window.
            return transport.acknowledged_bytes
        return transport.progress_of(creditor)

    def wake_all(self) -> None:
        """The connection's window has opened, or the socket has taken everything."""
        for request in list(self.waiting):
            self.wake(request)

    def wake(self, request: Request) -> None:
        """Let it send as much as it can now, if it waits."""
        # `wake_all` comes here for each, since waking one may end others.
        if request in self.waiting and self._codec.sendable(request.stream_id):
            del self.waiting[request]
            receiver = request.receiver
            try:
                receiver.on_backend_writable()
            except Exception:
                request.on_bug(receiver)

    def forget(self, request: Request) -> None:
        self.waiting.pop(request, None)

    def clear(self) -> None:
        self.waiting.clear()
