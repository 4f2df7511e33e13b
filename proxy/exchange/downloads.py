"""What all clients of a worker have not taken of their responses.

Only HTTP/2 lets a client have hundreds of responses wait on one connection, by windows that it does not open; over
HTTP/1.1 a body waits in the connection's output. Together they may hold MAX_BYTES. Beyond that, those whose clients
have taken nothing for longest are given up: otherwise the kernel would end the worker, and everybody's requests.
"""

from typing import Final, Protocol

from proxy.loop import Loop

MAX_BYTES: Final = 256 * 1024 * 1024


class Waiting(Protocol):
    """A response that waits for its client."""

    def leave_behind(self) -> None:
        """Give it up."""


class Downloads:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.waiting: dict[Waiting, None] = {}
        """The one whose client has taken nothing for longest comes first. Others only read it."""
        self.held_bytes = 0
        self._is_relief_due = False

    def weigh(self, response: Waiting, before_bytes: int, now_bytes: int) -> None:
        """A response that held `before_bytes` holds `now_bytes`."""
        grown_bytes = now_bytes - before_bytes
        if not now_bytes or grown_bytes < 0:
            self.waiting.pop(response, None)
        if now_bytes:
            self.waiting.setdefault(response)
        self.held_bytes += grown_bytes
        self._loop.unsent.size_bytes += grown_bytes
        if self.held_bytes > MAX_BYTES and not self._is_relief_due:
            # Later: this may be a call of any of them, or of its client or backend.
            self._is_relief_due = True
            self._loop.call_soon(self._relieve)

    def _relieve(self) -> None:
        self._is_relief_due = False
        while self.held_bytes > MAX_BYTES and self.waiting:
            response = next(iter(self.waiting))
            del self.waiting[response]
            response.leave_behind()
