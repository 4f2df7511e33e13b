"""Certificates and keys of one throw-away API server, written as files into one folder.

The authority signs the server's certificate, the administrator's (group `system:masters`, which RBAC lets do
everything) and the one with which the API server would call kubelets. Service-account tokens have a key of their own.
"""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Pki:
    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    def pair(self, name: str) -> KeyPair:
        """`apiserver`, `admin` or `kubelet-client`."""
        return KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    @property
    def service_account(self) -> KeyPair:
        """Public and private key; there is no certificate."""
        return KeyPair(self.folder / "sa.pub", self.folder / "sa.key")


def write_secret(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def make_pki(folder: Path, server_names: list[str]) -> Pki:
    """Fresh certificates in `folder`; `server_names` are the names and addresses under which clients dial."""
    folder.mkdir(parents=True)
    pki = Pki(folder)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(pki.authority)
    leaves = {
        "apiserver": authority.issue_cert(*server_names, common_name="kube-apiserver"),
        "admin": authority.issue_cert("admin", common_name="admin", organization_name="system:masters"),
        "kubelet-client": authority.issue_cert(
            "kubelet-client", common_name="apiserver-kubelet-client", organization_name="system:masters"
        ),
    }
    for name, leaf in leaves.items():
        leaf.cert_chain_pems[0].write_to_path(pki.pair(name).certificate)
        write_secret(pki.pair(name).key, leaf.private_key_pem.bytes())
    _make_service_account_key(pki.service_account)
    return pki


def _make_service_account_key(pair: KeyPair) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    write_secret(pair.key, private)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    pair.certificate.write_bytes(public)
