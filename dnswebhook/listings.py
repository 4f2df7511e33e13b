"""Listings in bytes: record sets encoded, and remembered by the rows that they were made of.

external-dns lists on every pass, and between two passes hardly any row has changed: a store that lists the same object
again gets the same bytes, and of another listing only the sets with new rows are encoded. What a listing did not use
is forgotten, which bounds the memory by one listing. One thread at a time may call.
"""

from collections import Counter

import msgspec

from dnswebhook import wire
from dnswebhook.model import Listing, Record
from dnswebhook.records import endpoint_of, grouped
from dnswebhook.wishes import SetKey


class EncodedListing(msgspec.Struct, frozen=True):
    body: bytes
    """A bare array of endpoints."""
    sets_by_type: Counter[str]


class ListingEncoder:
    def __init__(self) -> None:
        self._listing: Listing | None = None
        self._encoded = EncodedListing(b"[]", Counter())
        self._parts: dict[SetKey, tuple[tuple[Record, ...], bytes]] = {}
        """Each set's rows, and its bytes."""

    def encode(self, listing: Listing) -> EncodedListing:
        if listing is not self._listing:
            self._parts = {key: self._part(key, rows) for key, rows in grouped(listing.records).items()}
            body = wire.join_endpoints((part for _, part in self._parts.values()), is_wrapped=False)
            self._encoded = EncodedListing(body, Counter(record_type for _, record_type in self._parts))
            self._listing = listing
        return self._encoded

    def _part(self, key: SetKey, rows: tuple[Record, ...]) -> tuple[tuple[Record, ...], bytes]:
        known = self._parts.get(key)
        if known is not None and known[0] == rows:
            return known
        return rows, wire.encode_endpoint(endpoint_of(rows))
