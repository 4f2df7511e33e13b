"""Certificates for golden cases, which name them.

`$ca:one` is the authority `one` in PEM, `$chain:one` and `$key:one` a certificate with its key, `$base64chain:one` and
`$base64key:one` the same as a Secret has them.
"""

import base64
import re
from functools import cache
from typing import Any

import trustme

_NAME = re.compile(r"\$(base64)?(ca|chain|key):(\w+)")


def with_certificates(plain: Any) -> Any:
    """The case, or a part of it, with all such names replaced by what they stand for."""
    if isinstance(plain, dict):
        return {name: with_certificates(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [with_certificates(value) for value in plain]
    return _NAME.sub(_text, plain) if isinstance(plain, str) else plain


def _text(found: re.Match[str]) -> str:
    is_base64, part, name = found.groups()
    pem = _pems(name)[part]
    return base64.b64encode(pem.encode()).decode() if is_base64 else pem


@cache
def _pems(name: str) -> dict[str, str]:
    authority = trustme.CA()
    leaf = authority.issue_cert(f"{name}.example")
    return {
        "ca": authority.cert_pem.bytes().decode(),
        "chain": leaf.cert_chain_pems[0].bytes().decode(),
        "key": leaf.private_key_pem.bytes().decode(),
    }
