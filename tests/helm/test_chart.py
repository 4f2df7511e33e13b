"""What the chart makes of its values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import jsonschema
import pytest
import yaml

import daemonkit
from daemonkit.options import parse
from daemonkit.optionspec import specs_of
from proxy.options import PREFIX as PROXY_PREFIX
from proxy.options import Options as ProxyOptions
from tests.helm.chart import CHART, NAMESPACE, Helm, Object, Refused, Values, container, one
from tests.support.programs import built_program
from tunnelgw.model.meta import Key
from tunnelgw.options import PREFIX, Options
from tunnelgw.sources.directory.reading import read_all

Read = TypeVar("Read")
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
TUNNEL = "6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b11"
IMAGE = {"repository": "registry.example.com/tunnelgw"}
DIRECT: Values = {"image": IMAGE, "direct": {"enabled": True}}
TUNNELLED: Values = {
    "image": IMAGE,
    "tunnel": {"id": TUNNEL, "tokenSecret": {"name": "connector"}, "credentialsSecret": {"name": "provider"}},
}
DEDICATED: Values = {
    "image": IMAGE,
    "controller": {"enabled": False},
    "proxy": {"authSecret": {"name": "proxy"}, "replicas": 1},
    "tunnel": {"id": TUNNEL, "tokenSecret": {"name": "connector"}},
}
TLS: Values = {**DIRECT, "proxy": {"configTLS": {"secretName": "config-tls", "serverName": "proxy.gateways.svc"}}}
EVERYTHING: Values = {
    "image": {**IMAGE, "digest": "sha256:" + "a" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "tunnel": {
        "id": TUNNEL,
        "accountID": "0" * 32,
        "tokenSecret": {"name": "connector", "key": "token"},
        "credentialsSecret": {"name": "provider"},
        "edgeCAConfigMap": {"name": "edge"},
    },
    "direct": {"enabled": True, "loadBalancerSourceRanges": ["192.0.2.0/24"], "annotations": {"a": "b"}},
    "gatewayClass": {"publish": "Tunnel", "annotations": {"a": "b"}},
    "controller": {
        "replicas": 2,
        "extraArgs": ["--adopt"],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "serviceAccount": {"annotations": {"a": "b"}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        ],
        "priorityClassName": "system-cluster-critical",
        "podDisruptionBudget": {"enabled": True},
        "podMonitor": {"enabled": True, "labels": {"a": "b"}},
    },
    "proxy": {
        "authSecret": {"name": "proxy"},
        "configTLS": {"secretName": "config-tls", "serverName": "proxy.gateways.svc"},
        "extraArgs": ["--max-document=128MiB"],
        "podMonitor": {"enabled": True},
        "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    },
}


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(built_program("helm"), tmp_path)


def changed(values: Values, path: str, value: Any) -> Values:
    """`values` with one of them set, by its path with dots."""
    first, _, rest = path.partition(".")
    return {**values, first: changed(values.get(first, {}), rest, value) if rest else value}


@pytest.mark.parametrize("values", [DIRECT, TUNNELLED, DEDICATED, TLS, EVERYTHING])
def test_helm_finds_nothing_to_complain_about(helm: Helm, values: Values) -> None:
    helm.run("lint", "--strict", str(CHART), values=values)


def test_the_chart_has_the_version_of_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == daemonkit.__version__


# -- values ----------------------------------------------------------------------------------------------------------


def leaves(schema: Any, path: str = "") -> Iterator[str]:
    """Paths of the values that a schema knows, down to those whose form is somebody else's."""
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


