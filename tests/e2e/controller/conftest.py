"""The cluster that the controller works in, and a corner of it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.controller.arena import SLICE_ADDRESS, Arena
from tests.e2e.controller.fronts import Front
from tests.kube.kubeenv import Environment
from tests.proxy.site import Proxy
from tests.support.dns_endpoints import KubeApi
from tests.support.kube_fixtures import kube
from tests.support.provider import Provider
from tests.tunnelgw.sources.cluster import Cluster

__all__ = ["kube"]  # of this package alone, so that it ends with `cluster`


@pytest.fixture(scope="package")
def cluster(kube: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with KubeApi(kube) as admin:
        cluster = Cluster(kube, admin, tmp_path_factory.mktemp("account"))
        with cluster.late_crd():
            yield cluster


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def arena(cluster: Cluster, provider: Provider) -> Iterator[Arena]:
    arena = Arena(cluster, provider)
    yield arena
    for controller in arena.controllers:  # shown when the test has failed
        print(controller.name, controller.tail, sep="\n")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as proxy:
        yield proxy


@pytest.fixture
def api_front(cluster: Cluster) -> Iterator[Front]:
    """The API server, as a test wants it to answer; see `Cluster.through`."""
    environment = cluster.environment
    with Front(environment.server, str(environment.pki.authority), {SLICE_ADDRESS.encode(): b"127.0.0.1"}) as front:
        yield front
