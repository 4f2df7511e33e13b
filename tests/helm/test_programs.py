"""The settings of a release's programs, and how their Pods run."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import daemonkit
from tests.helm.chart import CHART, NAMESPACE, Helm, Refused, Values, container, one
from tests.helm.releases import (
    DIRECT,
    EVERYTHING,
    IMAGE,
    ON_EACH_NODE,
    TLS,
    TUNNEL,
    TUNNELLED,
    changed,
    controller_options,
    program,
    proxy_options,
)
from tunnelgw.model.meta import Key


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


def test_leader_election_is_on_even_with_one_replica(helm: Helm) -> None:
    """A rollout runs two controllers."""
    assert controller_options(helm.render(DIRECT)).leader_elect


def test_the_config_api_uses_tls_if_a_certificate_is_configured(helm: Helm) -> None:
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


def test_readiness_of_proxies_with_direct_clients_does_not_depend_on_the_edge(helm: Helm) -> None:
    paths = {
        door: program(helm.render(values), "proxy")["readinessProbe"]["httpGet"]["path"]
        for door, values in (("tunnel", TUNNELLED), ("direct", DIRECT), ("both", EVERYTHING))
    }

    assert paths == {"tunnel": "/readyz", "direct": "/readyz/direct", "both": "/readyz/direct"}


def test_the_termination_grace_period_covers_a_proxys_shutdown(helm: Helm) -> None:
    objects = helm.render({**DIRECT, "proxy": {"shutdownDelaySeconds": 7, "gracePeriodSeconds": 100}})
    options = proxy_options(objects)
    spec = one(objects, "Deployment", "-proxy")["spec"]["template"]["spec"]

    assert spec["terminationGracePeriodSeconds"] > options.shutdown_delay_s + options.grace_period_s == 107


@pytest.mark.parametrize("delay_s", [0, 5, 8, 30, 121])
def test_a_terminating_proxy_stays_ready_until_seconds_before_its_listeners_close(helm: Helm, delay_s: int) -> None:
    """From then on, packets that a load balancer sends to the node of a Service's last Pod are dropped."""
    values = {**DIRECT, "proxy": {"shutdownDelaySeconds": delay_s}}
    probe = program(helm.render(values), "proxy")["readinessProbe"]
    sooner_s, later_s = (probe["periodSeconds"] * (probe["failureThreshold"] - more) for more in (1, 0))

    assert sooner_s >= delay_s - 5
    assert later_s <= max(delay_s - 1, 4)


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_the_number_of_replicas_can_be_left_to_an_autoscaler(helm: Helm, component: str) -> None:
    """helm uses server-side apply: a field changed by an autoscaler would be a conflict at each upgrade."""
    replicas = {
        value: one(helm.render({**DIRECT, component: {"replicas": value}}), "Deployment", f"-{component}")["spec"]
        for value in (3, None)
    }

    assert replicas[3]["replicas"] == 3
    assert "replicas" not in replicas[None]


def test_min_ready_seconds_of_the_values_are_set_on_the_proxies(helm: Helm) -> None:
    specs = {
        seconds: one(helm.render(changed(DIRECT, "proxy.minReadySeconds", seconds)), "Deployment", "-proxy")["spec"]
        for seconds in (0, 90)
    }

    assert specs[90]["minReadySeconds"] == 90
    assert "minReadySeconds" not in specs[0]


def test_proxies_on_the_host_network_stop_before_their_successors_start(helm: Helm) -> None:
    for is_host, strategy in ((False, (1, 0)), (True, (0, 1))):
        spec = one(helm.render({**DIRECT, "proxy": {"hostNetwork": is_host}}), "Deployment", "-proxy")["spec"]

        rolling = spec["strategy"]["rollingUpdate"]
        assert (rolling["maxSurge"], rolling["maxUnavailable"]) == strategy
        assert spec["template"]["spec"].get("hostNetwork", False) is is_host
        assert spec["template"]["spec"].get("dnsPolicy") == ("ClusterFirstWithHostNet" if is_host else None)


