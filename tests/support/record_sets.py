"""Rows as record sets, in one step: the plain meaning of a listing, which `dnswebhook.listings` must not change."""

from collections.abc import Iterable

from dnswebhook.model import Endpoint, Record
from dnswebhook.records import endpoint_of, grouped


def record_sets(records: Iterable[Record]) -> list[Endpoint]:
    return [endpoint_of(rows) for rows in grouped(records).values()]
