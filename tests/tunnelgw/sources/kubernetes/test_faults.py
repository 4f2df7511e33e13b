"""Restarts of the API server, and cut, frozen and refused connections: nothing is lost, and the source converges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kube.kubeenv import find_programs, restart_apiserver, restart_with_nothing, start
from tests.kube.processes import wait_until
from tests.support.dns_endpoints import KubeApi
from tests.support.kube_fixtures import require
from tests.tunnelgw.sources.cluster import Cluster
from tests.tunnelgw.sources.kubernetes.relay import Relay
from tests.tunnelgw.sources.kubernetes.running import (
    DEADLINE_S,
    QUICK,
    World,
    let_one_kind_alone_come_back_soon,
    running,
)
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.routes import HttpRoute
from tunnelgw.sources.kubernetes.setbacks import Restart
from tunnelgw.sources.kubernetes.watch import Timing

ROUTE = {"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}


@pytest.fixture
def relay(cluster: Cluster) -> Iterator[Relay]:
    url = urlsplit(cluster.environment.server)
    assert url.hostname is not None
    assert url.port is not None
    with Relay((url.hostname, url.port)) as relay:
        yield relay


def settled(world: World) -> World:
    world.until(lambda change: True, "the first listing")
    return world


def hostnames(world: World, key: Key) -> tuple[str, ...]:
    assert world.change is not None
    item = world.change.snapshot.all(Kind.HTTP_ROUTE).get(key)
    return item.spec.hostnames if isinstance(item, HttpRoute) else ()


def test_changes_during_a_network_outage_are_seen_afterwards(
    cluster: Cluster, namespace: str, relay: Relay, tmp_path: Path
) -> None:
    cluster.create(Kind.HTTP_ROUTE, "ends", ROUTE, namespace)
    with running(cluster.through(relay.address, tmp_path)) as world:
        settled(world).until_here(Kind.HTTP_ROUTE, Key(namespace, "ends"))

        relay.refuse()
        cluster.delete(Kind.HTTP_ROUTE, "ends", namespace)
        cluster.create(Kind.HTTP_ROUTE, "comes", ROUTE, namespace)
        # Also if the watch had not begun yet.
        assert wait_until(lambda: (Kind.HTTP_ROUTE, Restart.DISCONNECTED) in world.restarts, DEADLINE_S)
        relay.accept()

        world.until_here(Kind.HTTP_ROUTE, Key(namespace, "comes"))
        world.until_gone(Kind.HTTP_ROUTE, Key(namespace, "ends"))
        assert (Kind.HTTP_ROUTE, Restart.EXPIRED) not in world.restarts, "a watch goes on from its last version"


@pytest.mark.parametrize("octets", [1, 700, 1500, 3000])
def test_a_watch_cut_in_the_middle_of_an_event_loses_nothing(
    cluster: Cluster, namespace: str, relay: Relay, tmp_path: Path, octets: int
) -> None:
    key = Key(namespace, "web")
    cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)
    with running(cluster.through(relay.address, tmp_path)) as world:
        settled(world).until_here(Kind.HTTP_ROUTE, key)

        relay.cut_after(octets)
        edits = itertools.count()
        while not relay.has_cut.is_set():
            names = [f"edit-{next(edits)}.example.org"]
            cluster.patch(Kind.HTTP_ROUTE, "web", namespace, {"spec": {"hostnames": names}})
        cluster.patch(Kind.HTTP_ROUTE, "web", namespace, {"spec": {"hostnames": ["last.example.org"]}})

        world.until(lambda _: hostnames(world, key) == ("last.example.org",), "the last edit")


def test_a_silently_dead_connection_is_noticed(cluster: Cluster, namespace: str, relay: Relay, tmp_path: Path) -> None:
    impatient = Timing(first_wait_s=0.05, longest_wait_s=0.5, silence_s=2.0)
    with running(cluster.through(relay.address, tmp_path), impatient) as world:
        settled(world)
        cluster.create(Kind.HTTP_ROUTE, "watched", ROUTE, namespace)
        world.until_here(Kind.HTTP_ROUTE, Key(namespace, "watched"))

        relay.freeze()
        cluster.create(Kind.HTTP_ROUTE, "web", ROUTE, namespace)

        world.until_here(Kind.HTTP_ROUTE, Key(namespace, "web"))
        assert (Kind.HTTP_ROUTE, Restart.DISCONNECTED) in world.restarts


@pytest.mark.timeout(300)
def test_a_restarted_api_server_is_followed_again(tmp_path: Path) -> None:
    environment = start(tmp_path / "state", require(find_programs), is_tied=True)
    try:
        with KubeApi(environment) as admin:
            cluster = Cluster(environment, admin, tmp_path)
            namespace = admin.create_namespace("sources")
            cluster.create(Kind.HTTP_ROUTE, "ends", ROUTE, namespace)
            url = urlsplit(environment.server)
            with (
                Relay((str(url.hostname), url.port or 0)) as relay,
                running(cluster.through(relay.address, tmp_path), QUICK) as world,
            ):
                settled(world).until_here(Kind.HTTP_ROUTE, Key(namespace, "ends"))

                relay.refuse()
                cluster.delete(Kind.HTTP_ROUTE, "ends", namespace)
                cluster.create(Kind.HTTP_ROUTE, "comes", ROUTE, namespace)
                environment = restart_apiserver(environment)
                relay.accept()

                world.until_here(Kind.HTTP_ROUTE, Key(namespace, "comes"))
                world.until_gone(Kind.HTTP_ROUTE, Key(namespace, "ends"))
                cluster.create(Kind.HTTP_ROUTE, "later", ROUTE, namespace)
                world.until_here(Kind.HTTP_ROUTE, Key(namespace, "later"))
    finally:
        environment.stop()


@pytest.mark.timeout(300)
def test_a_server_that_was_restored_from_a_backup_is_listed_again(tmp_path: Path) -> None:
    """A watch from a version that the server has not reached yet receives neither events nor an error."""
    environment = start(tmp_path / "state", require(find_programs), is_tied=True)
    try:
        with KubeApi(environment) as admin, running(environment.kubeconfig, QUICK) as world:
            services = "/api/v1/namespaces/default/services"
            service = {"metadata": {"name": "lost"}, "spec": {"ports": [{"port": 80}]}}
            admin.call("POST", services, service)
            for edit in range(500):
                patch = {"spec": {"ports": [{"port": 1000 + edit}]}}
                admin.call("PATCH", f"{services}/lost", patch, "application/merge-patch+json")
            world.until_here(Kind.SERVICE, Key("default", "lost"))

            environment = restart_with_nothing(environment)

            world.until_gone(Kind.SERVICE, Key("default", "lost"))
            admin.call("POST", services, {**service, "metadata": {"name": "later"}})
            world.until_here(Kind.SERVICE, Key("default", "later"))
    finally:
        environment.stop()


def test_all_watches_resume_soon_after_one_could(
    cluster: Cluster, namespace: str, relay: Relay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a route would be judged without the objects it refers to until their watch resumes."""
    let_one_kind_alone_come_back_soon(monkeypatch)
    followed = (Kind.HTTP_ROUTE, Kind.REFERENCE_GRANT)
    of_routes = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "apps"}
    grant = {"from": [of_routes], "to": [{"group": "", "kind": "Service"}]}
    with running(cluster.through(relay.address, tmp_path)) as world:
        settled(world)
        relay.refuse()
        away = [(kind, Restart.DISCONNECTED) for kind in followed]
        assert wait_until(lambda: min(map(world.restarts.count, away)) > 1, DEADLINE_S)
        cluster.create(Kind.HTTP_ROUTE, "comes", ROUTE, namespace)
        cluster.create(Kind.REFERENCE_GRANT, "comes", grant, namespace)

        relay.accept()

        for kind in followed:
            world.until_here(kind, Key(namespace, "comes"))


def test_the_source_stops_at_once_while_the_server_is_unreachable(tmp_path: Path, cluster: Cluster) -> None:
    # `running` asserts that all threads end.
    with running(cluster.through("https://127.0.0.1:1", tmp_path)) as world:
        assert not world.store.wait(0.0)
