"""Rows to record sets, as `GET /records` lists them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnswebhook.canonical import KNOWN_TYPES
from dnswebhook.model import Endpoint, Origin, Record
from tests.dnswebhook.planning import row
from tests.support.record_sets import record_sets
from tests.support.strategies import HERITAGE


def test_rows_of_one_name_and_type_form_one_set_with_sorted_values() -> None:
    rows = [
        row("b.example.com", "A", "192.0.2.2"),
        row("a.example.com", "A", "192.0.2.1"),
        row("b.example.com", "AAAA", "2001:db8::1"),
        row("b.example.com", "A", "192.0.2.1"),
    ]

    assert [
        Endpoint("b.example.com", "A", ("192.0.2.1", "192.0.2.2")),
        Endpoint("a.example.com", "A", ("192.0.2.1",)),
        Endpoint("b.example.com", "AAAA", ("2001:db8::1",)),
    ] == record_sets(rows)


def test_the_heritage_text_comes_first() -> None:
    rows = [row("app.example.com", "TXT", value) for value in ('"a text"', HERITAGE, '"!"')]

    assert HERITAGE == record_sets(rows)[0].targets[0]


def test_disabled_rows_and_unknown_types_are_left_out_and_derived_rows_are_not() -> None:
    rows = [
        row("a.example.com", "A", "192.0.2.1", is_enabled=False),
        row("a.example.com", "FORWARD_DOMAIN", "192.0.2.1"),
        row("nas.lan", "A", "192.0.2.9", origin=Origin.DERIVED),
    ]

    assert [Endpoint("nas.lan", "A", ("192.0.2.9",))] == record_sets(rows)


def test_a_value_of_two_rows_is_listed_once() -> None:
    rows = [row("a.example.com", "A", "192.0.2.1"), Record("other", "a.example.com", "A", "192.0.2.1")]

    assert [("192.0.2.1",)] == [endpoint.targets for endpoint in record_sets(rows)]


@pytest.mark.parametrize(
    ("ttls_s", "told_s"), [((60, 60), 60), ((0, 0), 0), ((0,), 0), ((300, 0, 60), 0), ((60, 0), 0)]
)
def test_a_set_has_the_ttl_of_its_rows_and_none_if_they_differ(ttls_s: tuple[int, ...], told_s: int) -> None:
    """Any wanted TTL then differs, so that external-dns sends again what some rows have not taken over."""
    rows = [row("a.example.com", "A", f"192.0.2.{n}", ttl_s) for n, ttl_s in enumerate(ttls_s)]

    assert [told_s] == [endpoint.ttl_s for endpoint in record_sets(rows)]


@pytest.mark.parametrize("origin", [Origin.DERIVED, Origin.AMBIGUOUS])
def test_a_row_that_is_never_written_does_not_affect_the_ttl_of_its_set(origin: Origin) -> None:
    """It would never have the wanted one, and external-dns would ask at each pass."""
    theirs = [row("a.example.com", "A", f"192.0.2.{n}", ttl_s, origin=origin) for n, ttl_s in ((1, 0), (2, 300))]
    ours = row("a.example.com", "A", "192.0.2.3", 60)

    assert [60] == [endpoint.ttl_s for endpoint in record_sets([*theirs, ours])]
    assert [300] == [endpoint.ttl_s for endpoint in record_sets(theirs)]


def test_no_rows_yield_no_sets() -> None:
    assert [] == record_sets([])


rows_of_any_kind = st.lists(
    st.builds(
        Record,
        id=st.uuids().map(str),
        name=st.sampled_from(["a.example.com", "b.example.com"]),
        type=st.sampled_from([*sorted(KNOWN_TYPES), "OTHER"]),
        value=st.sampled_from(["one", "two", HERITAGE]),
        ttl_s=st.sampled_from([0, 60, 300]),
        is_enabled=st.booleans(),
    ),
    max_size=20,
)


@given(rows_of_any_kind)
@settings(max_examples=100, deadline=None)
def test_every_served_value_is_listed_exactly_once(rows: list[Record]) -> None:
    told = [
        (endpoint.dns_name, endpoint.record_type, target)
        for endpoint in record_sets(rows)
        for target in endpoint.targets
    ]

    assert len(told) == len(set(told))
    assert set(told) == {(row.name, row.type, row.value) for row in rows if row.is_enabled and row.type in KNOWN_TYPES}
