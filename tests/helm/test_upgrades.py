"""Upgrades in a real API server; no Pods run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.chart import CHART, Helm, Object, Refused, Values
from tests.helm.releases import IMAGE, changed
from tests.kube.kubeenv import Environment
from tests.support.dns_endpoints import KubeApi
from tests.support.programs import built_program

VALUES: Values = {
    "image": IMAGE,
    "direct": {"enabled": True, "type": "ClusterIP"},
    "fullnameOverride": "edge",
    "gatewayClass": {"create": False},
}


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_another_name_in_the_labels_of_the_same_objects_is_refused_before_anything_is_changed(
    kube: Environment, tmp_path: Path, kind: str
) -> None:
    """A Deployment's selector cannot be changed, and the Services would already select by the new one."""
    helm = Helm(built_program("helm"), tmp_path, kube.kubeconfig)
    values = changed({**VALUES, "proxy": {"kind": kind}}, "controller.enabled", kind == "Deployment")
    if kind == "DaemonSet":
        values = changed(values, "proxy.authSecret.name", "theirs")
    with KubeApi(kube) as api:
        namespace = api.create_namespace("gateways")

        def do(verb: str, values: Values) -> str:
            return helm.run(verb, "web", str(CHART), "--namespace", namespace, "--skip-crds", values=values)

        def selectors() -> list[Object]:
            found = api.call("GET", f"/api/v1/namespaces/{namespace}/services")["items"]
            return [service["spec"]["selector"] for service in found]

        do("install", values)
        before = selectors()

        with pytest.raises(Refused, match=rf"the {kind} edge-\w+ exists and selects Pods by the name tunnelgw, which"):
            do("upgrade", changed(values, "nameOverride", "other"))

        assert selectors() == before
        do("upgrade", changed(changed(values, "nameOverride", "other"), "fullnameOverride", "edge2"))
        do("upgrade", values)
