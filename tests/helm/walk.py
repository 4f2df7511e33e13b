"""The chart, installed by the real helm into a real API server, with its Pods' programs running: to be run inside a
network namespace, by test_installed.py, in the order of this file."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.conformance.namespace import POD_NET, set_up
from tests.helm.chart import NAMESPACE, Helm, Object, Refused, one
from tests.helm.pods import Containers, fetch
from tests.kube.kubeenv import find_program, find_programs, running
from tests.kube.processes import spawn, stop, wait_ready, wait_until
from tests.support.certificates import Authority
from tests.support.dns_endpoints import KubeApi
from tests.support.edge.edge import Edge
from tests.support.edge.tunnels import new_tunnel
from tests.support.provider.provider import TOKEN, Provider
from tests.support.recordingbackend import RecordingBackend
from tests.support.tied import tied

RELEASE = "tunnelgw"
READY_S = 60.0
STOP_S = 30.0
ADDRESS = "10.100.0.5"
"""The Service's external address; in this network namespace it reaches whoever binds the port."""
PORT = 10080
HOST = "app.example.com"
OWN_HOST = "own.example.com"
SERVER_NAME = f"proxy.{NAMESPACE}.svc"
GATEWAY_API = "/apis/gateway.networking.k8s.io/v1"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
IN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"
SHOP = "shop"
"""Another namespace, with a certificate."""


def own_address(**ports: int) -> list[Object]:
    """All Pods share one network namespace here, so each has to bind its own address."""
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return [address, *({"name": name, "value": f"$(POD_IP):{port}"} for name, port in ports.items())]


