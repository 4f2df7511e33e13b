"""What OpenSSL says of certificates, keys and authorities: a proxy asks it too, and refuses a whole document for one.

Asked by the proxy's own functions, since no list of what it refuses is complete: `cryptography` reads certificates with
which OpenSSL does nothing at all, such as one with a name that is no text. What it says depends on the text alone.
"""

import base64
import ssl
from collections.abc import Iterator

from proxy.document import Certificate
from proxy.tls.contexts import UnusableTLS, load_authorities, load_pair, make_context


def problem_of_pair(pair: Certificate) -> str:
    """Why nobody could present it; empty: a proxy can."""
    try:
        load_pair(make_context(ssl.PROTOCOL_TLS_SERVER, ()), pair, "")
    except UnusableTLS as error:
        return error.reason
    except OSError:
        # No descriptor is free for the question, which says nothing of the pair.
        return ""
    return ""


def problem_of_authorities(pem: str) -> str:
    """Why nobody could trust them; empty: a proxy can."""
    try:
        load_authorities(make_context(ssl.PROTOCOL_TLS_SERVER, ()), pem, "")
    except UnusableTLS as error:
        return error.reason
    return ""


def certificates_in(text: str) -> Iterator[str]:
    """Each in PEM, as it stands in the text. Raises ValueError.

    Not by `cryptography`: it warns of a serial number of 0, which authorities in every system's bundle have, and is to
    refuse such bundles one day.
    """
    for part in text.replace("X509 CERTIFICATE-----", "CERTIFICATE-----").split("-----BEGIN CERTIFICATE-----")[1:]:
        body, end, _ = part.partition("-----END CERTIFICATE-----")
        if end:
            yield ssl.DER_cert_to_PEM_cert(base64.b64decode("".join(body.split()), validate=True))
