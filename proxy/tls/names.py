"""Which names a certificate is for, and whether a given one is among them (RFC 6125, 6.4; RFC 9525, 6). Pure."""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from cryptography import x509

_MAX_SHOWN: Final = 8
_UNREADABLE: Final = (x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType)
"""Raised for what OpenSSL accepts and `cryptography` does not; none of them is a ValueError."""


class CertificateNames(msgspec.Struct, frozen=True):
    """The subject alternative names. The common name does not name a server (RFC 9525, 2); see `common_name_of`."""

    dns: tuple[str, ...]
    uris: tuple[str, ...]
    ips: tuple[str, ...]

    def covers_host(self, host: str) -> bool:
        """`host` is a name in ASCII or an IP address."""
        try:
            ip = str(ipaddress.ip_address(host))
        except ValueError:
            return any(_covers(pattern, host) for pattern in self.dns)
        return ip in self.ips

    def __bool__(self) -> bool:
        return bool(self.dns or self.uris or self.ips)

    def __str__(self) -> str:
        names = [*self.dns, *self.ips, *self.uris]
        shown = ", ".join(name[:128] for name in names[:_MAX_SHOWN]) or "no names"
        return shown if len(names) <= _MAX_SHOWN else f"{shown} and {len(names) - _MAX_SHOWN} more"


class NameIndex:
    """Which of several certificates cover a host name, found without checking each of them."""

    def __init__(self, certificates: Iterable[CertificateNames]) -> None:
        self._places: dict[str, list[int]] = {}
        for place, names in enumerate(certificates):
            for pattern in dict.fromkeys(map(_normal, names.dns)):
                self._places.setdefault(pattern, []).append(place)

    def places_of(self, host: str) -> tuple[int, ...]:
        """Indexes of the certificates that name it; if there are none, of those that cover it by a wildcard."""
        host = _normal(host)
        for pattern in (host, "*." + host.partition(".")[2]):
            if _covers(pattern, host) and pattern in self._places:
                return tuple(self._places[pattern])
        return ()


def names_of(certificate_der: bytes) -> CertificateNames:
    """Raises ValueError if the certificate, or its extension, cannot be read."""
    return _names_of(x509.load_der_x509_certificate, certificate_der)


def common_name_of(certificate_der: bytes) -> CertificateNames:
    """The common name, by which appliances go in their own certificates without alternative names (RFC 6125, 6.4.4).

    Raises ValueError if the subject cannot be read.
    """
    try:
        subject = x509.load_der_x509_certificate(certificate_der).subject
    except (KeyError, TypeError) as error:  # attributes of unusual types, which OpenSSL accepts
        raise ValueError(f"subject of an unknown kind: {error}") from error
    names = tuple(str(name.value) for name in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME))
    return CertificateNames(names, (), names)


def names_of_first(chain_pem: str) -> CertificateNames:
    """The names of the first certificate of a chain. Raises ValueError likewise."""
    return _names_of(x509.load_pem_x509_certificate, chain_pem.encode())


def _names_of(load: Callable[[bytes], x509.Certificate], octets: bytes) -> CertificateNames:
    try:
        names = load(octets).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return CertificateNames((), (), ())
    except _UNREADABLE as error:
        raise ValueError(str(error)) from error
    return CertificateNames(
        tuple(names.get_values_for_type(x509.DNSName)),
        tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
        tuple(str(ip) for ip in names.get_values_for_type(x509.IPAddress)),
    )


def _covers(pattern: str, host: str) -> bool:
    """A wildcard matches exactly one whole label, the first, and never one directly under the root."""
    pattern, host = _normal(pattern), _normal(host)
    if pattern == host:
        return bool(host) and "*" not in pattern
    if not pattern.startswith("*.") or "*" in pattern[1:] or pattern.count(".") < 2:
        return False
    label, _, rest = host.partition(".")
    return bool(label) and rest == pattern[2:]


def _normal(name: str) -> str:
    return name.lower().rstrip(".")