class Stage:
    """Everything around the chart."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        environment = stack.enter_context(running(folder / "kube", find_programs()))
        self.api = stack.enter_context(KubeApi(environment))
        self.provider_edge = stack.enter_context(Edge())
        tunnel = self.provider_edge.tunnel
        self.provider = stack.enter_context(Provider(account_id=tunnel.account_tag, tunnel_id=str(tunnel.tunnel_id)))
        self.backend = stack.enter_context(RecordingBackend())
        self.helm = Helm(find_program("helm"), folder, environment.kubeconfig)
        self._run_node(folder, environment.kubeconfig)
        pods = folder / "pods"
        pods.mkdir()
        self.containers = Containers(self.api, environment.server, environment.pki.authority, pods)
        stack.callback(self.containers.close)

    def _run_node(self, folder: Path, kubeconfig: Path) -> None:
        """Pods for Deployments, with addresses, and EndpointSlices for Services."""
        ready = folder / "node.ready"
        node = find_program("conformance") / "node"
        command = [str(node), "--kubeconfig", str(kubeconfig), "--pod-cidr", POD_NET, "--ready-file", str(ready)]
        process = spawn("node", tied(command), folder / "node.log")
        self._stack.callback(stop, process, STOP_S)
        wait_ready(process, ready.exists, READY_S)

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Meanwhile the containers are kept running."""

        def tended() -> bool:
            self.containers.tend(NAMESPACE)
            return is_so()

        assert wait_until(tended, READY_S), f"not within {READY_S:g} s: {what}\n{self.logs()}"

    def logs(self) -> str:
        return "\n".join(self.containers.log_of(pod)[-3000:] for pod in self.pods())

    def pods(self, component: str = "", release: str = RELEASE) -> list[Object]:
        wanted = {"app.kubernetes.io/instance": release}
        if component:
            wanted["app.kubernetes.io/component"] = component
        running = self.containers.tend(NAMESPACE)
        return [pod for pod in running if wanted.items() <= pod["metadata"]["labels"].items()]

    def are_ready(self, component: str, count: int, release: str = RELEASE) -> bool:
        pods = self.pods(component, release)
        return len(pods) == count and all(map(self.containers.is_ready, pods)) and all(map(self.has_its_edge, pods))

    def has_its_edge(self, pod: Object) -> bool:
        """A proxy with direct clients is ready before it is connected to the edge."""
        probe = pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]
        if probe["path"] != "/readyz/direct":
            return True
        return fetch(probe["scheme"], pod["status"]["podIP"], 8082, "/readyz")[0] == 200

    def token(self) -> str:
        """The token of the config API."""
        secret = self.api.call("GET", f"{IN_NAMESPACE}/secrets/{RELEASE}-proxy-auth-token")
        return base64.b64decode(secret["data"]["auth-token"]).decode()

    def knows_route(self, pod: Object) -> bool:
        """With its backend, whose kind may not be served in the first second after its CRD was created."""
        authorization = {"Authorization": f"Bearer {self.token()}"}
        status_code, document = fetch("HTTPS", pod["status"]["podIP"], 8082, "/config", **authorization)
        return status_code == 200 and all(part.encode() in document for part in (HOST, self.backend.address))

    def secret(self, name: str, **data: str) -> None:
        self.api.call("POST", f"{IN_NAMESPACE}/secrets", {"metadata": {"name": name}, "stringData": data})

    def create(self, objects: Iterable[Object]) -> None:
        for each in objects:
            plural = each["kind"].lower() + "s"
            self.api.call("POST", f"/apis/{each['apiVersion']}/namespaces/{NAMESPACE}/{plural}", each)

    def values(self, **changes: Any) -> dict[str, Any]:
        edge = self.provider_edge
        edge_address = {"name": "PROXY_EDGE", "value": ",".join(edge.addresses)}
        return {
            "image": {"repository": "registry.example.com/tunnelgw"},
            "tunnel": {
                "id": str(edge.tunnel.tunnel_id),
                "tokenSecret": {"name": "connector"},
                "credentialsSecret": {"name": "provider"},
                "edgeCAConfigMap": {"name": "edge"},
            },
            "direct": {"enabled": True, "ports": [{"name": "http", "port": 80, "targetPort": PORT}]},
            "controller": {
                "extraEnv": own_address(TUNNELGW_HEALTH_ADDR=8081, TUNNELGW_METRICS_ADDR=8080),
                "extraArgs": [f"--provider-api-url={self.provider.url}"],
                **changes.get("controller", {}),
            },
            "proxy": {
                "workers": 1,
                "shutdownDelaySeconds": 0,
                "configTLS": {"secretName": "config-tls", "serverName": SERVER_NAME},
                "extraEnv": [*own_address(PROXY_CONFIG_ADDR=8082), edge_address],
                "extraArgs": ["--ha-connections=1"],
                **changes.get("proxy", {}),
            },
        }

    def ask(self, server: str, host: str = HOST) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.get(f"http://{server}/", headers={"Host": host}, timeout=READY_S)

    def asked(self) -> tuple[int, int]:
        """Status codes of a direct request and one through the tunnel."""
        return self.ask(f"{ADDRESS}:{PORT}").status_code, self.ask(self.provider_edge.front).status_code

    def conditions(self, path: str) -> Mapping[str, str]:
        found = self.api.call("GET", path).get("status", {}).get("conditions", ())
        return {each["type"]: each["status"] for each in found}

    def release(self) -> set[str]:
        """Kinds and names of the release's objects in the API server."""
        selector = f"labelSelector=app.kubernetes.io/instance%3D{RELEASE}"
        places = [f"{IN_NAMESPACE}/{plural}" for plural in ("services", "serviceaccounts", "secrets", "configmaps")] + [
            f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
            f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
            *(
                f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}"
                for namespace in (NAMESPACE, SHOP)
                for plural in ("roles", "rolebindings")
            ),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            f"{GATEWAY_API}/gatewayclasses",
            "/apis/tunnelgw.dev/v1alpha1/gatewayclassconfigs",
        ]
        return {
            f"{place.rpartition('/')[2]}/{each['metadata']['name']}"
            for place in places
            for each in self.api.call("GET", f"{place}?{selector}")["items"]
        }


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    set_up()
    with ExitStack() as stack:
        stage = Stage(stack, tmp_path_factory.mktemp("stage"))
        for manifest in (find_program("gateway-api-crds") / "standard").glob("gateway.networking.k8s.io_*.yaml"):
            if "_vap_" not in manifest.name:
                stage.api.install_crd(manifest)
        # The namespace of a careful operator.
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        stage.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        edge = {"ca.pem": stage.provider_edge.ca_file.read_text()}
        stage.api.call("POST", f"{IN_NAMESPACE}/configmaps", {"metadata": {"name": "edge"}, "data": edge})
        stage.secret("provider", **{"api-token": TOKEN})
        stage.secret("connector", **{"tunnel-token": stage.provider_edge.tunnel.token})
        authority = stack.enter_context(closing(Authority()))
        issued = authority.issue(SERVER_NAME)
        files = {"tls.crt": issued.chain_pem, "tls.key": issued.key_pem, "ca.crt": authority.pem}
        stage.secret("config-tls", **files)
        yield stage


