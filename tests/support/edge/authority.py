"""The certificate authority of an edge, and the edge's certificate.

Uses only what the proxy itself needs, so that the edge runs without development packages: in `make demo`.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Iterable
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=365)
_MARGIN = datetime.timedelta(days=1)
"""Clocks of test machines differ."""
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
"""Strict clients require this extension."""


class EdgeAuthority:
    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls, organization: str = "An edge on loopback") -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)])
        builder = _builder(name, name, key).add_extension(x509.BasicConstraints(True, 0), critical=True)
        builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, pem: bytes) -> Self:
        """Restores an authority from `pem_with_key`."""
        key = serialization.load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(key, x509.load_pem_x509_certificate(pem))

    @property
    def pem(self) -> bytes:
        """The certificate that connectors must trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pem_with_key(self) -> bytes:
        """Certificate and private key: secret."""
        return _pem(self._key) + self.pem

    def server_context(self, names: Iterable[str]) -> ssl.SSLContext:
        """The context of a server with a new certificate for `names`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edge")])
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(subject, self._certificate.subject, key).add_extension(alternatives, critical=False)
        leaf = builder.add_extension(issuer_id, critical=False).sign(self._key, hashes.SHA256())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Python's TLS reads certificates only from files.
        with tempfile.NamedTemporaryFile(prefix="tunnelgw-edge-") as file:
            file.write(_pem(key) + leaf.public_bytes(serialization.Encoding.PEM))
            file.flush()
            context.load_cert_chain(file.name)
        return context


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _MARGIN)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
