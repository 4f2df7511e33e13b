"""The start of a TLS connection: peek at the ClientHello, choose the context, shake hands.

The ClientHello stays in the socket until the choice is made. A client that speaks HTTP where TLS is expected is told so
in HTTP.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from proxy.doors.clienthello import MAX_BYTES, ClientHello, NotTls, parse_client_hello
from proxy.doors.lingeringclose import LingeringClose
from proxy.doors.member import BUSY, Keeper
from proxy.doors.peeking import Peeking
from proxy.doors.refusals import refusal
from proxy.loop import Handshake, Loop, TlsSocket

UNRECOGNIZED_NAME: Final = 112
INTERNAL_ERROR: Final = 80

OnGreeted = Callable[["Greeting", TlsSocket], None]
ChooseContext = Callable[[ClientHello], ssl.SSLContext | int]
"""Returns a context, or the alert that refuses the client (RFC 8446, 6.2)."""


class Greeting:
    """Calls `on_greeted` once, or tells its keeper that the client was refused and is gone."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        timeout_s: float,
        keeper: Keeper,
        choose: ChooseContext,
        on_greeted: OnGreeted,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._keeper = keeper
        self._choose = choose
        self._on_greeted = on_greeted
        self._handshake: Handshake[TlsSocket] | None = None
        self._lingering: LingeringClose | None = None
        self._peeking = Peeking(loop, sock, MAX_BYTES, self)
        self._timeout_s = timeout_s
        self._deadline = loop.deadline(self._on_deadline)
        self.idle_since_s = loop.now_s
        self.is_sending = False

    def start(self) -> None:
        self._deadline.set(self._loop.now_s + self._timeout_s)
        self._peeking.start()

    # -- the ClientHello ---------------------------------------------------------------------------------------------

    def on_peeked(self, received: bytes) -> int:
        try:
            hello = parse_client_hello(received)
        except NotTls:
            self._fail("no ClientHello", _plain_answer(received))
            return 0
        if isinstance(hello, ClientHello):
            self._shake_hands(hello)
            return 0
        return hello

    def on_lost(self, reason: str) -> None:
        self._fail(f"{reason} before the end of its ClientHello")

    def _shake_hands(self, hello: ClientHello) -> None:
        context = self._choose(hello)
        if isinstance(context, int):
            self._fail(_unserved(hello.server_name, context), _alert(context))
            return
        self._peeking.stop()
        try:
            sock = TlsSocket(self._sock, context)
        except (OSError, ValueError) as error:
            self._fail(f"connection lost: {error}")
            return
        self._sock = sock
        self._handshake = Handshake(self._loop, sock, self._deadline.at_s, self._on_done, self._on_failed)
        self._deadline.cancel()
        self._handshake.start()

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Nothing to do: the connection that follows is drained."""

    def evict(self) -> None:
        self._give_up()

    def abort(self, reason: str) -> None:  # noqa: ARG002 - there is no exchange yet
        self._give_up()

    def _on_done(self, sock: TlsSocket) -> None:
        self.idle_since_s = BUSY
        self._on_greeted(self, sock)

    def _on_failed(self, sock: TlsSocket, error: OSError) -> None:
        is_late = isinstance(error, TimeoutError)
        detail = getattr(error, "reason", None) or str(error)
        self._keeper.refused("header_timeout" if is_late else "tls", detail)
        if isinstance(error, ssl.SSLError):
            # OpenSSL has sent its alert.
            self._handshake = None
            self._close_lingering()
        else:
            sock.close()
            self._leave()

    def _on_deadline(self) -> None:
        self._keeper.refused("header_timeout", f"no ClientHello within {self._timeout_s:g} s")
        self._give_up()

    def _fail(self, detail: str, last_words: bytes = b"") -> None:
        self._keeper.refused("tls", detail)
        self._peeking.stop()
        if not last_words:
            self._give_up()
            return
        with contextlib.suppress(OSError):
            self._sock.send(last_words)
        self._close_lingering()

    def _close_lingering(self) -> None:
        self._deadline.cancel()
        self._lingering = LingeringClose(self._loop, self._sock, self._give_up)
        self._lingering.start()

    def _give_up(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
        if self._lingering is not None:
            self._lingering.end()
        self._peeking.stop()
        self._sock.close()
        self._leave()

    def _leave(self) -> None:
        self._deadline.cancel()
        self.idle_since_s = BUSY
        self._keeper.forget(self)


def _unserved(server_name: bytes | None, description: int) -> str:
    asked = "without a server name" if server_name is None else f"for the server name {server_name[:256]!r}"
    if description == UNRECOGNIZED_NAME:
        return f"a ClientHello {asked}, which no listener has"
    return f"a ClientHello {asked}, whose certificate cannot be used: an earlier line says why"


def _alert(description: int) -> bytes:
    """A fatal alert, unencrypted since no keys have been agreed on."""
    return bytes((21, 3, 3, 0, 2, 2, description))


def _plain_answer(received: bytes) -> bytes:
    """The answer to an HTTP/1.1 request; empty if it is none."""
    if not received[:1].isalpha() or b" " not in received[:32]:
        return b""
    head, body = refusal(400, "this port speaks https, and the request came in plain http", time.time())
    lines = b"".join(b"%b: %b\r\n" % (name.title(), value) for name, value in head.fields)
    return b"HTTP/1.1 400 Bad Request\r\n%bConnection: close\r\n\r\n%b" % (lines, body)