def test_the_schema_is_one() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    jsonschema.Draft7Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("proxi", {"replicas": 3}, "proxi"),
        ("proxy.replica", 3, "replica"),
        ("image.repository", "registry.example.com/tunnelgw:1.0", "repository"),
        ("image.digest", "sha256:123", "digest"),
        ("tunnel.id", TUNNEL.upper(), "id"),
        ("tunnel.accountID", "42", "accountID"),
        ("tunnel.tokenSecret", "connector", "tokenSecret"),
        ("proxy.accessLog", "some", "accessLog"),
        ("proxy.replicas", "two", "replicas"),
        ("controller.logLevel", "chatty", "logLevel"),
        ("direct.ports", [{"name": "http", "port": 80, "targetPort": "http"}], "targetPort"),
    ],
)
def test_a_value_of_no_use_is_refused_by_its_name(helm: Helm, path: str, value: Any, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        helm.render(changed(DIRECT, path, value))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"direct": {"enabled": True}}, "image.repository is not set: build the image"),
        ({"image": IMAGE}, "no door: set tunnel.id with tunnel.tokenSecret.name, or direct.enabled"),
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
            changed(changed(DIRECT, "proxy.networkPolicy.enabled", True), "proxy.hostNetwork", True),
            "do not apply to Pods on the node's network",
        ),
    ],
)
def test_values_that_do_not_fit_together_are_refused_with_what_to_do(
    helm: Helm, values: Values, complaint: str
) -> None:
    with pytest.raises(Refused, match=complaint):
        helm.render(values)


# -- the programs ----------------------------------------------------------------------------------------------------


def program(objects: list[Object], component: str) -> Object:
    return container(one(objects, "Deployment", f"-{component}"))


def controller_options(objects: list[Object]) -> Options:
    controller = program(objects, "controller")
    assert controller["command"] == ["tunnelgw", "run"]
    return understood(Options, PREFIX, controller)


def proxy_options(objects: list[Object]) -> ProxyOptions:
    proxy = program(objects, "proxy")
    assert proxy["command"] == ["tunnelgw-proxy", "run"]
    return understood(ProxyOptions, PROXY_PREFIX, proxy)


def understood(options: type[Read], prefix: str, given: Object) -> Read:
    """What the program reads out of its variables, each of which it knows, and its flags."""
    # The file of the tunnel's token would be read.
    environ = {each["name"]: each.get("value", "x") for each in given["env"] if each["name"] != "TUNNEL_TOKEN_FILE"}
    known = {name for spec in specs_of(options, prefix) for name in (spec.env, spec.file_env)}
    assert environ.keys() - known <= {"HTTPS_PROXY"}
    return parse(options, prefix=prefix, argv=given.get("args", ()), environ=environ)[1]


