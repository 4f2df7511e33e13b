"""TLS contexts of a listener, and which of its certificates a client gets.

A context is made when the first client needs it, since loading a key takes about a millisecond, and kept as long as the
document has the same settings, so that sessions can be resumed across changes of the configuration. Python's ssl gives
no access to the keys of session tickets: they are of one context in one process, and a client that comes back to
another worker makes a full handshake.

Keys come as text and go to OpenSSL through a file in memory that has no name.
"""

import contextlib
import os
import ssl
from collections.abc import Iterator
from typing import Final

from proxy import document
from proxy.document.part import Certificate

_TLS12_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Forward secret with authenticated encryption: also all that HTTP/2 allows in TLS 1.2 (RFC 9113, 9.2.2)."""


_PEM_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_PEM_END: Final = "-----END CERTIFICATE-----"


class UnusableTLS(Exception):
    """A certificate, key or authority that cannot be loaded; the text names its place and never holds a key."""


class ListenerTLS:
    """TLS of one listener."""

    def __init__(self, settings: document.ListenerTLS) -> None:
        self.settings = settings
        self._contexts: dict[tuple[int, ...], ssl.SSLContext] = {}
        self._names: list[frozenset[bytes]] = []
        """Of each certificate; left empty where there is no choice."""
        if len(settings.certificates) > 1:
            self._names = [_readable_names(certificate) for certificate in settings.certificates]

    def context_for(self, server_name: bytes | None) -> ssl.SSLContext:
        """The context for a client that asked for `server_name` in lower case. Raises UnusableTLS."""
        chosen = self._choose(server_name or b"")
        context = self._contexts.get(chosen)
        if context is None:
            context = self._contexts[chosen] = make_context(self.settings, chosen)
        return context

    def _choose(self, server_name: bytes) -> tuple[int, ...]:
        """Places of the certificates that have the name; several where they differ in their kind of key."""
        wildcard = b"*." + server_name.partition(b".")[2]
        for wanted in (server_name, wildcard):
            places = tuple(place for place, names in enumerate(self._names) if wanted in names)
            if places:
                return places
        return (0,)


def check(settings: document.ListenerTLS) -> None:
    """Raises UnusableTLS when some client could not be served with these."""
    for place, certificate in enumerate(settings.certificates):
        make_context(settings, (place,))
        try:
            names_of(certificate)
        except ValueError as error:
            raise UnusableTLS(f"tls.certificates[{place}].certificate: cannot be read: {_reason(error)}") from error


def make_context(settings: document.ListenerTLS, places: tuple[int, ...]) -> ssl.SSLContext:
    """A context with the certificates at `places`; of several with one kind of key the first counts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(_TLS12_CIPHERS)
    context.set_alpn_protocols(list(settings.alpn))
    for place in reversed(places):
        _load(context, settings.certificates[place], place)
    validation = settings.client_validation
    if validation and validation.mode == "AllowValidOnly":
        try:
            context.load_verify_locations(cadata=validation.ca)
        except (ssl.SSLError, ValueError) as error:
            raise UnusableTLS(f"tls.clientValidation.ca: no usable certificate authority: {_reason(error)}") from error
        context.verify_mode = ssl.CERT_REQUIRED
        # An authority may be given without its root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # AllowInsecureFallback serves clients whatever they present, and nobody behind us is told what that was: there is
    # nothing to ask them for.
    return context


def _load(context: ssl.SSLContext, certificate: Certificate, place: int) -> None:
    text = f"{certificate.certificate}\n{certificate.private_key}\n".encode()
    try:
        with _memory_file(text) as path:
            # A key with a passphrase would have OpenSSL ask for it on the terminal.
            context.load_cert_chain(path, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise UnusableTLS(f"tls.certificates[{place}]: certificate and key cannot be used: {_reason(error)}") from error


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)


def names_of(certificate: Certificate) -> frozenset[bytes]:
    """The DNS names that a certificate is good for, in lower case. Raises ValueError."""
    # Here, not above: the parser is 10 MiB that a worker with one certificate a listener does not need.
    from proxy.backend import certnames

    leaf, end, _ = certificate.certificate.partition(_PEM_END)
    names = certnames.names_of(ssl.PEM_cert_to_DER_cert(leaf[max(0, leaf.rfind(_PEM_BEGIN)) :] + end))
    return frozenset(name.lower().encode() for name in names.dns)


def _readable_names(certificate: Certificate) -> frozenset[bytes]:
    try:
        return names_of(certificate)
    except ValueError:
        # It will be refused when it is loaded.
        return frozenset()
