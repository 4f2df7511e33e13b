"""Encodes listings: the bytes of each record set are cached by the rows that it consists of.

external-dns lists on every pass, and between two passes hardly any row has changed: if a store returns the same object
again, the bytes are reused; otherwise only sets with new rows are encoded. Sets that a listing did not use are dropped,
so the cache never holds more than one listing's. One thread at a time may call.
"""

from collections import Counter

import msgspec

from dnswebhook import wire
from dnswebhook.model import Listing, Record
from dnswebhook.records import endpoint_of, grouped


class EncodedListing(msgspec.Struct, frozen=True):
    body: bytes
    """A bare array of endpoints."""
    sets_by_type: Counter[str]


class ListingEncoder:
    def __init__(self) -> None:
        self._listing: Listing | None = None
        self._encoded = EncodedListing(b"[]", Counter())
        self._parts: dict[tuple[Record, ...], bytes] = {}
        """The bytes of each set, by its rows."""

    def encode(self, listing: Listing) -> EncodedListing:
        if listing is not self._listing:
            known = self._parts
            sets = grouped(listing.records).values()
            self._parts = {rows: known.get(rows) or wire.encode_endpoint(endpoint_of(rows)) for rows in sets}
            body = wire.join_endpoints(self._parts.values(), is_wrapped=False)
            self._encoded = EncodedListing(body, Counter(rows[0].type for rows in self._parts))
            self._listing = listing
        return self._encoded
