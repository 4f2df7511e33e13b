"""Consecutive listings of the v2 API: what is remembered never changes the result."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.stores.unifi import v2rows
from dnswebhook.stores.unifi.v2rows import RowMemory, V2Row

rows = st.builds(
    V2Row,
    id=st.sampled_from(["1", "2", "3", ""]),
    enabled=st.booleans(),
    key=st.sampled_from(["App.example.com", "b.example.com"]),
    record_type=st.sampled_from(["A", "MX", "NS"]),
    value=st.sampled_from(["192.0.2.1", "192.0.2.2"]),
    ttl=st.sampled_from([None, 60]),
)


@given(st.lists(st.lists(rows, max_size=6), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_each_listing_is_translated_as_if_it_were_the_first(history: list[list[V2Row]]) -> None:
    memory = RowMemory()

    for listed in history:
        assert v2rows.records_of(listed) == memory.records_of(listed)


def test_an_unchanged_row_gives_the_same_record_again() -> None:
    memory = RowMemory()
    first = memory.records_of([V2Row("1", True, "a.example.com", "A", "192.0.2.1")])

    again = memory.records_of(
        [V2Row("1", True, "a.example.com", "A", "192.0.2.1"), V2Row("2", True, "b.example.com", "A", "192.0.2.1")]
    )

    assert again[0] is first[0]