def test_an_install_brings_up_controller_and_proxies(stage: Stage) -> None:
    notes = stage.helm.install(stage.values(), RELEASE)

    assert "gatewayClassName: tunnelgw" in notes
    stage.until(lambda: stage.are_ready("controller", 1), "the controller is ready")
    path = f"{GATEWAY_API}/gatewayclasses/tunnelgw"
    stage.until(lambda: stage.conditions(path).get("Accepted") == "True", "the class is accepted")
    stage.until(lambda: stage.are_ready("proxy", 2), "both proxies are ready")


def test_a_route_is_served_directly_and_through_the_tunnel(stage: Stage) -> None:
    balanced = {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}}
    service = f"{IN_NAMESPACE}/services/{RELEASE}-direct/status"
    stage.api.call("PATCH", service, balanced, "application/merge-patch+json")
    objects = yaml.safe_load_all(f"""
apiVersion: tunnelgw.dev/v1alpha1
kind: Backend
metadata: {{name: app}}
spec: {{host: 127.0.0.1, port: {stage.backend.address.rpartition(":")[2]}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: tunnelgw
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: app}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{HOST}]
  rules: [{{backendRefs: [{{group: tunnelgw.dev, kind: Backend, name: app}}]}}]
""")
    stage.create(objects)

    stage.until(lambda: all(map(stage.knows_route, stage.pods("proxy"))), "both proxies have the route")
    stage.until(lambda: stage.provider.hostnames == [HOST, "*"], "the provider has the hostname")
    gateway = f"{GATEWAY_API}/namespaces/{NAMESPACE}/gateways/web"
    wanted = {"Accepted": "True", "Programmed": "True", "tunnelgw.dev/Delivered": "True"}
    stage.until(lambda: wanted.items() <= stage.conditions(gateway).items(), "the Gateway is delivered")
    assert stage.asked() == (200, 200)


def test_direct_clients_are_served_while_the_edge_is_unreachable(stage: Stage) -> None:
    """A Service has only the addresses of ready Pods."""
    stage.provider_edge.stop()
    stage.until(lambda: not any(map(stage.has_its_edge, stage.pods("proxy"))), "both proxies have lost the edge")

    assert all(map(stage.containers.is_ready, stage.pods("proxy")))
    assert stage.ask(f"{ADDRESS}:{PORT}").status_code == 200
    stage.provider_edge.start()
    stage.until(lambda: stage.are_ready("proxy", 2), "both proxies have the edge again")
    assert stage.asked() == (200, 200)


@pytest.mark.parametrize(
    ("component", "words", "said"),
    [
        ("controller", ("tunnelgw", "status"), "HTTPRoute gateways/app"),
        ("proxy", ("tunnelgw-proxy", "tunnel-check"), "ok    TCP and TLS"),
    ],
)
def test_commands_in_a_container_use_the_settings_of_its_program(
    stage: Stage, component: str, words: tuple[str, ...], said: str
) -> None:
    done = stage.containers.run(stage.pods(component)[0], *words)

    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout


