"""The objects around the programs of a release: Services, roles, classes, budgets, policies, notes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import daemonkit
from tests.helm.chart import CHART, NAMESPACE, Helm, Object, Refused, Values, one
from tests.helm.releases import (
    DEDICATED,
    DIRECT,
    EVERYTHING,
    ON_EACH_NODE,
    TLS,
    TUNNEL,
    TUNNELLED,
    changed,
    controller_options,
    program,
)
from tests.support import programs
from tunnelgw.sources.directory.reading import read_all

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
CLUSTERS = {"ClusterRole", "ClusterRoleBinding", "GatewayClass", "GatewayClassConfig"}
"""Kinds without a namespace."""


def test_every_object_has_its_namespace_and_the_labels_of_its_release(helm: Helm) -> None:
    for each in helm.render(EVERYTHING):
        labels = each["metadata"]["labels"]
        assert each["metadata"].get("namespace") == (None if each["kind"] in CLUSTERS else NAMESPACE)
        assert (labels["app.kubernetes.io/name"], labels["app.kubernetes.io/instance"]) == ("tunnelgw", "web")
        assert labels["app.kubernetes.io/component"] in ("controller", "proxy")
        assert labels["app.kubernetes.io/version"] == daemonkit.__version__
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["helm.sh/chart"] == f"tunnelgw-{daemonkit.__version__}"


def selector(each: Object) -> dict[str, str] | None:
    """Of Pods, if it has one."""
    spec = each.get("spec", {})
    found = spec.get("podSelector") or spec.get("selector")
    return None if found is None else dict(found.get("matchLabels", found))


def test_selectors_match_only_pods_of_their_own_component_and_release(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    pods = {
        (release, component): one(rendered, "Deployment", f"-{component}")["spec"]["template"]["metadata"]["labels"]
        for release, rendered in (("web", objects), ("other", helm.render(EVERYTHING, "other")))
        for component in ("controller", "proxy")
    }
    selecting = [(each, labels) for each in objects if (labels := selector(each))]

    for each, labels in selecting:
        selected = [pod for pod, found in pods.items() if labels.items() <= found.items()]
        assert selected == [("web", each["metadata"]["labels"]["app.kubernetes.io/component"])], each["kind"]
    assert sorted(each["kind"] for each, _ in selecting) == [
        *["Deployment"] * 2,
        "NetworkPolicy",
        *["PodDisruptionBudget"] * 2,
        *["PodMonitor"] * 2,
        *["Service"] * 2,
    ]


def test_numeric_release_and_namespace_names_stay_strings(helm: Helm) -> None:
    """The API server accepts no number as a namespace, a label or a variable."""
    for values in (EVERYTHING, changed(changed(EVERYTHING, "controller.enabled", False), "nameOverride", "5")):
        for each in helm.render(values, release="7", namespace="42"):
            assert isinstance(each["metadata"].get("namespace", ""), str)
            assert all(isinstance(value, str) for value in each["metadata"]["labels"].values())
            assert all(isinstance(value, str) for value in (selector(each) or {}).values())
            assert all(isinstance(subject["namespace"], str) for subject in each.get("subjects", ()))
    objects = helm.render(EVERYTHING, release="7", namespace="42")
    references = one(objects, "GatewayClassConfig")["spec"]
    assert references["direct"]["service"]["namespace"] == "42"
    assert references["providerCredentialsSecretRef"]["namespace"] == "42"
    assert controller_options(objects).namespace == "42"


def test_annotations_and_labels_of_the_values_are_on_their_objects(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    for kind, ending in (("Service", "-direct"), ("GatewayClass", ""), ("ServiceAccount", "")):
        assert one(objects, kind, ending)["metadata"]["annotations"] == {"a": "b"}
    assert one(objects, "PodMonitor", "-controller")["metadata"]["labels"]["a"] == "b"


def test_common_labels_are_on_every_object_and_pod_but_in_no_selector(helm: Helm) -> None:
    """Cluster policies may require a team or a cost centre."""
    values = changed(EVERYTHING, "commonLabels", {"team": "edge", "cost": "42"})
    values = changed(values, "controller.podMonitor.labels", {"release": "prometheus"})
    objects = helm.render(values)
    templates = [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]

    for each in (*objects, *templates):
        assert each["metadata"]["labels"].items() >= {"team": "edge", "cost": "42"}.items()
    assert all("team" not in (selector(each) or {}) for each in objects)
    assert one(objects, "Deployment", "-controller")["spec"]["template"]["metadata"]["labels"]["a"] == "b"
    assert one(objects, "PodMonitor", "-controller")["metadata"]["labels"]["release"] == "prometheus"


def test_a_more_specific_label_overrides_a_common_label(helm: Helm) -> None:
    values = changed(
        {**EVERYTHING, "commonLabels": {"team": "edge"}}, "controller.podMonitor.labels", {"team": "metrics"}
    )
    values = changed(values, "controller.podLabels", {"team": "routes"})
    text = helm.run("template", "web", str(CHART), values=values)

    assert (text.count("team: metrics"), text.count("team: routes")) == (1, 1)
    monitor = one([each for each in yaml.safe_load_all(text) if each], "PodMonitor", "-controller")
    assert monitor["metadata"]["labels"]["team"] == "metrics"


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_a_pod_disruption_budget_lets_unhealthy_pods_be_evicted(helm: Helm, component: str) -> None:
    values = changed(EVERYTHING, f"{component}.podDisruptionBudget.maxUnavailable", "50%")
    spec = one(helm.render(values), "PodDisruptionBudget", f"-{component}")["spec"]

    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == ("50%", "AlwaysAllow")


def test_a_daemonset_has_no_pod_disruption_budget(helm: Helm) -> None:
    kinds = {each["kind"] for each in helm.render(ON_EACH_NODE)}

    assert "DaemonSet" in kinds
    assert "PodDisruptionBudget" not in kinds


def test_the_controller_has_exactly_the_roles_of_the_files(helm: Helm) -> None:
    objects = helm.render(DIRECT)
    account = one(objects, "ServiceAccount")["metadata"]["name"]

    for kind in ("ClusterRole", "Role"):
        role, binding = one(objects, kind), one(objects, f"{kind}Binding")
        assert role["rules"] == yaml.safe_load((CHART / "files" / f"{kind.lower()}.yaml").read_text())["rules"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    spec = one(objects, "Deployment", "-controller")["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == account
    assert one(objects, "Deployment", "-proxy")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_service_account_and_roles_can_be_provided_by_others(helm: Helm) -> None:
    given = {"serviceAccount": {"create": False, "name": "ours"}, "rbac": {"create": False}}
    objects = helm.render({**DIRECT, "controller": given})

    kinds = {each["kind"] for each in objects}
    assert kinds & {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} == set()
    assert one(objects, "Deployment", "-controller")["spec"]["template"]["spec"]["serviceAccountName"] == "ours"


def test_the_class_configuration_has_the_direct_and_tunnel_settings_of_the_values(helm: Helm) -> None:
    direct, tunnelled, both = (
        one(helm.render(each), "GatewayClassConfig")["spec"] for each in (DIRECT, TUNNELLED, EVERYTHING)
    )

    service = {"service": {"name": "web-tunnelgw-direct", "namespace": NAMESPACE}}
    credentials = {"name": "provider", "namespace": NAMESPACE, "key": "api-token"}
    assert direct == {"direct": service}
    assert tunnelled == {"tunnelID": TUNNEL, "providerCredentialsSecretRef": credentials}
    assert both == {**direct, **tunnelled, "accountID": "0" * 32, "publish": "Tunnel"}


def test_the_class_has_the_proxy_settings_of_the_values(helm: Helm) -> None:
    given = {"forwarding": {"trustedProxies": ["10.0.0.0/8"]}, "limits": {"requestTimeout": "60s"}}
    objects = helm.render(changed(DIRECT, "gatewayClass.proxy", given))

    assert one(objects, "GatewayClassConfig")["spec"]["proxy"] == given


def test_the_class_configuration_has_the_service_addresses_of_the_values(helm: Helm) -> None:
    addresses = ["192.0.2.7", "2001:DB8::7", "lb.example.net"]
    config = one(helm.render(changed(DIRECT, "direct.addresses", addresses)), "GatewayClassConfig")

    assert config["spec"]["direct"]["service"]["addresses"] == addresses


def test_a_class_references_its_configuration(helm: Helm) -> None:
    objects = helm.render(changed(DIRECT, "gatewayClass.name", "edge"))
    class_, config = one(objects, "GatewayClass"), one(objects, "GatewayClassConfig")

    assert class_["metadata"]["name"] == config["metadata"]["name"] == class_["spec"]["parametersRef"]["name"] == "edge"
    assert class_["spec"]["controllerName"] == controller_options(objects).controller_name


def test_the_direct_service_has_the_fields_of_its_type(helm: Helm) -> None:
    given = {"loadBalancerClass": "metallb", "loadBalancerSourceRanges": ["192.0.2.0/24"], "ipFamilyPolicy": ""}
    specs = {
        type_: one(helm.render({**DIRECT, "direct": {"enabled": True, "type": type_, **given}}), "Service", "-direct")
        for type_ in ("LoadBalancer", "NodePort", "ClusterIP")
    }

    fields = {type_: set(service["spec"]) - {"selector", "ports"} for type_, service in specs.items()}
    of_balancers = {"loadBalancerClass", "loadBalancerSourceRanges"}
    assert fields == {
        "LoadBalancer": {"type", "externalTrafficPolicy", *of_balancers},
        "NodePort": {"type", "externalTrafficPolicy"},
        "ClusterIP": {"type"},
    }


def test_the_direct_service_has_further_fields_of_the_values(helm: Helm) -> None:
    more = {"ipFamilies": ["IPv6"], "loadBalancerIP": "192.0.2.10", "externalIPs": ["192.0.2.11"]}
    spec = one(helm.render(changed(DIRECT, "direct.spec", more)), "Service", "-direct")["spec"]

    assert spec == {**one(helm.render(DIRECT), "Service", "-direct")["spec"], **more}


def test_without_a_controller_only_a_proxy_is_rendered(helm: Helm) -> None:
    objects = helm.render(DEDICATED)

    assert sorted(each["kind"] for each in objects) == ["Deployment", "PodDisruptionBudget", "Service"]


def test_without_proxies_only_a_controller_is_rendered(helm: Helm) -> None:
    proxies = {"podMonitor": {"enabled": True}, "networkPolicy": {"enabled": True}}
    objects = helm.render(changed(changed(TUNNELLED, "proxy", proxies), "proxy.enabled", False))

    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in objects} == {"controller"}
    assert {each["kind"] for each in objects} & {"Service", "PodDisruptionBudget"} == set()
    assert controller_options(objects).proxy_service is None


def test_a_controller_without_proxies_trusts_the_authority_of_dedicated_proxies(helm: Helm) -> None:
    """It has no proxies of its own, so no server name is set."""
    alone = changed(TUNNELLED, "proxy", {"enabled": False, "configTLS": {"secretName": "config-tls"}})
    objects = helm.render(alone)
    options = controller_options(objects)
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]

    assert (options.proxy_ca_file, options.proxy_tls_server_name) == ("/run/secrets/proxy-ca/ca.crt", None)
    mount = {"name": "proxy-ca", "mountPath": "/run/secrets/proxy-ca", "readOnly": True}
    assert mount in program(objects, "controller")["volumeMounts"]
    assert [each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "proxy-ca"] == ["config-tls"]


def test_proxies_can_open_a_tunnel_that_the_charts_class_does_not_use(helm: Helm) -> None:
    """Gateways of the chart's class are then on the LAN only; a class from elsewhere can use the tunnel."""
    objects = helm.render(changed(DIRECT, "tunnel.tokenSecret.name", "connector"))

    assert "TUNNEL_TOKEN_FILE" in [each["name"] for each in program(objects, "proxy")["env"]]
    assert "tunnelID" not in one(objects, "GatewayClassConfig")["spec"]


