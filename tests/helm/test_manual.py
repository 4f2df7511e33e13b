"""What docs/helm.md says about the chart is true."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, Helm, Object, one
from tests.support.process import REPOSITORY
from tunnelgw.sources.directory.reading import read_all

MANUAL = (REPOSITORY / "docs" / "helm.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", MANUAL, re.M | re.S)
VALUES = [yaml.safe_load(text) for text in BLOCKS if text.startswith("# values.yaml")]
OBJECTS = [text for text in BLOCKS if "tunnelgw.dev" in text]
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def test_the_manual_has_six_examples_of_values() -> None:
    assert len(VALUES) == 6


@pytest.mark.parametrize("values", VALUES)
def test_the_chart_accepts_all_values_of_the_manual(helm: Helm, values: Object) -> None:
    assert one(helm.render(values, "payments"), "Deployment", "-proxy")


def test_objects_of_the_manual_are_admitted() -> None:
    for text in OBJECTS:
        assert read_all([("manual.yaml", text.encode())]).problems == ()
    assert OBJECTS


def test_a_gatewayconfig_of_the_manual_names_the_config_service_of_its_release(helm: Helm) -> None:
    (config,) = [yaml.safe_load(text) for text in OBJECTS]
    (values,) = [each for each in VALUES if each.get("controller") == {"enabled": False}]
    service = one(helm.render(values, "payments"), "Service")

    (url,) = config["spec"]["proxyEndpoints"]
    name, namespace, *_ = re.split(r"[./:]+", url.removeprefix("http://"))
    assert (name, namespace) == (service["metadata"]["name"], config["metadata"]["namespace"])
    assert config["spec"]["authSecretRef"]["name"] == values["proxy"]["authSecret"]["name"]
    assert config["spec"]["tunnelID"] == values["tunnel"]["id"]
    assert config["spec"]["tunnelTokenSecretRef"]["name"] == values["tunnel"]["tokenSecret"]["name"]


def has(path: str) -> bool:
    found: Any = DEFAULTS
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
    return True


def test_values_that_the_manual_names_exist() -> None:
    prose = re.sub(r"^```.*?^```$", "", MANUAL, flags=re.M | re.S)
    named = set(re.findall(rf"`((?:{'|'.join(DEFAULTS)})\.[A-Za-z.]+)", prose))

    assert len(named) > 8
    assert [path for path in sorted(named) if not has(path)] == []


def test_error_messages_in_the_manual_are_those_of_the_chart() -> None:
    templates = "".join(
        path.read_text(encoding="utf-8")
        for path in (CHART / "templates").rglob("*")
        if path.suffix in (".tpl", ".yaml")
    )
    messages = {
        "image.repository is not set",
        "neither tunnel nor direct: ...",
        "its condition compares with no number",
        "the GatewayClass ... exists with controllerName ...",
        "namespace ... does not exist, so there can be no Role",
        "namespace ... is being deleted",
        "... exists and selects Pods by the name ...",
    }

    assert [each for each in messages if f"`{each}`" not in MANUAL] == []
    assert [part for each in messages for part in each.split("...") if part.strip() not in templates] == []


def test_object_names_in_commands_are_those_of_a_release_called_tunnelgw(helm: Helm) -> None:
    objects = helm.render(VALUES[0], "tunnelgw")
    deployments = {each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"}

    assert set(re.findall(r"deployment/([a-z-]+)", MANUAL)) == deployments
    (container,) = one(objects, "Deployment", "-controller")["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    secret, lease = env["TUNNELGW_PROXY_AUTH_SECRET"], env["TUNNELGW_CONTROLLER_NAME"].rpartition("/")[2]
    assert f"delete secret/{secret} lease/{lease}\n" in MANUAL


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_the_selector_that_orphans_pods_matches_the_proxies_only(helm: Helm, kind: str) -> None:
    ((kinds, selector),) = re.findall(r"delete (\S+) --cascade=orphan \\\n  --selector (\S+)$", MANUAL, re.M)
    wanted = dict(each.split("=") for each in selector.split(","))
    objects = helm.render({**VALUES[0], "proxy": {"kind": kind}}, "tunnelgw")
    workloads = [each for each in objects if "template" in each.get("spec", {})]

    (proxies,) = [each for each in workloads if wanted.items() <= each["metadata"]["labels"].items()]

    assert proxies["kind"] == kind
    # A ReplicaSet has the labels of its Pods.
    assert wanted.items() <= proxies["spec"]["template"]["metadata"]["labels"].items()
    assert kinds == "deployment,replicaset"
