"""Proxies and tunnels with their credentials, from the objects of a snapshot."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from daemonkit.secret import Secret
from tests.tunnelgw.sources.objects import make
from tunnelgw.deliver import targets
from tunnelgw.deliver.credentials import Credentials
from tunnelgw.deliver.receipts import Receipt, Remark, RemarkKind
from tunnelgw.deliver.targets import (
    Discovery,
    Plane,
    Tunnel,
    depends_on_tunnels,
    left_tunnels,
    tunnel_name,
)
from tunnelgw.model.gateways import GatewayClass
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.own import GatewayClassConfig
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.report.deliveries import Answers, delivered, with_left
from tunnelgw.translate.queries import Queries

OURS = "tests.example/controller"
ONE, TWO, THREE = (f"6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b1{number}" for number in (1, 2, 3))
SERVICE = Key("infra", "proxy")
DISCOVERY = Discovery(OURS, "home", service=SERVICE, token=Secret("shared"))

Item = tuple[Kind, Object]


def queries(snapshot: Snapshot, discovery: Discovery) -> Queries:
    return Queries(snapshot, discovery.controller_name, discovery.namespace)


def planes(snapshot: Snapshot, discovery: Discovery) -> dict[str, Plane]:
    return queries(snapshot, discovery).ask(targets.planes, discovery)


def tunnels(snapshot: Snapshot, discovery: Discovery) -> dict[str, Tunnel]:
    return queries(snapshot, discovery).ask(targets.tunnels, discovery)


def named_tunnels(snapshot: Snapshot, discovery: Discovery) -> frozenset[str]:
    return queries(snapshot, discovery).ask(targets.named_tunnels, discovery)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(name: str, namespace: str = "home", **data: str) -> Item:
    values = {key.replace("_", "-"): encoded(value) for key, value in data.items()}
    return Kind.SECRET, make(Kind.SECRET, name, namespace=namespace, data=values)


def gateway_class(name: str, config: str = "", controller: str = OURS) -> Item:
    spec: dict[str, Any] = {"controllerName": controller}
    if config:
        spec["parametersRef"] = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": config}
    return Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, name, spec, namespace="")


def class_config(name: str, tunnel_id: str = ONE, holder: str = "provider", **more: Any) -> Item:
    """`holder`: the Secret with the provider's token."""
    spec = {"tunnelID": tunnel_id, "providerCredentialsSecretRef": {"name": holder}, **more}
    return Kind.GATEWAY_CLASS_CONFIG, make(Kind.GATEWAY_CLASS_CONFIG, name, spec, namespace="")


def slice_(name: str, *endpoints: dict[str, Any], type_: str = "IPv4", port: str = "config") -> Item:
    fields = {"addressType": type_, "endpoints": endpoints, "ports": [{"name": port, "port": 8082}]}
    labels = {"kubernetes.io/service-name": SERVICE.name}
    made = make(Kind.ENDPOINT_SLICE, name, namespace=SERVICE.namespace, metadata={"labels": labels}, **fields)
    return Kind.ENDPOINT_SLICE, made


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions}


