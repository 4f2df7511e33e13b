"""DNSEndpoint objects in a real API server: the desired records for external-dns's `crd` source.

`KubeApi` is an administrator's plain REST access to a `tests.kube` environment; `DnsEndpoints` manages the objects of
one namespace.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
import yaml

from dnswebhook.model import Endpoint
from tests.kube.kubeenv import Environment
from tests.kube.processes import wait_until

GROUP_VERSION = "externaldns.k8s.io/v1alpha1"
REQUEST_TIMEOUT_S = 10.0
ESTABLISHED_S = 20.0


class KubeApi:
    """JSON in, JSON out, paths below the server's root; raises requests.HTTPError with the server's reason."""

    def __init__(self, environment: Environment) -> None:
        self._server = environment.server
        self._session = requests.Session()
        self._session.trust_env = False
        admin = environment.pki.pair("admin")
        self._session.cert = (str(admin.certificate), str(admin.key))
        self._session.verify = str(environment.pki.authority)

    def call(self, method: str, path: str, document: object = None, content_type: str = "application/json") -> Any:
        """Sends `document` as JSON, or verbatim if it is bytes."""
        response = self._session.request(
            method,
            self._server + path,
            data=document if isinstance(document, bytes) else None,
            json=None if isinstance(document, bytes) else document,
            headers={"Content-Type": content_type},
            timeout=REQUEST_TIMEOUT_S,
        )
        if not response.ok:
            raise requests.HTTPError(f"{method} {path}: {response.status_code} {response.text[:500]}")
        return response.json()

    def metrics(self) -> str:
        """The server's metrics page."""
        response = self._session.get(f"{self._server}/metrics", timeout=REQUEST_TIMEOUT_S)
        response.raise_for_status()
        return response.text

    def install_crd(self, manifest: Path) -> None:
        """Apply a CustomResourceDefinition and return once the server serves it."""
        self.define(yaml.safe_load(manifest.read_text()))

    def define(self, definition: Any) -> None:
        """As `install_crd`, for a definition that is not in a file."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self.call("POST", path, definition)
        path = f"{path}/{definition['metadata']['name']}"

        def is_established() -> bool:
            conditions = self.call("GET", path).get("status", {}).get("conditions") or ()
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        assert wait_until(is_established, ESTABLISHED_S), f"{path} is not established after {ESTABLISHED_S:g} s"

    def create_namespace(self, prefix: str) -> str:
        """A new namespace for one test; it is not deleted, since the whole server is discarded."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()


class DnsEndpoints:
    """The desired records of one namespace, with one object per record set."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self.namespace = namespace
        self._api = api
        self._path = f"/apis/{GROUP_VERSION}/namespaces/{namespace}/dnsendpoints"

    def create_all(self, desired: Mapping[str, Endpoint]) -> None:
        for name, endpoint in desired.items():
            self.create(name, [endpoint])

    def create(self, name: str, endpoints: Iterable[Endpoint]) -> None:
        document = {
            "apiVersion": GROUP_VERSION,
            "kind": "DNSEndpoint",
            "metadata": {"name": name},
            "spec": {"endpoints": [_to_document(endpoint) for endpoint in endpoints]},
        }
        self._api.call("POST", self._path, document)

    def replace(self, name: str, endpoint: Endpoint) -> None:
        self._api.call(
            "PATCH",
            f"{self._path}/{name}",
            {"spec": {"endpoints": [_to_document(endpoint)]}},
            "application/merge-patch+json",
        )

    def delete(self, name: str) -> None:
        self._api.call("DELETE", f"{self._path}/{name}")


def _to_document(endpoint: Endpoint) -> dict[str, Any]:
    """The endpoint as a person would write it in a manifest: unset fields are absent."""
    document: dict[str, Any] = {
        "dnsName": endpoint.dns_name,
        "recordType": endpoint.record_type,
        "targets": list(endpoint.targets),
        "recordTTL": endpoint.ttl_s,
        "setIdentifier": endpoint.set_identifier,
        "labels": dict(endpoint.labels),
        "providerSpecific": [{"name": name, "value": value} for name, value in endpoint.provider_specific],
    }
    return {key: value for key, value in document.items() if value}
