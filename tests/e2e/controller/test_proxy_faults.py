"""Proxies that are down, slow, empty, or refuse our token: each is reported, retried, and delays no other."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

from tests.e2e.controller.arena import Arena, hostnames, until_serves
from tests.e2e.controller.fronts import Asked, Front
from tests.proxy.site import DEADLINE_S, Proxy, eventually, reserved_port
from tests.support.provider import Provider
from tests.tunnelgw.sources.cluster import Cluster
from tunnelgw.model.kinds import Kind
from tunnelgw.report.holdback import MAX_HOLD_BACK_S

DELIVERED = "tunnelgw.dev/Delivered"


def is_put(asked: Asked) -> bool:
    return asked.method == "PUT"


def is_ready(proxy: Proxy) -> bool:
    return proxy.readiness()[0] == 200


def is_visit(asked: Asked) -> bool:
    return asked.method == "HEAD"


def is_anything(_: Asked) -> bool:
    return True


def test_a_proxy_that_was_down_gets_what_it_missed(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with Front() as front, arena.controller(proxies=[front.url]):
        delivered = arena.until(Kind.GATEWAY, "gw", DELIVERED, "False")
        assert f"proxy {front.url}" in delivered["message"]
        assert arena.conditions(Kind.GATEWAY, "gw")["Programmed"]["status"] == "False"

        front.target = proxy.api

        until_serves(proxy, "a.example.org")
        arena.until_programmed()
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")


def test_a_proxy_that_starts_after_the_controller_is_waited_for_without_counting_a_failure(arena: Arena) -> None:
    """As in each rollout: Kubernetes publishes a Pod's address before anything listens there."""
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with reserved_port() as port, arena.controller(proxies=[f"http://127.0.0.1:{port}"]) as controller:
        awaited = arena.until(Kind.GATEWAY, "gw", DELIVERED, "Unknown")
        assert "1 of 1 proxies have not answered yet" in awaited["message"]
        assert "Connection refused" in awaited["message"]

        with Proxy("--config-addr", f"127.0.0.1:{port}") as proxy:
            until_serves(proxy, "a.example.org")
            arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")
            arena.until_programmed()

            controller.expect("not there yet, trying again until it is", level="INFO")
            failed = controller.metric("tunnelgw_deliveries_total", target=f"http://127.0.0.1:{port}", outcome="failed")
            assert failed == 0
            assert not controller.lines_of("delivery failed, retrying")


def test_a_proxy_that_restarted_empty_gets_its_document_again(arena: Arena) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with Front() as front, arena.controller(proxies=[front.url]):
        for _ in range(2):
            with Proxy() as proxy:
                front.target = proxy.api
                until_serves(proxy, "a.example.org")


