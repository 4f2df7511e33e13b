"""One new connection to a backend: name resolution, TCP connect and TLS handshake, all within `connect_timeout`."""

import errno
import math
import socket
import ssl
from collections.abc import Callable
from typing import Final

from proxy.backend.eyeballs import Race, alternate
from proxy.backend.resolver import Address, Addresses, literal
from proxy.backend.shared import Shared
from proxy.backend.stream import Failure, Reason
from proxy.backend.tls import Trust, UntrustedPeer
from proxy.loop import Handshake, TlsSocket

_EXHAUSTED: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.ENOSPC)
)
"""Resources that this host lacks, which says nothing about the backend. The last one: epoll watches no more sockets."""


class Connecting:
    """Calls exactly one of `on_connected(self, sock, address, alpn)` and `on_failed(self, failure)`, after `start` has
    returned, unless it is cancelled. `alpn` is empty without TLS, or if the backend chose no protocol."""

    __slots__ = (
        "_address",
        "_deadline",
        "_doing",
        "_handshake",
        "_host",
        "_is_over",
        "_on_connected",
        "_on_failed",
        "_port",
        "_race",
        "_shared",
        "_text",
        "_tls_sock",
        "_trust",
    )

    def __init__(
        self,
        shared: Shared,
        text: str,
        host: str,
        port: int,
        trust: Trust | None,
        on_connected: Callable[["Connecting", socket.socket, Address, str], None],
        on_failed: Callable[["Connecting", Failure], None],
    ) -> None:
        """`text` is the address as written in the document. With `trust`, the connection uses TLS."""
        self._shared = shared
        self._text = text
        self._host = host
        self._port = port
        self._trust = trust
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._race: Race | None = None
        self._handshake: Handshake[TlsSocket] | None = None
        self._tls_sock: TlsSocket | None = None
        self._address: Address | None = None
        self._doing = "resolving the name" if trust is None else "reading the certificates for TLS"
        self._is_over = False
        self._deadline = shared.loop.deadline(self._expire)

    def start(self) -> None:
        if self._shared.connect_timeout_s:
            self._deadline.set(self._shared.loop.now_s + self._shared.connect_timeout_s)
        # An answer that is known already is given at once, but no callback may come before `start` returns.
        self._shared.loop.call_soon(self._prepare)

    def cancel(self) -> None:
        self._is_over = True
        self._deadline.cancel()
        self._shared.resolver.leave(self._host, self._port, self._on_answer)
        if self._race is not None:
            self._race.cancel()
            self._race = None
        if self._handshake is not None and self._tls_sock is not None:
            self._handshake.cancel()
            self._handshake = None
            self._tls_sock.close()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if self._is_over:
            return
        if self._trust is None:
            self._resolve()
        else:
            self._trust.prepare(self._on_prepared)

    def _on_prepared(self, error: str, reason: Reason) -> None:
        if self._is_over:
            return
        if error:
            self._fail(reason, f"{self._text}: {error}")
        else:
            self._doing = "resolving the name"
            self._resolve()

    def _resolve(self) -> None:
        address = literal(self._host, self._port)
        if address is not None:
            self._race_for((address,))
        else:
            self._shared.resolver.resolve(self._host, self._port, self._on_answer)

    def _on_answer(self, addresses: Addresses, error: str) -> None:
        if self._is_over:
            return
        if not addresses:
            self._fail(Reason.RESOLVE, f"{self._text}: name not resolved: {error}")
            return
        self._race_for(alternate(addresses, self._shared.next_turn()))

    def _race_for(self, addresses: Addresses) -> None:
        self._doing = "connecting to " + ", ".join(map(str, addresses))
        self._race = Race(self._shared.loop, addresses, self._on_won, self._on_lost)
        self._race.start()

    def _on_won(self, sock: socket.socket, address: Address) -> None:
        self._race = None
        self._address = address
        if self._trust is None:
            self._finish(sock, "")
            return
        self._doing = f"in the TLS handshake with {address}"
        try:
            tls_sock = self._trust.wrap(sock, str(address))
        except (OSError, ValueError) as error:
            self._fail(Reason.TLS, f"{self._text}: TLS with {address}: {error}")
            return
        self._tls_sock = tls_sock
        self._handshake = Handshake(self._shared.loop, tls_sock, math.inf, self._on_shaken, self._on_broken)
        self._handshake.start()

    def _on_lost(self, errors: list[tuple[Address, OSError]]) -> None:
        tried = ", ".join(f"{address} {error.strerror}" for address, error in errors)
        last = errors[-1][1]
        if any(error.errno in _EXHAUSTED for _, error in errors):
            # An address that we could not try might have answered, so the backend is not to blame.
            self._fail(Reason.OVERLOAD, f"{self._text}: no connection can be opened here: {tried}")
        elif isinstance(last, ConnectionRefusedError):
            self._fail(Reason.REFUSED, f"{self._text}: not connected: {tried}")
        else:
            self._fail(Reason.UNREACHABLE, f"{self._text}: not connected: {tried}")

    def _on_shaken(self, sock: TlsSocket) -> None:
        self._handshake = None
        assert self._trust is not None  # noqa: S101
        try:
            self._trust.check(sock)
        except UntrustedPeer as error:
            sock.close()
            self._fail(Reason.TLS, f"{self._text}: {self._address}: {error}")
            return
        self._finish(sock, sock.selected_alpn_protocol() or "")

    def _on_broken(self, sock: TlsSocket, error: OSError) -> None:
        self._handshake = None
        sock.close()
        assert self._trust is not None  # noqa: S101
        if not isinstance(error, ssl.SSLError) and error.errno in _EXHAUSTED:
            self._fail(Reason.OVERLOAD, f"{self._text}: no connection can be opened here: {error.strerror}")
            return
        self._fail(Reason.TLS, f"{self._text}: {self._address}: {self._trust.explain(error)}")

    # -- the end -----------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        self._fail(
            Reason.CONNECT_TIMEOUT, f"{self._text}: timed out after {self._shared.connect_timeout_s:g} s {self._doing}"
        )

    def _finish(self, sock: socket.socket, alpn: str) -> None:
        assert self._address is not None  # noqa: S101
        self._is_over = True
        self._deadline.cancel()
        self._on_connected(self, sock, self._address, alpn)

    def _fail(self, reason: Reason, detail: str) -> None:
        if self._is_over:
            return
        self.cancel()
        if self._trust is not None and self._tls_sock is not None:
            self._trust.forget(str(self._address))
        self._on_failed(self, Failure(reason, detail, is_unprocessed=True))
