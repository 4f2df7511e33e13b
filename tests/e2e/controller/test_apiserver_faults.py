"""An API server that is slow, expires watches, breaks off or restarts: nothing is lost, and no proxy is emptied."""

from __future__ import annotations

import itertools
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.controller.arena import Arena, hostnames, until_serves
from tests.e2e.controller.fronts import Asked, Front
from tests.e2e.controller.site import DEADLINE_S
from tests.kube.kubeenv import find_programs, restart_apiserver, start
from tests.proxy.site import Proxy, eventually, reserved_port
from tests.support.dns_endpoints import KubeApi
from tests.support.kube_fixtures import require
from tests.support.provider import Provider
from tests.tunnelgw.sources.cluster import Cluster
from tests.tunnelgw.sources.kubernetes.relay import Relay
from tests.tunnelgw.translate.pki import authority_pem
from tunnelgw.model.kinds import Kind

NOT_FOUND = b"404 page not found\n"
EXPIRED = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}'
FORBIDDEN = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no such right"}'
ADDRESS = "127.0.0.2"


def is_discovery(asked: Asked) -> bool:
    return asked.path == "/apis/gateway.networking.k8s.io/v1"


def is_list_of_routes(asked: Asked) -> bool:
    return "/httproutes?" in asked.path and "watch=" not in asked.path and "limit=1" not in asked.path


def is_watch_of_routes(asked: Asked) -> bool:
    return "/httproutes?" in asked.path and "watch=" in asked.path


def is_of_secrets(asked: Asked) -> bool:
    return "/secrets" in asked.path


def is_of_class_configs(asked: Asked) -> bool:
    return "/gatewayclassconfigs" in asked.path


def shows(port: int, hostname: str) -> bool:
    """Whether a TLS client of this name is shown a certificate for it."""
    context = ssl.create_default_context(cadata=authority_pem())
    try:
        with socket.create_connection((ADDRESS, port), DEADLINE_S) as sock:
            context.wrap_socket(sock, server_hostname=hostname).close()
    except OSError:
        return False
    return True


def until_shows(port: int, hostname: str) -> None:
    eventually(lambda: shows(port, hostname), f"a certificate for {hostname}", DEADLINE_S)


