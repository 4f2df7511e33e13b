"""Whether OpenSSL accepts certificates, keys and authorities: a proxy refuses a document with a bad one as a whole.

The proxy's own functions ask OpenSSL, since no list of what it refuses is complete: `cryptography` reads certificates
that OpenSSL cannot use, such as one with a name that is not text. The answer depends on the text alone.
"""

import base64
import ssl
from collections.abc import Iterator

from proxy.document import Certificate
from proxy.tls.contexts import UnusableTLS, load_authorities, load_pair, make_context


def problem_of_pair(pair: Certificate) -> str:
    """Why a proxy could not present the certificate; empty: it can."""
    try:
        load_pair(make_context(ssl.PROTOCOL_TLS_SERVER, ()), pair, "")
    except UnusableTLS as error:
        return error.reason
    except OSError:
        # There was no free file descriptor with which to ask OpenSSL, which says nothing about the pair.
        return ""
    return ""


def problem_of_authorities(pem: str) -> str:
    """Why a proxy could not trust the authorities; empty: it can."""
    try:
        load_authorities(make_context(ssl.PROTOCOL_TLS_SERVER, ()), pem, "")
    except UnusableTLS as error:
        return error.reason
    return ""


def certificates_in(text: str) -> Iterator[str]:
    """Each certificate in PEM, in the order of the text. Raises ValueError.

    `cryptography` is not used: it warns about serial numbers of 0, which some authorities in every system's bundle
    have, and will refuse such bundles in future.
    """
    for part in text.replace("X509 CERTIFICATE-----", "CERTIFICATE-----").split("-----BEGIN CERTIFICATE-----")[1:]:
        body, end, _ = part.partition("-----END CERTIFICATE-----")
        if end:
            yield ssl.DER_cert_to_PEM_cert(base64.b64decode("".join(body.split()), validate=True))
