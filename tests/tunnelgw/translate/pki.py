"""Certificates as Secrets and ConfigMaps hold them, made once for all tests of a process."""

import base64
from functools import cache

import trustme


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


def authority_pem() -> str:
    """What a ConfigMap has under ca.crt."""
    return _authority().cert_pem.bytes().decode()


@cache
def secret_data(*names: str) -> dict[str, str]:
    """The data of a Secret of type kubernetes.io/tls with a certificate for these names."""
    issued = _authority().issue_cert(*names)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return {"tls.crt": in_base64(chain), "tls.key": in_base64(issued.private_key_pem.bytes())}


def in_base64(text: bytes) -> str:
    return base64.b64encode(text).decode()
