"""A corner of the cluster for one test or a few: a namespace, and a controllerName that nobody else has."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import requests

from tests.e2e.controller.site import DEADLINE_S, Controller
from tests.proxy.site import Proxy, eventually
from tests.support.provider import TOKEN as API_TOKEN
from tests.support.provider import TUNNEL_ID, Provider
from tests.tunnelgw.sources.cluster import HOME, Cluster
from tests.tunnelgw.translate.pki import secret_data
from tunnelgw.model.kinds import Kind

SLICE_ADDRESS = "192.0.2.7"
"""Stands for loopback, which EndpointSlices may not have."""

Object = dict[str, Any]


class Arena:
    def __init__(self, cluster: Cluster, provider: Provider) -> None:
        self.cluster = cluster
        self.provider = provider
        self.namespace = cluster.admin.create_namespace("arena")
        self.controller_name = f"tests.example/{self.namespace}"
        self.auth_secret = f"{self.namespace}-proxy-auth-token"
        """The controller's own default."""
        self.controllers: list[Controller] = []

    def controller(self, *arguments: str, proxies: Sequence[Proxy | str] = (), **more: Any) -> Controller:
        """Not started yet."""
        endpoints = [proxy if isinstance(proxy, str) else proxy.api for proxy in proxies]
        named = ["--proxy-endpoints", ",".join(endpoints)] if endpoints else []
        own = ["--controller-name", self.controller_name, "--provider-api-url", self.provider.url]
        kubeconfig = more.pop("kubeconfig", self.cluster.kubeconfig)
        self.controllers.append(Controller(kubeconfig, *own, *named, *arguments, **more))
        return self.controllers[-1]

    # -- objects -----------------------------------------------------------------------------------------------------

    def gateway_class(
        self,
        name: str = "",
        *,
        token: str | None = API_TOKEN,
        tunnel_id: str | None = TUNNEL_ID,
        direct: str | None = None,
        controller_name: str = "",
    ) -> str:
        """With its configuration; returns its name. `token` of the provider, in a Secret of the same name; None: none.

        `direct`: an address that the proxy binds.
        """
        name = f"{self.namespace}{name}"
        spec: Object = {}
        if tunnel_id is not None:
            spec["tunnelID"] = tunnel_id
            spec["providerCredentialsSecretRef"] = {"name": name, "namespace": self.namespace}
            if token is not None:
                self.secret(name, {"api-token": token})
        if direct is not None:
            spec["direct"] = {"addresses": [direct]}
        self.cluster.create(Kind.GATEWAY_CLASS_CONFIG, name, spec)
        parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": name}
        class_spec = {"controllerName": controller_name or self.controller_name, "parametersRef": parameters}
        self.cluster.create(Kind.GATEWAY_CLASS, name, class_spec)
        return name

    def gateway(self, gateway_class: str, name: str = "gw", *, port: int = 80) -> None:
        listeners = [{"name": "web", "port": port, "protocol": "HTTP"}]
        self.cluster.create(
            Kind.GATEWAY, name, {"gatewayClassName": gateway_class, "listeners": listeners}, self.namespace
        )

    def route(self, name: str, hostname: str, gateway: str = "gw", backend: str = "") -> None:
        """To `namespace/name` of a Backend, or one of this namespace; without one it redirects."""
        namespace, _, backend_name = backend.rpartition("/")
        ref = {"group": "tunnelgw.dev", "kind": "Backend", "name": backend_name}
        ref |= {"namespace": namespace} if namespace else {}
        redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "elsewhere.example"}}
        rule: Object = {"backendRefs": [ref]} if backend else {"filters": [redirect]}
        spec = {"parentRefs": [{"name": gateway}], "hostnames": [hostname], "rules": [rule]}
        self.cluster.create(Kind.HTTP_ROUTE, name, spec, self.namespace)

    def rename_route(self, name: str, hostname: str) -> None:
        self.cluster.patch(Kind.HTTP_ROUTE, name, self.namespace, {"spec": {"hostnames": [hostname]}})

    def delete(self, kind: Kind, name: str) -> None:
        self.cluster.delete(kind, name, self.namespace)

    def secret(self, name: str, data: dict[str, str], namespace: str = "") -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        self.cluster.create(Kind.SECRET, name, namespace=namespace or self.namespace, data=encoded)

    def certificate(self, name: str, hostname: str) -> None:
        """A Secret with a certificate of `pki`'s authority."""
        data = secret_data(hostname)
        self.cluster.create(Kind.SECRET, name, namespace=self.namespace, type="kubernetes.io/tls", data=data)

    def not_ready_endpoints(self, service: str, ports: Sequence[int]) -> None:
        """One EndpointSlice for each port `config` of a proxy on loopback; see `api_front`."""
        for port in ports:
            self.cluster.create(
                Kind.ENDPOINT_SLICE,
                f"{service}-{port}",
                namespace=self.namespace,
                metadata={"labels": {"kubernetes.io/service-name": service}},
                addressType="IPv4",
                endpoints=[{"addresses": [SLICE_ADDRESS], "conditions": {"ready": False, "serving": False}}],
                ports=[{"name": "config", "port": port, "protocol": "TCP"}],
            )

    def held_token(self) -> str | None:
        """What the auth Secret holds; None: there is none."""
        path = f"{self.cluster.path(Kind.SECRET, HOME)}/{self.auth_secret}"
        try:
            data = self.cluster.admin.call("GET", path)["data"]
        except requests.HTTPError:
            return None
        return base64.b64decode(data["auth-token"]).decode()

    # -- statuses ----------------------------------------------------------------------------------------------------

    def read(self, kind: Kind, name: str) -> Object:
        found: Object = self.cluster.admin.call("GET", f"{self.cluster.path(kind, self.namespace)}/{name}")
        return found

    def conditions(self, kind: Kind, name: str) -> dict[str, Object]:
        """By type; of a route, those of our entry for its first parent. Empty: we have written none."""
        status = self.read(kind, name).get("status", {})
        if kind in (Kind.HTTP_ROUTE, Kind.GRPC_ROUTE):
            ours = [each for each in status.get("parents", ()) if each["controllerName"] == self.controller_name]
            status = ours[0] if ours else {}
        return {each["type"]: each for each in status.get("conditions", ())}

    def until(
        self, kind: Kind, name: str, type_: str, status: str | None, is_so: Callable[[Object], bool] = lambda _: True
    ) -> Object:
        """The condition, once it is so; `status` None: once there is no such condition."""
        seen: list[dict[str, Object]] = []

        def is_there() -> bool:
            seen.append(self.conditions(kind, name))
            found = seen[-1].get(type_)
            return found is None if status is None else found is not None and found["status"] == status and is_so(found)

        try:
            eventually(is_there, f"{type_}={status} on {kind} {name}", DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {json.dumps(seen[-1], indent=1)}") from None
        return seen[-1].get(type_, {})

    def until_programmed(self, gateway: str = "gw") -> None:
        self.until(Kind.GATEWAY, gateway, "Programmed", "True")

    def until_accepted(self, route: str) -> None:
        self.until(Kind.HTTP_ROUTE, route, "Accepted", "True")

    def put_status(self, kind: Kind, name: str, status: Object | None) -> None:
        """As another client would; None removes it."""
        path = f"{self.cluster.path(kind, self.namespace)}/{name}/status"
        self.cluster.admin.call("PATCH", path, {"status": status}, "application/merge-patch+json")


def hostnames(proxy: Proxy) -> set[str]:
    """Of all routes that the proxy has."""
    response = proxy.get()
    routes = response.json().get("routes", ()) if response.status_code == 200 else ()
    return {hostname for route in routes for hostname in route.get("hostnames", ())}


def until_serves(proxy: Proxy, *wanted: str) -> None:
    """Exactly these hostnames."""
    eventually(lambda: hostnames(proxy) == set(wanted), f"{proxy.name} has routes for {wanted}", DEADLINE_S)
