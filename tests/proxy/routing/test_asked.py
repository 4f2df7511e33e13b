"""A request is parsed once, however many conditions are checked against it."""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.pattern import automaton
from proxy.routing.asked import Asked, TooMuchToFit
from proxy.routing.head import PlainHead, header
from tests.support.routes import headers, path, route, table_of, taken

FIELDS = tuple((b"x-%d" % number, b"v") for number in range(100))


class CountingHead:
    """Counts how often its fields are read through."""

    method, authority, path = b"GET", b"h", b"/p?q=0"

    def __init__(self) -> None:
        self.read = 0

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]:
        self.read += 1
        return FIELDS


class CountingQuery(bytes):
    """Counts how often it is split."""

    taken_apart = 0

    def split(self, *arguments: Any) -> list[bytes]:
        type(self).taken_apart += 1
        return super().split(*arguments)


def test_fields_are_read_through_once_for_each_name_that_conditions_have() -> None:
    table = table_of(route("r", *[path("/p", headers=headers(**{f"X-{n % 3}": f"w{n}"})) for n in range(60)]))
    head = CountingHead()

    assert taken(table, head) == "404 no_route"
    assert head.read == 3


def test_fields_are_read_through_a_few_times_for_many_names() -> None:
    table = table_of(route("r", *[path("/p", headers=headers(**{f"Y-{n}": "w"})) for n in range(60)]))
    head = CountingHead()

    assert taken(table, head) == "404 no_route"
    assert head.read <= 5


@pytest.mark.parametrize("name", [b"x-1", b"x-2", b"x-3", b"cookie", b"host"])
def test_a_field_has_the_same_value_whenever_it_is_asked_for(name: bytes) -> None:
    fields = ((b"x-1", b"a"), (b"cookie", b"a=1"), (b"x-2", b""), (b"x-1", b"b"), (b"cookie", b"b=2"))
    head = PlainHead(b"GET", b"h", b"/", fields)
    asked = Asked(b"", head)
    for number in range(10):
        asked.header(b"y-%d" % number)

    assert asked.header(name) == Asked(b"", head).header(name) == header(head, name)


def test_a_query_is_parsed_once_and_only_for_conditions_on_it() -> None:
    CountingQuery.taken_apart = 0
    asked = Asked(CountingQuery(b"a=1&b=2&a=3&c"), CountingHead())

    assert (asked.header(b"x-1"), CountingQuery.taken_apart) == (b"v", 0)
    assert [asked.parameter(name) for name in (b"a", b"b", b"c", b"d")] == [b"1", b"2", b"", None]
    assert CountingQuery.taken_apart == 1


@pytest.mark.parametrize(
    ("query", "value"),
    [
        (b"a+b=1", b"1"),
        (b"a%20b=1&a+b=2", b"1"),
        (b"a+b=2&a%20b=1", b"2"),
        (b"x=%61&a+b=%31+%32", b"1 2"),
        (b"&&a+b&a+b=1", b""),
        (b"A+b=1", None),
    ],
)
def test_query_names_and_values_are_decoded_and_the_first_value_counts(query: bytes, value: bytes | None) -> None:
    assert Asked(query, CountingHead()).parameter(b"a b") == value


def test_a_parameter_name_also_matches_undecoded() -> None:
    assert Asked(b"a+b=1", CountingHead()).parameter(b"a+b") == b"1"


def test_a_value_is_decoded_once() -> None:
    asked = Asked(b"a=%2541+", CountingHead())

    value = asked.parameter(b"a")
    assert value == b"%41 "
    assert asked.parameter(b"a") is value


def test_all_expressions_together_read_a_bounded_number_of_bytes_of_a_request() -> None:
    asked = Asked(b"", CountingHead(), 101)

    assert [asked.fits(automaton("a*"), value) for value in (b"a" * 50, b"b" * 1000, b"a" * 49)] == [True, False, True]
    with pytest.raises(TooMuchToFit):
        asked.fits(automaton("a*"), b"aa")
