"""Certificates of an authority that lives as long as the test run."""

from datetime import UTC, datetime

import trustme

AUTHORITY = trustme.CA()


def certificate(*names: str, not_after: datetime | None = None) -> dict[str, str]:
    """As a document has it."""
    not_before = None if not_after is None else datetime(2000, 1, 1, tzinfo=UTC)
    issued = AUTHORITY.issue_cert(*names, not_before=not_before, not_after=not_after)
    return {
        "certificate": "".join(pem.bytes().decode() for pem in issued.cert_chain_pems),
        "privateKey": issued.private_key_pem.bytes().decode(),
    }
