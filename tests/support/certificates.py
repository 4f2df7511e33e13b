"""Certificates for both sides of the proxy, made anew for each test run."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, as text for documents and as a file for programs."""

    leaf: trustme.LeafCert
    file: Path
    """Private key and chain in one."""

    @property
    def chain_pem(self) -> str:
        return "".join(blob.bytes().decode() for blob in self.leaf.cert_chain_pems)

    @property
    def key_pem(self) -> str:
        return self.leaf.private_key_pem.bytes().decode()

    @property
    def pair(self) -> dict[str, str]:
        """As documents have it."""
        return {"certificate": self.chain_pem, "privateKey": self.key_pem}


class Authority:
    """A certificate authority of its own."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self._folder = tempfile.TemporaryDirectory(prefix="tunnelgw-ca-")
        self._count = 0
        self.file = Path(self._folder.name) / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    @property
    def pem(self) -> str:
        return self._ca.cert_pem.bytes().decode()

    def issue(self, *names: str) -> Issued:
        """`names`: DNS names and addresses."""
        leaf = self._ca.issue_cert(*names)
        self._count += 1
        file = Path(self._folder.name) / f"{self._count}.pem"
        leaf.private_key_and_cert_chain_pem.write_to_path(str(file))
        return Issued(leaf, file)

    def client_context(self, *alpn: str) -> ssl.SSLContext:
        """For clients that trust this authority alone."""
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
