"""What the folder takes and refuses, a real API server takes and refuses too, with equal defaults."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.tunnelgw.sources.cluster import Cluster
from tests.tunnelgw.sources.directory.examples import FULL, SMALL, spoiled
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.sources.directory.admission import Admitted, admit
from tunnelgw.sources.directory.manifests import Document

EXAMPLES = [*FULL, *SMALL]


def document(kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
    resource = RESOURCES[kind]
    api_version = f"{resource.group}/{resource.versions[0]}"
    return {"apiVersion": api_version, "kind": str(kind), "metadata": {"name": "example"}, "spec": spec}


def by_folder(kind: Kind, spec: dict[str, Any]) -> tuple[Any, str]:
    """The spec with defaults, or None and why."""
    result = admit(Document(document(kind, spec), lambda place: 1), "example.yaml")
    if isinstance(result, Admitted):
        return result.document["spec"], ""
    return None, "; ".join(problem.reason for problem in result)


def by_server(cluster: Cluster, kind: Kind, spec: dict[str, Any]) -> tuple[Any, str]:
    path = f"{cluster.path(kind, 'default')}?dryRun=All&fieldValidation=Strict"
    try:
        return cluster.admin.call("POST", path, document(kind, spec))["spec"], ""
    except requests.HTTPError as error:
        return None, str(error)


@pytest.fixture(scope="module", autouse=True)
def late_crd(cluster: Cluster) -> Any:
    with cluster.late_crd():
        yield


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_is_taken_or_refused_alike(cluster: Cluster, number: int) -> None:
    kind, spec = EXAMPLES[number]

    ours, why = by_folder(kind, spec)
    theirs, reason = by_server(cluster, kind, spec)

    assert ours == theirs, f"{kind} {spec}: we say {why!r}, the server {reason!r}"


@pytest.mark.parametrize(("kind", "spec"), FULL, ids=[str(kind) for kind, _ in FULL])
def test_every_full_example_is_taken(kind: Kind, spec: dict[str, Any]) -> None:
    assert by_folder(kind, spec)[1] == ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "spec"), FULL, ids=[str(kind) for kind, _ in FULL])
def test_with_any_one_place_spoiled_it_is_taken_or_refused_alike(
    cluster: Cluster, kind: Kind, spec: dict[str, Any]
) -> None:
    differences = []

    for where, changed in spoiled(spec):
        ours, why = by_folder(kind, changed)
        theirs, reason = by_server(cluster, kind, changed)
        if ours != theirs:
            differences.append(f"{where}: we say {why or ours}, the server {reason[-300:] or theirs}")

    assert not differences, "\n".join(differences)
