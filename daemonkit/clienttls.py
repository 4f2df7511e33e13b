"""TLS of a client: which authorities are trusted, those of the system or of a file.

Python 3.13 and later, and urllib3 there, refuse an authority whose certificate lacks what RFC 5280 demands of one
(VERIFY_X509_STRICT), such as those of MicroK8s, of older EKS clusters, and of `openssl req -x509`. kubectl, curl and
browsers accept them, and so do earlier Pythons: they prove just as much.
"""

import http.client
import ssl

_NO_TLS = "WRONG_VERSION_NUMBER"
"""What OpenSSL calls an answer in clear."""
DATE_ERRORS = frozenset((9, 10))
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_OF_NAMES = frozenset((62, 64))
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH, whose texts say enough."""


def scheme_hint(error: Exception) -> str:
    """What to add to an error of an HTTP client whose URL may have the wrong scheme; empty for others."""
    if isinstance(error, ssl.SSLError) and error.reason == _NO_TLS:
        return " (no TLS is spoken there: is it http?)"
    if isinstance(error, http.client.RemoteDisconnected):
        return "; is it up, and is the scheme right (http or https)?"
    return ""


def distrust_hint(error: ssl.SSLCertVerificationError, flag: str) -> str:
    """What to add to it. `flag` names the authorities that are believed."""
    if error.verify_code in DATE_ERRORS:
        return "; renew it, or set the clock"
    return "" if error.verify_code in _OF_NAMES else f"; if its authority is one of your own, name it ({flag})"


def trusting(ca_file: str | None = None) -> ssl.SSLContext:
    """The authorities in `ca_file` (PEM), or the system's, are believed. Raises OSError, `ssl.SSLError` among them."""
    return without_formalities(ssl.create_default_context(cafile=ca_file))


def without_formalities(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same `context`: signatures, names and dates are verified as before."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
