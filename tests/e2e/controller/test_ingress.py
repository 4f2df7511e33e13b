"""The ingress document, which others write too: foreign rules stay and are logged, lost ones of ours are restored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.controller.arena import Arena, until_serves
from tests.proxy.site import Proxy, eventually
from tests.support.provider import ACCOUNT_ID, TUNNEL_ID, Provider
from tests.support.provider.provider import Tunnel
from tests.tunnelgw.sources.cluster import HOME
from tunnelgw.model.kinds import Kind

DELIVERED = "tunnelgw.dev/Delivered"
THEIRS: dict[str, Any] = {
    "hostname": "theirs.example.org",
    "service": "http://10.0.0.1",
    "originRequest": {"noTLSVerify": True},
}
CATCH_ALL = {"service": "http_status:404"}
EXTRAS: dict[str, Any] = {"warp-routing": {"enabled": True}, "originRequest": {"connectTimeout": 7}, "x-unknown": [1]}


def prepare(arena: Arena, hostname: str = "a.example.org") -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", hostname)


def rules(provider: Provider) -> list[tuple[str, str]]:
    config = provider.tunnel.config or {}
    return [(rule.get("hostname", ""), rule["service"]) for rule in config["ingress"]]


def ours(arena: Arena, hostname: str) -> tuple[str, str]:
    return hostname, f"http://{arena.namespace}.tunnelgw.internal"


def test_foreign_rules_and_settings_are_kept_and_logged(arena: Arena, provider: Provider, proxy: Proxy) -> None:
    wildcard = {"hostname": "*.example.org", "service": "http://10.0.0.2"}
    provider.write({"ingress": [THEIRS, wildcard, {"service": "http_status:503"}], **EXTRAS})
    prepare(arena)

    with arena.controller(proxies=[proxy]) as controller:
        line = controller.expect("ingress document has rules of somebody else, which are kept")
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")

        assert line["hostnames"] == ["theirs.example.org", "*.example.org"]
        assert controller.metric("tunnelgw_ingress_foreign_rules") == 2
    assert rules(provider) == [
        ours(arena, "a.example.org"),
        ("theirs.example.org", "http://10.0.0.1"),
        ("*.example.org", "http://10.0.0.2"),
        ("", "http_status:503"),
    ]
    config = provider.tunnel.config
    assert config is not None
    assert {name: config[name] for name in EXTRAS} == EXTRAS
    assert THEIRS in config["ingress"]


def test_a_foreign_edit_is_noticed_without_any_other_change(arena: Arena, provider: Provider, proxy: Proxy) -> None:
    """The edit replaces the whole document: our rules are restored, and the foreign ones stay."""
    prepare(arena)
    with arena.controller(proxies=[proxy]) as controller:
        provider.wait_for_hostnames({"a.example.org"})
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")

        provider.write({"ingress": [THEIRS, CATCH_ALL], **EXTRAS})

        provider.wait_for_hostnames({"a.example.org", "theirs.example.org"})
        controller.expect("ingress document edited by somebody else", edits=1)
        controller.expect("ingress document has rules of somebody else, which are kept")
        assert controller.metric("tunnelgw_ingress_foreign_edits_total") == 1


def test_a_hostname_deleted_while_the_controller_was_down_is_removed(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    prepare(arena)
    arena.route("more", "b.example.org")
    with arena.controller(proxies=[proxy]):
        provider.wait_for_hostnames({"a.example.org", "b.example.org"})

    arena.delete(Kind.HTTP_ROUTE, "more")

    with arena.controller(proxies=[proxy]):
        provider.wait_for_hostnames({"a.example.org"})
        until_serves(proxy, "a.example.org")


def test_deleting_the_last_gateway_leaves_only_foreign_rules_and_the_catch_all(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    provider.write({"ingress": [THEIRS, CATCH_ALL]})
    prepare(arena)
    with arena.controller(proxies=[proxy]):
        provider.wait_for_hostnames({"a.example.org", "theirs.example.org"})

        arena.delete(Kind.GATEWAY, "gw")

        provider.wait_for_hostnames({"theirs.example.org"})
    assert rules(provider) == [("theirs.example.org", "http://10.0.0.1"), ("", "http_status:404")]


def test_a_hostname_with_a_foreign_rule_is_a_conflict_on_its_route_until_it_is_adopted(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    provider.write({"ingress": [THEIRS, CATCH_ALL]})
    prepare(arena, "theirs.example.org")
    arena.route("free", "a.example.org")
    with arena.controller(proxies=[proxy]):
        conflict = arena.until(Kind.HTTP_ROUTE, "web", DELIVERED, "False")
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "False")
        arena.until_accepted("free")

        assert conflict["reason"] == "HostnameConflict"
        assert "theirs.example.org" in conflict["message"]
        assert "--adopt" in conflict["message"]
        assert DELIVERED not in arena.conditions(Kind.HTTP_ROUTE, "free")
        assert ("theirs.example.org", "http://10.0.0.1") in rules(provider)

        arena.rename_route("web", "b.example.org")
        arena.until(Kind.HTTP_ROUTE, "web", DELIVERED, None)
        arena.rename_route("web", "theirs.example.org")
        arena.until(Kind.HTTP_ROUTE, "web", DELIVERED, "False")

    with arena.controller("--adopt", proxies=[proxy]):
        arena.until(Kind.HTTP_ROUTE, "web", DELIVERED, None)
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")
    assert rules(provider)[:2] == [ours(arena, "a.example.org"), ours(arena, "theirs.example.org")]


@pytest.mark.parametrize("more", [(), ("--leader-elect",)])
def test_a_dry_run_writes_nothing_and_takes_no_part_in_leader_election(
    arena: Arena, provider: Provider, proxy: Proxy, more: tuple[str, ...]
) -> None:
    prepare(arena)
    with arena.controller("--dry-run", *more, proxies=[proxy], token=None) as controller:
        controller.wait_until_ready()
        provider.wait_for("read", 2)
        assert controller.metric("tunnelgw_is_leader") == 0

    leases = arena.cluster.admin.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases")["items"]
    assert arena.namespace not in [lease["metadata"]["name"] for lease in leases]
    assert provider.tunnel.config is None
    assert proxy.get().status_code == 404
    assert not arena.conditions(Kind.HTTP_ROUTE, "web")
    assert arena.held_token() is None


def test_the_account_id_is_looked_up_when_none_is_configured(arena: Arena, provider: Provider, proxy: Proxy) -> None:
    prepare(arena)
    provider.accounts.append(ACCOUNT_ID[::-1])
    with arena.controller(proxies=[proxy]):
        delivered = arena.until(Kind.GATEWAY, "gw", DELIVERED, "False")
        assert "lists 2 accounts" in delivered["message"]
        assert "set accountID" in delivered["message"]

        provider.accounts.pop()

        provider.wait_for_hostnames({"a.example.org"})
        eventually(lambda: provider.calls["accounts"] >= 2, "asked again")


def test_each_tunnel_of_classes_that_share_proxies_gets_the_hostnames_of_its_own_class(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    """Each needs a proxy that opens it, which the controller cannot check; so it logs that."""
    other_id = "0c9f1d2e-5a77-4a57-8a39-2f6f0a5b9c33"
    provider.tunnels[other_id] = other = Tunnel(other_id)
    prepare(arena)
    arena.gateway(arena.gateway_class("-other", tunnel_id=other_id), "other")
    arena.route("there", "b.example.org", "other")

    with arena.controller(proxies=[proxy]) as controller:
        provider.wait_for_hostnames({"a.example.org"})
        for gateway, tunnel_id in (("gw", TUNNEL_ID), ("other", other_id)):
            told = f"{arena.controller_name}: held by 1 proxy and tunnel {tunnel_id}"
            arena.until(Kind.GATEWAY, gateway, DELIVERED, "True", lambda found, told=told: found["message"] == told)  # type: ignore[misc]
        line = controller.expect("several tunnels lead to the shared proxies, each needs a proxy that opens it")

        assert line["tunnels"] == sorted([TUNNEL_ID, other_id])
    assert other.config is not None
    assert [rule.get("hostname") for rule in other.config["ingress"]] == ["b.example.org", None]


def test_a_tunnel_shared_with_another_release_loses_only_our_rules_if_its_class_leaves_it_while_no_controller_runs(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    other_id = "0c9f1d2e-5a77-4a57-8a39-2f6f0a5b9c33"
    provider.tunnels[other_id] = Tunnel(other_id)
    another = ("b.example.org", "http://another-release.tunnelgw.internal")
    provider.write({"ingress": [{"hostname": another[0], "service": another[1]}, CATCH_ALL]})
    gateway_class = arena.gateway_class()
    arena.gateway(gateway_class)
    arena.route("web", "a.example.org")
    arena.route("claimed", "b.example.org")
    with arena.controller(proxies=[proxy]):
        provider.wait_for_hostnames({"a.example.org", "b.example.org"})
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "False", lambda found: another[1] in found["message"])
    arena.cluster.patch(Kind.GATEWAY_CLASS_CONFIG, gateway_class, "", {"spec": {"tunnelID": other_id}})

    with arena.controller(proxies=[proxy]):
        provider.wait_for_hostnames({"b.example.org"}, 60.0)

    assert rules(provider) == [another, ("", CATCH_ALL["service"])]


def test_a_tunnel_that_its_class_left_just_before_a_rollout_of_the_controller_loses_our_rules(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    """As `helm upgrade` does with another `tunnel.id` and another image: both controllers run when the class changes,
    and the first ends before it has emptied the tunnel."""
    other_id = "0c9f1d2e-5a77-4a57-8a39-2f6f0a5b9c33"
    provider.tunnels[other_id] = Tunnel(other_id)
    provider.write({"ingress": [THEIRS, CATCH_ALL]})
    gateway_class = arena.gateway_class()
    arena.gateway(gateway_class)
    arena.route("web", "a.example.org")

    with arena.controller("--leader-elect", proxies=[proxy]) as before:
        provider.wait_for_hostnames({"a.example.org", "theirs.example.org"})
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True", lambda found: TUNNEL_ID in found["message"])
        arena.cluster.patch(Kind.GATEWAY_CLASS_CONFIG, gateway_class, "", {"spec": {"tunnelID": other_id}})
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True", lambda found: other_id in found["message"])
        with arena.controller("--leader-elect", proxies=[proxy]) as after:
            after.wait_until_ready()
            assert before.stop() == 0

            provider.wait_for_hostnames({"theirs.example.org"}, 60.0)
            told = f"{arena.controller_name}: held by 1 proxy and tunnel {other_id}"
            arena.until(Kind.GATEWAY, "gw", DELIVERED, "True", lambda found: found["message"] == told)

    assert rules(provider) == [("theirs.example.org", "http://10.0.0.1"), ("", CATCH_ALL["service"])]