def test_a_daemonset_has_the_container_of_the_deployment_and_no_replicas(helm: Helm) -> None:
    deployment = one(helm.render(DIRECT), "Deployment", "-proxy")
    for is_host, strategy in ((False, (1, 0)), (True, (0, 1))):
        objects = helm.render(changed(ON_EACH_NODE, "proxy.hostNetwork", is_host))
        daemonset = one(objects, "DaemonSet", "-proxy")
        spec = daemonset["spec"]

        rolling = spec["updateStrategy"]["rollingUpdate"]
        assert (rolling["maxSurge"], rolling["maxUnavailable"]) == strategy
        assert spec.keys() == {"updateStrategy", "selector", "template"}
        assert spec["selector"] == deployment["spec"]["selector"]
        assert container(daemonset) == container(deployment)
        assert sorted(each["kind"] for each in objects if each["metadata"]["name"].endswith("-proxy")) == ["DaemonSet"]


def test_a_daemonset_has_only_the_topology_spread_constraints_of_the_values(helm: Helm) -> None:
    own = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    specs = [
        one(helm.render(changed(ON_EACH_NODE, "proxy.topologySpreadConstraints", given)), "DaemonSet")["spec"]
        for given in ([], [own])
    ]

    assert "topologySpreadConstraints" not in specs[0]["template"]["spec"]
    (spread,) = specs[1]["template"]["spec"]["topologySpreadConstraints"]
    assert own.items() <= spread.items()


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
def test_pods_have_the_scheduling_dns_and_metadata_of_the_values(helm: Helm, component: str) -> None:
    wanted = EVERYTHING["controller"]
    where = ("tolerations", "affinity", "priorityClassName")
    placing = (*where, "dnsPolicy", "dnsConfig", "hostAliases")
    given = {name: wanted[name] for name in (*placing, "nodeSelector", "podLabels", "podAnnotations", "extraEnv")}
    objects = helm.render({**DIRECT, "imagePullSecrets": [{"name": "pull"}], component: given})
    template = one(objects, "Deployment", f"-{component}")["spec"]["template"]

    assert {name: template["spec"][name] for name in placing} == {name: wanted[name] for name in placing}
    assert template["spec"]["nodeSelector"] == {**wanted["nodeSelector"], "kubernetes.io/os": "linux"}
    assert wanted["podLabels"].items() <= template["metadata"]["labels"].items()
    assert wanted["podAnnotations"].items() <= template["metadata"]["annotations"].items()
    assert template["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert wanted["extraEnv"][0] in program(objects, component)["env"]


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_the_cluster_autoscaler_may_evict_pods_despite_their_emptydir_volumes(helm: Helm, component: str) -> None:
    """By default it keeps each node that has a Pod with an unlisted emptyDir."""
    template = one(helm.render(EVERYTHING), "Deployment", f"-{component}")["spec"]["template"]
    told = template["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"]

    assert {*told.split(",")} == {each["name"] for each in template["spec"]["volumes"] if "emptyDir" in each}


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_extra_volumes_are_mounted_after_those_of_the_chart(helm: Helm, component: str) -> None:
    wanted = {name: EVERYTHING["controller"][name] for name in ("extraVolumes", "extraVolumeMounts")}
    before, after = (helm.render({**EVERYTHING, component: given}) for given in ({}, wanted))
    volumes = [
        one(each, "Deployment", f"-{component}")["spec"]["template"]["spec"]["volumes"] for each in (before, after)
    ]
    mounts = [program(each, component)["volumeMounts"] for each in (before, after)]

    assert volumes[1] == volumes[0] + wanted["extraVolumes"]
    assert mounts[1] == mounts[0] + wanted["extraVolumeMounts"]


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_extra_containers_follow_that_of_the_chart(helm: Helm, component: str) -> None:
    wanted = EVERYTHING["controller"]["extraContainers"]
    before, after = (
        one(helm.render({**EVERYTHING, component: given}), "Deployment", f"-{component}")["spec"]["template"]["spec"]
        for given in ({}, {"extraContainers": wanted})
    )

    assert after == {**before, "containers": before["containers"] + wanted}
    with pytest.raises(Refused, match=rf"{component}\.extraContainers: {component} is the chart's container"):
        helm.render({**EVERYTHING, component: {"extraContainers": [{**wanted[0], "name": component}]}})


def test_the_dns_policy_of_the_values_applies_on_the_host_network(helm: Helm) -> None:
    objects = helm.render({**DIRECT, "proxy": {"hostNetwork": True, "dnsPolicy": "Default"}})

    assert one(objects, "Deployment", "-proxy")["spec"]["template"]["spec"]["dnsPolicy"] == "Default"


def test_the_programs_get_the_settings_of_the_values(helm: Helm) -> None:
    logs = {"logLevel": "warning", "logFormat": "text"}
    given = {"controller": {**logs, "name": "example.com/edge"}, "proxy": {**logs, "workers": 3, "accessLog": "all"}}
    objects = helm.render({**DIRECT, **given})
    controller, proxy = controller_options(objects), proxy_options(objects)

    assert (controller.log_level, controller.log_format) == (proxy.log_level, proxy.log_format) == ("warning", "text")
    assert controller.controller_name == one(objects, "GatewayClass")["spec"]["controllerName"] == "example.com/edge"
    assert (proxy.workers, proxy.access_log) == (3, "all")


def test_extra_arguments_of_the_values_are_passed_to_the_programs(helm: Helm) -> None:
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


def test_files_named_by_the_proxys_variables_are_in_its_volumes(helm: Helm) -> None:
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


def test_the_tunnel_token_can_be_a_file_of_an_extra_volume(helm: Helm) -> None:
    """For example of Vault, or of a CSI driver."""
    mounted = {"name": "vault", "mountPath": "/vault", "readOnly": True}
    volume = {"name": "vault", "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}
    told = {"name": "TUNNEL_TOKEN_FILE", "value": "/vault/token"}
    proxy = {"extraEnv": [told], "extraVolumes": [volume], "extraVolumeMounts": [mounted]}
    objects = helm.render({"image": IMAGE, "tunnel": {"id": TUNNEL}, "proxy": proxy})
    run = program(objects, "proxy")

    assert [each for each in run["env"] if each["name"].startswith("TUNNEL_TOKEN")] == [told]
    assert mounted in run["volumeMounts"]
    assert one(objects, "GatewayClassConfig")["spec"]["tunnelID"] == TUNNEL


def test_a_proxy_without_a_tunnel_has_no_tunnel_files(helm: Helm) -> None:
    objects = helm.render(DIRECT)
    run = program(objects, "proxy")
    spec = one(objects, "Deployment", "-proxy")["spec"]["template"]["spec"]

    assert {each["name"] for each in run["env"]} & {"TUNNEL_TOKEN_FILE", "PROXY_EDGE_CA_FILE"} == set()
    assert {each["name"] for each in spec["volumes"]} == {each["name"] for each in run["volumeMounts"]}
    assert {each["name"] for each in spec["volumes"]} == {"state", "tmp"}


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_pods_have_the_security_contexts_and_resources_of_the_values(helm: Helm, component: str) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())[component]
    given: dict[str, dict[str, Any]] = {
        "podSecurityContext": {"fsGroup": 7},
        "securityContext": {"runAsUser": 7},
        "resources": {"claims": []},
    }
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
def test_pods_are_spread_over_nodes_if_possible(helm: Helm, component: str) -> None:
    template = one(helm.render(DIRECT), "Deployment", f"-{component}")["spec"]["template"]
    (spread,) = template["spec"]["topologySpreadConstraints"]

    assert (spread["maxSkew"], spread["topologyKey"]) == (1, "kubernetes.io/hostname")
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_pods_are_spread_over_nodes_per_revision(helm: Helm, component: str) -> None:
    template = one(helm.render(DIRECT), "Deployment", f"-{component}")["spec"]["template"]

    assert ["pod-template-hash"] == template["spec"]["topologySpreadConstraints"][0]["matchLabelKeys"]


@pytest.mark.parametrize("component", ["controller", "proxy"])
def test_topology_spread_constraints_without_a_selector_select_the_components_pods(helm: Helm, component: str) -> None:
    """One without a selector matches no Pods, and has no effect."""
    plain = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    others = {**plain, "labelSelector": {"matchLabels": {"app": "other"}}}
    values = {**DIRECT, component: {"topologySpreadConstraints": [plain, others]}}
    template = one(helm.render(values), "Deployment", f"-{component}")["spec"]["template"]
    first, second = template["spec"]["topologySpreadConstraints"]

    assert first["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert first["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
    assert {name: first[name] for name in plain} == plain
    assert second == others


def test_the_termination_grace_period_covers_a_controllers_shutdown(helm: Helm) -> None:
    objects = helm.render(DIRECT)
    spec = one(objects, "Deployment", "-controller")["spec"]["template"]["spec"]

    assert spec["terminationGracePeriodSeconds"] > controller_options(objects).grace_period_s
