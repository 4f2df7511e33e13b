"""What `tunnelgw diff` shows of tunnels and proxies."""

from __future__ import annotations

import json

import msgspec
import pytest

from proxy import document
from tests.support.provider import ACCOUNT_ID, TOKEN, TUNNEL_ID, Provider
from tests.support.socketbackend import Dialogue, SocketBackend
from tests.tunnelgw.deliver.test_targets import (
    DISCOVERY,
    OURS,
    Item,
    class_config,
    gateway_class,
    own_proxy,
    secret,
    status_of,
)
from tests.tunnelgw.sources.objects import make
from tunnelgw.commands.diff import NotAllAsked, diff
from tunnelgw.commands.inputs import Inputs
from tunnelgw.deliver.means import Means
from tunnelgw.deliver.targets import TAKEN, Discovery
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.snapshot import Entry, Snapshot
from tunnelgw.provider.ingress import marker
from tunnelgw.sources.directory.admission import Problem
from tunnelgw.translate.pipeline import Translation

REFERENCE = {"name": "holder"}
HOLDER = secret("holder", "shop", api_token=TOKEN)
NOTHING_ELSE = {"service": "http_status:404"}
THERE = {
    "ingress": [
        {"hostname": "a.example", "service": marker("tests")},
        {"hostname": "theirs.example", "service": "http://10.0.0.1"},
        NOTHING_ELSE,
    ]
}


def tunnelled(*hostnames: str) -> list[Item]:
    """A Gateway and a route of it, whose tunnel was told of them already."""
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway = {"gatewayClassName": "class", "listeners": [listener]}
    route = {"parentRefs": [{"name": "gw"}], "hostnames": hostnames, "rules": [{"backendRefs": []}]}
    return [
        gateway_class("class", "config"),
        class_config("config", TUNNEL_ID, "holder", accountID=ACCOUNT_ID),
        secret("holder", api_token=TOKEN),
        (Kind.GATEWAY, make(Kind.GATEWAY, "gw", gateway, status=status_of(TUNNEL_ID))),
        (Kind.HTTP_ROUTE, make(Kind.HTTP_ROUTE, "web", route)),
    ]


def told(items: list[Item], url: str, out: pytest.CaptureFixture[str], *problems: Problem) -> list[tuple[str, ...]]:
    diff(Inputs(Snapshot.of(items), problems), DISCOVERY, Means(url, marker("tests")), as_json=True)
    return [tuple(each.values()) for each in json.loads(out.readouterr().out)]


def test_hostnames_in_a_tunnel_that_nothing_names_any_more_would_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    _, config = own_proxy(tunnelID=TUNNEL_ID, providerCredentialsSecretRef=REFERENCE)
    items = [gateway_class("class"), HOLDER, config]
    refused = Problem("web.yaml", 1, "not YAML")
    config_refused, route_refused = (
        Problem("", 0, "cannot be read", Entry(kind, Key("shop", "x")))
        for kind in (Kind.GATEWAY_CONFIG, Kind.HTTP_ROUTE)
    )
    with Provider() as provider:
        provider.write(THERE)
        found = told(items, provider.url, capsys)
        while_a_manifest_is_refused = told(items, provider.url, capsys, refused)
        while_a_config_is_refused = told(items, provider.url, capsys, config_refused)
        while_a_route_is_refused = told(items, provider.url, capsys, route_refused)

    tunnel = f"tunnel {TUNNEL_ID}"
    assert found == [("remove", tunnel, "hostname a.example"), ("keep", tunnel, "hostname theirs.example")]
    assert while_a_manifest_is_refused == while_a_config_is_refused == []
    assert while_a_route_is_refused == found, "it names no tunnel"


