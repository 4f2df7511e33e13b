"""One dial: TCP, then TLS, driven by the loop.

The kernel detects a dead peer: by keep-alive probes on an idle connection, otherwise by a limit on unacknowledged data.
An edge that is reachable but does nothing is left to the `heartbeat`.
"""

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from proxy.loop import Loop
from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.discovery import SERVER_NAME
from proxy.tunnel.edgehandshake import EdgeHandshake
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.packetsize import SMALL_SEGMENT_BYTES
from proxy.tunnel.wirebytes import WireBytes

CONNECT_TIMEOUT_S: Final = 15.0
HANDSHAKE_TIMEOUT_S: Final = 15.0
_UNDER_WAY: Final = (0, errno.EINPROGRESS)
_SOCKET_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)

OnFailed = Callable[[FailureCause, str], None]


def make_context(trusted_roots: str) -> ssl.SSLContext:
    """A context that trusts only these authorities (PEM). Raises ssl.SSLError and ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=trusted_roots)
    # An authority may be given without the root that signed it, as elsewhere.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def problem_of_source(source: str) -> str:
    """Why this address cannot be the source of connections; empty if it can."""
    try:
        with socket.socket(_family(source), socket.SOCK_STREAM) as sock:
            _bind(sock, source)
    except OSError as error:
        return str(error.strerror or error)
    return ""


class Dialling:
    """Calls exactly one of `on_connected(sock)` and `on_failed(cause, error)`, after `start` has returned, unless
    cancelled."""

    def __init__(
        self,
        loop: Loop,
        address: EdgeAddress,
        context: ssl.SSLContext,
        on_connected: Callable[[ssl.SSLSocket], None],
        on_failed: OnFailed,
        *,
        source: str = "",
        is_small: bool = False,
    ) -> None:
        """`source`: the source address; empty: chosen by routing. `is_small`: neither side sends full-size packets."""
        self._loop = loop
        self._address = address
        self._context = context
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._sock: socket.socket | None = None
        self._handshake: EdgeHandshake | None = None
        self._deadline = loop.deadline(self._on_deadline)
        self._source = source
        self._is_small = is_small
        self._is_over = False
        self.is_stuck = False
        """It failed while sending data that may have been too large for the path (`WireBytes`)."""

    def start(self) -> None:
        try:
            self._sock = sock = socket.socket(_family(self._address.ip), socket.SOCK_STREAM)
            sock.setblocking(False)
            for option in _SOCKET_OPTIONS:
                sock.setsockopt(*option)
            if self._is_small:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
            if self._source:
                _bind(sock, self._source)
            code = sock.connect_ex((self._address.ip, self._address.port))
            if code in _UNDER_WAY:
                self._loop.watch(sock, self, reads=False, writes=True)
        except OSError as error:
            reason = str(error.strerror or error)
            self._loop.call_soon(lambda: self._fail(FailureCause.DIAL, reason))
            return
        if code not in _UNDER_WAY:
            self._loop.call_soon(lambda: self._fail(FailureCause.DIAL, os.strerror(code)))
            return
        self._deadline.set(self._loop.now_s + CONNECT_TIMEOUT_S)

    def cancel(self) -> None:
        """Stop dialling; neither callback is called any more."""
        self._is_over = True
        self._deadline.cancel()
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        if self._sock is not None:
            self._loop.unwatch(self._sock)
            self._sock.close()
            self._sock = None

    # -- TCP ---------------------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        """Never called: only writability is watched."""

    def on_writable(self) -> None:
        sock = self._sock
        if sock is None or self._handshake is not None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(FailureCause.DIAL, os.strerror(code))
            return
        self._loop.unwatch(sock)
        self._deadline.cancel()
        try:
            tls_sock = self._context.wrap_socket(sock, server_hostname=SERVER_NAME, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            self._fail(FailureCause.TLS, str(error))
            return
        self._sock = None
        self._handshake = EdgeHandshake(self._loop, tls_sock, HANDSHAKE_TIMEOUT_S, self._on_shaken, self._on_broken)
        self._handshake.start()

    def on_bug(self) -> None:
        self._fail(FailureCause.DIAL, "given up after a bug in this proxy")

    def _on_deadline(self) -> None:
        self._fail(FailureCause.DIAL, f"no answer within {CONNECT_TIMEOUT_S:g} s")

    # -- TLS ---------------------------------------------------------------------------------------------------------

    def _on_shaken(self, sock: ssl.SSLSocket) -> None:
        self._handshake = None
        self._on_connected(sock)

    def _on_broken(self, sock: ssl.SSLSocket, error: OSError) -> None:
        wire = WireBytes(sock)
        wire.growth()
        self.is_stuck = wire.is_stuck
        self._fail(FailureCause.TLS, _explained(sock, error, wire))

    def _fail(self, cause: FailureCause, error: str) -> None:
        if self._is_over:
            return
        self.cancel()
        self._on_failed(cause, error)


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def _bind(sock: socket.socket, source: str) -> None:
    """Bind the source address. Raises OSError, whose text names the option."""
    try:
        sock.bind((source, 0))
    except OSError as error:
        reason = f"--edge-bind-address {source}: {error.strerror}, want an address that this host has"
        raise OSError(error.errno, reason) from error


def _explained(sock: ssl.SSLSocket, error: OSError, wire: WireBytes) -> str:
    if isinstance(error, TimeoutError):
        lost = ": nothing that was sent has reached the edge" if wire.has_more and wire.retransmits else ""
        return f"TLS was not set up within {HANDSHAKE_TIMEOUT_S:g} s{lost}"
    if isinstance(error, ssl.SSLCertVerificationError):
        issuer = _issuer_seen(sock)
        seen = f", issued by {issuer}" if issuer else ""
        return (
            f"the edge's certificate{seen} is not trusted: {error.verify_message.rstrip('.')}; "
            f"want one for {SERVER_NAME} issued by a CA in --edge-ca-file or, without that, by the published roots"
        )
    return f"TLS failed: {getattr(error, 'reason', None) or error.strerror or error}"


def _issuer_seen(sock: ssl.SSLSocket) -> str:
    """The issuer of the refused certificate, for messages. Python offers it only by a private name that may change."""
    with contextlib.suppress(Exception):
        leaf: Any = sock._sslobj.get_unverified_chain()[0]  # type: ignore[attr-defined]
        issuer = leaf.get_info()["issuer"]
        return ", ".join(f"{name}={value}" for part in issuer for name, value in part)[:200]
    return ""
