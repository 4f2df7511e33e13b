"""How the controller is authenticated: by authority, by pinned certificate, or (on request) not at all.

Consoles come with a self-signed certificate, so the first thing most people see is a verification failure. Its message
therefore contains the SHA-256 fingerprint of the presented certificate, read in a separate handshake that sends no
request, and the two remedies.
"""

import hashlib
import ssl
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from daemonkit.clienttls import authorities, trusting, without_formalities
from dnswebhook.stores.unifi import sockets
from dnswebhook.stores.unifi.address import ControllerAddress
from dnswebhook.stores.unifi.settings import UnifiSettings


def context_for(settings: UnifiSettings) -> ssl.SSLContext:
    """Raises ValueError if the CA file cannot be used."""
    if settings.skip_tls_verify or settings.tls_fingerprint:
        # A pinned certificate is checked after the handshake, only by its fingerprint.
        return _unverified_context()
    if settings.ca_cert is None:
        return trusting()
    context = without_formalities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    _load_authorities(context, settings.ca_cert)
    return context


def _load_authorities(context: ssl.SSLContext, ca_cert: Path) -> None:
    try:
        with authorities(ca_cert) as path:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ValueError(f"UNIFI_CA_CERT {ca_cert} holds no PEM certificate: {error}") from error
    except OSError as error:
        raise ValueError(f"UNIFI_CA_CERT {ca_cert} cannot be read: {error.strerror}") from error


def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class PresentedCertificate(msgspec.Struct, frozen=True):
    fingerprint: str
    """SHA-256, upper case with colons, as browsers and openssl print it."""
    issuer: str
    not_after: datetime

    @property
    def has_expired(self) -> bool:
        return self.not_after < datetime.now(UTC)

    def has_fingerprint(self, plain: str) -> bool:
        """`plain`: lower-case hexadecimal, as in `UnifiSettings`."""
        return self.fingerprint.replace(":", "").lower() == plain


def presented_certificate(address: ControllerAddress, timeout_s: float) -> PresentedCertificate:
    """The certificate that the controller presents in an unverified handshake; raises OSError or ValueError."""
    with sockets.connect(address.host, address.port, timeout_s) as sock:
        wrapped = _unverified_context().wrap_socket(sock, server_hostname=address.tls_name)
        with wrapped:
            der = wrapped.getpeercert(binary_form=True)
    if der is None:
        raise ValueError("the controller presented no certificate")
    from cryptography import x509  # costs 26 ms and 8 MiB, and is needed only for a message to a person

    certificate = x509.load_der_x509_certificate(der)
    return PresentedCertificate(
        fingerprint=_with_colons(hashlib.sha256(der).hexdigest()),
        issuer=certificate.issuer.rfc4514_string()[:200],
        not_after=certificate.not_valid_after_utc,
    )


def _with_colons(digest: str) -> str:
    return ":".join(digest[index : index + 2] for index in range(0, len(digest), 2)).upper()


def verification_failure(settings: UnifiSettings, cause: str, timeout_s: float) -> str:
    """The message for a certificate that was not accepted: what was presented, and what to do."""
    address = settings.address
    try:
        presented = presented_certificate(address, timeout_s)
    except (OSError, ValueError) as error:
        seen = f"the certificate it presents could not be fetched for this message: {error}"
    else:
        seen = f"it presents SHA-256 {presented.fingerprint}, issued by {presented.issuer}"
    remedy = (
        "if that is your controller, set UNIFI_TLS_FINGERPRINT to this fingerprint, "
        "or UNIFI_CA_CERT to a file with the authority that issued its certificate"
    )
    if settings.ca_cert is not None:
        remedy += f"; dnswebhook reads {settings.ca_cert} when it starts: restart it after replacing that file"
    return f"TLS: the certificate of {address.origin} was not accepted ({cause}); {seen}; {remedy}"
