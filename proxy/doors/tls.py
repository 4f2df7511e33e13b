"""TLS contexts of a listener, and which of its certificates a client gets.

A context is created when the first client needs it, since loading a key takes about a millisecond, and kept as long as
the document has the same settings, so that sessions can be resumed across configuration changes. Python's ssl gives no
access to session ticket keys: they belong to one context in one process, and a client that returns to another worker
makes a full handshake.

In TLS 1.2 OpenSSL keeps the session of a client that takes no tickets: 20,480 of them for two hours, each with all
certificates that the client sent, up to 300 KiB. Python's ssl gives no access to this limit either, so a context with
some sessions is replaced by a new one. Clients that take tickets have another context, whose keys outlive this.
"""

import ssl
from typing import TYPE_CHECKING, Final

from proxy import document
from proxy.doors.clienthello import ClientHello
from proxy.tls import contexts
from proxy.tls.contexts import UnusableTLS

if TYPE_CHECKING:
    from proxy.tls.names import CertificateNames, NameIndex

_TLS12_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Forward secrecy with authenticated encryption, which is also all that HTTP/2 allows in TLS 1.2 (RFC 9113, 9.2.2)."""
MAX_SESSIONS: Final = 16
"""Kept by one context. Connections keep the context that they began with, and so may keep as many each."""


class ListenerContexts:
    """TLS of one listener."""

    def __init__(self, settings: document.ListenerTLS) -> None:
        self.settings = settings
        self._contexts: dict[tuple[tuple[int, ...], bool], ssl.SSLContext] = {}
        self._index = _index_of(settings.certificates)

    def context_for(self, hello: ClientHello) -> ssl.SSLContext:
        """The context for a client that began like this. Raises UnusableTLS, OSError."""
        chosen = self._choose((hello.server_name or b"").decode("latin-1"))
        key = chosen, hello.takes_tickets
        context = self._contexts.get(key)
        if context is None or context.session_stats()["number"] >= MAX_SESSIONS:
            context = self._contexts[key] = make_context(self.settings, chosen)
        return context

    def _choose(self, server_name: str) -> tuple[int, ...]:
        """Indexes of the certificates for the name; several if they differ in their type of key."""
        return (self._index.places_of(server_name) if self._index is not None else ()) or (0,)


def check(settings: document.ListenerTLS) -> None:
    """Raises UnusableTLS if some client could not be served with these settings, or OSError."""
    from proxy.tls.names import names_of_first

    for place, certificate in enumerate(settings.certificates):
        make_context(settings, (place,))
        try:
            names_of_first(certificate.certificate)
        except ValueError as error:
            raise UnusableTLS(f"certificates[{place}].certificate", f"cannot be read: {error}") from error


def make_context(settings: document.ListenerTLS, places: tuple[int, ...]) -> ssl.SSLContext:
    """A context with the certificates at `places`; of several with the same type of key the first counts."""
    context = contexts.make_context(ssl.PROTOCOL_TLS_SERVER, settings.alpn)
    context.set_ciphers(_TLS12_CIPHERS)
    for place in reversed(places):
        contexts.load_pair(context, settings.certificates[place], f"certificates[{place}]")
    validation = settings.client_validation
    if validation and validation.mode == "AllowValidOnly":
        contexts.load_authorities(context, validation.ca, "clientValidation.ca")
    # AllowInsecureFallback serves clients whatever they present, and no backend is told what that was: so no
    # certificate is requested.
    return context


def _index_of(certificates: tuple[document.Certificate, ...]) -> "NameIndex | None":
    """None if there is no choice."""
    if len(certificates) == 1:
        return None
    from proxy.tls.names import NameIndex

    return NameIndex(map(_readable_names, certificates))


def _readable_names(certificate: document.Certificate) -> "CertificateNames":
    from proxy.tls.names import CertificateNames, names_of_first

    try:
        return names_of_first(certificate.certificate)
    except ValueError:
        # Loading this certificate will fail.
        return CertificateNames((), (), ())
