"""Names in the document: unique, short enough, and in the order that precedence needs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import document
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.translate.names import MAX_LENGTH, created_at, listener_name, short
from tunnelgw.translate.verdicts import ObjectId

long_names = st.text("ab", min_size=1, max_size=900)
object_names = st.from_regex(r"\A[a-z0-9]([-.a-z0-9]{0,3}[a-z0-9])?\Z")


@settings(deadline=None)
@given(long_names, long_names)
def test_short_names_are_as_different_as_the_long_ones(first: str, second: str) -> None:
    assert len(short(first)) <= MAX_LENGTH
    assert (short(first) == short(second)) == (first == second)


@settings(deadline=None)
@given(object_names, object_names)
def test_a_route_of_several_parts_ranks_as_its_name_does(first: str, second: str) -> None:
    if first != second:
        assert (f"{first}#x" < second) == (f"{first}#x" < f"{second}#a") == (first < second)


def test_listeners_of_sets_have_the_name_of_the_set_too() -> None:
    gateway = Key("ns", "gw")

    assert listener_name(gateway, ObjectId(Kind.GATEWAY, gateway), "web") == "ns/gw/web"
    assert listener_name(gateway, ObjectId(Kind.LISTENER_SET, Key("x", "s")), "web") == "ns/gw/x/s/web"


def test_times_that_the_document_does_not_take_are_left_out() -> None:
    assert created_at("2026-01-01T00:00:00Z") == "2026-01-01T00:00:00Z"
    for text in ("", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00+01:00", "yesterday"):
        assert created_at(text) is document.UNSET
