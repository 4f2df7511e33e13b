"""Fixtures of tests against a real API server: Gateway API and our kinds installed, and our own account on it."""

from collections.abc import Iterator

import pytest

from tests.kube.kubeenv import Environment
from tests.support.dns_endpoints import KubeApi
from tests.support.kube_fixtures import kube
from tests.tunnelgw.sources.cluster import Cluster

__all__ = ["kube"]


@pytest.fixture(scope="package")
def cluster(kube: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with KubeApi(kube) as admin:
        yield Cluster(kube, admin, tmp_path_factory.mktemp("account"))


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    return cluster.admin.create_namespace("sources")
