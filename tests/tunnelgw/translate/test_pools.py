"""Addresses of a pool: one Gateway each, and each Gateway keeps what it has."""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.tunnelgw.translate.world import object_of
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.sources.tables import Tables
from tunnelgw.translate.pools import pool_share
from tunnelgw.translate.queries import CONTROLLER_NAME, Queries

POOL = [f"192.0.2.{number}" for number in range(1, 5)]
NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


def class_with(pool: list[str]) -> list[tuple[Kind, Object]]:
    parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "c"}
    spec = {"controllerName": CONTROLLER_NAME, "parametersRef": parameters}
    plain = (
        {"kind": "GatewayClass", "metadata": {"name": "c"}, "spec": spec},
        {"kind": "GatewayClassConfig", "metadata": {"name": "c"}, "spec": {"direct": {"addresses": pool}}},
    )
    return [*map(object_of, plain)]


def gateway(name: str, status: tuple[str, ...] = (), addresses: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "kind": "Gateway",
        "metadata": {"name": name},
        "spec": {"gatewayClassName": "c", "addresses": [{"value": value} for value in addresses]},
        "status": {"addresses": [{"type": "IPAddress", "value": value} for value in status]},
    }


def shares(*gateways: dict[str, Any], pool: list[str] = POOL) -> dict[str, tuple[str, ...]]:
    return shares_of(map(object_of, gateways), pool)


def shares_of(gateways: Iterable[tuple[Kind, Object]], pool: list[str] = POOL) -> dict[str, tuple[str, ...]]:
    gateways = [*gateways]
    queries = Queries(Snapshot.of([*class_with(pool), *gateways]))
    return {item.metadata.name: queries.ask(pool_share, item.key) for _, item in gateways}


@given(NAMES)
def test_each_gateway_has_one_address_of_its_own_while_there_are_some(names: list[str]) -> None:
    found = shares(*map(gateway, names))

    given = [address for share in found.values() for address in share]
    assert sorted(given) == sorted(POOL[: len(names)])
    assert all(len(share) <= 1 for share in found.values())


@given(NAMES, NAMES)
def test_who_has_an_address_keeps_it_whoever_comes_and_goes(before: list[str], after: list[str]) -> None:
    first = shares(*map(gateway, before))
    second = shares(*(gateway(name, first.get(name, ())) for name in after))

    for name in {*before} & {*after}:
        assert not first[name] or second[name] == first[name]


def test_an_address_that_was_shown_meanwhile_is_kept_when_an_older_gateway_goes() -> None:
    tables = Tables()
    for item in [*class_with(POOL), *map(object_of, (gateway("a"), gateway("b")))]:
        tables.put(*item)
    queries = Queries(tables.take()[0])
    _, younger = object_of(gateway("b"))
    assert queries.keep(pool_share, younger.key) == (POOL[1],)

    tables.put(*object_of(gateway("b", (POOL[1],))))
    tables.remove(Kind.GATEWAY, object_of(gateway("a"))[1].key)
    snapshot, edits = tables.take()
    queries.update(snapshot, edits.changed)

    assert queries.ask(pool_share, younger.key) == (POOL[1],)


def test_a_pool_of_one_address_is_shared() -> None:
    assert shares(gateway("a"), gateway("b"), pool=["192.0.2.1"]) == {"a": ("192.0.2.1",), "b": ("192.0.2.1",)}


def test_who_asks_for_an_address_gets_it_before_who_had_it() -> None:
    assert shares(gateway("a", POOL[:1]), gateway("b", (), (POOL[0],))) == {"a": (POOL[1],), "b": (POOL[0],)}


def test_several_addresses_without_value_are_several() -> None:
    assert shares(gateway("a", (), ("", ""))) == {"a": (POOL[0], POOL[1])}


@given(st.binary())
def test_a_status_of_any_content_is_no_obstacle(status: bytes) -> None:
    kind, item = object_of(gateway("a"))

    assert shares_of([(kind, msgspec.structs.replace(item, status=msgspec.Raw(status)))]) == {"a": (POOL[0],)}
