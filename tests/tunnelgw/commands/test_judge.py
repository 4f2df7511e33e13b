"""What translation decided, as rows for people."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.tunnelgw.sources.objects import gateway, make, route
from tunnelgw.commands.judge import Grade, Row, absent_parents, judge
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Object
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.translate.pipeline import Translation


def test_a_parent_without_a_namespace_is_looked_up_in_that_of_its_route() -> None:
    snapshot = Snapshot.of([(Kind.GATEWAY, gateway("gw", namespace="shop"))])

    beside, elsewhere = (route("web", namespace=namespace) for namespace in ("shop", "blog"))

    assert absent_parents(beside, snapshot) == ()
    assert absent_parents(elsewhere, snapshot) == ("Gateway blog/gw does not exist",)


SET: dict[str, Any] = {"parentRef": {"name": "gw"}, "listeners": []}
ELSEWHERE: dict[str, Any] = {"parentRef": {"name": "gw", "namespace": "shop"}, "listeners": []}
POLICY: dict[str, Any] = {
    "targetRefs": [
        {"group": "", "kind": "Service", "name": "web"},
        {"group": "tunnelgw.dev", "kind": "Backend", "name": "b"},
        {"group": "serving.example.org", "kind": "Service", "name": "s"},
    ],
    "validation": {"hostname": "web.example"},
}


@pytest.mark.parametrize(
    ("item", "absent"),
    [
        (gateway("gw"), "GatewayClass tunnel does not exist"),
        (make(Kind.LISTENER_SET, "set", SET, namespace="shop"), "Gateway shop/gw does not exist"),
        (make(Kind.LISTENER_SET, "set", ELSEWHERE, namespace="blog"), "Gateway shop/gw does not exist"),
        (make(Kind.BACKEND_TLS_POLICY, "policy", POLICY, namespace="shop"), "Service shop/web does not exist"),
    ],
    ids=["Gateway", "ListenerSet", "ListenerSet elsewhere", "BackendTLSPolicy"],
)
def test_an_absent_class_gateway_or_target_service_is_reported(item: Object, absent: str) -> None:
    there = [
        (Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, "tunnel", {"controllerName": "example.net/any"}, namespace="")),
        (Kind.GATEWAY, gateway("gw", namespace="shop")),
        (Kind.SERVICE, make(Kind.SERVICE, "web", {"ports": []}, namespace="shop")),
    ]

    assert absent_parents(item, Snapshot.of([])) == (absent,)
    assert absent_parents(item, Snapshot.of(there)) == ()


@pytest.mark.parametrize(
    ("group", "kind"), [("", "Service"), ("networking.istio.io", "Gateway"), ("gateway.networking.k8s.io", "Mesh")]
)
def test_parents_of_other_groups_or_kinds_are_not_looked_up(group: str, kind: str) -> None:
    """A service mesh attaches routes to Services, and other APIs have a kind of the same name."""
    parent = {"group": group, "kind": kind, "name": "other"}

    for item in (
        make(Kind.HTTP_ROUTE, "web", {"parentRefs": [parent]}, namespace="shop"),
        make(Kind.LISTENER_SET, "set", {**SET, "parentRef": parent}, namespace="shop"),
    ):
        assert absent_parents(item, Snapshot.of([])) == ()


OURS = "tunnelgw.dev/tunnel-gateway-controller"
CLASS = (Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, "tunnel", {"controllerName": OURS}, namespace=""))
GATEWAY_SPEC = {"gatewayClassName": "tunnel", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
GATEWAY = (Kind.GATEWAY, make(Kind.GATEWAY, "gw", GATEWAY_SPEC, namespace="shop"))


def a_service(name: str) -> tuple[Kind, Object]:
    return Kind.SERVICE, make(Kind.SERVICE, name, {"ports": [{"name": "http", "port": 80}]}, namespace="shop")


def a_route(parents: list[dict[str, Any]], *services: str) -> tuple[Kind, Object]:
    rules = [{"backendRefs": [{"name": name, "port": 80}]} for name in services]
    return Kind.HTTP_ROUTE, make(Kind.HTTP_ROUTE, "web", {"parentRefs": parents, "rules": rules}, namespace="shop")


def test_an_absent_parent_is_reported_once_beside_one_that_accepts_the_route() -> None:
    absent = [{"name": "wg", "sectionName": "http"}, {"name": "wg", "sectionName": "https"}]
    mesh = {"group": "", "kind": "Service", "name": "mesh"}

    rows = rows_of(CLASS, GATEWAY, a_service("web"), a_route([{"name": "gw"}, *absent, mesh], "web"))

    assert [
        Row(Grade.ACCEPTED, "HTTPRoute shop/web", "Gateway gw"),
        Row(Grade.WARNING, "HTTPRoute shop/web", message="Gateway shop/wg does not exist"),
    ] == rows[-2:]


def test_targets_for_which_an_accepted_policy_is_not_in_force_are_reported() -> None:
    """A typo there sends plain text to a backend that should get TLS."""
    refs = [("web", ""), ("more", "nosuch"), ("typo", "")]
    targets = [{"group": "", "kind": "Service", "name": name, "sectionName": section} for name, section in refs]
    validation = {"hostname": "web.example", "wellKnownCACertificates": "System"}
    spec = {"targetRefs": targets, "validation": validation}
    policy = (Kind.BACKEND_TLS_POLICY, make(Kind.BACKEND_TLS_POLICY, "tls", spec, namespace="shop"))
    there = [CLASS, GATEWAY, policy, a_service("web"), a_service("more")]

    rows = rows_of(*there, a_route([{"name": "gw"}], "web", "more"))
    with_typo = rows_of(*there, a_route([{"name": "gw"}], "web", "typo"))

    message = "not in force everywhere: Service shop/more, port nosuch does not exist"
    absent = "Service shop/typo does not exist"
    subject = "BackendTLSPolicy shop/tls"
    assert [
        Row(Grade.WARNING, subject, "Gateway shop/gw", "Accepted", "Accepted", message),
        Row(Grade.WARNING, subject, message=absent),
    ] == rows[-2:]
    assert [row.message for row in with_typo if row.object == subject] == [f"not in force everywhere: {absent}"]


SETTINGS = {"proxy": {"forwarding": {"trustedProxies": ["10.0.0.1/8"]}}}


def test_an_unreferenced_configuration_is_reported_with_its_errors() -> None:
    items = [
        (Kind.GATEWAY_CLASS_CONFIG, make(Kind.GATEWAY_CLASS_CONFIG, "own", {"tunnelID": "mine"}, namespace="")),
        (Kind.GATEWAY_CLASS_CONFIG, make(Kind.GATEWAY_CLASS_CONFIG, "well", {}, namespace="")),
        (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "own", SETTINGS, namespace="shop")),
    ]
    class_config, well, config = rows_of(*items)

    assert class_config == Row(
        Grade.WARNING,
        "GatewayClassConfig own",
        message="no GatewayClass names it; tunnelID is 'mine', want a UUID in lower case",
    )
    assert well == Row(Grade.WARNING, "GatewayClassConfig well", message="no GatewayClass names it")
    assert (config.grade, config.object) == (Grade.WARNING, "GatewayConfig shop/own")
    assert config.message.startswith("no Gateway of its namespace names it; proxy.forwarding.trustedProxies[0]")


def test_a_referenced_configuration_has_no_row_of_its_own() -> None:
    infrastructure = {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}}
    ref = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "own"}
    own_gateway = {"gatewayClassName": "tunnel", "listeners": [], "infrastructure": infrastructure}
    class_spec = {"controllerName": OURS, "parametersRef": ref}
    rows = rows_of(
        (Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, "tunnel", class_spec, namespace="")),
        (Kind.GATEWAY, make(Kind.GATEWAY, "gw", own_gateway, namespace="shop")),
        (Kind.GATEWAY_CLASS_CONFIG, make(Kind.GATEWAY_CLASS_CONFIG, "own", SETTINGS, namespace="")),
        (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "own", {}, namespace="shop")),
        (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "own", {}, namespace="blog")),
    )

    assert [row.object for row in rows] == ["GatewayClass tunnel", "Gateway shop/gw", "GatewayConfig blog/own"]


def test_a_connectors_token_of_another_tunnel_is_reported_whether_or_not_a_gateway_names_its_configuration() -> None:
    opened, wanted = (f"{digit}f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b11" for digit in "67")
    token = base64.b64encode(json.dumps({"a": "a" * 32, "t": opened, "s": "eA=="}).encode())
    data = {"tunnel-token": base64.b64encode(token).decode()}
    config = {"tunnelID": wanted, "tunnelTokenSecretRef": {"name": "connector"}}
    infrastructure = {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}}
    own_gateway = {"gatewayClassName": "tunnel", "listeners": [], "infrastructure": infrastructure}
    there = [
        (Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, "tunnel", {"controllerName": OURS}, namespace="")),
        (Kind.GATEWAY, make(Kind.GATEWAY, "gw", own_gateway, namespace="shop")),
        (Kind.SECRET, make(Kind.SECRET, "connector", None, namespace="shop", data=data)),
    ]

    rows = rows_of(*there, (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "own", config, namespace="shop")))
    unnamed = rows_of(*there, (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "other", config, namespace="shop")))

    why = f"Secret shop/connector key tunnel-token: the token of tunnel {opened}, want that of tunnel {wanted}"
    told = [row for row in rows if row.message.startswith(why)]
    assert [(row.grade, row.object) for row in told] == [(Grade.WARNING, "Gateway shop/gw")]
    assert not [row for row in rows if row.grade is Grade.ACCEPTED and row.object == "Gateway shop/gw"]
    assert unnamed[-1].object == "GatewayConfig shop/other"
    assert unnamed[-1].message.startswith(f"no Gateway of its namespace names it; {why}")


def test_a_secret_without_the_token_of_a_gateways_own_proxy_is_reported_for_that_gateway() -> None:
    """The namespace is that of the GatewayConfig. A configuration without a tunnel or a proxy needs no token."""
    refs = {"providerCredentialsSecretRef": {"name": "tokens"}, "authSecretRef": {"name": "tokens", "key": "proxy"}}
    wanted = {"tunnelID": "6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b11", "proxyEndpoints": ["http://127.0.0.1:8082"], **refs}
    infrastructure = {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}}
    own_gateway = {"gatewayClassName": "tunnel", "listeners": [], "infrastructure": infrastructure}
    there = [
        (Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, "tunnel", {"controllerName": OURS}, namespace="")),
        (Kind.GATEWAY, make(Kind.GATEWAY, "gw", own_gateway, namespace="shop")),
        (Kind.SECRET, make(Kind.SECRET, "tokens", None, namespace="shop", data={})),
    ]

    rows = rows_of(*there, (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "own", wanted, namespace="shop")))
    unused = rows_of(*there, (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "own", refs, namespace="shop")))

    why = "the Secret exists but has no usable value at the expected key"
    assert rows[1:] == [
        Row(Grade.WARNING, "Gateway shop/gw", message=f"GatewayConfig shop/own: Secret shop/tokens key {field}: {why}")
        for field in ("api-token", "proxy")
    ]
    assert [row.message for row in unused if why in row.message] == []


def test_foreign_classes_are_ignored_unless_no_class_is_ours() -> None:
    ours, theirs = (
        (Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, name, {"controllerName": controller}, namespace=""))
        for name, controller in (("ours", OURS), ("theirs", "example.net/any"))
    )
    message = "its controllerName is example.net/any, see --controller-name"

    assert [Grade.ACCEPTED, Grade.IGNORED] == [row.grade for row in rows_of(ours, theirs)]
    assert [Row(Grade.WARNING, "GatewayClass theirs", message=f"{message}: no GatewayClass is ours")] == rows_of(theirs)


def rows_of(*items: tuple[Kind, Object]) -> list[Row]:
    snapshot = Snapshot.of(items)
    return [*judge(Translation(snapshot, OURS, "home"))]
