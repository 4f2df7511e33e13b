"""Both deployables together: external-dns reads our Gateways and routes, and writes through the DNS webhook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.e2e.controller.arena import Arena, until_serves
from tests.proxy.site import Proxy, reserved_port
from tests.support.daemon import Daemon
from tests.support.external_dns import ExternalDns
from tests.support.storeviews import EmbeddedView
from tests.support.webhook_client import WebhookClient
from tunnelgw.model.kinds import Kind


def test_a_route_s_name_has_the_direct_address_in_the_store_until_the_route_goes(
    arena: Arena, proxy: Proxy, external_dns_program: Path, tmp_path: Path
) -> None:
    store = EmbeddedView(tmp_path)
    with reserved_port("127.0.0.2") as port:
        arena.gateway(arena.gateway_class(direct="127.0.0.2"), port=port)
        arena.route("web", "a.example.org")
        with (
            arena.controller(proxies=[proxy]),
            Daemon.dnswebhook(store.env) as webhook,
            WebhookClient(webhook.url("api")) as client,
        ):
            until_serves(proxy, "a.example.org")
            arena.until_accepted("web")
            arena.until_programmed()
            client.list_records()
            external_dns = ExternalDns(
                external_dns_program, webhook.url("api"), arena.cluster.environment.kubeconfig, arena.namespace
            )
            external_dns = replace(external_dns, source="gateway-httproute", record_types=("A", "CNAME"))

            assert external_dns.once().exit_code == 0, webhook.tail
            rows = {(row.name, row.type, row.value) for row in store.held() if row.type != "TXT"}
            assert rows == {("a.example.org", "A", "127.0.0.2")}
            assert external_dns.once().is_no_op

            arena.delete(Kind.HTTP_ROUTE, "web")
            assert external_dns.once().exit_code == 0, webhook.tail
            assert not [row for row in store.held() if row.name == "a.example.org"]