@pytest.mark.parametrize("values", [DIRECT, TUNNELLED, TLS, EVERYTHING])
def test_controller_and_proxies_find_each_other(helm: Helm, values: Values) -> None:
    objects = helm.render(values)
    options = controller_options(objects)
    (token,) = [each for each in program(objects, "proxy")["env"] if each["name"] == "PROXY_AUTH_TOKEN"]
    service = one(objects, "Service", "-config")

    assert (options.namespace, options.proxy_service) == (NAMESPACE, Key(NAMESPACE, service["metadata"]["name"]))
    reference = {"name": options.proxy_auth_secret, "key": "auth-token"}
    assert token["valueFrom"]["secretKeyRef"] == reference
    assert options.proxy_auth_secret_managed == bool(values.get("proxy", {}).get("authSecret"))
    template = one(objects, "Deployment", "-proxy")["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert service["spec"]["publishNotReadyAddresses"]


def test_controllers_agree_on_who_writes_even_where_one_is_wanted(helm: Helm) -> None:
    """A rollout runs two of them."""
    assert controller_options(helm.render(DIRECT)).leader_elect


def test_the_config_api_is_served_and_called_over_tls_where_a_certificate_is_named(helm: Helm) -> None:
    clear, secured = helm.render(DIRECT), helm.render(TLS)
    server, client = proxy_options(secured), controller_options(secured)

    assert client.proxy_tls_server_name == "proxy.gateways.svc"
    for component, file in (("controller", client.proxy_ca_file), ("proxy", server.config_tls_cert)):
        assert file is not None
        folder, name = file.rsplit("/", 1)
        (mount,) = [each for each in program(secured, component)["volumeMounts"] if each["mountPath"] == folder]
        spec = one(secured, "Deployment", f"-{component}")["spec"]["template"]["spec"]
        (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == "config-tls"
        assert name in {item["path"] for item in volume["secret"]["items"]}
    assert (proxy_options(clear).config_tls_cert, controller_options(clear).proxy_ca_file) == (None, None)
    assert [each["name"] for each in program(clear, "controller")["volumeMounts"]] == ["tmp"]
    schemes = {
        probe["httpGet"]["scheme"]
        for objects in (clear, secured)
        for probe in (program(objects, "proxy")["livenessProbe"], program(objects, "proxy")["readinessProbe"])
    }
    assert schemes == {"HTTP", "HTTPS"}


def test_proxies_without_the_edge_stay_in_the_service_of_direct_clients(helm: Helm) -> None:
    paths = {
        door: program(helm.render(values), "proxy")["readinessProbe"]["httpGet"]["path"]
        for door, values in (("tunnel", TUNNELLED), ("direct", DIRECT), ("both", EVERYTHING))
    }

    assert paths == {"tunnel": "/readyz", "direct": "/readyz/direct", "both": "/readyz/direct"}


def test_a_proxy_gets_the_time_that_it_takes_to_end(helm: Helm) -> None:
    objects = helm.render({**DIRECT, "proxy": {"shutdownDelaySeconds": 7, "gracePeriodSeconds": 100}})
    options = proxy_options(objects)
    spec = one(objects, "Deployment", "-proxy")["spec"]["template"]["spec"]

    assert spec["terminationGracePeriodSeconds"] > options.shutdown_delay_s + options.grace_period_s == 107


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_the_number_of_pods_can_be_left_to_somebody_else(helm: Helm, component: str) -> None:
    """helm applies on the server's side: a field that an autoscaler has changed would be a conflict at each upgrade."""
    replicas = {
        value: one(helm.render({**DIRECT, component: {"replicas": value}}), "Deployment", f"-{component}")["spec"]
        for value in (3, None)
    }

    assert replicas[3]["replicas"] == 3
    assert "replicas" not in replicas[None]


def test_proxies_on_the_nodes_network_make_room_for_their_successors(helm: Helm) -> None:
    for is_host, strategy in ((False, (1, 0)), (True, (0, 1))):
        spec = one(helm.render({**DIRECT, "proxy": {"hostNetwork": is_host}}), "Deployment", "-proxy")["spec"]

        rolling = spec["strategy"]["rollingUpdate"]
        assert (rolling["maxSurge"], rolling["maxUnavailable"]) == strategy
        assert spec["template"]["spec"].get("hostNetwork", False) is is_host
        assert spec["template"]["spec"].get("dnsPolicy") == ("ClusterFirstWithHostNet" if is_host else None)


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, f"registry.example.com/tunnelgw:{daemonkit.__version__}"),
        ({"tag": "edge"}, "registry.example.com/tunnelgw:edge"),
        ({"tag": "edge", "digest": "sha256:" + "a" * 64}, "registry.example.com/tunnelgw@sha256:" + "a" * 64),
    ],
)
def test_the_image_is_named_by_tag_or_digest(helm: Helm, image: Values, reference: str) -> None:
    objects = helm.render({**DIRECT, "image": {**IMAGE, **image}})

    assert {program(objects, "controller")["image"], program(objects, "proxy")["image"]} == {reference}


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_pods_are_placed_and_marked_as_the_values_say(helm: Helm, component: str) -> None:
    wanted = EVERYTHING["controller"]
    placing = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName")
    given = {name: wanted[name] for name in (*placing, "podLabels", "podAnnotations", "extraEnv")}
    objects = helm.render({**DIRECT, "imagePullSecrets": [{"name": "pull"}], component: given})
    template = one(objects, "Deployment", f"-{component}")["spec"]["template"]

    assert {name: template["spec"][name] for name in placing} == {name: wanted[name] for name in placing}
    assert wanted["podLabels"].items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["annotations"] == wanted["podAnnotations"]
    assert template["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert wanted["extraEnv"][0] in program(objects, component)["env"]


def test_the_programs_run_with_what_the_values_say(helm: Helm) -> None:
    logs = {"logLevel": "warning", "logFormat": "text"}
    given = {"controller": {**logs, "name": "example.com/edge"}, "proxy": {**logs, "workers": 3, "accessLog": "all"}}
    objects = helm.render({**DIRECT, **given})
    controller, proxy = controller_options(objects), proxy_options(objects)

    assert (controller.log_level, controller.log_format) == (proxy.log_level, proxy.log_format) == ("warning", "text")
    assert controller.controller_name == one(objects, "GatewayClass")["spec"]["controllerName"] == "example.com/edge"
    assert (proxy.workers, proxy.access_log) == (3, "all")


def test_flags_of_the_values_are_given_to_the_programs(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    assert controller_options(objects).adopt
    assert proxy_options(objects).max_document_bytes == 128 * 1024 * 1024


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_a_stall_of_half_a_minute_restarts_no_program(helm: Helm, component: str) -> None:
    probe = program(helm.render(DIRECT), component)["livenessProbe"]

    assert probe["periodSeconds"] * (probe["failureThreshold"] - 1) >= 30
    assert probe["timeoutSeconds"] >= 5


def test_ports_and_probes_are_those_of_the_programs(helm: Helm) -> None:
    objects = helm.render(DIRECT)
    controller, proxy = controller_options(objects), proxy_options(objects)
    bound = {
        "controller": {"health": controller.health_addr.port, "metrics": controller.metrics_addr.port},
        "proxy": {"config": proxy.config_addr.port},
    }

    for component, ports in bound.items():
        run = program(objects, component)
        assert {each["name"]: each["containerPort"] for each in run["ports"]} == ports
        assert run["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert run["readinessProbe"]["httpGet"]["path"].startswith("/readyz")
        assert {run[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports.keys()
    assert one(objects, "Service", "-config")["spec"]["ports"] == [
        {"name": "config", "port": proxy.config_addr.port, "targetPort": "config"}
    ]


def test_files_that_the_proxy_is_told_of_are_in_its_volumes(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    run = program(objects, "proxy")
    volumes = {
        each["name"]: each for each in one(objects, "Deployment", "-proxy")["spec"]["template"]["spec"]["volumes"]
    }
    mounted = {each["mountPath"]: volumes[each["name"]] for each in run["volumeMounts"]}
    told = {each["name"]: each["value"] for each in run["env"] if each.get("value", "").startswith("/")}

    assert mounted[told.pop("PROXY_STATE_DIR")]["emptyDir"] == {"medium": "Memory"}
    assert mounted["/tmp"]["emptyDir"] == {}
    found = {}
    for name, path in told.items():
        folder, _, file = path.rpartition("/")
        source = mounted[folder].get("secret") or mounted[folder]["configMap"]
        (key,) = [item["key"] for item in source["items"] if item["path"] == file]
        found[name] = (source.get("secretName") or source["name"], key)
    assert found == {
        "TUNNEL_TOKEN_FILE": ("connector", "token"),
        "PROXY_EDGE_CA_FILE": ("edge", "ca.pem"),
        "PROXY_CONFIG_TLS_CERT": ("config-tls", "tls.crt"),
        "PROXY_CONFIG_TLS_KEY": ("config-tls", "tls.key"),
    }


def test_a_proxy_without_a_tunnel_is_told_of_no_files_of_one(helm: Helm) -> None:
    objects = helm.render(DIRECT)
    run = program(objects, "proxy")
    spec = one(objects, "Deployment", "-proxy")["spec"]["template"]["spec"]

    assert {each["name"] for each in run["env"]} & {"TUNNEL_TOKEN_FILE", "PROXY_EDGE_CA_FILE"} == set()
    assert {each["name"] for each in spec["volumes"]} == {each["name"] for each in run["volumeMounts"]}
    assert {each["name"] for each in spec["volumes"]} == {"state", "tmp"}


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_pods_have_the_rights_and_resources_of_the_values(helm: Helm, component: str) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())[component]
    given = {"podSecurityContext": {"fsGroup": 7}, "securityContext": {"runAsUser": 7}, "resources": {"claims": []}}
    objects = helm.render({**DIRECT, component: given})
    spec, run = one(objects, "Deployment", f"-{component}")["spec"]["template"]["spec"], program(objects, component)

    assert spec["securityContext"] == {**defaults["podSecurityContext"], **given["podSecurityContext"]}
    assert run["securityContext"] == {**defaults["securityContext"], **given["securityContext"]}
    assert run["resources"] == {**defaults["resources"], **given["resources"]}
    assert (run["imagePullPolicy"], spec["enableServiceLinks"]) == ("IfNotPresent", False)
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert defaults["securityContext"] == confined
    assert defaults["podSecurityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_pods_are_spread_over_nodes_where_that_is_possible(helm: Helm, component: str) -> None:
    template = one(helm.render(DIRECT), "Deployment", f"-{component}")["spec"]["template"]
    (spread,) = template["spec"]["topologySpreadConstraints"]

    assert (spread["maxSkew"], spread["topologyKey"]) == (1, "kubernetes.io/hostname")
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_a_controller_gets_the_time_that_it_takes_to_end(helm: Helm) -> None:
    objects = helm.render(DIRECT)
    spec = one(objects, "Deployment", "-controller")["spec"]["template"]["spec"]

    assert spec["terminationGracePeriodSeconds"] > controller_options(objects).grace_period_s


# -- everything around them ------------------------------------------------------------------------------------------


CLUSTERS = {"ClusterRole", "ClusterRoleBinding", "GatewayClass", "GatewayClassConfig"}
"""Kinds without a namespace."""


def test_every_object_says_where_it_is_and_whose(helm: Helm) -> None:
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


def test_whatever_selects_pods_selects_those_of_its_component_and_release_alone(helm: Helm) -> None:
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


def test_names_that_are_numbers_stay_words(helm: Helm) -> None:
    """The API server takes no number for a namespace, a label or a variable."""
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


def test_annotations_and_labels_of_the_values_are_where_they_belong(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    for kind, ending in (("Service", "-direct"), ("GatewayClass", ""), ("ServiceAccount", "")):
        assert one(objects, kind, ending)["metadata"]["annotations"] == {"a": "b"}
    assert one(objects, "PodMonitor", "-controller")["metadata"]["labels"]["a"] == "b"


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_a_budget_for_disruptions_keeps_no_node_that_is_drained(helm: Helm, component: str) -> None:
    values = changed(EVERYTHING, f"{component}.podDisruptionBudget.maxUnavailable", "50%")
    spec = one(helm.render(values), "PodDisruptionBudget", f"-{component}")["spec"]

    assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == ("50%", "AlwaysAllow")


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


def test_account_and_roles_can_be_somebody_elses(helm: Helm) -> None:
    given = {"serviceAccount": {"create": False, "name": "ours"}, "rbac": {"create": False}}
    objects = helm.render({**DIRECT, "controller": given})

    kinds = {each["kind"] for each in objects}
    assert kinds & {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} == set()
    assert one(objects, "Deployment", "-controller")["spec"]["template"]["spec"]["serviceAccountName"] == "ours"


def test_the_class_has_the_doors_of_the_values(helm: Helm) -> None:
    direct, tunnelled, both = (
        one(helm.render(each), "GatewayClassConfig")["spec"] for each in (DIRECT, TUNNELLED, EVERYTHING)
    )

    service = {"service": {"name": "web-tunnelgw-direct", "namespace": NAMESPACE}}
    credentials = {"name": "provider", "namespace": NAMESPACE, "key": "api-token"}
    assert direct == {"direct": service}
    assert tunnelled == {"tunnelID": TUNNEL, "providerCredentialsSecretRef": credentials}
    assert both == {**direct, **tunnelled, "accountID": "0" * 32, "publish": "Tunnel"}


def test_a_class_points_to_its_configuration(helm: Helm) -> None:
    objects = helm.render(changed(DIRECT, "gatewayClass.name", "edge"))
    class_, config = one(objects, "GatewayClass"), one(objects, "GatewayClassConfig")

    assert class_["metadata"]["name"] == config["metadata"]["name"] == class_["spec"]["parametersRef"]["name"] == "edge"
    assert class_["spec"]["controllerName"] == controller_options(objects).controller_name


def test_the_service_of_the_direct_door_has_the_fields_of_its_type(helm: Helm) -> None:
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


def test_without_a_controller_there_is_a_proxy_alone(helm: Helm) -> None:
    objects = helm.render(DEDICATED)

    assert sorted(each["kind"] for each in objects) == ["Deployment", "PodDisruptionBudget", "Service"]


def test_without_proxies_there_is_a_controller_alone(helm: Helm) -> None:
    proxies = {"podMonitor": {"enabled": True}, "networkPolicy": {"enabled": True}}
    objects = helm.render(changed(changed(TUNNELLED, "proxy", proxies), "proxy.enabled", False))

    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in objects} == {"controller"}
    assert {each["kind"] for each in objects} & {"Service", "PodDisruptionBudget"} == set()
    assert controller_options(objects).proxy_service is None


def test_the_config_api_can_be_closed_to_all_but_the_controller_and_who_reads_metrics(helm: Helm) -> None:
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


def test_the_config_api_of_a_proxy_alone_is_open_to_controllers_of_all_namespaces(helm: Helm) -> None:
    ours = one(helm.render(DIRECT), "Deployment", "-controller")["spec"]["template"]["metadata"]["labels"]
    (config,) = one(helm.render(changed(DEDICATED, "proxy.networkPolicy.enabled", True)), "NetworkPolicy")["spec"][
        "ingress"
    ]
    (peer,) = config["from"]

    assert peer["namespaceSelector"] == {}
    assert peer["podSelector"]["matchLabels"].items() <= ours.items()
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "controller"


@pytest.mark.parametrize("with_class", [True, False])
@pytest.mark.parametrize("with_proxy", [True, False])
def test_the_notes_name_what_there_is(helm: Helm, with_class: bool, with_proxy: bool) -> None:
    values = changed(changed(TUNNELLED, "gatewayClass.create", with_class), "proxy.enabled", with_proxy)
    objects, notes = helm.render(values), helm.notes(values)

    deployments = {each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"}
    assert set(re.findall(r"rollout status deployment/(\S+)$", notes, re.M)) == deployments
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
def test_the_notes_of_a_proxy_alone_say_what_a_gatewayconfig_needs(helm: Helm, tls: Values, scheme: str) -> None:
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


def test_monitors_scrape_ports_that_pods_have(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    for component in ("controller", "proxy"):
        (endpoint,) = one(objects, "PodMonitor", f"-{component}")["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for port in program(objects, component)["ports"]}
        assert endpoint["interval"] == "30s"
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "proxy.gateways.svc")
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": "config-tls", "key": "ca.crt"}}
    in_clear = one(helm.render(changed(EVERYTHING, "proxy.configTLS", {})), "PodMonitor", "-proxy")
    assert in_clear["spec"]["podMetricsEndpoints"][0].keys() == {"port", "interval"}