def test_the_proxies_token_is_created_by_the_controller_and_not_part_of_the_release(stage: Stage) -> None:
    assert len(stage.token()) >= 32
    assert not [name for name in stage.release() if name.startswith("secrets/")]


def test_a_restarted_container_serves_its_document_without_the_controller(stage: Stage) -> None:
    """Its document is in a volume of the Pod."""
    stage.helm.upgrade(stage.values(controller={"replicas": 0}), RELEASE)
    stage.until(lambda: not stage.pods("controller"), "the controller has gone")

    for pod in stage.pods("proxy"):
        stage.containers.restart(pod)
    stage.until(lambda: stage.are_ready("proxy", 2), "both proxies are ready again")

    assert stage.asked() == (200, 200)


def test_an_upgrade_replaces_pods_and_keeps_serving(stage: Stage) -> None:
    before = {pod["metadata"]["name"] for pod in stage.pods()}
    # One of two controllers leads.
    of_controller, of_proxy = {"replicas": 2, "logLevel": "debug"}, {"replicas": 1, "accessLog": "all"}
    stage.helm.upgrade(stage.values(controller=of_controller, proxy=of_proxy), RELEASE)

    stage.until(lambda: before.isdisjoint(pod["metadata"]["name"] for pod in stage.pods()), "no old Pod is left")
    stage.until(lambda: stage.are_ready("controller", 2), "both controllers are ready")
    stage.until(lambda: stage.are_ready("proxy", 1), "the proxy is ready")
    assert stage.asked() == (200, 200)
    assert before <= stage.containers.ended


def test_a_rollback_restores_the_previous_replicas(stage: Stage) -> None:
    stage.helm.run("rollback", RELEASE, "1", "--namespace", NAMESPACE)

    stage.until(lambda: stage.are_ready("controller", 1), "one controller is ready")
    stage.until(lambda: stage.are_ready("proxy", 2), "both proxies are ready")
    assert stage.asked() == (200, 200)


