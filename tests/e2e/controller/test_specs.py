"""What tools that compare objects with manifests see (Argo CD, Flux, `kubectl diff`)."""

from __future__ import annotations

from tests.e2e.controller.arena import Arena, Object
from tests.proxy.site import Proxy, reserved_port
from tunnelgw.model.kinds import Kind

ADDRESS = "127.0.0.2"
GATEWAY_API = "gateway.networking.k8s.io"


def test_objects_written_out_as_the_manual_says_stay_as_they_were_applied(arena: Arena, proxy: Proxy) -> None:
    """As docs/helm.md, "Argo CD, Flux and Kustomize", says."""
    arena.certificate("cert", "a.example.org")
    certificate = {"group": "", "kind": "Secret", "name": "cert"}
    listener = {
        "name": "https",
        "protocol": "HTTPS",
        "allowedRoutes": {"namespaces": {"from": "Same"}},
        "tls": {"mode": "Terminate", "certificateRefs": [certificate]},
    }
    parent = {"group": GATEWAY_API, "kind": "Gateway", "name": "gw"}
    backend = {"group": "tunnelgw.dev", "kind": "Backend", "name": "b", "weight": 1}
    header = {"type": "Exact", "name": "a", "value": "b"}
    redirect = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 302}}
    path = {"type": "PathPrefix", "value": "/"}
    method = {"type": "Exact", "service": "a.Service"}
    with reserved_port(ADDRESS) as port:
        gateway_class = arena.gateway_class(tunnel_id=None, direct=ADDRESS)
        specs: dict[Kind, Object] = {
            Kind.BACKEND: {"host": "127.0.0.1", "port": 1, "protocol": "http"},
            Kind.GATEWAY: {"gatewayClassName": gateway_class, "listeners": [{**listener, "port": port}]},
            Kind.HTTP_ROUTE: {
                "parentRefs": [parent],
                "rules": [
                    {"matches": [{"path": path}], "backendRefs": [backend]},
                    {"matches": [{"path": path, "headers": [header]}], "filters": [redirect]},
                ],
            },
            Kind.GRPC_ROUTE: {
                "parentRefs": [parent],
                "rules": [{"matches": [{"method": method}], "backendRefs": [backend]}],
            },
        }
        names = {Kind.GATEWAY: "gw", Kind.BACKEND: "b"}
        for kind, spec in specs.items():
            arena.cluster.create(kind, names.get(kind, "web"), spec, arena.namespace)
        with arena.controller(proxies=[proxy]):
            arena.until_programmed()
            for kind in (Kind.HTTP_ROUTE, Kind.GRPC_ROUTE):
                arena.until(kind, "web", "Accepted", "True")

            for kind, spec in specs.items():
                found = arena.read(kind, names.get(kind, "web"))
                ours = [each for each in found["metadata"]["managedFields"] if each["manager"] == "tunnelgw"]
                assert (found["spec"], found["metadata"]["generation"]) == (spec, 1)
                assert {each.get("subresource") for each in ours} <= {"status"}
                assert found["metadata"].keys() & {"annotations", "labels", "finalizers", "ownerReferences"} == set()
