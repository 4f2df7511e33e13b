"""A cluster whose Gateway API is older than the releases that the controller supports, and is then upgraded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.controller.arena import Arena, until_serves
from tests.e2e.controller.site import DEADLINE_S
from tests.kube.kubeenv import find_programs, running
from tests.proxy.site import Proxy, eventually
from tests.support.dns_endpoints import KubeApi
from tests.support.kube_fixtures import require
from tests.support.provider import Provider
from tests.tunnelgw.sources.cluster import Cluster
from tunnelgw.model.kinds import Kind


@pytest.mark.timeout(300)
def test_an_old_gateway_api_is_served_and_reported_and_its_upgrade_is_picked_up(
    tmp_path: Path, provider: Provider, proxy: Proxy
) -> None:
    """supportedFeatures were plain strings in v1.1, and BackendTLSPolicy was v1alpha3."""
    with running(tmp_path / "state", require(find_programs)) as environment, KubeApi(environment) as admin:
        cluster = Cluster(environment, admin, tmp_path, release="old-gateway-api-crds")
        arena = Arena(cluster, provider)
        class_ = arena.gateway_class()
        arena.gateway(class_)
        arena.route("web", "a.example.org")
        with arena.controller(proxies=[proxy]) as controller:
            until_serves(proxy, "a.example.org")
            arena.until_programmed()
            arena.until_accepted("web")
            arena.until(Kind.GATEWAY_CLASS, class_, "Accepted", "True")
            supported = arena.until(Kind.GATEWAY_CLASS, class_, "SupportedVersion", "False")
            assert "Gateway API v1.1.0 is installed" in supported["message"]
            controller.expect("kind is not installed, waiting for its CRD", kind="ListenerSet")
            instead = controller.expect("kind is served in other versions only, its objects are not read")
            assert (instead["kind"], instead["versions"]) == ("BackendTLSPolicy", ["v1alpha3"])

            cluster.upgrade_gateway_api()

            arena.until(Kind.GATEWAY_CLASS, class_, "SupportedVersion", "True")
            eventually(
                lambda: {"name": "HTTPRoute"} in arena.read(Kind.GATEWAY_CLASS, class_)["status"]["supportedFeatures"],
                "the class says what is supported",
                DEADLINE_S,
            )
            for kind in ("ListenerSet", "BackendTLSPolicy"):
                controller.expect("kind is installed now", kind=kind)
            until_serves(proxy, "a.example.org")
            assert controller.metric("tunnelgw_status_writes_total", outcome="invalid") == 0
