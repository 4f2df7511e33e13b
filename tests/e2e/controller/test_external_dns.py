"""Both deployables together: external-dns reads our Gateways and routes, and writes through the DNS webhook."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import yaml

from tests.e2e.controller.arena import Arena, until_serves
from tests.proxy.site import Proxy, reserved_port
from tests.support.daemon import Daemon
from tests.support.external_dns import ExternalDns
from tests.support.process import REPOSITORY
from tests.support.provider import TUNNEL_ID
from tests.support.storeviews import EmbeddedView
from tests.support.webhook_client import WebhookClient
from tunnelgw.model.kinds import Kind

MANIFESTS = (REPOSITORY / "examples" / "dnswebhook.yaml").read_text(encoding="utf-8")


def test_a_routes_hostname_has_the_direct_address_in_dns_until_the_route_is_deleted(
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


def test_a_name_of_an_ingress_and_a_route_has_the_gateway_s_address_once_the_ingress_is_deleted(
    arena: Arena, proxy: Proxy, external_dns_program: Path, tmp_path: Path
) -> None:
    """As docs/helm.md, "Moving from an ingress controller", says."""
    store = EmbeddedView(tmp_path)
    ingresses = f"/apis/networking.k8s.io/v1/namespaces/{arena.namespace}/ingresses"
    spec = {"rules": [{"host": "a.example.org"}]}
    balancer = {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}
    arena.cluster.admin.call("POST", ingresses, {"metadata": {"name": "old"}, "spec": spec})
    merge = "application/merge-patch+json"
    arena.cluster.admin.call("PATCH", f"{ingresses}/old/status", {"status": balancer}, merge)

    def addresses() -> list[str]:
        return [row.value for row in store.held() if row.name == "a.example.org" and row.type == "A"]

    with (
        reserved_port("127.0.0.2") as port,
        arena.controller(proxies=[proxy]),
        Daemon.dnswebhook(store.env) as webhook,
        WebhookClient(webhook.url("api")) as client,
    ):
        client.list_records()
        kubeconfig = arena.cluster.environment.kubeconfig
        both = ExternalDns(
            external_dns_program, webhook.url("api"), kubeconfig, arena.namespace, extra=["--source=ingress"]
        )
        both = replace(both, source="gateway-httproute", record_types=("A", "CNAME"))
        assert both.once().exit_code == 0, webhook.tail
        assert addresses() == ["192.0.2.7"]

        arena.gateway(arena.gateway_class(direct="127.0.0.2"), port=port)
        arena.route("web", "a.example.org")
        until_serves(proxy, "a.example.org")
        arena.until_accepted("web")
        arena.until_programmed()
        assert both.once().is_no_op
        assert addresses() == ["192.0.2.7"]

        arena.cluster.admin.call("DELETE", f"{ingresses}/old")
        assert both.once().exit_code == 0, webhook.tail
        assert addresses() == ["127.0.0.2"]


def test_the_rbac_of_the_manifests_suffices_for_routes_of_gateways_and_listener_sets(
    arena: Arena, proxy: Proxy, external_dns_program: Path, tmp_path: Path
) -> None:
    """Cluster-wide, with all sources, commented ones included; one ListenerSet waits for its certificate."""
    sources = re.findall(r"- (--(?:source=|gateway-)\S+)", MANIFESTS)
    domain = f"{arena.namespace}.example"
    store = EmbeddedView(tmp_path)
    with reserved_port("127.0.0.2") as port:
        arena.gateway(arena.gateway_class(direct="127.0.0.2"), port=port)
        arena.cluster.patch(
            Kind.GATEWAY, "gw", arena.namespace, {"spec": {"allowedListeners": {"namespaces": {"from": "Same"}}}}
        )
        arena.route("web", f"a.{domain}")
        more = {"name": "more", "port": port, "protocol": "HTTP", "hostname": f"b.{domain}"}
        missing = {"certificateRefs": [{"name": "missing"}]}
        waits = {"name": "waits", "port": 443, "protocol": "HTTPS", "hostname": f"c.{domain}", "tls": missing}
        for name, listener in (("more", more), ("waits", waits)):
            spec = {"parentRef": {"name": "gw"}, "listeners": [listener]}
            arena.cluster.create(Kind.LISTENER_SET, name, spec, arena.namespace)
            arena.route(name, str(listener["hostname"]))
            parent = {"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": name}
            arena.cluster.patch(Kind.HTTP_ROUTE, name, arena.namespace, {"spec": {"parentRefs": [parent]}})
        with (
            arena.controller(proxies=[proxy]),
            Daemon.dnswebhook(store.env) as webhook,
            WebhookClient(webhook.url("api")) as client,
        ):
            until_serves(proxy, f"a.{domain}", f"b.{domain}")
            arena.until_accepted("web")
            arena.until_accepted("more")
            arena.until_accepted("waits")
            arena.until(Kind.LISTENER_SET, "waits", "Programmed", "False")
            arena.until_programmed()
            client.list_records()
            extra = [*sources, f"--domain-filter={domain}"]
            kubeconfig = with_the_rights_of_the_manifests(arena, tmp_path)
            external_dns = ExternalDns(external_dns_program, webhook.url("api"), kubeconfig, "", extra=extra)
            external_dns = replace(external_dns, source="gateway-httproute", record_types=("A", "CNAME"))

            outcome = external_dns.once()

            assert outcome.exit_code == 0, outcome.log
            rows = {(row.name, row.type, row.value) for row in store.held() if row.type != "TXT"}
            assert rows == {(f"{each}.{domain}", "A", "127.0.0.2") for each in "abc"}


def test_names_of_one_gateway_lead_to_its_address_in_one_dns_and_to_the_tunnel_in_another(
    arena: Arena, proxy: Proxy, external_dns_program: Path, tmp_path: Path
) -> None:
    """As docs/tunnel.md, "DNS", says."""
    tunnel = f"{TUNNEL_ID}.cfargotunnel.com"
    with reserved_port("127.0.0.2") as port:
        arena.gateway(arena.gateway_class(direct="127.0.0.2"), port=port)
        target = {"public.example.com/target": tunnel}
        arena.cluster.patch(Kind.GATEWAY, "gw", arena.namespace, {"metadata": {"annotations": target}})
        arena.route("web", "a.example.org")
        with arena.controller(proxies=[proxy]):
            until_serves(proxy, "a.example.org")
            arena.until_accepted("web")
            arena.until_programmed()

            assert written(arena, external_dns_program, tmp_path / "lan") == {("a.example.org", "A", "127.0.0.2")}
            prefix = "--annotation-prefix=public.example.com/"
            found = written(arena, external_dns_program, tmp_path / "public", prefix)
            assert found == {("a.example.org", "CNAME", tunnel)}


def test_a_route_of_a_direct_gateway_and_one_with_a_tunnel_has_the_name_of_the_tunnel_where_only_that_gateway_counts(
    arena: Arena, proxy: Proxy, external_dns_program: Path, tmp_path: Path
) -> None:
    with reserved_port("127.0.0.2") as port:
        arena.gateway(arena.gateway_class("-direct", tunnel_id=None, direct="127.0.0.2"), "lan", port=port)
        arena.gateway(arena.gateway_class(), "internet")
        arena.route("web", "a.example.org", "lan")
        both = {"spec": {"parentRefs": [{"name": "lan"}, {"name": "internet"}]}}
        arena.cluster.patch(Kind.HTTP_ROUTE, "web", arena.namespace, both)
        with arena.controller(proxies=[proxy]):
            until_serves(proxy, "a.example.org")
            arena.until_programmed("lan")
            arena.until_programmed("internet")
            arena.until_accepted("web")

            direct, tunnelled = (
                ("a.example.org", "A", "127.0.0.2"),
                ("a.example.org", "CNAME", f"{TUNNEL_ID}.cfargotunnel.com"),
            )
            assert written(arena, external_dns_program, tmp_path / "all") == {direct}
            assert written(arena, external_dns_program, tmp_path / "lan", "--gateway-name=lan") == {direct}
            found = written(arena, external_dns_program, tmp_path / "internet", "--gateway-name=internet")
            assert found == {tunnelled}


def written(arena: Arena, program: Path, folder: Path, *extra: str) -> set[tuple[str, str, str]]:
    """Name, type and value of the records that one pass writes to an empty DNS, without those about ownership."""
    folder.mkdir()
    store = EmbeddedView(folder)
    with Daemon.dnswebhook(store.env) as webhook:
        kubeconfig = arena.cluster.environment.kubeconfig
        external_dns = ExternalDns(program, webhook.url("api"), kubeconfig, arena.namespace, extra=extra)
        outcome = replace(external_dns, source="gateway-httproute", record_types=("A", "CNAME")).once()
        assert outcome.exit_code == 0, outcome.log
        return {(row.name, row.type, row.value) for row in store.held() if row.type != "TXT"}


def with_the_rights_of_the_manifests(arena: Arena, folder: Path) -> Path:
    """A kubeconfig of the manifests' account."""
    objects = {each["kind"]: each for each in yaml.safe_load_all(MANIFESTS)}
    account = objects["ServiceAccount"]["metadata"]
    admin, rbac = arena.cluster.admin, "/apis/rbac.authorization.k8s.io/v1"
    admin.call("POST", "/api/v1/namespaces", objects["Namespace"])
    admin.call("POST", f"/api/v1/namespaces/{account['namespace']}/serviceaccounts", objects["ServiceAccount"])
    admin.call("POST", f"{rbac}/clusterroles", objects["ClusterRole"])
    admin.call("POST", f"{rbac}/clusterrolebindings", objects["ClusterRoleBinding"])
    path = folder / "kubeconfig"
    arena.cluster.write_kubeconfig(path, account["namespace"], account["name"])
    return path
