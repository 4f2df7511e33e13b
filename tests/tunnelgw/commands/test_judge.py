"""What translation decided, as rows for people."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tunnelgw.sources.objects import gateway, make, route
from tunnelgw.commands.judge import absent_parents
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Snapshot


def test_a_parent_is_looked_for_in_the_namespace_of_its_route_unless_it_names_another() -> None:
    snapshot = Snapshot.of([(Kind.GATEWAY, gateway("gw", namespace="shop"))])

    beside, elsewhere = (route("web", namespace=namespace) for namespace in ("shop", "blog"))

    assert absent_parents(beside, snapshot) == ()
    assert absent_parents(elsewhere, snapshot) == ("Gateway blog/gw does not exist",)


SET: dict[str, Any] = {"parentRef": {"name": "gw"}, "listeners": []}
POLICY: dict[str, Any] = {
    "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
    "validation": {"hostname": "web.example"},
}


@pytest.mark.parametrize(
    ("item", "absent"),
    [
        (gateway("gw"), "GatewayClass tunnel does not exist"),
        (make(Kind.LISTENER_SET, "set", SET, namespace="shop"), "Gateway shop/gw does not exist"),
        (make(Kind.BACKEND_TLS_POLICY, "policy", POLICY, namespace="shop"), "Service shop/web does not exist"),
    ],
    ids=["Gateway", "ListenerSet", "BackendTLSPolicy"],
)
def test_what_something_belongs_to_may_be_absent_too(item: Object, absent: str) -> None:
    there = [
        (Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, "tunnel", {"controllerName": "example.net/any"}, namespace="")),
        (Kind.GATEWAY, gateway("gw", namespace="shop")),
        (Kind.SERVICE, make(Kind.SERVICE, "web", {"ports": []}, namespace="shop")),
    ]

    assert absent_parents(item, Snapshot.of([])) == (absent,)
    assert absent_parents(item, Snapshot.of(there)) == ()


@pytest.mark.parametrize(("group", "kind"), [("", "Service"), ("networking.istio.io", "Gateway")])
def test_parents_of_other_sorts_are_not_looked_for(group: str, kind: str) -> None:
    """A mesh routes by Services, and others have a kind of the same name."""
    spec = {"parentRefs": [{"group": group, "kind": kind, "name": "other"}]}

    assert absent_parents(make(Kind.HTTP_ROUTE, "web", spec, namespace="shop"), Snapshot.of([])) == ()
