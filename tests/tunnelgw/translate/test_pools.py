"""Addresses of a pool: one Gateway each, and each Gateway keeps what it has."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tunnelgw.translate.world import NAMESPACE, object_of, queries_of, translation_of
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.options import DEFAULT_CONTROLLER
from tunnelgw.sources.store import Store
from tunnelgw.translate.gateways import SHARED
from tunnelgw.translate.pools import pool_share
from tunnelgw.translate.verdicts import GatewayVerdict, ObjectId

POOL = [f"192.0.2.{number}" for number in range(1, 5)]
NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


def class_with(pool: list[str], **config: Any) -> list[tuple[Kind, Object]]:
    parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "c"}
    spec = {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters}
    plain = (
        {"kind": "GatewayClass", "metadata": {"name": "c"}, "spec": spec},
        {"kind": "GatewayClassConfig", "metadata": {"name": "c"}, "spec": {"direct": {"addresses": pool}, **config}},
    )
    return [*map(object_of, plain)]


def gateway(name: str, held: tuple[str, ...] = (), addresses: tuple[str, ...] = ()) -> tuple[Kind, Object]:
    spec = {"gatewayClassName": "c", "addresses": [{"value": value} for value in addresses]}
    kind, item = object_of({"kind": "Gateway", "metadata": {"name": name}, "spec": spec})
    return kind, msgspec.structs.replace(item, held=held)


def shares(*gateways: tuple[Kind, Object], pool: list[str] = POOL) -> dict[str, tuple[str, ...]]:
    queries = queries_of(Snapshot.of([*class_with(pool), *gateways]))
    return {item.metadata.name: queries.ask(pool_share, item.key) for _, item in gateways}


@settings(deadline=None)
@given(NAMES)
def test_each_gateway_has_one_address_of_its_own_while_the_pool_lasts(names: list[str]) -> None:
    found = shares(*map(gateway, names))

    given = [address for share in found.values() for address in share]
    assert sorted(given) == sorted(POOL[: len(names)])
    assert all(len(share) <= 1 for share in found.values())


@settings(deadline=None)
@given(NAMES, NAMES)
def test_a_gateway_keeps_its_address_whichever_others_come_and_go(before: list[str], after: list[str]) -> None:
    first = shares(*map(gateway, before))
    second = shares(*(gateway(name, first.get(name, ())) for name in after))

    for name in {*before} & {*after}:
        assert not first[name] or second[name] == first[name]


def test_an_address_that_was_given_meanwhile_is_kept_when_an_older_gateway_is_deleted() -> None:
    store = Store(())
    for item in [*class_with(POOL), gateway("a"), gateway("b")]:
        store.upsert(*item)
    queries = queries_of(store.take().snapshot)
    older, younger = Key(NAMESPACE, "a"), Key(NAMESPACE, "b")
    assert queries.keep(pool_share, younger) == (POOL[1],)

    store.delete(Kind.GATEWAY, older)
    store.give(gateway("b")[1], (POOL[1],))
    change = store.take()
    queries.update(change.snapshot, change.changed)

    assert queries.ask(pool_share, younger) == (POOL[1],)


def test_an_address_that_the_status_does_not_show_is_bound_all_the_same() -> None:
    tunnel = "00000000-0000-4000-8000-000000000001"
    world = Snapshot.of([*class_with(POOL, tunnelID=tunnel, publish="Tunnel"), gateway("a")])

    verdict = translation_of(world).verdict(ObjectId(Kind.GATEWAY, Key(NAMESPACE, "a")))

    assert isinstance(verdict, GatewayVerdict)
    assert [address.value for address in verdict.addresses] == [f"{tunnel}.cfargotunnel.com"]
    assert verdict.bound == (POOL[0],)


def test_a_pool_of_one_address_is_shared() -> None:
    assert shares(gateway("a"), gateway("b"), pool=["192.0.2.1"]) == {"a": ("192.0.2.1",), "b": ("192.0.2.1",)}


def test_a_gateway_that_requests_an_address_gets_it_before_one_that_held_it() -> None:
    assert shares(gateway("a", (POOL[0],)), gateway("b", (), (POOL[0],))) == {"a": (POOL[1],), "b": (POOL[0],)}


def test_each_address_without_a_value_gets_one_of_the_pool() -> None:
    assert shares(gateway("a", (), ("", ""))) == {"a": (POOL[0], POOL[1])}


def test_an_address_in_two_spellings_is_bound_once() -> None:
    """The proxy would refuse the whole document."""
    spec = {"gatewayClassName": "c", "listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}]}
    gateways = [object_of({"kind": "Gateway", "metadata": {"name": name}, "spec": spec}) for name in "ab"]
    world = Snapshot.of([*class_with(["192.0.2.1", "::ffff:192.0.2.1"]), *gateways])

    document = translation_of(world).documents[SHARED]

    assert [listener.address for listener in document.settings.listeners] == ["192.0.2.1"]
