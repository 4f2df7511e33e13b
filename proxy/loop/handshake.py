"""A TLS handshake driven by the loop, either role."""

import ssl
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from daemonkit.tlssocket import TlsSocket
from proxy.loop.loop import Loop

S = TypeVar("S", ssl.SSLSocket, TlsSocket)


class Handshake(Generic[S]):
    """Calls exactly one of `on_done(sock)` and `on_failed(sock, error)`, unless it is cancelled.

    The caller owns the socket before and after, and has to close a failed one. `error` is a TimeoutError if
    `deadline_s` (the loop's clock) has passed.
    """

    __slots__ = ("_deadline", "_loop", "_on_done", "_on_failed", "_sock", "_writes")

    def __init__(
        self,
        loop: Loop,
        sock: S,
        deadline_s: float,
        on_done: Callable[[S], None],
        on_failed: Callable[[S, OSError], None],
    ) -> None:
        """`sock` is non-blocking; an `ssl.SSLSocket` was wrapped with `do_handshake_on_connect=False`."""
        self._loop = loop
        self._sock: S | None = sock
        self._on_done: Callable[[S], None] = on_done
        self._on_failed: Callable[[S, OSError], None] = on_failed
        self._writes = False
        self._deadline = loop.deadline(self._expire)
        self._deadline.set(deadline_s)

    def start(self) -> None:
        """If the kernel does not watch the socket (a limit of watches, no memory), `on_failed` comes in a later call of
        the loop."""
        assert self._sock is not None  # noqa: S101
        try:
            self._loop.watch(self._sock, self)
        except OSError as error:
            self._loop.call_soon(partial(self._fail, error))
            return
        self._advance()

    def cancel(self) -> None:
        """Give up; neither callback is called."""
        self._end()

    def on_readable(self) -> None:
        self._advance()

    def on_writable(self) -> None:
        self._advance()

    def on_bug(self) -> None:
        self._fail(ConnectionAbortedError("given up after a bug in this proxy"))

    def _advance(self) -> None:
        if self._sock is None:
            return
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            self._want(writes=False)
        except ssl.SSLWantWriteError:
            self._want(writes=True)
        except OSError as error:
            self._fail(error)
        except ValueError as error:  # a name in the certificate that cannot be read
            self._fail(ssl.SSLError(str(error)))
        else:
            on_done, sock = self._on_done, self._end()
            if sock is not None:
                on_done(sock)

    def _want(self, *, writes: bool) -> None:
        if writes != self._writes and self._sock is not None:
            self._writes = writes
            self._loop.rewatch(self._sock, self, reads=not writes, writes=writes)

    def _expire(self) -> None:
        self._fail(TimeoutError("TLS handshake timed out"))

    def _fail(self, error: OSError) -> None:
        on_failed, sock = self._on_failed, self._end()
        if sock is not None:
            on_failed(sock, error)

    def _end(self) -> S | None:
        sock, self._sock = self._sock, None
        # The callbacks' owner refers to this object, and would form a reference cycle with it.
        self._on_done = self._on_failed = _nobody
        self._deadline.cancel()
        if sock is not None:
            self._loop.unwatch(sock)
        return sock


def _nobody(*_: object) -> None:
    """Called if the handshake is over already."""
