"""How long a certificate is valid (RFC 5280, 4.1.2.5). Pure."""

from typing import Final

from cryptography import x509

_FIRST_S: Final = -62_135_596_800.0
"""The first moment that Python knows, which is that of the year 1."""


def end_of_first_s(chain_pem: str) -> float:
    """When the first certificate of a chain expires, in seconds since 1970.

    Raises ValueError when it cannot be read.
    """
    return _end_s(x509.load_pem_x509_certificate(chain_pem.encode()))


def end_s(certificate_der: bytes) -> float:
    """The same of one certificate."""
    return _end_s(x509.load_der_x509_certificate(certificate_der))


def _end_s(certificate: x509.Certificate) -> float:
    try:
        return certificate.not_valid_after_utc.timestamp()
    except ValueError:  # in the year 0
        return _FIRST_S
