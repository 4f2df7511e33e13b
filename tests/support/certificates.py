"""Certificates for both sides of the proxy, generated for each test run."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.support.programs import program, run


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, as text for documents and as a file for programs."""

    key_pem: str
    chain_pem: str
    file: Path
    """Private key and chain in one file."""

    @property
    def pair(self) -> dict[str, str]:
        """The pair in the format of documents."""
        return {"certificate": self.chain_pem, "privateKey": self.key_pem}


def bare_authority(*extensions: x509.ExtensionType) -> Authority:
    return Authority(bare_ca(*extensions))


def bare_ca(*extensions: x509.ExtensionType) -> trustme.CA:
    """Its certificate does not state the key usage, like those of MicroK8s and of `openssl req -x509`, unless one of
    `extensions` does."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bare")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    pem, no_encryption = serialization.Encoding.PEM, serialization.NoEncryption()
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, no_encryption)
    return trustme.CA.from_pem(certificate.public_bytes(pem), key_pem)


def rsassa_pss(name: str) -> dict[str, str]:
    """Self-signed with an RSASSA-PSS key, in the format of documents; `cryptography` cannot make such keys."""
    with tempfile.TemporaryDirectory(prefix="tunnelgw-pss-") as folder:
        key, certificate = Path(folder, "key.pem"), Path(folder, "certificate.pem")
        wanted = ["-newkey", "rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048", "-nodes", "-days", "1", "-subj", "/CN=pss"]
        files = ["-keyout", str(key), "-out", str(certificate)]
        done = run([program("openssl"), "req", "-x509", *wanted, "-addext", f"subjectAltName=DNS:{name}", *files])
        assert done.returncode == 0, done.stderr
        return {"certificate": certificate.read_text(), "privateKey": key.read_text()}


class Authority:
    """A private certificate authority."""

    def __init__(self, ca: trustme.CA | None = None) -> None:
        self._ca = ca or trustme.CA()
        self._folder = tempfile.TemporaryDirectory(prefix="tunnelgw-ca-")
        self._count = 0
        self.file = Path(self._folder.name) / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    @property
    def pem(self) -> str:
        return self._ca.cert_pem.bytes().decode()

    def issue(self, *names: str, not_after: datetime | None = None) -> Issued:
        """`names`: DNS names and IP addresses."""
        leaf = self._ca.issue_cert(*names, not_after=not_after)
        chain_pem = "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)
        return self._keep(leaf.private_key_pem.bytes().decode(), chain_pem)

    def _keep(self, key_pem: str, chain_pem: str) -> Issued:
        self._count += 1
        file = Path(self._folder.name) / f"{self._count}.pem"
        file.write_text(key_pem + chain_pem)
        return Issued(key_pem, chain_pem, file)

    def issue_with_uri(self, name: str, uri: str) -> Issued:
        """A certificate that also contains a URI, which `trustme` cannot make."""
        return self._issue(x509.SubjectAlternativeName([x509.DNSName(name), x509.UniformResourceIdentifier(uri)]))

    def issue_for_clients(self, name: str) -> Issued:
        """A certificate that servers must not use."""
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        return self._issue(names, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def _issue(self, *extensions: x509.ExtensionType) -> Issued:
        issuer = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        issuer_key = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "workload")]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(issuer.not_valid_before_utc)
            .not_valid_after(issuer.not_valid_after_utc)
            .add_extension(identifier, critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(issuer_key, hashes.SHA256())
        encoding = serialization.Encoding.PEM
        key_format, no_encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self._keep(
            key.private_bytes(encoding, key_format, no_encryption).decode(), certificate.public_bytes(encoding).decode()
        )

    def client_context(self, *alpn: str) -> ssl.SSLContext:
        """A context for clients that trust only this authority."""
        context = ssl.create_default_context(cafile=str(self.file))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def server_context(self, issued: Issued, *alpn: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.file)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def close(self) -> None:
        self._folder.cleanup()
