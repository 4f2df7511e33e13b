"""Turns rows into record sets: what `GET /records` tells external-dns (pure).

Rows of one name and type become one endpoint: of two endpoints with the same name and type, the client sees only the
last. Disabled rows are not served, so they are not listed. If the rows of a set differ in their TTL, the set has none:
the client then sets its desired TTL again, and the rows that lack it get it. The heritage text comes first, because the
client parses only the first target of a TXT set.
"""

from collections.abc import Iterable

from dnswebhook.canonical import KNOWN_TYPES
from dnswebhook.model import Endpoint, Origin, Record
from dnswebhook.ownership import place_in_listing
from dnswebhook.wishes import SetKey


def grouped(records: Iterable[Record]) -> dict[SetKey, tuple[Record, ...]]:
    """The rows of each record set, in the order of each set's first row; types unknown to external-dns are left out."""
    sets: dict[SetKey, tuple[Record, ...]] = {}
    larger: dict[SetKey, list[Record]] = {}
    for record in records:
        if record.is_enabled and record.type in KNOWN_TYPES:
            key = (record.name, record.type)
            alone = (record,)
            first = sets.setdefault(key, alone)
            if first is not alone:
                larger.setdefault(key, [*first]).append(record)
    for key, rows in larger.items():
        sets[key] = tuple(rows)
    return sets


def endpoint_of(rows: tuple[Record, ...]) -> Endpoint:
    """The endpoint that the rows of one record set form."""
    first = rows[0]
    if len(rows) == 1:  # the usual case, 25,000 times
        return Endpoint(first.name, first.type, (first.value,), first.ttl_s)
    values = sorted({row.value for row in rows}, key=place_in_listing)
    return Endpoint(first.name, first.type, tuple(values), _ttl_s(rows))


def _ttl_s(rows: tuple[Record, ...]) -> int:
    ours = {row.ttl_s for row in rows if row.origin is Origin.USER_DEFINED}
    if not ours:  # never written, so external-dns need not ask for a TTL
        return min((row.ttl_s for row in rows if row.ttl_s), default=0)
    return ours.pop() if len(ours) == 1 else 0
