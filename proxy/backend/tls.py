"""TLS to backends: what is offered, which certificates are trusted, and whether the peer is the intended backend.

There is a `Trust` for each distinct `tls` of the document. OpenSSL verifies the certificate chain. Names are checked
here, after the handshake and before any data is sent, with one rule for `serverName` and `subjectAltNames`, because
OpenSSL cannot match URIs. Reading the CA certificates takes milliseconds, so a thread does it.
"""

import base64
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from daemonkit.clienttls import DATE_ERRORS, PURPOSE_ERROR
from proxy import document
from proxy.backend.stream import Reason
from proxy.backend.threadpool import ThreadPool
from proxy.loop import TlsSocket
from proxy.tls import contexts
from proxy.tls.contexts import UnusableTLS

if TYPE_CHECKING:
    from proxy.tls.names import CertificateNames

_CIPHERS: Final = "DEFAULT"
"""OpenSSL's own list, strongest first. Python's default excludes SHA-1 and suites without forward secrecy, but some old
appliances support nothing else in TLS 1.2, and browsers and other proxies can reach these."""
_CIPHERS_OF_TRUSTED: Final = f"{_CIPHERS}:@SECLEVEL=1"
"""Also accepts RSA keys of 1024 bits, which old appliances generate: with `ca` these are trusted individually."""
_MAX_SESSIONS: Final = 256
_UNREAD_S: Final = 600.0
"""The least time between two reads of an address's session: in some Python versions each read leaks memory, see
`TlsSocket.session`."""


OnReady = Callable[[str, Reason], None]
"""Gets an empty text, or why there is no TLS."""


class UntrustedPeer(Exception):
    """The backend's certificate cannot be read, or is not for the wanted name."""


class Trust:
    def __init__(self, tls: document.BackendTLS, threads: ThreadPool, *, offers_h2: bool) -> None:
        self._tls = tls
        self._threads = threads
        self.offers_h2 = offers_h2
        self._context: ssl.SSLContext | None = None
        self._waiting: list[OnReady] = []
        self._error = ""
        self._sessions: dict[str, ssl.SSLSession] = {}
        self._unread_until_s: dict[str, float] = {}
        """By address, as `_sessions`."""

    def __repr__(self) -> str:
        return f"<Trust {self._tls.server_name}>"

    def prepare(self, on_ready: OnReady) -> None:
        """Call `on_ready` once it is known whether `wrap` may be used; immediately if it is known already."""
        if self._context is not None or self._error:
            on_ready(self._error, Reason.TLS)
            return
        self._waiting.append(on_ready)
        if len(self._waiting) == 1:
            alpn = ["h2", "http/1.1"] if self.offers_h2 else ["http/1.1"]
            self._threads.run(lambda: make_context(self._tls, alpn), self._on_context)

    def wrap(self, sock: socket.socket, peer: str) -> TlsSocket:
        """Wrap `sock` for the handshake, which resumes an earlier session with `peer`."""
        assert self._context is not None  # noqa: S101
        # TlsSocket treats an end without close_notify as an error: somebody else may have truncated the body.
        return TlsSocket(sock, self._context, self._tls.server_name, self._sessions.get(peer))

    def check(self, sock: TlsSocket) -> None:
        """To be called after the handshake. Raises UntrustedPeer unless the certificate has a wanted name."""
        from proxy.tls.names import common_name_of, names_of

        certificate = sock.peer_certificate() or b""
        try:
            names = names_of(certificate)
            if not names and self._is_itself_trusted(certificate):
                names = common_name_of(certificate)
        except ValueError as error:
            raise UntrustedPeer(f"certificate that cannot be read: {error}") from None
        if not self._is_wanted(names):
            raise UntrustedPeer(f"certificate for {names}, want one for {self._wanted()}")

    def remember(self, sock: TlsSocket, peer: str, now_s: float) -> None:
        """Keep the session for later connections, until the backend no longer resumes it.

        To be called after the first response, since TLS 1.3 servers send session tickets after the handshake.
        """
        if sock.is_resumed or now_s < self._unread_until_s.get(peer, now_s):
            return
        session = sock.session
        if len(self._unread_until_s) >= _MAX_SESSIONS:
            self._sessions.clear()
            self._unread_until_s.clear()
        self._unread_until_s[peer] = now_s + _UNREAD_S
        if session is not None and session.has_ticket:
            self._sessions[peer] = session

    def forget(self, peer: str) -> None:
        """A handshake has failed, perhaps because of the session: do a full one next time (RFC 5077, 3.2)."""
        self._sessions.pop(peer, None)

    def explain(self, error: OSError) -> str:
        """Why the handshake failed, and what was wanted."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"certificate not trusted: {error.verify_message}{self._wish(error.verify_code)}"
        if isinstance(error, ssl.SSLError):
            return f"TLS handshake failed: {error.reason or error}"
        return f"TLS handshake failed: {error.strerror or error}"

    def _wish(self, verify_code: int) -> str:
        """Which certificate would do, if the error does not say so itself."""
        if verify_code in DATE_ERRORS:
            return ""
        if verify_code == PURPOSE_ERROR:
            return ", want one whose key usages, and those of its authority, are for servers"
        authorities = "a CA of `tls.ca`" if self._tls.ca else "a CA that this system trusts"
        return f", want one issued by {authorities}"

    def _on_context(self, context: ssl.SSLContext | None, error: Exception | None) -> None:
        self._context = context
        why = str(error) if error is not None else ""
        # Lack of descriptors is temporary, and not the backend's fault.
        reason = Reason.OVERLOAD if isinstance(error, OSError) else Reason.TLS
        if isinstance(error, UnusableTLS):
            self._error = why
        waiting, self._waiting = self._waiting, []
        for on_ready in waiting:
            on_ready(why, reason)

    def _is_itself_trusted(self, certificate: bytes) -> bool:
        """The certificate itself is in `ca`, so it cannot be another one with the same common name and issuer."""
        return f"-----{base64.b64encode(certificate).decode()}-----" in "".join((self._tls.ca or "").split())

    def _is_wanted(self, names: "CertificateNames") -> bool:
        wanted = self._tls.subject_alt_names
        if not wanted:
            return names.covers_host(self._tls.server_name)
        return any((name.uri in names.uris) if name.uri else names.covers_host(name.hostname or "") for name in wanted)

    def _wanted(self) -> str:
        wanted = self._tls.subject_alt_names
        return " or ".join(name.uri or name.hostname or "" for name in wanted) or self._tls.server_name


def make_context(tls: document.BackendTLS, alpn: list[str]) -> ssl.SSLContext:
    """Raises UnusableTLS, OSError."""
    # Imported here, in a thread, so that the first handshake does not import it on the loop.
    from proxy.tls import names  # noqa: F401

    context = contexts.make_context(ssl.PROTOCOL_TLS_CLIENT, alpn)
    context.set_ciphers(_CIPHERS_OF_TRUSTED if tls.ca else _CIPHERS)
    # See the module's docstring; the chain is still verified.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # Before Python 3.11.3 this option is set and makes OpenSSL ignore a missing close_notify. OpenSSL 1.1 lacks it.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    if tls.ca:
        contexts.load_authorities(context, tls.ca, "ca")
    else:
        contexts.load_authorities_of_system(context)
    if tls.client_certificate:
        contexts.load_pair(context, tls.client_certificate, "clientCertificate")
    return context
