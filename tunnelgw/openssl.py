"""What OpenSSL says of certificates, keys and authorities: a proxy asks it too, and refuses a whole document for one.

Asked by the proxy's own functions, since no list of what it refuses is complete: `cryptography` reads certificates with
which OpenSSL does nothing at all, such as one with a name that is no text. What it says depends on the text alone.
"""

import ssl

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
