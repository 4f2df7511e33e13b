"""Which values the chart accepts, and how it refuses others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

import daemonkit
from tests.helm.chart import CHART, Helm, Refused, Values
from tests.helm.releases import DEDICATED, DIRECT, EVERYTHING, IMAGE, ON_EACH_NODE, TLS, TUNNEL, TUNNELLED, changed


@pytest.mark.parametrize("values", [DIRECT, TUNNELLED, DEDICATED, TLS, ON_EACH_NODE, EVERYTHING])
def test_helm_lint_reports_nothing(helm: Helm, values: Values) -> None:
    helm.run("lint", "--strict", str(CHART), values=values)


def test_the_chart_has_the_version_of_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == daemonkit.__version__


def leaves(schema: Any, path: str = "") -> Iterator[str]:
    """Paths of the values that a schema knows, down to those whose form is not the chart's own."""
    if "properties" not in schema:
        yield path
        return
    for name, part in schema["properties"].items():
        yield from leaves(part, f"{path}.{name}".lstrip("."))


def paths(values: Any, known: set[str], path: str = "") -> Iterator[str]:
    if path in known or not isinstance(values, dict):
        yield path
        return
    for name, part in values.items():
        yield from paths(part, known, f"{path}.{name}".lstrip("."))


def test_every_value_has_a_default_and_a_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = set(leaves(schema)) - {"enabled", "global"}

    assert set(paths(yaml.safe_load((CHART / "values.yaml").read_text()), known)) == known


def test_the_schema_is_valid() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    jsonschema.Draft7Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("proxi", {"replicas": 3}, "proxi"),
        ("proxy.replica", 3, "replica"),
        ("image.repository", "registry.example.com/tunnelgw:1.0", "repository"),
        ("image.repository", "Registry.example.com/TunnelGW", "repository"),
        ("image.repository", "registry.example.com:5000/", "repository"),
        ("image.digest", "sha256:123", "digest"),
        ("tunnel.id", TUNNEL.upper(), "id"),
        ("tunnel.accountID", "42", "accountID"),
        ("tunnel.tokenSecret", "connector", "tokenSecret"),
        ("proxy.accessLog", "some", "accessLog"),
        ("proxy.kind", "StatefulSet", "kind"),
        ("proxy.kind", None, "kind"),
        ("proxy.replicas", "two", "replicas"),
        ("controller.logLevel", "chatty", "logLevel"),
        ("controller.name", "Gateways.example/controller", "name"),
        ("controller.name", "gateways.example/a b", "name"),
        ("controller.podLabels", {"app.kubernetes.io/component": "edge"}, r"controller\.podLabels: .*component is set"),
        ("proxy.podLabels", {"app.kubernetes.io/name": "edge"}, r"proxy\.podLabels: .*name is set by the chart"),
        ("proxy.shutdownDelaySeconds", 3601, "shutdownDelaySeconds"),
        ("proxy.gracePeriodSeconds", 3601, "gracePeriodSeconds"),
        ("proxy.podDisruptionBudget.maxUnavailable", "half", "maxUnavailable"),
        ("proxy.podDisruptionBudget.maxUnavailable", "101%", "maxUnavailable"),
        ("controller.podDisruptionBudget.maxUnavailable", -1, "maxUnavailable"),
        ("direct.loadBalancerSourceRanges", ["192.0.2.1"], "loadBalancerSourceRanges"),
        ("gatewayClass.proxy", {"forwarding": {"trustedProxy": ["10.0.0.0/8"]}}, "trustedProxy"),
        ("gatewayClass.proxy", {"limits": {"requestTimeout": 60}}, "requestTimeout"),
        ("direct.ports", [{"name": "http", "port": 80, "targetPort": "http"}], "targetPort"),
    ],
)
def test_an_invalid_value_is_refused_by_name(helm: Helm, path: str, value: Any, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        helm.render(changed(DIRECT, path, value))


@pytest.mark.parametrize("path", ["tunnel", "tunnel.tokenSecret", "direct", "direct.enabled", "proxy.configTLS"])
def test_an_empty_section_is_refused_by_name(helm: Helm, path: str) -> None:
    """To Helm, a key without a value, or with only comments below it, removes the default."""
    above, _, name = path.rpartition(".")

    with pytest.raises(Refused, match=f"'/?{above}': missing property '{name}'"):
        helm.render(changed(DIRECT, path, None))


@pytest.mark.parametrize(
    "path",
    [
        "tunnel.tokenSecret.key",
        "gatewayClass.create",
        "gatewayClass.name",
        "controller.enabled",
        "controller.name",
        "controller.rbac.create",
        "controller.serviceAccount.create",
        "proxy.enabled",
    ],
)
def test_a_value_left_empty_that_the_release_cannot_do_without_is_refused_by_name(helm: Helm, path: str) -> None:
    """Otherwise an install would stop half way at an invalid object, or an upgrade remove objects without a word."""
    above, _, name = path.rpartition(".")

    with pytest.raises(Refused, match=f"'/{above.replace('.', '/')}': missing property '{name}'"):
        helm.render(changed(TUNNELLED, path, None))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"direct": {"enabled": True}}, "image.repository is not set: build the image"),
        ({"image": IMAGE}, "neither tunnel nor direct: set tunnel.id with tunnel.tokenSecret.name, or direct.enabled"),
        ({"image": IMAGE, "tunnel": {"id": TUNNEL}}, "tunnel.tokenSecret.name is not set"),
        (changed(DIRECT, "tunnel.credentialsSecret.name", "x"), "credentialsSecret.name without tunnel.id"),
        (changed(DIRECT, "gatewayClass.publish", "Tunnel"), "publish is Tunnel, without tunnel.id"),
        (changed(TUNNELLED, "gatewayClass.publish", "Direct"), "publish is Direct, without direct.enabled"),
        (changed(TLS, "proxy.configTLS.serverName", ""), "configTLS.serverName is not set"),
        (changed(DIRECT, "direct.ports", []), "direct.ports is empty"),
        (changed(DIRECT, "proxy.enabled", False), "direct.enabled without proxy.enabled"),
        (changed(DIRECT, "controller.serviceAccount.create", False), "serviceAccount.name is not set"),
        (changed(DEDICATED, "proxy.authSecret.name", ""), "proxy.authSecret.name is not set"),
        (changed(DEDICATED, "proxy.enabled", False), "nothing to install"),
        (
            changed(DIRECT, "direct.spec", {"type": "NodePort"}),
            "direct.spec: type is set by the chart, from",
        ),
        ({**DIRECT, "commonLabels": {"helm.sh/chart": "x"}}, "commonLabels: helm.sh/chart is set by the chart"),
        (
            changed(changed(DIRECT, "proxy.networkPolicy.enabled", True), "proxy.hostNetwork", True),
            "do not apply to Pods on the node's network",
        ),
    ],
)
def test_conflicting_values_are_refused_with_a_remedy(helm: Helm, values: Values, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        helm.render(values)
