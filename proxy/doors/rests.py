"""The rest of requests that were answered before they were complete.

In HTTP/2 a reset can stop it (RFC 9113, 8.1), but some clients do not cope with that: the JDK's HttpClient and httpx
wait for credit to send the rest and do not read the answer before, and curl 7.88 loses an answer that comes with a
reset. So the rest is received and dropped for a moment, as over HTTP/1.1, and a stream is reset only if it takes
longer.

When a client has ended such a request, it gets a PING: curl 7.88 ends a refused upload by itself, and if the answer has
no body, it notices that all is over only when another frame comes. It would wait forever.
"""

from collections.abc import Callable
from typing import Final

from proxy import h2
from proxy.h2 import ErrorCode
from proxy.loop import Loop

REST_S: Final = 2.0
REST_BYTES: Final = 8 * 1024 * 1024
_PING: Final = b"answered"


class Rests:
    __slots__ = ("_codec", "_deadline", "_left", "_loop", "_on_stopped")

    def __init__(self, loop: Loop, codec: h2.Connection, on_stopped: Callable[[], None]) -> None:
        """`on_stopped` is called after streams were reset because their time was up."""
        self._loop = loop
        self._codec = codec
        self._on_stopped: Callable[[], None] = on_stopped
        self._deadline = loop.deadline(self._on_due)
        self._left: dict[int, tuple[float, int]] = {}
        """By stream, the oldest first: when it is reset, and how many bytes may come until then."""

    def begin(self, stream_id: int) -> None:
        """No part of the body is held any more. From now on the caller releases what arrives, and calls `took`."""
        until_s = self._loop.now_s + REST_S
        if not self._left:
            self._deadline.set(until_s)
        self._left[stream_id] = until_s, REST_BYTES

    def took(self, stream_id: int, size_bytes: int, end_stream: bool) -> None:
        until_s, left_bytes = self._left.get(stream_id, (0.0, 0))
        if not until_s:
            return
        if end_stream:
            del self._left[stream_id]
            self._codec.ping(_PING)
        elif size_bytes > left_bytes:
            del self._left[stream_id]
            self._codec.reset_stream(stream_id, ErrorCode.NO_ERROR)
        else:
            self._left[stream_id] = until_s, left_bytes - size_bytes

    def forget(self, stream_id: int) -> None:
        self._left.pop(stream_id, None)

    def close(self) -> None:
        self._left.clear()
        self._deadline.cancel()
        # The callback's owner refers to this object: they would keep each other alive.
        self._on_stopped = _nobody

    def _on_due(self) -> None:
        left, now_s = self._left, self._loop.now_s
        due = [stream_id for stream_id, (until_s, _) in left.items() if until_s <= now_s]
        for stream_id in due:
            del left[stream_id]
            self._codec.reset_stream(stream_id, ErrorCode.NO_ERROR)
        if left:
            self._deadline.set(next(iter(left.values()))[0])
        if due:
            self._on_stopped()


def _nobody() -> None:
    """Nobody to tell: the connection has ended."""
