"""How long a certificate is valid (RFC 5280, 4.1.2.5). Pure."""

from cryptography import x509


def end_of_first_s(chain_pem: str) -> float:
    """When the first certificate of a chain expires, in seconds since 1970.

    Raises ValueError when it cannot be read.
    """
    return x509.load_pem_x509_certificate(chain_pem.encode()).not_valid_after_utc.timestamp()
