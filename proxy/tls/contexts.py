"""Create OpenSSL contexts from the PEM text in the document.

Keys go to OpenSSL through a memory file, which has no name in any file system. What OpenSSL refuses becomes
`UnusableTLS`, which names its place in the document and never holds a key. A lack of descriptors stays an OSError: it
says nothing about the document, and passes.
"""

import contextlib
import ssl
from collections.abc import Iterable
from typing import Final

from daemonkit.memoryfile import memory_file
from proxy.document import Certificate

_ORDER: Final = "want the leaf first, then its intermediates"
_SIZE: Final = "too short to be safe; want ECDSA, or RSA with at least 2048 bits"
_REMEDIES: Final = {
    "KEY_VALUES_MISMATCH": f"the key is not that of the first certificate: {_ORDER}",
    "NO_CERTIFICATE_ASSIGNED": (
        f"the key is not of the same kind as the first certificate's: {_ORDER}, and the key as it was created, since "
        "RSASSA-PSS and RSA keys cannot replace each other"
    ),
    "EE_KEY_TOO_SMALL": f"a key {_SIZE}",
    "CA_KEY_TOO_SMALL": f"the key of a CA {_SIZE}",
}
"""By OpenSSL's reason."""


class UnusableTLS(ValueError):
    """A certificate, key or authority that cannot be used."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"tls.{place}: {reason}")
        self.place = place
        """Inside `tls`, such as `certificates[0]`."""
        self.reason = reason


def make_context(protocol: ssl._SSLMethod, alpn: Iterable[str]) -> ssl.SSLContext:
    """`protocol` is ssl.PROTOCOL_TLS_SERVER or ssl.PROTOCOL_TLS_CLIENT."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(list(alpn))
    return context


def load_pair(context: ssl.SSLContext, pair: Certificate, place: str) -> None:
    """Present this certificate to peers. Raises UnusableTLS, OSError."""
    try:
        with memory_file(f"{pair.certificate}\n{pair.private_key}\n".encode()) as path:
            # Without a password, OpenSSL would prompt for that of an encrypted key on the terminal.
            context.load_cert_chain(path, password="")
    except (ssl.SSLError, ValueError) as error:
        said = _said(error)
        if said not in _REMEDIES:
            part, wanted = _broken_part(pair)
            raise UnusableTLS(f"{place}{part}", f"OpenSSL cannot read it ({said}), {wanted}") from error
        raise UnusableTLS(place, f"{said}, {_REMEDIES[said]}") from error


def _broken_part(pair: Certificate) -> tuple[str, str]:
    """Which of the two OpenSSL cannot read, and what is wanted in its place."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pair.certificate.encode("ascii", "ignore").decode())
    except (ssl.SSLError, ValueError):
        return ".certificate", "want certificates in PEM, the leaf first, as they were issued"
    return ".privateKey", "want the unencrypted key of the leaf in PEM, as it was created"


def load_authorities(context: ssl.SSLContext, ca: str, place: str) -> None:
    """Trust these authorities, and no others, to certify peers. Raises UnusableTLS.

    A hundred take 20 ms. Meanwhile other threads can run if `ssl` reads a file, but not if it gets the text.
    """
    # Bundles name their certificates in comments, in any language; `ssl` accepts only ASCII.
    text = ca.encode("ascii", "ignore")
    try:
        with memory_file(text) as path:
            context.load_verify_locations(path)
    except OSError:
        # No descriptor is left, or there is an error, of which `ssl` says more if it gets the text.
        try:
            context.load_verify_locations(cadata=text.decode())
        except (ssl.SSLError, ValueError) as error:
            raise UnusableTLS(place, f"{_said(error)}, want certificates in PEM") from error
    if not context.cert_store_stats()["x509"]:
        raise UnusableTLS(place, "only revocation lists, want certificates in PEM")
    context.verify_mode = ssl.CERT_REQUIRED
    # An authority may be given without the root that signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def load_authorities_of_system(context: ssl.SSLContext) -> None:
    """Trust the system's authorities to certify peers. Raises OSError."""
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    file = ssl.get_default_verify_paths().cafile
    if file is not None and not context.cert_store_stats()["x509"]:
        # OpenSSL does not report that it could not open the file; if it lacked only a descriptor, this context would
        # never trust anybody. A file that cannot be read at all is up to the system: there may be a directory as well.
        with contextlib.suppress(ssl.SSLError, PermissionError):
            context.load_verify_locations(cafile=file)


def _said(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)
