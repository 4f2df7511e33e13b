"""Values and names as people write them: how YAML reads them, and what a parent chart adds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, Helm, Refused, Values, one
from tests.helm.releases import DIRECT, EVERYTHING, IMAGE, TUNNELLED, changed, program, proxy_options


@pytest.mark.parametrize(("written", "meant"), [("off", "off"), ('"off"', "off"), ("errors", "errors"), ("all", "all")])
def test_access_log_off_may_be_written_without_quotes(helm: Helm, written: str, meant: str) -> None:
    """In YAML, that is `false`."""
    objects = helm.render({**DIRECT, "proxy": {"accessLog": yaml.safe_load(written)}})

    assert proxy_options(objects).access_log == meant


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_pods_leave_the_choice_of_the_user_to_the_cluster(helm: Helm, component: str) -> None:
    """As OpenShift does."""
    objects = helm.render(DIRECT)
    spec, run = one(objects, "Deployment", f"-{component}")["spec"]["template"]["spec"], program(objects, component)

    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert run["securityContext"].keys() & {"runAsUser", "runAsGroup"} == set()


NUMBER = 12345


def numbers(found: Any, path: str = "") -> Iterator[str]:
    """The paths at which NUMBER is a number."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from numbers(value, f"{path}.{key}")
    elif isinstance(found, list):
        for value in found:
            yield from numbers(value, path)
    elif found == NUMBER:
        yield path


@pytest.mark.parametrize(
    "path",
    [
        "tunnel.tokenSecret.name",
        "tunnel.tokenSecret.key",
        "tunnel.credentialsSecret.name",
        "tunnel.credentialsSecret.key",
        "tunnel.edgeCAConfigMap.name",
        "tunnel.edgeCAConfigMap.key",
        "direct.loadBalancerClass",
        "gatewayClass.name",
        "controller.serviceAccount.name",
        "controller.priorityClassName",
        "proxy.priorityClassName",
        "proxy.authSecret.name",
        "proxy.configTLS.secretName",
        "proxy.configTLS.serverName",
    ],
)
def test_numeric_names_in_the_values_stay_strings(helm: Helm, path: str) -> None:
    objects = helm.render(changed(EVERYTHING, path, str(NUMBER)))

    assert [where for each in objects for where in numbers(each, each["kind"])] == []
    assert str(NUMBER) in yaml.safe_dump_all(objects)


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_an_extra_variable_that_the_chart_sets_is_refused(helm: Helm, component: str) -> None:
    """The API server would refuse it, in the middle of an install."""
    ours = [each["name"] for each in program(helm.render(EVERYTHING), component)["env"]]
    names = [name for name in ours if name != "HTTPS_PROXY"]
    assert len(names) > 5

    for name in names:
        with pytest.raises(Refused, match=rf"{component}\.extraEnv: {name} is set by the chart"):
            helm.render(changed(EVERYTHING, f"{component}.extraEnv", [{"name": name, "value": "x"}]))


@pytest.mark.parametrize("extra", ["PROXY_AUTH_TOKEN_FILE", "TUNNEL_TOKEN"])
def test_an_extra_variable_for_a_secret_that_the_chart_sets_in_another_way_is_refused(helm: Helm, extra: str) -> None:
    """The proxy takes a secret as a value or as a file, and would not start with both."""
    with pytest.raises(
        Refused, match=rf"proxy\.extraEnv: the chart sets \w+, and only one of it and {extra} may be set"
    ):
        helm.render(changed(EVERYTHING, "proxy.extraEnv", [{"name": extra, "value": "x"}]))


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_an_extra_volume_that_the_chart_has_is_refused(helm: Helm, component: str) -> None:
    """The API server would refuse it, in the middle of an install."""
    with pytest.raises(Refused, match=rf"{component}\.extraVolumes: tmp is set by the chart"):
        helm.render({**DIRECT, component: {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}})


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_dns_policy_none_without_servers_is_refused(helm: Helm, component: str) -> None:
    """The API server would refuse it, in the middle of an install."""
    with pytest.raises(Refused, match=rf"{component}\.dnsPolicy is None: set the servers in {component}\.dnsConfig"):
        helm.render({**DIRECT, component: {"dnsPolicy": "None"}})


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_an_extra_variable_that_is_no_string_is_refused(helm: Helm, component: str) -> None:
    """The API server would refuse it too, in the middle of an install."""
    with pytest.raises(Refused, match=f"{component}/extraEnv/0/value"):
        helm.render({**DIRECT, component: {"extraEnv": [{"name": "A", "value": 5}]}})


def test_a_direct_port_equal_to_the_config_apis_is_refused(helm: Helm) -> None:
    port = {"name": "web", "port": 80, "targetPort": proxy_options(helm.render(DIRECT)).config_addr.port}

    with pytest.raises(Refused, match=r"direct\.ports: targetPort 8082 of web is the port of the config API"):
        helm.render({**DIRECT, "direct": {"enabled": True, "ports": [port]}})


def test_a_node_port_of_a_service_without_ports_on_nodes_is_refused(helm: Helm) -> None:
    """The API server would refuse it, in the middle of an install."""
    port = {"name": "web", "port": 80, "targetPort": 10080, "nodePort": 30080}

    with pytest.raises(Refused, match=r"direct\.ports: nodePort of web with direct\.type ClusterIP"):
        helm.render({**DIRECT, "direct": {"enabled": True, "type": "ClusterIP", "ports": [port]}})
    helm.render({**DIRECT, "direct": {"enabled": True, "type": "NodePort", "ports": [port]}})


