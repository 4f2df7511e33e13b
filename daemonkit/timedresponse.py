"""HTTP responses with one time limit for the whole response, from its status line to the end of its body, and without
chunks of a negative size.

    connection.response_class = response_within(30.0)       for an http.client.HTTPConnection, or urllib3's

A socket's own timeout limits one system call, so a peer that sends a byte now and then could keep its caller waiting
for ever. Here each read is limited to the response's remaining time and to the socket's own timeout, and raises
TimeoutError after that. The time starts when the caller begins to wait for the response, after connecting and sending.

http.client and urllib3 read the size of a chunk with `int`, which takes a sign, and pass it on: -1 means to the end of
the connection, whatever limit the caller gave. Here it raises HTTPException.
"""

import http.client
import io
import socket
import time
from functools import cache
from typing import Any, TypeVar


@cache  # unused classes would be freed only by the garbage collector
def response_within(limit_s: float) -> type[http.client.HTTPResponse]:
    class TimedResponse(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
            super().__init__(sock, *args, **kwargs)
            self.fp = _SizedReader(_TimedReader(sock, self.fp.detach(), limit_s))

    return TimedResponse


class _SizedReader(io.BufferedReader):
    """Without a size `read` goes to the end; a negative one is refused, since it was the size of a chunk. `read1` needs
    a size."""

    def read(self, size: int | None = None, /) -> bytes:
        return super().read(_not_negative(size))

    def read1(self, size: int = -1, /) -> bytes:
        return super().read1(_not_negative(size))


_Size = TypeVar("_Size", int, int | None)


def _not_negative(size: _Size) -> _Size:
    if size is not None and size < 0:
        raise http.client.HTTPException(f"a chunk of {size} bytes")
    return size


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, raw: io.RawIOBase, limit_s: float) -> None:
        self._sock = sock
        self._raw = raw
        self._limit_s = limit_s
        self._timeout_s = sock.gettimeout()
        self._deadline_s = time.monotonic() + limit_s
        self._has_begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise self._late()
        self._sock.settimeout(left_s if self._timeout_s is None else min(left_s, self._timeout_s))
        try:
            size_bytes = self._raw.readinto(buffer)
        except TimeoutError:
            # If both limits are the same, a peer that has said nothing is silent, not slow.
            is_silent = not self._has_begun and self._timeout_s is not None and self._timeout_s <= self._limit_s
            if is_silent or time.monotonic() < self._deadline_s:
                raise
            raise self._late() from None
        self._has_begun = True
        return size_bytes

    def _late(self) -> TimeoutError:
        return TimeoutError(f"the answer was not complete after {self._limit_s:g} s")

    def close(self) -> None:
        self._raw.close()
        super().close()