def test_nothing_is_delivered_before_everything_was_listed(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    """Otherwise a proxy would lose the routes that were not listed yet."""
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with arena.controller(proxies=[proxy]):
        until_serves(proxy, "a.example.org")
        arena.provider.wait_for_hostnames({"a.example.org"})
    version = proxy.get().json()["version"]

    slow = api_front.hold(is_list_of_routes)
    through = arena.cluster.through(api_front.url, tmp_path)
    with arena.controller(proxies=[proxy], kubeconfig=through) as controller:
        slow.wait()
        arena.route("more", "b.example.org")
        waiting = (503, "waiting for the first listing of HTTPRoute")
        eventually(lambda: controller.readiness() == waiting, f"readiness {waiting}", DEADLINE_S)
        assert controller.metric("tunnelgw_reconcile_duration_seconds_count") == 0
        assert proxy.get().json()["version"] == version

        slow.release()

        until_serves(proxy, "a.example.org", "b.example.org")
        arena.provider.wait_for_hostnames({"a.example.org", "b.example.org"})


def test_kinds_that_are_served_but_missing_from_discovery_are_not_taken_for_absent(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    """Discovery is incomplete while an API server starts; a controller that starts then would empty its proxies."""
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    unnamed = api_front.answer(is_discovery, 404, NOT_FOUND)
    with arena.controller(proxies=[proxy], kubeconfig=arena.cluster.through(api_front.url, tmp_path)) as controller:
        until_serves(proxy, "a.example.org")

        assert unnamed.strikes
        assert not controller.lines_of("kind is not installed, waiting for its CRD")


def test_a_load_balancer_that_answers_404_for_the_api_server_removes_no_kind(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    """As does an ingress controller that has just started, or whose rule for the API server is missing for a moment."""
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with arena.controller(proxies=[proxy], kubeconfig=arena.cluster.through(api_front.url, tmp_path)) as controller:
        until_serves(proxy, "a.example.org")
        unknown = [api_front.answer(is_meant, 404, NOT_FOUND) for is_meant in (is_discovery, lambda _: True)]
        api_front.cut()
        eventually(lambda: unknown[0].strikes > 10, "all kinds were looked for", DEADLINE_S)
        assert hostnames(proxy) == {"a.example.org"}
        for fault in unknown:
            fault.release()
        arena.route("more", "b.example.org")
        until_serves(proxy, "a.example.org", "b.example.org")

        assert not controller.lines_of("kind is not installed, waiting for its CRD")


def test_an_expired_watch_lists_again_and_loses_nothing(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    arena.route("ends", "ends.example.org")
    through = arena.cluster.through(api_front.url, tmp_path)
    with arena.controller(proxies=[proxy], kubeconfig=through):
        until_serves(proxy, "a.example.org", "ends.example.org")
        expired = api_front.answer(is_watch_of_routes, 410, EXPIRED)
        listing = api_front.hold(is_list_of_routes)
        api_front.cut()
        expired.wait()
        listing.wait()
        arena.delete(Kind.HTTP_ROUTE, "ends")
        arena.rename_route("web", "b.example.org")
        assert hostnames(proxy) == {"a.example.org", "ends.example.org"}, "what is not known is not changed"

        expired.release()
        listing.release()

        until_serves(proxy, "b.example.org")


def test_a_watch_cut_in_the_middle_of_an_event_loses_nothing(arena: Arena, proxy: Proxy, tmp_path: Path) -> None:
    server = urlsplit(arena.cluster.environment.server)
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with Relay((str(server.hostname), server.port or 0)) as relay:
        through = arena.cluster.through(relay.address, tmp_path)
        with arena.controller(proxies=[proxy], kubeconfig=through):
            until_serves(proxy, "a.example.org")
            relay.cut_after(1500)
            edits = itertools.count()
            while not relay.has_cut.is_set():
                arena.rename_route("web", f"edit-{next(edits)}.example.org")
            arena.rename_route("web", "last.example.org")

            until_serves(proxy, "last.example.org")
            arena.provider.wait_for_hostnames({"last.example.org"})


def test_a_certificate_is_served_until_the_secret_that_replaces_it_can_be_read(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    """Both where the new Secret was seen before reads began to fail, and where it was created after that."""

    def listeners(*secrets: str) -> list[dict[str, Any]]:
        refs = [{"name": name} for name in secrets]
        return [{"name": "https", "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": refs}}]

    def use(*secrets: str) -> None:
        arena.cluster.patch(Kind.GATEWAY, "gw", arena.namespace, {"spec": {"listeners": listeners(*secrets)}})

    def listener_conditions() -> dict[str, tuple[str, str]]:
        (found,) = arena.read(Kind.GATEWAY, "gw")["status"]["listeners"]
        return {each["type"]: (each["status"], each["message"]) for each in found["conditions"]}

    for name in ("first", "seen"):
        arena.certificate(name, f"{name}.example.org")
    through = arena.cluster.through(api_front.url, tmp_path)
    with reserved_port(ADDRESS) as port, arena.controller(proxies=[proxy], kubeconfig=through):
        spec = {
            "gatewayClassName": arena.gateway_class(tunnel_id=None, direct=ADDRESS),
            "listeners": listeners("first"),
        }
        arena.cluster.create(Kind.GATEWAY, "gw", spec, arena.namespace)
        until_shows(port, "first.example.org")
        arena.until_programmed()
        for former, new in (("first", "seen"), ("seen", "made-since")):
            unreadable = api_front.answer(is_of_secrets, 403, FORBIDDEN)
            api_front.cut()
            if new == "made-since":
                arena.certificate(new, f"{new}.example.org")

            use(new)
            arena.until(Kind.GATEWAY, "gw", "ResolvedRefs", "False")
            told = listener_conditions()

            assert shows(port, f"{former}.example.org")
            assert told["Programmed"] == ("True", "")
            told_of = f"Secret {arena.namespace}/{new} could not be read yet; until then what was named before is used"
            assert told["ResolvedRefs"] == ("False", f"tls.certificateRefs: {told_of}")

            unreadable.release()

            until_shows(port, f"{new}.example.org")
            arena.until(Kind.GATEWAY, "gw", "ResolvedRefs", "True")
        use("missing")
        eventually(lambda: not shows(port, "made-since.example.org"), "nothing is served", DEADLINE_S)


def test_a_class_keeps_its_configuration_until_the_one_that_replaces_it_can_be_read(
    arena: Arena, proxy: Proxy, api_front: Front, tmp_path: Path
) -> None:
    class_ = arena.gateway_class()
    arena.gateway(class_)
    arena.route("web", "web.example.org")
    through = arena.cluster.through(api_front.url, tmp_path)
    with arena.controller(proxies=[proxy], kubeconfig=through):
        until_serves(proxy, "web.example.org")
        arena.until(Kind.GATEWAY_CLASS, class_, "Accepted", "True")
        unreadable = api_front.answer(is_of_class_configs, 403, FORBIDDEN)
        api_front.cut()
        unreadable.wait()
        spec = arena.read(Kind.GATEWAY_CLASS_CONFIG, class_)["spec"]
        arena.cluster.create(Kind.GATEWAY_CLASS_CONFIG, f"{class_}-next", spec)
        arena.cluster.patch(Kind.GATEWAY_CLASS, class_, "", {"spec": {"parametersRef": {"name": f"{class_}-next"}}})

        told = arena.until(Kind.GATEWAY_CLASS, class_, "Accepted", "False")

        kept = "could not be read yet; until then what was named before is used"
        assert told["message"] == f"GatewayClassConfig {class_}-next {kept}"
        arena.route("more", "more.example.org")
        until_serves(proxy, "web.example.org", "more.example.org")
        arena.provider.wait_for_hostnames({"web.example.org", "more.example.org"})

        unreadable.release()

        arena.until(Kind.GATEWAY_CLASS, class_, "Accepted", "True")
        assert hostnames(proxy) == {"web.example.org", "more.example.org"}


@pytest.mark.timeout(300)
def test_missing_crds_block_nothing_and_watches_survive_a_restart_of_the_api_server(
    tmp_path: Path, provider: Provider, proxy: Proxy
) -> None:
    """Installed is only the standard channel of Gateway API without GRPCRoute, and not our Backend."""
    environment = start(tmp_path / "state", require(find_programs), is_tied=True)
    try:
        with KubeApi(environment) as admin:
            cluster = Cluster(environment, admin, tmp_path, "standard", without=Kind.GRPC_ROUTE)
            arena = Arena(cluster, provider)
            arena.gateway(arena.gateway_class())
            arena.route("web", "a.example.org")
            with arena.controller(proxies=[proxy]) as controller:
                until_serves(proxy, "a.example.org")
                arena.until_programmed()
                for kind in ("GRPCRoute", "Backend"):
                    controller.expect("kind is not installed, waiting for its CRD", kind=kind)

                environment = restart_apiserver(environment)

                arena.route("more", "b.example.org")
                until_serves(proxy, "a.example.org", "b.example.org")
                arena.until_accepted("more")
    finally:
        environment.stop()
