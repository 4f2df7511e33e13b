"""What would change, of what a controller would do besides telling documents and hostnames."""

from __future__ import annotations

import json

import pytest

from tests.support.provider import TOKEN, TUNNEL_ID, Provider
from tests.tunnelgw.deliver.test_targets import DISCOVERY, OURS, Item, gateway_class, own_proxy, secret
from tunnelgw.commands.diff import Access, diff
from tunnelgw.commands.world import World
from tunnelgw.deliver.targets import TAKEN, Discovery
from tunnelgw.model.snapshot import Snapshot
from tunnelgw.provider.ingress import marker
from tunnelgw.sources.directory.admission import Problem

REFERENCE = {"name": "holder"}
HOLDER = secret("holder", "shop", api_token=TOKEN)
THERE = {
    "ingress": [
        {"hostname": "a.example", "service": marker("tests")},
        {"hostname": "theirs.example", "service": "http://10.0.0.1"},
        {"service": "http_status:404"},
    ]
}


def told(items: list[Item], url: str, out: pytest.CaptureFixture[str], *problems: Problem) -> list[tuple[str, ...]]:
    diff(World(Snapshot.of(items), problems), Access(DISCOVERY, url, marker("tests")), as_json=True)
    return [tuple(each.values()) for each in json.loads(out.readouterr().out)]


def test_hostnames_in_a_tunnel_that_nothing_names_any_more_would_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    _, config = own_proxy(tunnelID=TUNNEL_ID, providerCredentialsSecretRef=REFERENCE)
    items = [gateway_class("class"), HOLDER, config]
    refused = Problem("web.yaml", 1, "not YAML")
    with Provider() as provider:
        provider.write(THERE)
        found = told(items, provider.url, capsys)
        while_a_manifest_is_refused = told(items, provider.url, capsys, refused)

    tunnel = f"tunnel {TUNNEL_ID}"
    assert found == [("remove", tunnel, "hostname a.example"), ("keep", tunnel, "hostname theirs.example")]
    assert while_a_manifest_is_refused == []


def test_a_proxy_that_another_data_plane_has_is_told_as_such_and_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    proxy = "http://127.0.0.1:1"
    items = [gateway_class("class"), *own_proxy(proxyEndpoints=[proxy])]
    shared = Access(Discovery(OURS, "home", (proxy,)), "", marker("tests"))

    diff(World(Snapshot.of(items)), shared, as_json=True)

    found = [each for each in json.loads(capsys.readouterr().out) if each["target"] != proxy]
    assert found == [{"action": "error", "target": f"{proxy} for shop/gw", "message": TAKEN}]
