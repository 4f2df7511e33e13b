"""The start of a connection from a load balancer: its PROXY header is read and removed."""

import socket
from collections.abc import Callable

from proxy.doors.member import BUSY, Keeper
from proxy.doors.peeking import Peeking
from proxy.doors.proxyheader import MAX_BYTES, NotProxyHeader, ProxyHeader, parse_proxy_header
from proxy.loop import Loop
from proxy.stats import RefusalCause

OnIntroduced = Callable[["Introduction", socket.socket, str | None], None]
"""Takes the socket and the client's address, or None if the balancer speaks for itself."""


class Introduction:
    """Calls `on_introduced` once, or tells its keeper that the client was refused and is gone."""

    def __init__(
        self, loop: Loop, sock: socket.socket, timeout_s: float, keeper: Keeper, on_introduced: OnIntroduced
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._keeper = keeper
        self._on_introduced = on_introduced
        self._timeout_s = timeout_s
        self._peeking = Peeking(loop, sock, MAX_BYTES, self)
        self._deadline = loop.deadline(self._on_deadline)
        self._has_begun = False
        self.idle_since_s = loop.now_s
        self.is_sending = False

    def start(self) -> None:
        self._deadline.set(self._loop.now_s + self._timeout_s)
        self._peeking.start()

    # -- the header --------------------------------------------------------------------------------------------------

    def on_peeked(self, received: bytes) -> int:
        self._has_begun = bool(received)
        try:
            header = parse_proxy_header(received)
        except NotProxyHeader as error:
            self._fail("proxy_protocol", str(error))
            return 0
        if isinstance(header, ProxyHeader):
            self._take(header)
            return 0
        return header

    def on_lost(self, reason: str) -> None:
        if self._has_begun:
            self._fail("proxy_protocol", f"{reason} before the end of its PROXY header")
        else:
            # A health check by the balancer.
            self._give_up()

    def _take(self, header: ProxyHeader) -> None:
        self._peeking.stop()
        self._deadline.cancel()
        try:
            self._sock.recv(header.size_bytes)
        except OSError as error:
            self._fail("proxy_protocol", f"connection lost: {error.strerror or error}")
            return
        self.idle_since_s = BUSY
        self._on_introduced(self, self._sock, header.source)

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Nothing to do: the connection that follows is drained."""

    def evict(self) -> None:
        self._give_up()

    def abort(self, reason: str) -> None:  # noqa: ARG002 - there is no exchange yet
        self._give_up()

    def _on_deadline(self) -> None:
        self._fail("header_timeout", f"no PROXY header within {self._timeout_s:g} s")

    def _fail(self, cause: RefusalCause, detail: str) -> None:
        self._keeper.refused(cause, detail)
        self._give_up()

    def _give_up(self) -> None:
        self._peeking.stop()
        self._deadline.cancel()
        self._sock.close()
        self.idle_since_s = BUSY
        self._keeper.forget(self)
