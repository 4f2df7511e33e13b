"""TLS of a client: an authority says who the peer is, one of the system's or of a file.

Python 3.13 and later, and urllib3 there, refuse an authority whose certificate lacks what RFC 5280 wants in one
(VERIFY_X509_STRICT). Those of MicroK8s and of older EKS clusters do, and so does what `openssl req -x509` makes.
kubectl, curl and browsers take them, and an earlier Python does: what is proved is the same.
"""

import http.client
import ssl

_NO_TLS = "WRONG_VERSION_NUMBER"
"""What OpenSSL calls an answer in clear."""


def scheme_hint(error: Exception) -> str:
    """What to add to an error of an HTTP client whose URL may have the wrong scheme; empty for others."""
    if isinstance(error, ssl.SSLError) and error.reason == _NO_TLS:
        return " (no TLS is spoken there: is it http?)"
    if isinstance(error, http.client.RemoteDisconnected):
        return "; is it up, and is the scheme right (http or https)?"
    return ""


def trusting(ca_file: str | None = None) -> ssl.SSLContext:
    """The authorities in `ca_file` (PEM), or the system's, are believed. Raises OSError, `ssl.SSLError` among them."""
    return without_formalities(ssl.create_default_context(cafile=ca_file))


def without_formalities(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same `context`: signatures, names and dates are verified as before."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
