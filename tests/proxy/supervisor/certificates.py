"""Certificates of an authority that lives as long as the test run."""

import trustme

AUTHORITY = trustme.CA()


def certificate(*names: str) -> dict[str, str]:
    """As a document has it."""
    issued = AUTHORITY.issue_cert(*names)
    return {
        "certificate": "".join(pem.bytes().decode() for pem in issued.cert_chain_pems),
        "privateKey": issued.private_key_pem.bytes().decode(),
    }
