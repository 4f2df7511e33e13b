"""A certificate authority and a server certificate for the simulated console, generated for each run."""

import hashlib
import ssl
from pathlib import Path

import trustme


class Certificate:
    """`ca_pem_path` holds the authority; `fingerprint_sha256` is that of the server certificate, hexadecimal."""

    def __init__(self, directory: Path, names: tuple[str, ...]) -> None:
        authority = trustme.CA()
        server = authority.issue_cert(*names)
        self.ca_pem_path = directory / "controller-ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_pem_path))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.configure_cert(self.context)
        leaf_pem = server.cert_chain_pems[0].bytes().decode()
        self.fingerprint_sha256 = hashlib.sha256(ssl.PEM_cert_to_DER_cert(leaf_pem)).hexdigest()
