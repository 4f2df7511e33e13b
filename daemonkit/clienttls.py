"""TLS of a client: an authority says who the peer is, one of the system's or of a file.

Python 3.13 and later, and urllib3 there, refuse an authority whose certificate lacks what RFC 5280 wants in one
(VERIFY_X509_STRICT). Those of MicroK8s and of older EKS clusters do, and so does what `openssl req -x509` makes.
kubectl, curl and browsers take them, and an earlier Python does: what is proved is the same.
"""

import ssl


def trusting(ca_file: str | None = None) -> ssl.SSLContext:
    """The authorities in `ca_file` (PEM), or the system's, are believed. Raises OSError, `ssl.SSLError` among them."""
    return without_formalities(ssl.create_default_context(cafile=ca_file))


def without_formalities(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same `context`: signatures, names and dates are verified as before."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