def test_a_controller_limited_to_secrets_of_named_namespaces_reads_only_their_certificates(
    stage: Stage,
) -> None:
    with closing(Authority()) as authority:
        issued = authority.issue("shop.example.com")
    certificate = {"tls.crt": issued.chain_pem, "tls.key": issued.key_pem}
    for namespace in (SHOP, "elsewhere"):
        stage.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        secret = {"metadata": {"name": "cert"}, "type": "kubernetes.io/tls", "stringData": certificate}
        stage.api.call("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
        (gateway,) = yaml.safe_load_all("""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: secured}
spec:
  gatewayClassName: tunnelgw
  listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]
""")
        stage.api.call("POST", f"{GATEWAY_API}/namespaces/{namespace}/gateways", gateway)

    def resolves(namespace: str) -> str:
        gateway = stage.api.call("GET", f"{GATEWAY_API}/namespaces/{namespace}/gateways/secured")
        conditions = [each for listener in gateway["status"].get("listeners", ()) for each in listener["conditions"]]
        return "".join(each["status"] for each in conditions if each["type"] == "ResolvedRefs")

    stage.until(lambda: (resolves(SHOP), resolves("elsewhere")) == ("True", "True"), "both certificates are read")
    before = {pod["metadata"]["name"] for pod in stage.pods("controller")}

    stage.helm.upgrade(stage.values(controller={"secretNamespaces": [SHOP]}), RELEASE)

    stage.until(lambda: before <= stage.containers.ended, "the old controller has gone")
    stage.until(lambda: stage.are_ready("controller", 1), "the controller is ready")
    stage.until(lambda: (resolves(SHOP), resolves("elsewhere")) == ("True", "False"), "one certificate is read")
    done = stage.containers.run(stage.pods("controller")[0], "tunnelgw", "status")
    assert "Secret elsewhere/cert is in a namespace whose Secrets" in done.stdout + done.stderr
    assert stage.asked() == (200, 200)


def test_a_changed_controller_name_is_refused_before_anything_is_changed(
    stage: Stage,
) -> None:
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-controller"
    before = stage.api.call("GET", deployment)

    with pytest.raises(Refused, match="GatewayClass tunnelgw exists with controllerName"):
        stage.helm.upgrade(stage.values(controller={"name": "example.com/other"}), RELEASE)

    assert stage.api.call("GET", deployment)["spec"] == before["spec"]


def test_the_api_server_accepts_the_daemonset(stage: Stage) -> None:
    values = stage.values(proxy={"kind": "DaemonSet", "minReadySeconds": 1, "hostAliases": [{"ip": "192.0.2.1"}]})
    daemonset = one(stage.helm.render(values, RELEASE), "DaemonSet")

    kept = stage.api.call("POST", f"{DAEMONSETS}?dryRun=All&fieldValidation=Strict", daemonset)

    assert kept["spec"]["updateStrategy"] == daemonset["spec"]["updateStrategy"]


def test_a_release_without_a_controller_is_a_dedicated_proxy_of_one_gateway(stage: Stage) -> None:
    edge, tunnel, release = stage.provider_edge, new_tunnel(), "own"
    edge.tunnels.add(tunnel, OWN_HOST)
    stage.secret("own-connector", **{"tunnel-token": tunnel.token})
    stage.secret("own-proxy", **{"auth-token": "of-this-proxy-alone"})
    values = stage.values(proxy={"authSecret": {"name": "own-proxy"}, "replicas": 1, "configTLS": {}})
    doors = {"direct": {"enabled": False}, "controller": {"enabled": False}}
    own_tunnel = {"id": str(tunnel.tunnel_id), "tokenSecret": {"name": "own-connector"}}
    stage.helm.install(
        {**values, **doors, "tunnel": {**values["tunnel"], **own_tunnel, "credentialsSecret": {}}}, release
    )
    stage.until(lambda: bool(stage.pods("proxy", release)), "the proxy runs")
    (pod,) = stage.pods("proxy", release)

    # There is no DNS for Services here.
    stage.create(
        yaml.safe_load_all(f"""
apiVersion: tunnelgw.dev/v1alpha1
kind: GatewayConfig
metadata: {{name: own}}
spec:
  tunnelID: {tunnel.tunnel_id}
  proxyEndpoints: ["http://{pod["status"]["podIP"]}:8082"]
  authSecretRef: {{name: own-proxy}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: own}}
spec:
  parentRefs: [{{name: own}}]
  hostnames: [{OWN_HOST}]
  rules: [{{backendRefs: [{{group: tunnelgw.dev, kind: Backend, name: app}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: own}}
spec:
  gatewayClassName: tunnelgw
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
  infrastructure: {{parametersRef: {{group: tunnelgw.dev, kind: GatewayConfig, name: own}}}}
""")
    )

    stage.until(lambda: stage.are_ready("proxy", 1, release), "the proxy is ready")
    stage.until(lambda: stage.ask(edge.front, OWN_HOST).status_code == 200, "its route is served")
    assert stage.asked() == (200, 200)
    stage.helm.run("uninstall", release, "--namespace", NAMESPACE)
    stage.until(lambda: not stage.pods(release=release), "the proxy has gone")


def test_an_uninstall_keeps_the_token_and_the_crds(stage: Stage) -> None:
    assert len(stage.release()) > 10

    stage.helm.run("uninstall", RELEASE, "--namespace", NAMESPACE)

    stage.until(lambda: not stage.pods(), "no Pod is left")
    assert stage.release() == set()
    assert stage.token()
    stage.api.call("GET", "/apis/tunnelgw.dev/v1alpha1/gatewayclassconfigs")
