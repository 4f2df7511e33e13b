"""Client-side TLS: which certificate authorities are trusted, the system's or those in a file.

Python 3.13 and later, and urllib3 there, reject a CA certificate that lacks fields required by RFC 5280
(VERIFY_X509_STRICT), as do those of MicroK8s, of older EKS clusters, and of `openssl req -x509`. kubectl, curl,
browsers and earlier Pythons accept such certificates: as proof they are just as good. Earlier Pythons in turn reject an
authority that is given without the root that signed it (no VERIFY_X509_PARTIAL_CHAIN), which all of these accept.
"""

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daemonkit.filereading import read_input
from daemonkit.memoryfile import memory_file

MAX_AUTHORITIES_BYTES: Final = 16 * 1024 * 1024
"""Bundles of all public authorities have 0.25 MiB."""
_NO_TLS = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason when the peer does not speak TLS."""
DATE_ERRORS = frozenset((9, 10))
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
PURPOSE_ERROR = 26
"""X509_V_ERR_INVALID_PURPOSE: the certificate, or that of an authority above it, says that it is not for servers."""
_OF_NAMES = frozenset((62, 64))
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH, whose messages need no hint."""


def scheme_hint(error: Exception) -> str:
    """A hint to append to an HTTP client's error if the URL may have the wrong scheme; empty for other errors."""
    if isinstance(error, ssl.SSLError) and error.reason == _NO_TLS:
        return " (no TLS is spoken there: is it http?)"
    if isinstance(error, http.client.RemoteDisconnected):
        return "; is it up, and is the scheme right (http or https)?"
    return ""


def distrust_hint(error: ssl.SSLCertVerificationError, flag: str) -> str:
    """A hint to append to the error. `flag` is the option that sets the trusted authorities."""
    if error.verify_code in DATE_ERRORS:
        return "; renew it, or set the clock"
    if error.verify_code == PURPOSE_ERROR:
        return "; its key usages, or those of its authority, are not for servers"
    return "" if error.verify_code in _OF_NAMES else f"; if its authority is one of your own, name it ({flag})"


def trusting(ca_file: str | None = None) -> ssl.SSLContext:
    """Trusts the authorities in `ca_file` (PEM), or the system's. Raises OSError, including `ssl.SSLError`."""
    if ca_file is None:
        return without_formalities(ssl.create_default_context())
    with authorities(ca_file) as path:
        return without_formalities(ssl.create_default_context(cafile=path))


@contextlib.contextmanager
def authorities(ca_file: str | Path) -> Iterator[str]:
    """A path at which OpenSSL can read the file, which may be anything: itself, OpenSSL would wait for a pipe without
    end. Raises OSError."""
    with memory_file(read_input(ca_file, MAX_AUTHORITIES_BYTES)) as path:
        yield path


def without_formalities(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same `context`, less strict about form; signatures, names and dates are still verified."""
    context.verify_flags = context.verify_flags & ~ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
