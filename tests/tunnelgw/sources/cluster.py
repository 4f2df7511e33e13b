"""A real API server as an operator prepares it: Gateway API, our CRDs, and the controller's account with its roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.kube.kubeenv import Environment, find_program
from tests.kube.processes import wait_until
from tests.support.dns_endpoints import KubeApi
from tests.support.kube_fixtures import require
from tunnelgw.model.kinds import RESOURCES, Kind

HELM = Path(__file__).resolve().parents[3] / "helm" / "tunnelgw"
HOME = "tunnelgw-system"
ACCOUNT = "tunnelgw"
READY_S = 30.0
LATE = "backends.yaml"
"""Of our CRDs the one that is not installed from the start."""
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Cluster:
    def __init__(
        self,
        environment: Environment,
        admin: KubeApi,
        folder: Path,
        channel: str = "experimental",
        without: Kind | None = None,
        release: str = "gateway-api-crds",
    ) -> None:
        """`channel`: of Gateway API. `without`: a kind of it that this cluster has never had. `release`: as
        `tests/programs/install.py` calls it.
        """
        self.environment = environment
        self.admin = admin
        self.kubeconfig = folder / "kubeconfig"
        absent = {LATE, without and f"gateway.networking.k8s.io_{RESOURCES[without].plural}.yaml"}
        for manifest in (*gateway_api(release, channel), *(HELM / "crds").glob("*.yaml")):
            if manifest.name not in absent:
                admin.install_crd(manifest)
        self._make_account()

    def upgrade_gateway_api(self) -> None:
        """To the newest release, with its experimental channel."""
        there = {item["metadata"]["name"] for item in self.admin.call("GET", _CRDS)["items"]}
        for manifest in gateway_api("gateway-api-crds", "experimental"):
            definition = yaml.safe_load(manifest.read_text())
            name = definition["metadata"]["name"]
            if name in there:
                self.admin.call("PATCH", f"{_CRDS}/{name}", definition, "application/merge-patch+json")
            else:
                self.admin.define(definition)

    def create(self, kind: Kind, name: str, spec: Any = None, namespace: str = "", **fields: Any) -> Any:
        resource = RESOURCES[kind]
        document = {
            "apiVersion": f"{resource.group}/{resource.versions[0]}".lstrip("/"),
            "kind": str(kind),
            "metadata": {"name": name, **fields.pop("metadata", {})},
            **fields,
        }
        if spec is not None:
            document["spec"] = spec
        return self.admin.call("POST", self.path(kind, namespace), document)

    def patch(self, kind: Kind, name: str, namespace: str, document: Any) -> Any:
        path = f"{self.path(kind, namespace)}/{name}"
        return self.admin.call("PATCH", path, document, "application/merge-patch+json")

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        self.admin.call("DELETE", f"{self.path(kind, namespace)}/{name}")

    def path(self, kind: Kind, namespace: str = "") -> str:
        resource = RESOURCES[kind]
        middle = f"/namespaces/{namespace}" if resource.is_namespaced else ""
        return f"{resource.path}{middle}/{resource.plural}"

    @contextmanager
    def late_crd(self, definition: Any = None) -> Iterator[None]:
        """Our kind Backend, installed for the length of the block. `definition`: another than that of the chart."""
        self.admin.define(definition or yaml.safe_load((HELM / "crds" / LATE).read_text()))
        try:
            yield
        finally:
            self.remove_late_crd()

    def replace_late_crd(self) -> None:
        """By that of the chart, as an upgrade does it."""
        path = f"{_CRDS}/backends.tunnelgw.dev"
        definition = yaml.safe_load((HELM / "crds" / LATE).read_text())
        self.admin.call("PATCH", path, {"spec": definition["spec"]}, "application/merge-patch+json")

    def remove_late_crd(self) -> None:
        path = f"{_CRDS}/backends.tunnelgw.dev"

        def is_refused(method: str, path: str) -> bool:
            try:
                self.admin.call(method, path)
            except requests.HTTPError:
                return True
            return False

        # A kind can be listed for a moment after its definition has gone.
        for method, gone in (("DELETE", path), ("GET", self.path(Kind.BACKEND))):
            is_gone = partial(is_refused, method, gone)
            assert wait_until(is_gone, READY_S), f"{gone} is still there after {READY_S:g} s"

    def through(self, server: str, folder: Path) -> Path:
        """A kubeconfig of our account that leads to another address."""
        document = json.loads(self.kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = server
        path = folder / "kubeconfig-through"
        path.write_text(json.dumps(document))
        return path

    def write_kubeconfig(self, path: Path, namespace: str, account: str) -> None:
        """Of a service account, with a token that is good for longer than tests take."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        answer = self.admin.call("POST", f"{accounts}/{account}/token", {"spec": {"expirationSeconds": 3600}})
        document = json.loads(self.environment.kubeconfig.read_text())
        document["users"] = [{"name": "admin", "user": {"token": answer["status"]["token"]}}]
        path.write_text(json.dumps(document))

    def _make_account(self) -> None:
        """Exactly the roles that the chart ships, bound to a service account, whose token we use."""
        self.admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
        self.admin.call("POST", f"/api/v1/namespaces/{HOME}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOME}]
        for file, place, kind in (
            ("clusterrole.yaml", rbac, "ClusterRole"),
            ("role.yaml", f"{rbac}/namespaces/{HOME}", "Role"),
        ):
            role = yaml.safe_load((HELM / "files" / file).read_text())
            self.admin.call("POST", f"{place}/{kind.lower()}s", role)
            name = role["metadata"]["name"]
            ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
            binding = {"metadata": {"name": name}, "roleRef": ref, "subjects": subjects}
            self.admin.call("POST", f"{place}/{kind.lower()}bindings", binding)
            assert wait_until(partial(self._may, role["rules"][0]), READY_S), f"no right by {file} after {READY_S:g} s"
        self.write_kubeconfig(self.kubeconfig, HOME, ACCOUNT)

    def _may(self, rule: Any) -> bool:
        """Whether our account has a right: roles count a moment after they were made."""
        wanted = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": rule["resources"][0]}
        spec = {
            "user": f"system:serviceaccount:{HOME}:{ACCOUNT}",
            "resourceAttributes": {**wanted, "namespace": HOME},
        }
        answer = self.admin.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        return bool(answer["status"]["allowed"])


def gateway_api(release: str = "gateway-api-crds", channel: str = "experimental") -> list[Path]:
    """The manifests of its kinds, in the order in which kubectl applies them."""
    folder = require(lambda: find_program(release)) / channel
    manifests = folder.glob("gateway.networking.k8s.io_*.yaml")
    return sorted(manifest for manifest in manifests if "_vap_" not in manifest.name)