def own_proxy(**spec: Any) -> list[Item]:
    """A Gateway `shop/gw` with a configuration of its own."""
    infrastructure = {"parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}}
    gateway_spec = {"gatewayClassName": "class", "listeners": [], "infrastructure": infrastructure}
    return [
        (Kind.GATEWAY, make(Kind.GATEWAY, "gw", gateway_spec, namespace="shop")),
        (Kind.GATEWAY_CONFIG, make(Kind.GATEWAY_CONFIG, "own", spec, namespace="shop")),
    ]


# -- proxies ---------------------------------------------------------------------------------------------------------


def test_proxies_are_the_endpoints_of_their_service_ready_or_not_except_terminating_ones() -> None:
    snapshot = Snapshot.of(
        [
            slice_("a", endpoint("10.0.0.2", ready=False), endpoint("10.0.0.1", ready=True)),
            slice_("b", endpoint("10.0.0.3", ready=False, terminating=True), endpoint("10.0.0.4")),
            slice_("c", endpoint("fd00::1", ready=False), type_="IPv6"),
            slice_("d", endpoint("10.0.0.5"), port="metrics"),
            slice_("e", endpoint("proxy.example"), type_="FQDN"),
        ]
    )

    shared = planes(snapshot, DISCOVERY)["shared"]

    assert shared.endpoints == (
        "http://10.0.0.1:8082",
        "http://10.0.0.2:8082",
        "http://10.0.0.4:8082",
        "http://[fd00::1]:8082",
    )
    assert shared.token == Credentials(Secret("shared"))


def test_a_pod_with_addresses_of_both_families_is_one_proxy() -> None:
    """A Service with both has a slice for each family."""

    def of_pod(address: str, uid: str, **conditions: bool) -> dict[str, Any]:
        return endpoint(address, **conditions) | {"targetRef": {"kind": "Pod", "name": uid, "uid": uid}}

    snapshot = Snapshot.of(
        [
            slice_("a", of_pod("fd00::1", "one"), of_pod("fd00::2", "two"), endpoint("fd00::9"), type_="IPv6"),
            slice_("b", of_pod("10.0.0.1", "one"), of_pod("10.0.0.2", "two", terminating=True), endpoint("10.0.0.9")),
            slice_("c", of_pod("10.0.0.3", "one")),
        ]
    )

    assert planes(snapshot, DISCOVERY)["shared"].endpoints == (
        "http://10.0.0.1:8082",
        "http://10.0.0.3:8082",  # a Pod has one of a family, except for the moment in which it gets another
        "http://10.0.0.9:8082",
        "http://[fd00::2]:8082",
        "http://[fd00::9]:8082",  # these name no Pod
    )


def test_unusable_endpoint_slices_do_not_hide_others() -> None:
    (kind, with_port), (_, empty) = slice_("c", endpoint("10.0.0.6")), slice_("d")
    portless, deserted = msgspec.structs.replace(with_port, ports=None), msgspec.structs.replace(empty, endpoints=None)
    snapshot = Snapshot.of(
        [
            slice_("a", endpoint("proxy.example"), type_="FQDN"),
            slice_("b", endpoint("10.0.0.5"), port="metrics"),
            (kind, portless),
            (kind, deserted),
            slice_("e", {"addresses": []}, endpoint("10.0.0.1")),
        ]
    )

    assert planes(snapshot, DISCOVERY)["shared"].endpoints == ("http://10.0.0.1:8082",)


def test_proxies_of_a_service_are_asked_over_tls_where_the_options_say_so() -> None:
    discovery = Discovery(OURS, "home", service=SERVICE, is_tls=True)

    found = planes(Snapshot.of([slice_("a", endpoint("10.0.0.1"))]), discovery)

    assert found["shared"].endpoints == ("https://10.0.0.1:8082",)


def test_endpoints_from_the_options_are_taken_as_they_are() -> None:
    discovery = Discovery(OURS, "home", endpoints=("unix:/run/proxy.sock",))

    assert planes(Snapshot.of([]), discovery)["shared"].endpoints == ("unix:/run/proxy.sock",)


def test_a_proxy_that_is_named_twice_is_one() -> None:
    """Two would have to answer, so statuses waited for the second for ever."""
    discovery = Discovery(
        OURS, "home", endpoints=("http://10.0.0.1:8082", "http://10.0.0.2:8082", "http://10.0.0.1:8082")
    )

    assert planes(Snapshot.of([]), discovery)["shared"].endpoints == ("http://10.0.0.1:8082", "http://10.0.0.2:8082")


def test_a_gateway_s_own_proxy_has_its_own_token() -> None:
    spec = {"proxyEndpoints": ["http://10.1.0.1:8082"], "authSecretRef": {"name": "own-auth"}}
    items = [gateway_class("class"), *own_proxy(**spec)]

    without = planes(Snapshot.of(items), DISCOVERY)["shop/gw"]
    with_it = planes(Snapshot.of([*items, secret("own-auth", "shop", auth_token="own\n")]), DISCOVERY)["shop/gw"]

    assert without.token == Credentials(None, "secret not found: shop/own-auth (key auth-token)")
    assert with_it.token == Credentials(Secret("own"))
    assert with_it.endpoints == ("http://10.1.0.1:8082",)


def test_the_shared_token_is_not_sent_to_proxies_that_a_gateway_names() -> None:
    items = [gateway_class("class"), *own_proxy(proxyEndpoints=["http://10.1.0.1:8082"])]

    assert planes(Snapshot.of(items), DISCOVERY)["shop/gw"].token == Credentials(None)


def test_gateways_of_the_shared_proxies_do_not_hide_one_that_has_its_own() -> None:
    no_config = {"labels": {"team": "shop"}}
    foreign = {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "own"}}
    spec: dict[str, Any] = {"gatewayClassName": "class", "listeners": []}
    shared = [
        (Kind.GATEWAY, make(Kind.GATEWAY, name, {**spec, **more}, namespace="shop"))
        for name, more in (("a", {}), ("b", {"infrastructure": no_config}), ("c", {"infrastructure": foreign}))
    ]
    own = own_proxy(proxyEndpoints=["http://10.1.0.1:8082"])

    found = planes(Snapshot.of([gateway_class("class"), *shared, *own]), DISCOVERY)

    assert found.keys() == {"shared", "shop/gw"}


