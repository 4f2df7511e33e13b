"""Of several controllers one leads: the others are ready, and take over when it ends or is cut off."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.controller.arena import Arena, hostnames, until_serves
from tests.e2e.controller.fronts import Front
from tests.e2e.controller.site import DEADLINE_S, Controller
from tests.proxy.site import Proxy, eventually
from tests.tunnelgw.sources.cluster import HOME
from tests.tunnelgw.sources.kubernetes.relay import Relay


def leads(controller: Controller) -> bool:
    return controller.metric("tunnelgw_is_leader") == 1


def test_a_standby_is_ready_writes_nothing_and_takes_over_from_a_leader_that_stops(arena: Arena, proxy: Proxy) -> None:
    """If the machine stalls for seconds, the leader may have changed since the start."""
    arena.gateway(arena.gateway_class())
    with (
        Proxy() as of_other,
        arena.controller("--leader-elect", proxies=[proxy]) as one,
        arena.controller("--leader-elect", proxies=[of_other]) as other,
    ):
        for controller in (one, other):
            controller.wait_until_ready()
        arena.route("web", "a.example.org")
        eventually(lambda: {"a.example.org"} in (hostnames(proxy), hostnames(of_other)), "the leader wrote", DEADLINE_S)
        arena.until_accepted("web")
        for controller, its_proxy in ((one, proxy), (other, of_other)):
            if its_proxy.get().status_code != 404:
                controller.expect("leading")  # a standby writes nothing

        leader, standby, its_proxy = (one, other, of_other) if leads(one) else (other, one, proxy)
        assert leader.stop() == 0

        until_serves(its_proxy, "a.example.org")
        eventually(lambda: leads(standby), "the standby leads", DEADLINE_S)


def test_a_leader_that_stops_gives_its_lease_back(arena: Arena) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
    with arena.controller("--leader-elect") as controller:
        controller.expect("leading")

        assert controller.stop() == 0

    lease = arena.cluster.admin.call("GET", f"{leases}/{arena.namespace}")
    assert not lease["spec"].get("holderIdentity"), "the next one need not wait"


def test_a_controller_follows_an_api_server_that_has_moved_to_where_its_kubeconfig_says_now(
    arena: Arena, proxy: Proxy, tmp_path: Path
) -> None:
    url = urlsplit(arena.cluster.environment.server)
    server = (str(url.hostname), url.port or 0)
    arena.gateway(arena.gateway_class())
    with Relay(server) as former, Relay(server) as moved:
        here = arena.cluster.through(former.address, tmp_path)
        kubeconfig = os.pathsep.join((str(tmp_path / "missing"), str(here)))  # as kubectl has it
        with arena.controller("--leader-elect", proxies=[proxy], kubeconfig=kubeconfig) as controller:
            controller.expect("leading")
            former.refuse()
            arena.cluster.through(moved.address, tmp_path)

            arena.route("web", "a.example.org")

            until_serves(proxy, "a.example.org")
            arena.until_accepted("web")


def test_a_leader_that_stops_with_a_delivery_under_way_lets_its_lease_expire(arena: Arena, proxy: Proxy) -> None:
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
    with Front(proxy.api) as front:
        put = front.hold(lambda asked: asked.method == "PUT")
        with arena.controller("--leader-elect", "--grace-period", "1s", proxies=[front.url]) as controller:
            put.wait()

            assert controller.stop() == 0

            assert controller.lines_of("a delivery is still under way, and ends with the process")
            assert controller.lines_of("lease is left to expire, something is still under way")
            lease = arena.cluster.admin.call("GET", f"{leases}/{arena.namespace}")
            assert lease["spec"]["holderIdentity"], "the next one has to wait"


def test_a_leader_cut_off_from_the_api_server_stops_writing_before_another_takes_over(
    arena: Arena, proxy: Proxy, tmp_path: Path
) -> None:
    server = urlsplit(arena.cluster.environment.server)
    arena.gateway(arena.gateway_class())
    arena.route("web", "a.example.org")
    with Relay((str(server.hostname), server.port or 0)) as relay, Proxy() as of_standby:
        through = arena.cluster.through(relay.address, tmp_path)
        with arena.controller("--leader-elect", proxies=[proxy], kubeconfig=through) as leader:
            until_serves(proxy, "a.example.org")
            with arena.controller("--leader-elect", proxies=[of_standby]) as standby:
                standby.wait_until_ready()
                relay.refuse()
                standby.expect("leading")

                assert not leads(leader), "two of them lead"
                until_serves(of_standby, "a.example.org")
                eventually(lambda: leads(standby), "the standby leads")
                proxy.use({"routes": []})
                visits = leader.metric("tunnelgw_deliveries_total")
                arena.rename_route("web", "b.example.org")
                until_serves(of_standby, "b.example.org")
                assert not hostnames(proxy), "who leads no more left its proxy alone"
                assert leader.metric("tunnelgw_deliveries_total") == visits
                assert leader.readiness()[0] == 200