@pytest.mark.parametrize("written", [0, 2, "2", "0%", "50%", "100%"])
def test_a_disruption_budget_is_a_number_or_a_share(helm: Helm, written: int | str) -> None:
    objects = helm.render({**DIRECT, "proxy": {"podDisruptionBudget": {"maxUnavailable": written}}})

    assert one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == (2 if written == "2" else written)


@pytest.mark.parametrize("field", ["name", "port", "nodePort"])
def test_duplicate_ports_of_the_service_are_refused(helm: Helm, field: str) -> None:
    ports = [{"name": f"web{n}", "port": 80 + n, "targetPort": 10080, "nodePort": 30080 + n} for n in range(3)]
    helm.render({**DIRECT, "direct": {"enabled": True, "ports": ports}})
    ports[2][field] = ports[0][field]

    with pytest.raises(Refused, match=rf"direct\.ports: {field} {ports[0][field]} is used twice, which"):
        helm.render({**DIRECT, "direct": {"enabled": True, "ports": ports}})
    helm.render({**TUNNELLED, "direct": {"enabled": False, "ports": ports}})


@pytest.mark.parametrize(
    ("release", "values", "beginning"),
    [("shop.example.com", {}, "shop-example-com-tunnelgw"), ("a" * 39 + ".b", {}, "a" * 39)],
)
def test_service_names_have_no_dots_even_if_the_release_name_has(
    helm: Helm, release: str, values: Values, beginning: str
) -> None:
    objects = helm.render({**DIRECT, **values}, release)

    assert one(objects, "Service", "-direct")["metadata"]["name"] == f"{beginning}-direct"
    assert one(objects, "GatewayClassConfig")["spec"]["direct"]["service"]["name"] == f"{beginning}-direct"


def test_a_release_name_that_begins_with_a_digit_is_refused_before_kubernetes_1_36(helm: Helm) -> None:
    """The API server would refuse it, in the middle of an install."""
    with pytest.raises(
        Refused, match=r"3cx-tunnelgw: before Kubernetes 1\.36, names of Services must begin with a letter"
    ):
        helm.render(DIRECT, "3cx", kubernetes="1.35.2")

    named = helm.render({**DIRECT, "fullnameOverride": "edge"}, "3cx", kubernetes="1.29.0")
    newer = helm.render(DIRECT, "3cx", kubernetes="1.36.0")
    assert one(named, "Service", "-direct")["metadata"]["name"] == "edge-direct"
    assert one(newer, "Service", "-direct")["metadata"]["name"] == "3cx-tunnelgw-direct"


@pytest.mark.parametrize("path", ["nameOverride", "fullnameOverride"])
@pytest.mark.parametrize("name", ["Edge", "edge.example", "edge-"])
def test_an_invalid_name_override_is_refused(helm: Helm, path: str, name: str) -> None:
    with pytest.raises(Refused, match=path):
        helm.render(changed(DIRECT, path, name))


def test_a_parent_chart_can_disable_the_chart(helm: Helm, tmp_path: Path) -> None:
    above = parent_chart(tmp_path, {"condition": "tunnelgw.enabled"})

    rendered = {
        is_on: helm.run("template", "web", above, values={"tunnelgw": {**DIRECT, "enabled": is_on}})
        for is_on in (True, False)
    }

    assert f'image: "{IMAGE["repository"]}' in rendered[True]
    assert "kind:" not in rendered[False]


LABEL = re.compile("([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
"""A label's value."""


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("edgeGateway", "edgegateway"),
        ("edge_gateway", "edge-gateway"),
        ("_edge_", "edge"),
        ("e" * 38 + "__gateway", "e" * 38),
        ("e" * 70, "e" * 40),
    ],
)
def test_objects_have_valid_names_whatever_alias_a_parent_chart_gives(
    helm: Helm, tmp_path: Path, alias: str, name: str
) -> None:
    rendered = helm.run("template", "web", parent_chart(tmp_path, {"alias": alias}), values={alias: DIRECT})

    objects = [each for each in yaml.safe_load_all(rendered) if each]
    service = one(objects, "Service", "-direct")
    assert service["metadata"]["name"] == f"web-{name:.36}-direct"
    assert service["spec"]["selector"]["app.kubernetes.io/name"] == name
    for each in objects:
        assert each["metadata"]["name"] == each["metadata"]["name"].lower().replace("_", "-")
        for label in each["metadata"]["labels"].values():
            assert LABEL.fullmatch(label)


@pytest.mark.parametrize("is_own_file", [True, False])
def test_null_removes_a_default_if_it_is_not_in_the_parent_charts_own_values(
    helm: Helm, tmp_path: Path, is_own_file: bool
) -> None:
    """As helm has it; the manual says so."""
    above, values = parent_chart(tmp_path, {}), {"tunnelgw": {**DIRECT, "proxy": {"replicas": None}}}
    (Path(above) / "values.yaml").write_text(yaml.safe_dump(values if is_own_file else {}))

    rendered = helm.run("template", "web", above, values={} if is_own_file else values)

    spec = one([each for each in yaml.safe_load_all(rendered) if each], "Deployment", "-proxy")["spec"]
    assert ("replicas" in spec) == is_own_file


def parent_chart(tmp_path: Path, more: dict[str, str]) -> str:
    """The folder of a chart that has this one below it; `more` is what its dependency says beside name and version."""
    above = tmp_path / "above"
    (above / "charts").mkdir(parents=True)
    (above / "charts" / "tunnelgw").symlink_to(CHART)
    dependency = {"name": "tunnelgw", "version": "*", **more}
    metadata = {"apiVersion": "v2", "name": "above", "version": "1.0.0", "dependencies": [dependency]}
    (above / "Chart.yaml").write_text(yaml.safe_dump(metadata))
    return str(above)