def test_a_proxy_that_several_data_planes_name_belongs_to_the_shared_one_or_the_oldest_gateway() -> None:
    spec = {"proxyEndpoints": ["http://10.1.0.1:8082/", "http://10.0.0.1:8082"]}
    (kind, gateway), config = own_proxy(**spec)
    gateway_spec = msgspec.to_builtins(gateway)["spec"]
    gateways = [
        (
            kind,
            make(
                kind, name, gateway_spec, namespace="shop", metadata={"creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
            ),
        )
        for name, day in (("a-younger", 2), ("b-older", 1))
    ]
    discovery = Discovery(OURS, "home", endpoints=("http://10.0.0.1:8082",))

    found = planes(Snapshot.of([gateway_class("class"), config, *gateways]), discovery)

    both = ("http://10.1.0.1:8082", "http://10.0.0.1:8082")
    assert {name: (plane.endpoints, plane.taken, plane.created_at) for name, plane in found.items()} == {
        "shared": (("http://10.0.0.1:8082",), frozenset(), ""),
        "shop/b-older": (both, {"http://10.0.0.1:8082"}, "2026-01-01T00:00:00Z"),
        "shop/a-younger": (both, {*both}, "2026-01-02T00:00:00Z"),
    }


def test_a_proxy_is_the_same_in_whichever_case_its_host_is_written() -> None:
    """Two Gateways would take turns at replacing each other's document."""
    discovery = Discovery(OURS, "home", endpoints=("http://Proxy.example:8082", "unix:/run/Proxy.sock"))
    own = own_proxy(proxyEndpoints=["http://proxy.EXAMPLE:8082", "http://[FE80::1%Eth0]:8082"])

    found = planes(Snapshot.of([gateway_class("class"), *own]), discovery)

    assert {name: (plane.endpoints, plane.taken) for name, plane in found.items()} == {
        "shared": (("http://proxy.example:8082", "unix:/run/Proxy.sock"), frozenset()),
        "shop/gw": (("http://proxy.example:8082", "http://[fe80::1%Eth0]:8082"), {"http://proxy.example:8082"}),
    }


def test_a_slash_at_the_end_of_a_proxy_s_url_does_not_count() -> None:
    discovery = Discovery(OURS, "home", endpoints=("http://proxy:8082", "unix:/run/Proxy.sock"))
    own = own_proxy(proxyEndpoints=["http://proxy:8082/", "unix:/run/Proxy.sock/"])

    plane = planes(Snapshot.of([gateway_class("class"), *own]), discovery)["shop/gw"]

    assert plane.endpoints == ("http://proxy:8082", "unix:/run/Proxy.sock")
    assert plane.taken == frozenset(plane.endpoints)


# -- tunnels ---------------------------------------------------------------------------------------------------------


def test_each_tunnel_of_our_classes_has_its_credentials() -> None:
    snapshot = Snapshot.of(
        [
            gateway_class("one", "one"),
            class_config("one", ONE, accountID="a" * 32),
            gateway_class("two", "two"),
            class_config("two", TWO, "missing"),
            gateway_class("theirs", "theirs", controller="other.example/controller"),
            class_config("theirs", "0" * 36),
            secret("provider", api_token="abc"),
        ]
    )

    found = tunnels(snapshot, DISCOVERY)

    assert found.keys() == {ONE, TWO}
    assert found[ONE].account_id == "a" * 32
    assert found[ONE].token == Credentials(Secret("abc"))
    assert found[TWO].account_id == "", "the provider is asked"
    assert found[TWO].token == Credentials(None, "secret not found: home/missing (key api-token)")


def test_credentials_in_a_namespace_whose_secrets_are_not_read_are_reported_as_such() -> None:
    items = [gateway_class("one", "one"), class_config("one", ONE)]
    stand_in = make(Kind.SECRET, "provider", namespace="home", data={}, isOutside=True)

    (tunnel,) = tunnels(Snapshot.of([*items, (Kind.SECRET, stand_in)]), DISCOVERY).values()

    where = "is in a namespace whose Secrets the controller does not read (see --secret-namespaces)"
    assert tunnel.token == Credentials(None, f"Secret home/provider key api-token: the Secret {where}")


def test_of_several_configurations_that_name_a_tunnel_the_first_with_credentials_decides() -> None:
    classes = [gateway_class(name, name) for name in ("a", "b", "c")]
    without = make(Kind.GATEWAY_CLASS_CONFIG, "a", {"tunnelID": ONE}, namespace="")
    configs = [(Kind.GATEWAY_CLASS_CONFIG, without), class_config("b", ONE), class_config("c", ONE, "other")]
    secrets = [secret("provider", api_token="abc"), secret("other", api_token="def")]

    found = tunnels(Snapshot.of([*classes, *configs, *secrets]), DISCOVERY)

    assert {id_: tunnel.token for id_, tunnel in found.items()} == {ONE: Credentials(Secret("abc"))}


def test_a_class_keeps_its_tunnel_until_the_secrets_of_its_new_configuration_are_read() -> None:
    """Otherwise its hostnames would be taken from the old tunnel before the new one can have them."""
    (kind, new), (_, former) = gateway_class("one", "new"), gateway_class("one", "former")
    assert isinstance(new, GatewayClass)
    assert isinstance(former, GatewayClass)
    configs = [class_config("former", ONE), class_config("new", TWO, "unread"), secret("provider", api_token="abc")]

    changing = Snapshot.of([(kind, msgspec.structs.replace(new, previous_spec=former.spec)), *configs])

    assert tunnels(changing, DISCOVERY).keys() == {ONE}
    assert named_tunnels(changing, DISCOVERY) == {ONE}
    assert tunnels(Snapshot.of([(kind, new), *configs]), DISCOVERY).keys() == {TWO}


def test_credentials_alone_are_no_tunnel() -> None:
    used = [gateway_class("one", "one"), class_config("one", "")]
    unused = own_proxy(providerCredentialsSecretRef={"name": "provider"})[1]
    snapshot = Snapshot.of([*used, unused, secret("provider", api_token="abc")])

    assert tunnels(snapshot, DISCOVERY) == {}
    assert named_tunnels(snapshot, DISCOVERY) == frozenset()
    assert left_tunnels(snapshot, DISCOVERY) == {}
    assert not depends_on_tunnels(snapshot, DISCOVERY)


def test_parameters_of_another_kind_are_no_configuration_of_ours() -> None:
    ref = {"group": "", "kind": "ConfigMap", "name": "one"}
    spec = {"controllerName": OURS, "parametersRef": ref}
    items = [(Kind.GATEWAY_CLASS, make(Kind.GATEWAY_CLASS, "one", spec, namespace="")), class_config("one")]

    assert tunnels(Snapshot.of(items), DISCOVERY) == {}


def test_credentials_may_be_in_another_namespace_and_under_another_key() -> None:
    ref = {"name": "vault", "namespace": "secrets", "key": "cloud"}
    config = [gateway_class("one", "one"), class_config("one", providerCredentialsSecretRef=ref)]
    there, broken = secret("vault", "secrets", cloud="abc"), secret("vault", "secrets", cloud="a\nb")

    def token(*secrets: Item) -> Credentials:
        return tunnels(Snapshot.of([*config, secret("vault", cloud="def"), *secrets]), DISCOVERY)[ONE].token

    assert token(there) == Credentials(Secret("abc"))
    assert token() == Credentials(None, "secret not found: secrets/vault (key cloud)")
    assert token(broken).problem.startswith("Secret secrets/vault key cloud: not a token, want one line")


def test_a_secret_that_does_not_hold_text_is_reported_as_such() -> None:
    config = [gateway_class("one", "one"), class_config("one")]
    for data in ("/w==", "YW#Jj", "abc"):
        binary = make(Kind.SECRET, "provider", namespace="home", data={"api-token": data})
        token = tunnels(Snapshot.of([*config, (Kind.SECRET, binary)]), DISCOVERY)[ONE].token

        assert token == Credentials(None, "Secret home/provider key api-token: not text in base64")


def test_a_secret_without_a_usable_value_is_reported_as_such() -> None:
    config = [gateway_class("one", "one"), class_config("one")]
    blank, other = secret("provider", api_token=" \n"), secret("provider", token="abc")
    empty = (Kind.SECRET, make(Kind.SECRET, "provider", namespace="home", data={}))
    for unusable in (blank, other, empty):
        problem = tunnels(Snapshot.of([*config, unusable]), DISCOVERY)[ONE].token.problem

        assert problem == (
            "Secret home/provider key api-token: the Secret exists but has no usable value at the expected key"
        )


def test_a_secret_that_could_not_be_read_yet_is_reported_as_such() -> None:
    unread = (Kind.SECRET, make(Kind.SECRET, "provider", namespace="home"))

    problem = tunnels(Snapshot.of([gateway_class("one", "one"), class_config("one"), unread]), DISCOVERY)[
        ONE
    ].token.problem

    assert problem == "Secret home/provider key api-token: the Secret could not be read yet"


def test_a_token_that_no_header_can_carry_is_a_problem_that_does_not_show_it() -> None:
    spec = {
        "tunnelID": ONE,
        "providerCredentialsSecretRef": {"name": "own"},
        "authSecretRef": {"name": "own"},
    }
    broken = secret("own", "shop", api_token="abc\n# of May", auth_token="caf\u00e9")
    snapshot = Snapshot.of([gateway_class("class"), *own_proxy(**spec), broken])

    want = "not a token, want one line of printable ASCII"
    assert tunnels(snapshot, DISCOVERY)[ONE].token == Credentials(None, f"Secret shop/own key api-token: {want}")
    assert planes(snapshot, DISCOVERY)["shop/gw"].token == Credentials(None, f"Secret shop/own key auth-token: {want}")


def test_the_account_may_be_in_the_token_of_the_tunnel() -> None:
    token = encoded(json.dumps({"a": "b" * 32, "t": ONE, "s": "x"}))
    spec = {
        "tunnelID": ONE,
        "providerCredentialsSecretRef": {"name": "provider"},
        "tunnelTokenSecretRef": {"name": "tunnel"},
    }
    items = [gateway_class("class"), *own_proxy(**spec), secret("provider", "shop", api_token="abc")]

    nested = encoded('{"a":' + "[" * 5000 + "]" * 5000 + "}")
    for tunnel_token in ("not base64", "caf\u00e9", encoded("[]"), encoded('{"a": ["b"]}'), "/w==", nested):
        found = tunnels(Snapshot.of([*items, secret("tunnel", "shop", tunnel_token=tunnel_token)]), DISCOVERY)

        assert found[ONE].account_id == ""
    assert tunnels(Snapshot.of(items), DISCOVERY)[ONE].account_id == "", "the Secret is not there yet"
    found = tunnels(Snapshot.of([*items, secret("tunnel", "shop", tunnel_token=token)]), DISCOVERY)
    assert found[ONE].account_id == "b" * 32


def test_a_token_of_another_tunnel_than_the_configured_one_is_reported_with_both_and_what_to_do() -> None:
    def misled(named: object, tunnel_id: str = ONE) -> str:
        configured = {"tunnelID": tunnel_id} if tunnel_id else {}
        own = own_proxy(**configured, accountID="a" * 32, tunnelTokenSecretRef={"name": "tunnel"})
        token = secret("tunnel", "shop", tunnel_token=encoded(json.dumps({"a": "b" * 32, "t": named, "s": "x"})))
        return planes(Snapshot.of([gateway_class("class"), *own, token]), DISCOVERY)["shop/gw"].misled

    assert misled(TWO) == (
        f"Secret shop/tunnel key tunnel-token: the token of tunnel {TWO}, want that of tunnel {ONE}, which gets the "
        "hostnames: correct the Secret, tunnelTokenSecretRef or tunnelID"
    )
    assert misled(ONE) == misled(ONE.upper()) == ""
    for unreadable in ("any text, which may be secret", TWO + "x", None, [TWO], 5):
        assert misled(unreadable) == ""
    assert misled(TWO, tunnel_id="") == "", "this Gateway has no hostnames in any tunnel"
    absent = own_proxy(tunnelID=ONE, tunnelTokenSecretRef={"name": "tunnel"})
    assert planes(Snapshot.of([gateway_class("class"), *absent]), DISCOVERY)["shop/gw"].misled == ""


def test_who_has_to_name_the_account_is_told_where_and_what_is_wrong_with_the_token_of_the_tunnel() -> None:
    """A Gateway with a configuration of its own inherits nothing from the one of its class."""

    def remedy(spec: dict[str, Any], *items: Item) -> str:
        provider = secret("provider", "shop", api_token="abc")
        own = own_proxy(tunnelID=ONE, providerCredentialsSecretRef={"name": "provider"}, **spec)
        found = tunnels(Snapshot.of([gateway_class("class"), *own, provider, *items]), DISCOVERY)[ONE]
        assert not (found.account_id and found.remedy)
        return found.remedy

    of_class = Snapshot.of([gateway_class("one", "one"), class_config("one", ONE), secret("provider", api_token="abc")])
    assert tunnels(of_class, DISCOVERY)[ONE].remedy == "set accountID in the GatewayClassConfig"
    named = {"tunnelTokenSecretRef": {"name": "tunnel"}}
    told = "set accountID in the GatewayConfig"
    assert remedy({}) == told
    assert remedy({"accountID": "a" * 32, **named}) == ""
    wrong = f"{told}, or correct tunnelTokenSecretRef: "
    assert remedy(named) == f"{wrong}secret not found: shop/tunnel (key tunnel-token)"
    no_token = secret("tunnel", "shop", tunnel_token="not one")
    assert remedy(named, no_token) == f"{wrong}Secret shop/tunnel key tunnel-token: not a tunnel's token"


def test_we_depend_on_tunnels_when_every_class_has_one() -> None:
    with_tunnel = [gateway_class("one", "one"), class_config("one")]

    assert depends_on_tunnels(Snapshot.of(with_tunnel), DISCOVERY)
    assert not depends_on_tunnels(Snapshot.of([*with_tunnel, gateway_class("direct")]), DISCOVERY)
    assert depends_on_tunnels(Snapshot.of([*with_tunnel, gateway_class("theirs", controller="o.example/c")]), DISCOVERY)
    kept_by_others = make(Kind.GATEWAY_CLASS_CONFIG, "two", {"tunnelID": TWO}, namespace="")
    by_hand = [gateway_class("two", "two"), (Kind.GATEWAY_CLASS_CONFIG, kept_by_others)]
    assert not depends_on_tunnels(Snapshot.of([*with_tunnel, *by_hand]), DISCOVERY)


def status_of(
    tunnel_id: str, error: str = "", *remarks: Remark, misled: str = "", left: Sequence[str] = ()
) -> dict[str, Any]:
    """Of a Gateway whose proxy holds its document."""
    tunnel = Receipt(tunnel_name(tunnel_id), "h", "h", error, remarks=remarks)
    finding = delivered(Answers([Receipt("http://10.1.0.1:8082", "d", "d")], 1, tunnel, misled=misled))
    told = f"tests.example/c: {with_left(finding, left).message}"
    condition = {"type": finding.type, "status": finding.status, "reason": finding.reason, "message": told}
    return {"conditions": [{"type": "Programmed", "status": "True", "message": f"tunnel {THREE}"}, condition]}


def test_tunnels_named_in_delivered_statuses_may_be_left_whatever_is_named_now() -> None:
    gateway_spec = {"gatewayClassName": "one", "listeners": []}
    told, failed = status_of(TWO), status_of(TWO, f"down, not held by 1 proxy and tunnel {THREE}")
    config = [gateway_class("one", "one"), class_config("one"), secret("provider", api_token="abc")]
    gateways = [(Kind.GATEWAY, make(Kind.GATEWAY, "gw", gateway_spec, status=status)) for status in (told, failed)]

    left = left_tunnels(Snapshot.of([*config, gateways[0]]), DISCOVERY)

    assert {id_: tunnel.token for id_, tunnel in left.items()} == {TWO: Credentials(Secret("abc"))}
    assert left_tunnels(Snapshot.of([*config, gateways[1]]), DISCOVERY) == {}, "proxies have words in that text"


@pytest.mark.parametrize("with_config", [False, True], ids=["no-configuration", "no-credentials"])
def test_a_former_tunnel_is_left_alone_if_its_gateway_has_no_credentials_any_more(*, with_config: bool) -> None:
    spec = {"gatewayClassName": "one", "listeners": []}
    told = (Kind.GATEWAY, make(Kind.GATEWAY, "gw", spec, status=status_of(TWO)))
    by_hand = (Kind.GATEWAY_CLASS_CONFIG, make(Kind.GATEWAY_CLASS_CONFIG, "one", {"tunnelID": TWO}, namespace=""))

    items = [gateway_class("one", "one"), told, *([by_hand] if with_config else [])]

    assert left_tunnels(Snapshot.of(items), DISCOVERY) == {}


CONFLICT = Remark(RemarkKind.CONFLICT, "a.example.org", f"there is a rule of tunnel {THREE} for a.example.org")


@pytest.mark.parametrize(
    "status", [status_of(TWO, "", CONFLICT), status_of(TWO, misled=f"the token of tunnel {THREE}, want that of {TWO}")]
)
def test_a_tunnel_that_got_hostnames_may_be_left_although_somebody_else_has_some_or_its_proxy_opens_another(
    status: dict[str, Any],
) -> None:
    gateway_spec = {"gatewayClassName": "one", "listeners": []}
    items = [gateway_class("one", "one"), class_config("one"), secret("provider", api_token="abc")]

    left = left_tunnels(
        Snapshot.of([*items, (Kind.GATEWAY, make(Kind.GATEWAY, "gw", gateway_spec, status=status))]), DISCOVERY
    )

    assert status["conditions"][1]["status"] == "False"
    assert left.keys() == {TWO}


@pytest.mark.parametrize(
    ("status", "ids"),
    [
        (status_of(ONE, left=[TWO]), {ONE, TWO}),
        (status_of(ONE, left=[TWO, THREE]), {ONE, TWO, THREE}),
        (status_of(ONE, f"held by 1 proxy and tunnel {THREE}", left=[TWO]), {TWO}),
    ],
)
def test_tunnels_that_may_still_have_hostnames_are_found_in_statuses_whatever_else_these_say(
    status: dict[str, Any], ids: set[str]
) -> None:
    gateway_spec = {"gatewayClassName": "one", "listeners": []}
    items = [gateway_class("one", "one"), class_config("one"), secret("provider", api_token="abc")]
    told = (Kind.GATEWAY, make(Kind.GATEWAY, "gw", gateway_spec, status=status))

    assert left_tunnels(Snapshot.of([*items, told]), DISCOVERY).keys() == ids


@pytest.mark.parametrize("status", [{"conditions": {}}, {"conditions": [{"type": 1}]}, []])
def test_a_malformed_status_names_no_tunnel(status: Any) -> None:
    spec = {"gatewayClassName": "one", "listeners": []}
    odd = (Kind.GATEWAY, make(Kind.GATEWAY, "gw", spec, status=status))
    items = [gateway_class("one", "one"), class_config("one"), secret("provider", api_token="abc"), odd]

    assert left_tunnels(Snapshot.of(items), DISCOVERY) == {}


def test_a_former_tunnel_gets_the_credentials_of_its_gateway_s_own_configuration() -> None:
    own = own_proxy(tunnelID=ONE, providerCredentialsSecretRef={"name": "own"})
    (kind, gateway), config = own
    with_status = make(kind, "gw", msgspec.to_builtins(gateway)["spec"], namespace="shop", status=status_of(TWO))
    items = [gateway_class("class", "one"), class_config("one"), (kind, with_status), config]

    left = left_tunnels(Snapshot.of([*items, secret("own", "shop", api_token="own")]), DISCOVERY)

    assert {id_: tunnel.token for id_, tunnel in left.items()} == {TWO: Credentials(Secret("own"))}


def test_the_tunnel_of_a_configuration_that_no_gateway_uses_may_be_left() -> None:
    gateway, config = own_proxy(tunnelID=ONE, providerCredentialsSecretRef={"name": "own"})
    rest = [gateway_class("class"), secret("own", "shop", api_token="own")]

    unused = Snapshot.of([config, *rest])
    used_by_others = Snapshot.of([gateway, config, gateway_class("class", controller="other.example/c")])

    assert left_tunnels(unused, DISCOVERY).keys() == {ONE}
    assert named_tunnels(unused, DISCOVERY) == frozenset()
    assert left_tunnels(used_by_others, DISCOVERY) == {}
    kept_by_others = own_proxy(tunnelID=ONE)[1]
    assert left_tunnels(Snapshot.of([kept_by_others, *rest]), DISCOVERY) == {}


def test_a_configuration_is_not_used_by_a_gateway_that_names_another_kind_of_its_name() -> None:
    (kind, gateway), config = own_proxy(tunnelID=ONE, providerCredentialsSecretRef={"name": "own"})
    spec = msgspec.to_builtins(gateway)["spec"]
    spec["infrastructure"]["parametersRef"] = {"group": "", "kind": "ConfigMap", "name": "own"}
    items = [(kind, make(kind, "gw", spec, namespace="shop")), config]

    left = left_tunnels(Snapshot.of([*items, secret("own", "shop", api_token="own")]), DISCOVERY)

    assert left.keys() == {ONE}


def test_tunnels_without_credentials_count_as_named() -> None:
    _, config = class_config("one")
    assert isinstance(config, GatewayClassConfig)
    alone = msgspec.structs.replace(config.spec, provider_credentials_secret_ref=None)
    items = [gateway_class("one", "one"), (Kind.GATEWAY_CLASS_CONFIG, msgspec.structs.replace(config, spec=alone))]

    assert named_tunnels(Snapshot.of(items), DISCOVERY) == {ONE}
    assert tunnels(Snapshot.of(items), DISCOVERY) == {}
