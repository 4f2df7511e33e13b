"""Max-Forwards of OPTIONS and TRACE (RFC 9110, 7.6.2)."""

import pytest

from proxy.heads import Field
from tests.proxy.exchange.conftest import MakeWorld
from tests.proxy.exchange.sides import World, asked, config


def hops(count: bytes) -> Field:
    return (b"max-forwards", count)


@pytest.mark.parametrize("method", [b"OPTIONS", b"TRACE"])
@pytest.mark.parametrize(
    ("received", "sent"),
    [(b"1", b"0"), (b"10", b"9"), (b"0010", b"9"), (b"4294967296", b"2147483646"), (b"9" * 5000, b"2147483646")],
    ids=["the last one", "several", "with zeros", "more than anybody counts", "more than Python reads"],
)
def test_max_forwards_is_decremented(world: World, method: bytes, received: bytes, sent: bytes) -> None:
    world.begin(asked(method, fields=[(b"a", b"1"), hops(received)]))

    assert world.pool.stream.head.fields[:2] == [(b"a", b"1"), hops(sent)]


@pytest.mark.parametrize("zero", [b"0", b"000"])
def test_options_with_max_forwards_0_is_answered_by_us(world: World, zero: bytes) -> None:
    client = world.begin(asked(b"OPTIONS", fields=[hops(zero)]))

    assert client.head is not None
    assert (client.head.status_code, client.body, world.pool.streams) == (204, b"", [])
    assert world.record.reason == "max_forwards"


def test_trace_with_max_forwards_0_is_refused_without_an_echo(world: World) -> None:
    client = world.begin(asked(b"TRACE", fields=[(b"cookie", b"secret"), hops(b"0")]))

    assert client.head is not None
    assert (client.head.status_code, client.field(b"allow"), world.pool.streams) == (405, b"OPTIONS", [])
    assert b"secret" not in client.body


@pytest.mark.parametrize("value", [b"", b"-1", b"+1", b"1.0", b"one", b"1, 2", "\u00b2".encode("latin-1")])
def test_an_invalid_value_is_passed_on(world: World, value: bytes) -> None:
    world.begin(asked(b"OPTIONS", fields=[hops(value)]))

    assert world.pool.stream.field(b"max-forwards") == value


def test_two_values_are_passed_on_unchanged(world: World) -> None:
    world.begin(asked(b"OPTIONS", fields=[hops(b"0"), hops(b"5")]))

    assert [field for field in world.pool.stream.head.fields if field[0] == b"max-forwards"] == [hops(b"0"), hops(b"5")]


def test_max_forwards_of_other_methods_is_not_decremented(world: World) -> None:
    world.begin(asked(b"GET", fields=[hops(b"0")]))

    assert world.pool.stream.field(b"max-forwards") == b"0"


def test_a_request_header_modifier_overrides_max_forwards(make_world: MakeWorld) -> None:
    world = make_world(
        config('"filters": {"requestHeaderModifier": {"set": [{"name": "Max-Forwards", "value": "7"}]}},')
    )
    world.begin(asked(b"OPTIONS", fields=[hops(b"3")]))

    assert world.pool.stream.field(b"max-forwards") == b"7"