def test_a_network_policy_admits_only_the_controller_and_metrics_scrapers_to_the_config_api(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    config, direct = one(objects, "NetworkPolicy")["spec"]["ingress"]
    controller = one(objects, "Deployment", "-controller")["spec"]["template"]["metadata"]["labels"]

    ours, others = config["from"]
    assert ours.keys() == {"podSelector"}
    assert ours["podSelector"]["matchLabels"].items() <= controller.items()
    assert (others, config["ports"]) == ({"namespaceSelector": {}}, [{"port": "config"}])
    targets = [{"port": each["targetPort"]} for each in one(objects, "Service", "-direct")["spec"]["ports"]]
    assert (direct, len(targets)) == ({"ports": targets}, 2)
    assert one(objects, "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]


def test_a_network_policy_of_a_dedicated_proxy_admits_controllers_of_all_namespaces(helm: Helm) -> None:
    ours = one(helm.render(DIRECT), "Deployment", "-controller")["spec"]["template"]["metadata"]["labels"]
    (config,) = one(helm.render(changed(DEDICATED, "proxy.networkPolicy.enabled", True)), "NetworkPolicy")["spec"][
        "ingress"
    ]
    (peer,) = config["from"]

    assert peer["namespaceSelector"] == {}
    assert peer["podSelector"]["matchLabels"].items() <= ours.items()
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "controller"


@pytest.mark.parametrize("with_class", [True, False])
@pytest.mark.parametrize("proxy", [{}, {"kind": "DaemonSet"}, {"enabled": False}])
def test_the_notes_name_the_rendered_objects(helm: Helm, with_class: bool, proxy: Values) -> None:
    values = changed(changed(TUNNELLED, "gatewayClass.create", with_class), "proxy", proxy)
    objects, notes = helm.render(values), helm.notes(values)

    running = [each for each in objects if "template" in each.get("spec", {})]
    watched = {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in running}
    assert set(re.findall(r"rollout status (\S+)$", notes, re.M)) == watched
    assert set(re.findall(r" logs deployment/(\S+)$", notes, re.M)) == {"web-tunnelgw-controller"}
    assert set(re.findall(r"kubectl -n (\S+)", notes)) == {NAMESPACE}
    assert re.findall(r"gatewayclass (\S+)$", notes, re.M) == (["tunnelgw"] if with_class else [])
    if with_class:
        (example,) = re.findall(r"^  apiVersion: .*?\n\n", notes, re.M | re.S)
        assert read_all([("notes.yaml", example.encode())]).problems == ()
        gateway = yaml.safe_load(example)
        assert (gateway["kind"], gateway["spec"]["gatewayClassName"]) == ("Gateway", "tunnelgw")
        (listener,) = gateway["spec"]["listeners"]
        assert listener["port"] in {port["port"] for port in DEFAULTS["direct"]["ports"]}


@pytest.mark.parametrize(("tls", "scheme"), [({}, "http"), (TLS["proxy"]["configTLS"], "https")])
def test_the_notes_of_a_dedicated_proxy_show_the_gatewayconfig_it_needs(helm: Helm, tls: Values, scheme: str) -> None:
    notes = helm.notes(changed(DEDICATED, "proxy.configTLS", tls))
    (port,) = one(helm.render(DEDICATED), "Service")["spec"]["ports"]
    spec = yaml.safe_load(notes[notes.index("  spec:") :])["spec"]

    assert spec["proxyEndpoints"] == [f"{scheme}://web-tunnelgw-proxy-config.{NAMESPACE}.svc:{port['port']}"]
    assert spec["authSecretRef"] == {"name": "proxy"}


def test_two_releases_in_one_cluster_share_no_name(helm: Helm) -> None:
    first, second = (
        {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in helm.render(values, name)
        }
        for name, values in (("a", DIRECT), ("b", changed(DIRECT, "gatewayClass.name", "other")))
    )

    assert first & second == set()


@pytest.mark.parametrize(
    ("release", "values", "beginning"),
    [
        ("web", {}, "web-tunnelgw"),
        ("tunnelgw", {}, "tunnelgw"),
        ("web", {"nameOverride": "gw"}, "web-gw"),
        ("web", {"fullnameOverride": "gw"}, "gw"),
        ("w" * 53, {}, "w" * 40),
    ],
)
def test_names_begin_with_the_release(helm: Helm, release: str, values: Values, beginning: str) -> None:
    objects = helm.render({**DIRECT, **values}, release)

    names = {each["metadata"]["name"] for each in objects if each["kind"] in ("Deployment", "Service")}
    assert names == {beginning + ending for ending in ("-controller", "-proxy", "-proxy-config", "-direct")}


def test_pod_monitors_scrape_existing_ports(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    for component in ("controller", "proxy"):
        (endpoint,) = one(objects, "PodMonitor", f"-{component}")["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for port in program(objects, component)["ports"]}
        assert endpoint["interval"] == "30s"
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "proxy.gateways.svc")
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": "config-tls", "key": "ca.crt"}}
    in_clear = one(helm.render(changed(EVERYTHING, "proxy.configTLS", {})), "PodMonitor", "-proxy")
    assert in_clear["spec"]["podMetricsEndpoints"][0].keys() == {"port", "interval"}


def test_the_alerts_are_those_of_the_files(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    for component in ("controller", "proxy"):
        rule = one(objects, "PrometheusRule", f"-{component}")
        assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts" / f"{component}.yaml").read_text())
    assert one(objects, "PrometheusRule", "-controller")["metadata"]["labels"]["a"] == "b"
    assert "PrometheusRule" not in {each["kind"] for each in helm.render(DIRECT)}


def proxy_alerts(helm: Helm, alerts: Values) -> list[Object]:
    """The groups of the rule."""
    objects = helm.render(changed(EVERYTHING, "proxy.prometheusRule.alerts", alerts))
    groups: list[Object] = one(objects, "PrometheusRule", "-proxy")["spec"]["groups"]
    return groups


def test_the_values_change_and_disable_single_alerts(helm: Helm, tmp_path: Path) -> None:
    changes = {
        "TunnelgwProxyErrors": {"threshold": 0.1, "for": "30m", "labels": {"severity": "critical", "team": "web"}},
        "TunnelgwProxyWorkersRestart": {"threshold": 10, "annotations": {"runbook_url": "https://example.com/"}},
        "TunnelgwTunnelConnectionsMissing": {"enabled": False},
        "TunnelgwTunnelDown": {"enabled": True},
    }
    (kept,), (found,) = (proxy_alerts(helm, alerts) for alerts in ({}, changes))

    before, after = ({rule["alert"]: rule for rule in group["rules"]} for group in (kept, found))
    assert [*after] == [name for name in before if name != "TunnelgwTunnelConnectionsMissing"]
    errors, restarts = (after.pop(name) for name in ("TunnelgwProxyErrors", "TunnelgwProxyWorkersRestart"))
    assert errors == {
        **before["TunnelgwProxyErrors"],
        "expr": before["TunnelgwProxyErrors"]["expr"].replace("> 0.05", "> 0.1"),
        "for": "30m",
        "labels": {"severity": "critical", "team": "web"},
    }
    assert errors["expr"].endswith("> 0.1\n")
    assert restarts["expr"] == "increase(tunnelgw_proxy_worker_restarts_total[15m]) > 10"
    assert restarts["annotations"] == {
        **before["TunnelgwProxyWorkersRestart"]["annotations"],
        "runbook_url": "https://example.com/",
    }
    assert after == {name: before[name] for name in after}
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [found]}))
    promtool = programs.program("promtool", "prometheus")
    assert programs.run([promtool, "check", "rules", str(file)]).returncode == 0


@pytest.mark.parametrize(
    ("alerts", "complaint"),
    [
        (
            {"TunnelgwProxyError": {"for": "1m"}},
            r"proxy\.prometheusRule\.alerts: there is no alert TunnelgwProxyError, there are .*TunnelgwProxyErrors",
        ),
        (
            {"TunnelgwTunnelDown": {"threshold": 1}},
            r"alerts\.TunnelgwTunnelDown\.threshold: its condition compares with no number: 'tunnelgw_proxy_tunnel",
        ),
        (
            {"TunnelgwProxyWorkerDown": {"threshold": 3}},
            r"alerts\.TunnelgwProxyWorkerDown\.threshold: its condition compares with no number: 'tunnelgw_proxy",
        ),
        ({"TunnelgwTunnelDown": {"severity": "info"}}, "severity"),
        ({"TunnelgwTunnelDown": {"for": "soon"}}, "for"),
        ({"TunnelgwProxyErrors": {"threshold": "5%"}}, "threshold"),
    ],
)
def test_an_invalid_change_of_an_alert_is_refused(helm: Helm, alerts: Values, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        proxy_alerts(helm, alerts)


def test_the_dashboards_of_the_files_have_the_labels_of_grafanas_sidecar(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    found = {part: one(objects, "ConfigMap", f"-{part}-dashboard") for part in ("controller", "proxy")}

    for part, each in found.items():
        text = (CHART / "files" / "dashboards" / f"{part}.json").read_text(encoding="utf-8")
        assert each["data"] == {f"tunnelgw-{part}.json": text}
        assert each["metadata"]["labels"]["app.kubernetes.io/component"] == part
    controller, proxy = (found[part]["metadata"] for part in ("controller", "proxy"))
    assert controller["labels"]["grafana_dashboard"] == "1"
    assert controller["annotations"] == {"grafana_folder": "Gateways"}
    assert (proxy["labels"]["grafana_dashboard"], proxy["labels"]["a"]) == ("yes", "b")
    assert "annotations" not in proxy
    assert "ConfigMap" not in {each["kind"] for each in helm.render(DIRECT)}
