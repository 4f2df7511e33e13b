"""The TLS handshake with the edge, in a thread of its own.

A single OpenSSL call keeps reading for as long as the server sends HelloRequest during a handshake, which TLS 1.2
clients ignore (RFC 5246, 7.4.1.1). Whoever answers in place of the edge can do that before it shows a certificate. The
loop runs on meanwhile, since Python releases the GIL during the call; shutting the socket down ends it.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial

from daemonkit.causes import forget_frames
from daemonkit.lifecycle import StartFailed, start_thread
from proxy.loop import Loop


class EdgeHandshake:
    """Calls exactly one of `on_done(sock)` and `on_failed(sock, error)`, after `start` has returned, unless cancelled.

    `error` is a TimeoutError after `timeout_s`. From `start` on the handshake owns the socket, and closes it unless the
    handshake succeeds.
    """

    def __init__(
        self,
        loop: Loop,
        sock: ssl.SSLSocket,
        timeout_s: float,
        on_done: Callable[[ssl.SSLSocket], None],
        on_failed: Callable[[ssl.SSLSocket, OSError], None],
    ) -> None:
        """`sock` must have been wrapped with `do_handshake_on_connect=False`."""
        self._loop = loop
        self._sock = sock
        self._on_done = on_done
        self._on_failed = on_failed
        self._is_over = False
        self._deadline = loop.deadline(self._expire)
        self._timeout_s = timeout_s

    def start(self) -> None:
        self._deadline.set(self._loop.now_s + self._timeout_s)
        self._sock.setblocking(True)
        try:
            start_thread(threading.Thread(target=self._shake, name="edge-handshake", daemon=True))
        except StartFailed as error:
            self._loop.call_soon(partial(self._finish, OSError(str(error))))

    def cancel(self) -> None:
        """Stop the handshake; neither callback is called any more."""
        self._is_over = True
        self._deadline.cancel()
        # Not closed here: its descriptor could be reused while the thread still reads. Not `SSLSocket.shutdown`, which
        # would take the TLS object away from a thread that has yet to start.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _shake(self) -> None:
        failure: OSError | None = None
        try:
            self._sock.do_handshake()
        except OSError as error:
            failure = error
        except ValueError as error:  # a name in the certificate that cannot be read
            failure = ssl.SSLError(str(error))
        if failure is not None:
            forget_frames(failure)
        if self._is_over:
            self._sock.close()
        else:
            self._loop.call_from_thread(partial(self._finish, failure))

    def _finish(self, failure: OSError | None) -> None:
        if self._is_over:
            self._sock.close()
            return
        if failure is not None:
            self._fail(failure)
            self._sock.close()
            return
        self._deadline.cancel()
        self._sock.setblocking(False)
        self._on_done(self._sock)

    def _expire(self) -> None:
        self._fail(TimeoutError("TLS handshake timed out"))

    def _fail(self, error: OSError) -> None:
        # Before the shutdown, which changes what the kernel reports about the connection.
        self._on_failed(self._sock, error)
        self.cancel()
