"""Fixtures of the tests that need a real API server or the real external-dns.

`scene` is the whole chain with each store in turn; `stage` opens it with other settings.

The programs are built by `make test` (`tests/programs/install.py`), never by a test. If one is missing, the test is
skipped and says what to run; with `TUNNELGW_TESTS_REQUIRE_ALL=1`, as in continuous integration, it fails instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tests.kube.kubeenv import Environment, MissingProgram, find_program, find_programs, running
from tests.support.dns_endpoints import KubeApi
from tests.support.requirements import not_possible_here
from tests.support.scene import Scene, Stage, open_scene
from tests.support.storeviews import EmbeddedView, StoreView, UnifiView

__all__ = ["external_dns_program", "kube", "kube_api", "scene", "stage", "store"]

T = TypeVar("T")


def require(find: Callable[[], T]) -> T:
    """What `find` returns. If a program is missing, skip the test, or fail if everything is required."""
    try:
        return find()
    except MissingProgram as missing:
        not_possible_here(str(missing))


@pytest.fixture(scope="session")
def external_dns_program() -> Path:
    return require(lambda: find_program("external-dns"))


@pytest.fixture(scope="package")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A real API server for all tests in the package whose conftest.py imports this.

    It ends with the last of them, since 2 to 4 % of a core go to one that nobody asks.
    """
    programs = require(find_programs)
    with running(tmp_path_factory.mktemp("kube") / "state", programs) as environment:
        yield environment


@pytest.fixture(scope="package")
def kube_api(kube: Environment) -> Iterator[KubeApi]:
    """Administrator access to the API server, with the DNSEndpoint CRD installed."""
    crd = require(lambda: find_program("dnsendpoint-crd"))
    with KubeApi(kube) as api:
        api.install_crd(crd)
        yield api


@pytest.fixture(params=["embedded", "v2", "integration"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreView]:
    """Every store; parametrize it indirectly to choose some of them."""
    view = EmbeddedView(tmp_path) if request.param == "embedded" else UnifiView(request.param, tmp_path)
    yield view
    view.close()


@pytest.fixture
def stage(store: StoreView, external_dns_program: Path, kube: Environment, kube_api: KubeApi) -> Stage:
    return partial(open_scene, store, external_dns_program, kube, kube_api)


@pytest.fixture
def scene(stage: Stage) -> Iterator[Scene]:
    with stage() as opened:
        yield opened
