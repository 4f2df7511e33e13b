"""What people do: the examples applied with kubectl, requests through the tunnel and to a direct listener.

Only this test has the default controllerName, and the names of the examples.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import requests

from tests.e2e.controller.arena import until_serves
from tests.e2e.controller.site import DEADLINE_S, Controller
from tests.kube.kubeenv import find_program
from tests.proxy.site import Backend, Proxy, eventually, reserved_port
from tests.support.edge.edge import Edge
from tests.support.kube_fixtures import require
from tests.support.provider import Provider
from tests.tunnelgw.sources.cluster import Cluster

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "manifests"
MORE = """\
apiVersion: v1
kind: Namespace
metadata: {name: depot}
---
apiVersion: tunnelgw.dev/v1alpha1
kind: Backend
metadata: {name: stock, namespace: depot}
spec: {host: 127.0.0.1, port: 3000}
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: shop, namespace: depot}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]
  to: [{group: tunnelgw.dev, kind: Backend}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: stock, namespace: shop}
spec:
  parentRefs: [{name: lan, namespace: infra}]
  hostnames: [stock.example]
  rules: [{backendRefs: [{group: tunnelgw.dev, kind: Backend, name: stock, namespace: depot}]}]
"""


class Person:
    """Has kubectl, a browser, and the administrator's kubeconfig."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubectl = [str(require(lambda: find_program("kubectl"))), "--kubeconfig", str(kubeconfig)]
        self._env = {"HOME": str(folder)}

    def kubectl(self, *arguments: str, given: str = "") -> str:
        command = [*self._kubectl, *arguments]
        done = subprocess.run(
            command, input=given, env=self._env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def condition(self, kind: str, namespace: str, name: str, type_: str) -> str:
        where = ".status.conditions" if kind == "gateway" else ".status.parents[0].conditions"
        path = f'{{{where}[?(@.type=="{type_}")].status}}'
        return self.kubectl("get", kind, "-n", namespace, name, "-o", f"jsonpath={path}")

    def wait_for_condition(self, route: str, type_: str, status: str) -> None:
        is_so = partial(self.condition, "httproute", "shop", route, type_)
        eventually(lambda: is_so() == status, f"{type_}={status} on {route}", DEADLINE_S)


@pytest.fixture
def edge() -> Iterator[Edge]:
    with Edge() as edge:
        yield edge


@pytest.fixture
def connector(edge: Edge) -> Iterator[Proxy]:
    given = ["--edge", ",".join(edge.addresses), "--edge-ca-file", str(edge.ca_file), "--ha-connections", "1"]
    with Proxy(*given, env={"TUNNEL_TOKEN": edge.tunnel.token}) as proxy:
        yield proxy


def answer(address: str, host: str, path: str = "/") -> tuple[int, str]:
    """Status code and body, as curl would print them."""
    response = requests.get(
        f"http://{address}{path}", headers={"Host": host, "Connection": "close"}, timeout=DEADLINE_S
    )
    return response.status_code, response.text


@pytest.mark.timeout(300)
def test_applied_examples_serve_through_the_tunnel_and_directly(
    cluster: Cluster, provider: Provider, edge: Edge, connector: Proxy, tmp_path: Path
) -> None:
    person = Person(cluster.environment.kubeconfig, tmp_path)
    with Backend("blue") as blue, Backend("green") as green, reserved_port() as port:
        ports = {"3000": blue.address.rpartition(":")[2], "3001": green.address.rpartition(":")[2], "8000": str(port)}
        for namespace in ("infra", "shop"):
            person.kubectl("create", "namespace", namespace)
        for text in (*(path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))), MORE):
            given = re.sub(r"\bport: (\d+)", lambda found: f"port: {ports.get(found[1], found[1])}", text)
            person.kubectl("apply", "-f", "-", given=given)

        arguments = ("--proxy-endpoints", connector.api, "--provider-api-url", provider.url)
        with Controller(cluster.kubeconfig, *arguments):
            until_serves(connector, "demo.example", "mistake.example", "stock.example")
            edge.wait_for_registered(1)
            provider.wait_for_hostnames({"demo.example"})
            direct = f"127.0.0.1:{port}"
            eventually(lambda: _programmed(person), "both Gateways are programmed", DEADLINE_S)

            for door in (direct, edge.front):
                assert answer(door, "demo.example")[1] in ("blue", "green")
                assert answer(door, "demo.example", "/api/x") == (200, "green")
            assert answer(direct, "elsewhere.example")[0] == 404

            shown = person.kubectl("get", "gateway", "-n", "infra", "-o", "wide")
            (lan,) = [line.split() for line in shown.splitlines() if line.startswith("lan ")]
            (internet,) = [line.split() for line in shown.splitlines() if line.startswith("internet ")]
            assert lan[1:4] == ["direct", "127.0.0.1", "True"]
            assert internet[1:4] == ["tunnel", "6f1c0a52-3f1e-4a0b-9a53-0d6c5f0e7b11.cfargotunnel.com", "True"]
            assert "demo.example" in person.kubectl("get", "httproute", "-n", "shop", "-o", "wide")

            # Only the broken route's own condition is False. Which status is written first is chance.
            person.wait_for_condition("mistake", "ResolvedRefs", "False")
            assert person.condition("httproute", "shop", "mistake", "Accepted") == "True"
            person.wait_for_condition("shop", "ResolvedRefs", "True")
            assert answer(direct, "mistake.example")[0] == 500

            assert answer(direct, "stock.example") == (200, "blue")
            person.kubectl("delete", "referencegrant", "-n", "depot", "shop")
            eventually(lambda: answer(direct, "stock.example")[0] == 500, "the grant is gone", DEADLINE_S)
            person.wait_for_condition("stock", "ResolvedRefs", "False")
            assert answer(direct, "demo.example")[0] == 200


def _programmed(person: Person) -> bool:
    return all(person.condition("gateway", "infra", name, "Programmed") == "True" for name in ("lan", "internet"))
