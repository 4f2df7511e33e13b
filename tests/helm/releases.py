"""Values of the releases that the tests use, and the options that the programs read from one."""

from __future__ import annotations

from typing import Any, TypeVar

from daemonkit.options import parse
from daemonkit.optionspec import specs_of
from proxy.options import PREFIX as PROXY_PREFIX
from proxy.options import Options as ProxyOptions
from tests.helm.chart import Object, Values, container, one
from tunnelgw.options import PREFIX, Options

Read = TypeVar("Read")
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
ON_EACH_NODE: Values = {**DIRECT, "proxy": {"kind": "DaemonSet"}}
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
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/authorities", "readOnly": True}],
        "extraContainers": [{"name": "logs", "image": "registry.example.com/logs:1"}],
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["192.0.2.53"]},
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["api.example.com"]}],
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
        "prometheusRule": {"enabled": True, "labels": {"a": "b"}},
        "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "Gateways"}},
    },
    "proxy": {
        "authSecret": {"name": "proxy"},
        "configTLS": {"secretName": "config-tls", "serverName": "proxy.gateways.svc"},
        "extraArgs": ["--max-document=128MiB"],
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "grafanaDashboard": {"enabled": True, "labels": {"a": "b", "grafana_dashboard": "yes"}},
        "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    },
}


def changed(values: Values, path: str, value: Any) -> Values:
    """`values` with one of them set, by its dotted path."""
    first, _, rest = path.partition(".")
    return {**values, first: changed(values.get(first, {}), rest, value) if rest else value}


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
    """The options that the program reads from its variables, all of which must be known, and its flags."""
    # The file of the tunnel's token would be read.
    environ = {each["name"]: each.get("value", "x") for each in given["env"] if each["name"] != "TUNNEL_TOKEN_FILE"}
    known = {name for spec in specs_of(options, prefix) for name in (spec.env, spec.file_env)}
    assert environ.keys() - known <= {"HTTPS_PROXY"}
    return parse(options, prefix=prefix, argv=given.get("args", ()), environ=environ)[1]
