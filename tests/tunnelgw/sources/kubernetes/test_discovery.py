"""Whether a kind is installed, as far as the API server, and any proxy in front of it, can be believed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.tunnelgw.sources.kubernetes.scriptedapi import ScriptedApi
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.sources.kubernetes.discovery import find
from tunnelgw.sources.kubernetes.failures import Refused
from tunnelgw.sources.kubernetes.kubeconfig import load_configuration
from tunnelgw.sources.kubernetes.server import ApiServer

GROUP = "/apis/gateway.networking.k8s.io/v1"
ROUTES = f"{GROUP}/httproutes"
EVERY_SERVER_HAS_IT = "/api/v1"
UNKNOWN = (404, b"404 page not found")


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi() as api:
        yield api


@pytest.fixture
def server(api: ScriptedApi, tmp_path: Path) -> Iterator[ApiServer]:
    path = str(api.kubeconfig(tmp_path))
    with closing(ApiServer(lambda: load_configuration(path))) as server:
        yield server


def test_a_kind_that_the_server_answers_with_404_is_not_installed(api: ScriptedApi, server: ApiServer) -> None:
    api.refusals[GROUP] = api.refusals[ROUTES] = UNKNOWN

    assert find(server, RESOURCES[Kind.HTTP_ROUTE]) is None


def test_a_server_that_answers_every_path_with_404_proves_nothing(api: ScriptedApi, server: ApiServer) -> None:
    """A proxy in front of an unreachable server may answer so."""
    api.refusals[GROUP] = api.refusals[ROUTES] = api.refusals[EVERY_SERVER_HAS_IT] = UNKNOWN

    with pytest.raises(Refused):
        find(server, RESOURCES[Kind.HTTP_ROUTE])


def test_a_kind_is_found_when_the_server_recovers_during_discovery(api: ScriptedApi, server: ApiServer) -> None:
    api.refusals[GROUP] = api.refusals[ROUTES] = UNKNOWN
    api.recovers_at = EVERY_SERVER_HAS_IT

    assert ROUTES == find(server, RESOURCES[Kind.HTTP_ROUTE])


def test_a_server_that_forbids_discovery_counts_as_present(api: ScriptedApi, server: ApiServer) -> None:
    api.refusals[GROUP] = api.refusals[ROUTES] = UNKNOWN
    api.refusals[EVERY_SERVER_HAS_IT] = (403, {"code": 403, "reason": "Forbidden"})

    assert find(server, RESOURCES[Kind.HTTP_ROUTE]) is None


@pytest.mark.parametrize("serves_v1", [True, False])
def test_a_kind_is_read_in_the_first_of_our_versions_that_is_served(
    api: ScriptedApi, server: ApiServer, *, serves_v1: bool
) -> None:
    """Gateway API has ReferenceGrant in v1 only from v1.5 on."""
    beta = GROUP.replace("v1", "v1beta1")
    served = {"resources": [{"name": "referencegrants"}]}
    api.refusals[GROUP] = (200, served if serves_v1 else {"resources": [{"name": "httproutes"}]})
    api.refusals[beta] = (200, served)

    assert find(server, RESOURCES[Kind.REFERENCE_GRANT]) == f"{GROUP if serves_v1 else beta}/referencegrants"
