"""How long a certificate is valid (RFC 5280, 4.1.2.5). Pure."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from cryptography import x509

_FIRST_S: Final = -62_135_596_800.0
"""The first moment that Python knows: the beginning of the year 1."""


class Validity(NamedTuple):
    """In seconds since 1970."""

    begin_s: float
    end_s: float


def validity_of_first(chain_pem: str) -> Validity:
    """The validity of the first certificate of a chain.

    Raises ValueError if it cannot be read.
    """
    return _validity(x509.load_pem_x509_certificate, chain_pem.encode())


def validity(certificate_der: bytes) -> Validity:
    """The same for a single certificate. Raises ValueError likewise."""
    return _validity(x509.load_der_x509_certificate, certificate_der)


def _validity(load: Callable[[bytes], x509.Certificate], octets: bytes) -> Validity:
    try:
        certificate = load(octets)
    except x509.InvalidVersion as error:  # no ValueError; OpenSSL accepts other versions
        raise ValueError(str(error)) from error
    begin, end = attrgetter("not_valid_before_utc"), attrgetter("not_valid_after_utc")
    return Validity(_seconds(begin, certificate), _seconds(end, certificate))


def _seconds(moment: Callable[[x509.Certificate], Any], certificate: x509.Certificate) -> float:
    try:
        return float(moment(certificate).timestamp())
    except ValueError:  # in the year 0
        return _FIRST_S