def test_a_document_pushed_to_a_proxy_by_somebody_else_is_replaced(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with arena.controller(proxies=[proxy]) as controller:
        until_serves(proxy, "a.example.org")

        proxy.use({"routes": [{"hostnames": ["stray.example"], "rules": [{"respond": {"statusCode": 200}}]}]})

        until_serves(proxy, "a.example.org")
        controller.expect("proxy does not hold what it was sent, sending it again", target=proxy.api)


def test_a_proxy_that_answers_401_is_named_in_the_condition_and_retried(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with Front(proxy.api) as front, arena.controller(proxies=[front.url, proxy]) as controller:
        until_serves(proxy, "a.example.org")
        refusal = front.answer(is_anything, 401)
        delivered = arena.until(Kind.GATEWAY, "gw", DELIVERED, "False")

        assert f"proxy {front.url}" in delivered["message"]
        assert "another token than ours" in delivered["message"]
        assert controller.metric("tunnelgw_deliveries_total", target=front.url, outcome="refused") >= 1
        assert arena.conditions(Kind.GATEWAY, "gw")["Programmed"]["status"] == "True"

        refusal.release()
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")


def test_a_proxy_that_answers_500_is_retried_until_it_accepts_the_document(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with Front(proxy.api) as front, arena.controller(proxies=[front.url]) as controller:
        error = front.answer(is_put, 500, json.dumps({"error": "bug", "message": "worker ended"}).encode())
        controller.expect("delivery failed, retrying", attempt=2)
        delivered = arena.until(Kind.GATEWAY, "gw", DELIVERED, "False")
        assert "answered 500 to PUT /config: worker ended" in delivered["message"]

        error.release()

        until_serves(proxy, "a.example.org")
        arena.until_programmed()


def test_a_slow_proxy_delays_no_other(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with Proxy() as slow, Front(slow.api) as front:
        hold = front.hold(is_put)
        with arena.controller(proxies=[front.url, proxy]):
            hold.wait()
            until_serves(proxy, "a.example.org")
            arena.until_programmed()
            arena.rename_route("web", "b.example.org")
            until_serves(proxy, "b.example.org")
            assert not hostnames(slow)

            hold.release()

            until_serves(slow, "b.example.org")
            arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")


def test_statuses_are_not_current_before_a_proxy_has_the_configuration(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    names = [f"r{number}" for number in range(20)]
    with Front(proxy.api) as front, arena.controller(proxies=[front.url]) as controller:
        arena.until_programmed()
        hold = front.hold(is_put)
        began_s = time.monotonic()
        for name in names:
            arena.route(name, f"{name}.example.org")
        eventually(
            lambda: controller.metric("tunnelgw_status_queue_depth") >= len(names), "statuses are owed", DEADLINE_S
        )
        early = [name for name in names if arena.conditions(Kind.HTTP_ROUTE, name)]
        assert not early or time.monotonic() - began_s > MAX_HOLD_BACK_S

        hold.release()

        for name in names:
            arena.until_accepted(name)
            assert f"{name}.example.org" in hostnames(proxy)


def test_proxies_become_ready_although_endpointslices_list_them_as_not_ready_at_first(
    arena: Arena, api_front: Front, tmp_path: Path
) -> None:
    """They are found through the EndpointSlices of their Service, where none of them is ready."""
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    through = arena.cluster.through(api_front.url, tmp_path)
    with Proxy() as one, Proxy() as other:
        assert [proxy.readiness()[0] for proxy in (one, other)] == [503, 503]
        arena.not_ready_endpoints("proxy", [int(proxy.api.rpartition(":")[2]) for proxy in (one, other)])
        service = f"{arena.namespace}/proxy"

        with arena.controller("--proxy-service", service, kubeconfig=through):
            for proxy in (one, other):
                until_serves(proxy, "a.example.org")
                eventually(partial(is_ready, proxy), f"{proxy.api} is ready", DEADLINE_S)
            delivered = arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")

    assert ": held by 2 proxies" in delivered["message"]


def test_two_controllers_without_leader_election_converge(arena: Arena, proxy: Proxy) -> None:
    """Neither leads: both write, and both want the same."""
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with (
        Front(proxy.api) as one,
        Front(proxy.api) as other,
        arena.controller(proxies=[one.url]),
        arena.controller(proxies=[other.url]),
    ):
        for hostname in ("b.example.org", "c.example.org"):
            arena.rename_route("web", hostname)
            until_serves(proxy, hostname)
        arena.provider.wait_for_hostnames({"c.example.org"})

        def is_quiet() -> bool:
            """Both have looked at the proxy three times more, and written nothing."""
            before = one.count(is_put) + other.count(is_put)
            for front in (one, other):
                front.wait_for_more(is_visit, 3)
            return one.count(is_put) + other.count(is_put) == before

        eventually(is_quiet, "nothing is written any more")
        until_serves(proxy, "c.example.org")


def test_two_controllers_that_push_different_documents_to_a_proxy_both_report_it(
    arena: Arena, cluster: Cluster, provider: Provider, proxy: Proxy
) -> None:
    """Each replaces the other's document, and neither is served all the time."""
    others = Arena(cluster, provider)
    with reserved_port() as port, arena.controller(proxies=[proxy]):
        for each, hostname in ((arena, "a.example.org"), (others, "b.example.org")):
            each.gateway(each.gateway_class(tunnel_id=None, direct="127.0.0.1"), port=port)
            each.route("web", hostname)
        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")

        with others.controller(proxies=[proxy]):
            for each in (arena, others):
                delivered = each.until(Kind.GATEWAY, "gw", DELIVERED, "False")
                assert "somebody else keeps replacing its document" in delivered["message"]

        arena.until(Kind.GATEWAY, "gw", DELIVERED, "True")
        until_serves(proxy, "a.example.org")


def test_a_document_whose_version_is_in_the_future_is_replaced(arena: Arena, proxy: Proxy) -> None:
    proxy.use({"version": 4_102_444_800_000, "routes": []})
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")

    with arena.controller(proxies=[proxy]):
        until_serves(proxy, "a.example.org")
        arena.until_programmed()

    assert proxy.get().json()["version"] == 4_102_444_800_001


def test_deleting_the_last_gateway_removes_all_routes_from_proxies_and_provider(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with arena.controller(proxies=[proxy]):
        until_serves(proxy, "a.example.org")
        arena.provider.wait_for_hostnames({"a.example.org"})
        arena.until_accepted("web")

        arena.delete(Kind.GATEWAY, "gw")

        until_serves(proxy)
        arena.provider.wait_for_hostnames(set())
        arena.until(Kind.HTTP_ROUTE, "web", "Accepted", None)
