"""A provider that hangs, limits rates, fails or refuses our credentials: proxies and statuses are updated anyway."""

from __future__ import annotations

import base64
import json

from tests.e2e.controller.arena import Arena, until_serves
from tests.proxy.site import TOKEN as PROXY_TOKEN
from tests.proxy.site import Proxy, eventually
from tests.support.controller import faults
from tests.support.provider import TOKEN, TUNNEL_ID, Provider
from tunnelgw.model.kinds import Kind

DELIVERED = "tunnelgw.dev/Delivered"


def settled(arena: Arena) -> None:
    arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")
    arena.provider.wait_for_hostnames({"a.example.org"})


def prepare(arena: Arena) -> str:
    gateway_class = arena.gateway_class()
    arena.gateway(gateway_class)
    arena.route("web", "a.example.org")
    return gateway_class


def test_a_provider_that_hangs_delays_neither_proxies_nor_statuses(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    prepare(arena)
    hang = provider.fault(faults.Hang())
    with arena.controller(proxies=[proxy]):
        arena.until_programmed()
        arena.until_accepted("web")
        arena.route("more", "b.example.org")
        until_serves(proxy, "a.example.org", "b.example.org")
        arena.until_accepted("more")
        assert not provider.calls, "all of this was while the provider said nothing"
        eventually(lambda: hang.strikes > 0, "the provider is asked")

        provider.heal()

        provider.wait_for_hostnames({"a.example.org", "b.example.org"}, 90.0)


def test_a_rate_limited_provider_gets_no_calls_until_retry_after_while_proxies_are_updated(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    prepare(arena)
    with arena.controller(proxies=[proxy]) as controller:
        settled(arena)
        provider.fault(faults.Reply(status=429, body="slow down", headers=(("Retry-After", "600"),)))
        line = controller.expect("delivery failed, retrying", attempt=1)
        calls = sum(provider.calls.values())

        for hostname in ("b.example.org", "c.example.org"):
            arena.rename_route("web", hostname)
            until_serves(proxy, hostname)
        delivered = arena.until(Kind.GATEWAY, "gw", DELIVERED, "False")

        assert "too many requests" in delivered["message"]
        assert line["delay_s"] == 600
        assert sum(provider.calls.values()) == calls


def test_a_403_that_is_no_api_response_does_not_end_a_starting_controller(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    prepare(arena)
    provider.fault(faults.Reply(status=403, body="<html><title>Attention Required!</title>"))
    with arena.controller(proxies=[proxy]) as controller:
        line = controller.expect("delivery failed, retrying")
        assert "403 (Attention Required!): that is not an answer of the API" in line["error"]
        provider.heal()
        settled(arena)


def test_a_failed_write_is_repeated(arena: Arena, provider: Provider, proxy: Proxy) -> None:
    prepare(arena)
    provider.fault(faults.Reply(status=500, body="{}"), "write", 1)
    provider.fault(faults.Reset(after_commit=True), "write", 1)
    with arena.controller(proxies=[proxy]) as controller:
        settled(arena)
        assert controller.metric("tunnelgw_provider_call_duration_seconds_count", outcome="ProviderUnreachable") == 2
        # The write whose answer was lost is our own, not a foreign edit.
        assert controller.metric("tunnelgw_ingress_foreign_edits_total") == 0


def test_deleted_credentials_do_not_stop_delivery_to_proxies(arena: Arena, provider: Provider, proxy: Proxy) -> None:
    name = prepare(arena)
    with arena.controller(proxies=[proxy]):
        settled(arena)

        arena.delete(Kind.SECRET, name)
        delivered = arena.until(Kind.GATEWAY, "gw", DELIVERED, "False")
        assert f"secret not found: {arena.namespace}/{name}" in delivered["message"]
        arena.rename_route("web", "b.example.org")
        until_serves(proxy, "b.example.org")
        assert provider.hostnames == ["a.example.org", "*"]

        arena.secret(name, {"api-token": TOKEN})
        provider.wait_for_hostnames({"b.example.org"})
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")


def test_hostnames_written_by_a_controller_killed_mid_write_are_removed_after_a_restart(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    prepare(arena)
    with arena.controller(proxies=[proxy]):
        settled(arena)
    write = provider.fault(faults.Hang(after_commit=True), "write")
    arena.rename_route("web", "b.example.org")
    victim = arena.controller(proxies=[proxy]).start()
    provider.wait_for_hostnames({"b.example.org"})  # stored, and not answered yet
    victim.kill()
    provider.heal()

    arena.rename_route("web", "c.example.org")
    with arena.controller(proxies=[proxy]):
        provider.wait_for_hostnames({"c.example.org"})
        until_serves(proxy, "c.example.org")
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")
    assert write.strikes


def test_an_edit_that_changes_no_hostname_makes_no_provider_call(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    prepare(arena)
    with arena.controller("--drift-interval", "1h", proxies=[proxy]):
        settled(arena)
        provider.wait_for("read", 2)  # a write is read back once
        calls = sum(provider.calls.values())

        redirect = {"type": "RequestRedirect", "requestRedirect": {"statusCode": 301}}
        arena.cluster.patch(Kind.HTTP_ROUTE, "web", arena.namespace, {"spec": {"rules": [{"filters": [redirect]}]}})
        arena.until(Kind.HTTP_ROUTE, "web", "Accepted", "True", lambda found: found["observedGeneration"] == 2)

        assert sum(provider.calls.values()) == calls


def test_an_abandoned_tunnel_is_emptied_despite_a_transient_authentication_error(
    arena: Arena, provider: Provider, proxy: Proxy
) -> None:
    """Which the provider reports now and then for a good token."""
    gateway_class = prepare(arena)
    with arena.controller(proxies=[proxy]):
        settled(arena)
        refusal = '{"success": false, "errors": [{"code": 10000, "message": "Authentication error"}]}'
        fault = provider.fault(faults.Reply(status=403, body=refusal), count=2)

        arena.delete(Kind.GATEWAY, "gw")
        arena.cluster.delete(Kind.GATEWAY_CLASS, gateway_class)

        provider.wait_for_hostnames(set(), 90.0)
        assert fault.left == 0


def test_a_connectors_token_of_another_tunnel_is_reported_until_it_is_corrected_and_hostnames_are_delivered_anyway(
    arena: Arena, provider: Provider
) -> None:
    def connector(tunnel_id: str) -> dict[str, str]:
        token = json.dumps({"a": "0" * 32, "t": tunnel_id, "s": "eA=="}).encode()
        return {"tunnel-token": base64.b64encode(token).decode()}

    another = "7f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b22"
    with Proxy() as own:
        arena.gateway(arena.gateway_class(tunnel_id=None, direct="127.0.84.1"))
        arena.route("web", "a.example.org")
        spec = {
            "tunnelID": TUNNEL_ID,
            "proxyEndpoints": [own.api],
            "authSecretRef": {"name": "auth"},
            "providerCredentialsSecretRef": {"name": "provider"},
            "accountID": provider.tunnel.account_id,
            "tunnelTokenSecretRef": {"name": "connector"},
        }
        for name, data in (
            ("auth", {"auth-token": PROXY_TOKEN}),
            ("provider", {"api-token": TOKEN}),
            ("connector", connector(another)),
        ):
            arena.secret(name, data)
        arena.cluster.create(Kind.GATEWAY_CONFIG, "own", spec, arena.namespace)
        ref = {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"}
        arena.cluster.patch(Kind.GATEWAY, "gw", arena.namespace, {"spec": {"infrastructure": {"parametersRef": ref}}})
        with arena.controller():
            told = arena.until(Kind.GATEWAY, "gw", DELIVERED, "False", lambda found: another in found["message"])
            provider.wait_for_hostnames({"a.example.org"})
            until_serves(own, "a.example.org")
            arena.until_programmed()
            assert f"the token of tunnel {another}, want that of tunnel {TUNNEL_ID}" in told["message"]

            arena.delete(Kind.SECRET, "connector")
            arena.secret("connector", connector(TUNNEL_ID))

            arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")
