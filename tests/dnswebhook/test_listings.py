"""Encoded listings: what is remembered never changes the result."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.listings import ListingEncoder
from dnswebhook.model import Listing, Record
from dnswebhook.wire import decode_endpoint
from tests.support.record_sets import record_sets

rows = st.builds(
    Record,
    id=st.sampled_from(["1", "2", "3"]),
    name=st.sampled_from(["a.example.com", "b.example.com"]),
    type=st.sampled_from(["A", "TXT", "OTHER"]),
    value=st.sampled_from(["one", "two"]),
    ttl_s=st.sampled_from([0, 60]),
    is_enabled=st.booleans(),
)
listings = st.builds(Listing, st.lists(rows, max_size=8).map(tuple))


@given(st.lists(listings, min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_each_listing_contains_its_own_rows_whatever_was_listed_before(history: list[Listing]) -> None:
    encoder = ListingEncoder()

    for listing in history:
        encoded = encoder.encode(listing)

        told = [decode_endpoint(raw, "") for raw in msgspec.json.decode(encoded.body, type=list[msgspec.Raw])]
        assert record_sets(listing.records) == told
        assert sum(encoded.sets_by_type.values()) == len(told)


def test_the_same_listing_is_encoded_to_the_same_object() -> None:
    listing = Listing((Record("1", "a.example.com", "A", "192.0.2.1"),))
    encoder = ListingEncoder()

    assert encoder.encode(listing) is encoder.encode(listing)


def test_sets_are_counted_by_type() -> None:
    addresses = [Record(str(number), f"{number}.example.com", "A", "192.0.2.1") for number in range(3)]
    encoded = ListingEncoder().encode(Listing((*addresses, Record("t", "0.example.com", "TXT", "text"))))

    assert encoded.sets_by_type == {"A": 3, "TXT": 1}