def test_unreadable_objects_are_reported_beside_the_changes(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("", 0, "cannot be read", Entry(Kind.HTTP_ROUTE, Key("shop", "web")))

    diff(Inputs(Snapshot.of([]), (problem,)), DISCOVERY, Means("", marker("tests")), as_json=False)

    assert capsys.readouterr().err == "HTTPRoute shop/web: cannot be read\nnothing would change\n"


def test_a_proxy_s_document_is_compared_part_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    """First as the proxy encodes it; then with an old listener, a changed one and an unknown setting."""
    listeners = [{"name": name, "port": port, "protocol": "HTTP"} for name, port in (("web", 80), ("more", 81))]
    (kind, gateway), _ = own_proxy()
    spec = {**msgspec.to_builtins(gateway)["spec"], "listeners": listeners}
    holding = b""

    def answer(dialogue: Dialogue) -> None:
        assert dialogue.read_request().startswith(b"GET")
        dialogue.answer(holding)

    with SocketBackend(answer) as backend:
        url = f"http://{backend.address}"
        config = own_proxy(proxyEndpoints=[url], direct={"addresses": ["192.0.2.1"]})[1]
        items = [gateway_class("class"), (kind, make(kind, "gw", spec, namespace="shop")), config]
        made = Translation(Snapshot.of(items), OURS, "home").documents["shop/gw"]
        holding = document.encode_redacted(document.decode(made.encode(7)))
        assert told(items, "", capsys) == []

        held = json.loads(holding)
        changed, replaced = sorted(held["listeners"], key=lambda each: str(each["name"]), reverse=True)
        assert (changed["name"], replaced["name"]) == ("shop/gw/web", "shop/gw/more")
        changed["port"], replaced["name"] = 8080, "old"
        holding = json.dumps({**held, "futureSetting": 1}).encode()
        assert told(items, "", capsys) == [
            ("remove", url, "listener old"),
            ("add", url, "listener shop/gw/more"),
            ("change", url, "listener shop/gw/web"),
            ("remove", url, "setting futureSetting"),
        ]


def test_a_proxy_of_another_data_plane_is_reported_as_such_and_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    proxy = "http://127.0.0.1:1"
    items = [gateway_class("class"), *own_proxy(proxyEndpoints=[proxy])]
    shared = Discovery(OURS, "home", (proxy,))

    with pytest.raises(NotAllAsked):
        diff(Inputs(Snapshot.of(items)), shared, Means("", marker("tests")), as_json=True)

    found = [each for each in json.loads(capsys.readouterr().out) if each["target"] != proxy]
    assert found == [{"action": "error", "target": f"{proxy} for shop/gw", "message": TAKEN}]


@pytest.mark.parametrize(
    ("hostnames", "rule"),
    [(["a.example"], {"hostname": "a.example"}), ([], {})],
)
def test_a_tunnel_that_is_as_wanted_would_not_change_foreign_rules_included(
    hostnames: list[str], rule: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = {"hostname": "theirs.example", "service": "http://10.0.0.1"}
    ours = {**rule, "service": marker("tests")}
    with Provider() as provider:
        provider.write({"ingress": [ours, theirs, NOTHING_ELSE] if rule else [theirs, ours]})
        inputs = Inputs(Snapshot.of(tunnelled(*hostnames)))
        is_well = diff(inputs, DISCOVERY, Means(provider.url, marker("tests")), as_json=True)

    found = json.loads(capsys.readouterr().out)
    assert [each["action"] for each in found] == ["keep"]
    assert is_well


def test_a_mere_reordering_of_our_rules_is_reported_as_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    wildcard = {"hostname": "*.example", "service": "http://10.0.0.1"}
    with Provider() as provider:
        provider.write({"ingress": [wildcard, {"hostname": "a.example", "service": marker("tests")}, NOTHING_ELSE]})
        found = told(tunnelled("a.example"), provider.url, capsys)

    tunnel = f"tunnel {TUNNEL_ID}"
    assert found == [("keep", tunnel, "hostname *.example"), ("change", tunnel, "order or content of our rules")]


def test_hostnames_that_a_tunnel_lacks_would_be_added_except_for_those_with_a_foreign_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Provider() as provider:
        provider.write({"ingress": [{"hostname": "b.example", "service": "http://10.0.0.1"}, NOTHING_ELSE]})
        found = told(tunnelled("a.example", "b.example"), provider.url, capsys)

    tunnel = f"tunnel {TUNNEL_ID}"
    assert found == [
        ("add", tunnel, "hostname a.example"),
        ("keep", tunnel, "hostname b.example"),
        ("conflict", tunnel, "hostname b.example", "it has service http://10.0.0.1"),
    ]


def test_a_proxy_or_tunnel_whose_token_is_missing_is_reported_with_the_reason_and_not_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    proxy = "http://127.0.0.1:1"
    tunnel = {"tunnelID": TUNNEL_ID, "providerCredentialsSecretRef": REFERENCE}
    config = own_proxy(proxyEndpoints=[proxy], authSecretRef={"name": "token"}, **tunnel)

    with pytest.raises(NotAllAsked):
        told([gateway_class("class"), *config], "http://127.0.0.1:1", capsys)

    rows = [tuple(each.values()) for each in json.loads(capsys.readouterr().out)]
    assert ("error", proxy, "secret not found: shop/token (key auth-token)") in rows
    assert ("error", f"tunnel {TUNNEL_ID}", "secret not found: shop/holder (key api-token)") in rows
