"""Lists, maps, texts and numbers may be as large in a folder as the CRDs allow, and no larger."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.tunnelgw.sources.cluster import HELM, gateway_api
from tests.tunnelgw.sources.directory.examples import FULL, at_limits
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.sources.directory.admission import Admitted, admit
from tunnelgw.sources.directory.manifests import Document


def schema_of(kind: Kind) -> dict[str, Any]:
    """The schema of `spec` in the CRD, in the version that we read."""
    resource = RESOURCES[kind]
    manifests = (*gateway_api(), *(HELM / "crds").glob("*.yaml"))
    (manifest,) = (each for each in manifests if each.stem.rpartition("_")[2] == resource.plural)
    versions = yaml.safe_load(manifest.read_text())["spec"]["versions"]
    (version,) = (each for each in versions if each["name"] == resource.versions[0])
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def problems(kind: Kind, spec: dict[str, Any]) -> list[str]:
    resource = RESOURCES[kind]
    api_version = f"{resource.group}/{resource.versions[0]}"
    content = {"apiVersion": api_version, "kind": str(kind), "metadata": {"name": "example"}, "spec": spec}
    result = admit(Document(content, lambda _: 1), "example.yaml")
    return [] if isinstance(result, Admitted) else [problem.reason for problem in result]


@pytest.mark.parametrize(("kind", "spec"), FULL, ids=[str(kind) for kind, _ in FULL])
def test_what_is_larger_than_the_crd_allows_is_refused_and_nothing_smaller(kind: Kind, spec: dict[str, Any]) -> None:
    differences = []

    for where, limit, full, over in at_limits(spec, schema_of(kind)):
        too_large = [problem for problem in problems(kind, full) if re.search(r"more than \d", problem)]
        told = [each for each in problems(kind, over) if each.startswith(f"{where} ") and f"more than {limit}" in each]
        if too_large or not told:
            differences.append(f"{where}, at most {limit}: at the limit {too_large}, above it {problems(kind, over)}")

    assert not differences, "\n".join(differences)
