"""What the folder takes and refuses, a real API server takes and refuses too, with equal defaults."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.tunnelgw.sources.cluster import Cluster
from tests.tunnelgw.sources.directory.examples import FULL, SMALL, spoiled
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.sources.directory.admission import Admitted, admit
from tunnelgw.sources.directory.manifests import BrokenFile, Document, documents

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


SCALARS = """
y Y yes Yes YES N no on off True NO yEs 08 010 0o17 0O17 0x1F 0X1f 0b11 0b_ -0b11 -0x1 +5 1_000 1__0 1_ _1 00 -0
1e3 12e03 1E+2 1e-2 .5 5. 5.0 1_0.5 .5_0 +.5 1e999 .inf .Inf .iNf .nan 12:30 1:1 190:20:30.15 2026-01-01
null Null ~ nULL 18446744073709551615 18446744073709551616 -9223372036854775808 0x1p4 1e 0x 0b2 0o8 = <
"""
_ROUTE = """apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: example}
spec:
  parentRefs: [{name: gw}]
  rules:
  - matches: [{headers: [{name: X, value: %s}]}]
    backendRefs: [{name: web, port: 80, weight: %s}]
"""


@pytest.mark.parametrize("scalar", [*SCALARS.split()])
@pytest.mark.parametrize("place", ["text", "number"])
def test_a_plain_scalar_is_read_alike(cluster: Cluster, scalar: str, place: str) -> None:
    manifest = (_ROUTE % (("x", scalar) if place == "number" else (scalar, "1"))).encode()
    path = f"{cluster.path(Kind.HTTP_ROUTE, 'default')}?dryRun=All&fieldValidation=Strict"
    theirs, reason = None, ""
    try:
        theirs = cluster.admin.call("POST", path, manifest, "application/yaml")["spec"]
    except requests.HTTPError as error:
        reason = str(error)

    try:
        (document,) = documents(manifest)
    except BrokenFile as error:
        ours, why = None, error.reason
    else:
        ours, why = by_folder(Kind.HTTP_ROUTE, document.data["spec"])

    assert ours == theirs, f"we say {why!r}, the server {reason[-300:]!r}"
