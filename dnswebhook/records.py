"""Rows to record sets: what `GET /records` tells external-dns (pure).

Rows of one name and type become one endpoint: of two endpoints with the same name and type the client sees only the
last. Disabled rows are not served, so they are not listed. A set's TTL is the smallest that its rows carry. The
heritage text comes first, because the client parses only the first target of a TXT set.
"""

from collections import defaultdict
from collections.abc import Iterable

from dnswebhook.model import Endpoint, Record
from dnswebhook.ownership import is_heritage

KNOWN_TYPES = frozenset({"A", "AAAA", "CNAME", "TXT", "MX", "SRV", "NS", "PTR", "NAPTR", "DNAME"})


def record_sets(records: Iterable[Record]) -> list[Endpoint]:
    """Endpoints in the order of their rows; rows of a type that external-dns does not know are left out."""
    sets: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.is_enabled and record.type in KNOWN_TYPES:
            sets[record.name, record.type].append(record)
    return [_endpoint(name, record_type, rows) for (name, record_type), rows in sets.items()]


def _endpoint(name: str, record_type: str, rows: list[Record]) -> Endpoint:
    if len(rows) == 1:  # the usual case, 25,000 times
        return Endpoint(name, record_type, (rows[0].value,), rows[0].ttl_s)
    values = sorted({row.value for row in rows}, key=lambda value: (not is_heritage(value), value))
    ttl_s = min((row.ttl_s for row in rows if row.ttl_s), default=0)
    return Endpoint(name, record_type, tuple(values), ttl_s)
