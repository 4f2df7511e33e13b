"""The objects of a run, as a user would apply them: Gateways of a hundred routes each, and a Service for each route.

Every route answers `/stamp` itself, with a redirect whose path says which edit of the route is live, so that a request
through the proxy shows it without a backend. Everything else goes to the route's Service, whose only slice has two
addresses.
"""

from typing import Any

from tests.support.provider.provider import TUNNEL_ID
from tests.tunnelgw.sources.cluster import HOME
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.options import DEFAULT_CONTROLLER

Manifest = dict[str, Any]

CLASS = "tunnel"
CREDENTIALS = "provider"
ROUTES_A_GATEWAY = 100
PORT = 80
UNREACHABLE = "239.1.2.3"
"""The kernel refuses a TCP connection to a multicast address at once, and nothing leaves the machine."""
STAMP_PLACE = "/spec/rules/0/filters/0/requestRedirect/path/replaceFullPath"


def path(kind: Kind, namespace: str = "", name: str = "") -> str:
    resource = RESOURCES[kind]
    place = f"/namespaces/{namespace}" if resource.is_namespaced else ""
    return f"{resource.path}{place}/{resource.plural}" + (f"/{name}" if name else "")


def manifest(kind: Kind, name: str, **fields: Any) -> Manifest:
    resource = RESOURCES[kind]
    version = f"{resource.group}/{resource.versions[0]}".lstrip("/")
    return {
        "apiVersion": version,
        "kind": str(kind),
        "metadata": {"name": name, **fields.pop("metadata", {})},
        **fields,
    }


def host(number: int) -> str:
    """The hostname of a route."""
    return f"app{number}.gateway{number // ROUTES_A_GATEWAY}.example.com"


def stamp(edit: int) -> str:
    """The target of the redirect at `/stamp`."""
    return f"/edit/{edit}"


def gateway_class() -> list[tuple[str, Manifest]]:
    """The GatewayClass and its parameters, each with the path that it is posted to."""
    config = {
        "tunnelID": TUNNEL_ID,
        "providerCredentialsSecretRef": {"name": CREDENTIALS, "namespace": HOME},
        "direct": {"addresses": ["127.0.0.1"]},
    }
    parameters = {"group": "tunnelgw.dev", "kind": str(Kind.GATEWAY_CLASS_CONFIG), "name": CLASS}
    spec = {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters}
    return [
        (path(Kind.GATEWAY_CLASS_CONFIG), manifest(Kind.GATEWAY_CLASS_CONFIG, CLASS, spec=config)),
        (path(Kind.GATEWAY_CLASS), manifest(Kind.GATEWAY_CLASS, CLASS, spec=spec)),
    ]


def credentials(token: str) -> tuple[str, Manifest]:
    return path(Kind.SECRET, HOME), manifest(Kind.SECRET, CREDENTIALS, stringData={"api-token": token})


def population(namespace: str, routes: int, port: int) -> list[tuple[str, Manifest]]:
    """All objects of a case, with those that others refer to first. `port`: of all Gateways' listeners."""
    gateways = range((routes + ROUTES_A_GATEWAY - 1) // ROUTES_A_GATEWAY)
    numbers = range(routes)
    return [
        *((path(Kind.SERVICE, namespace), _service(number)) for number in numbers),
        *((path(Kind.ENDPOINT_SLICE, namespace), _slice(number)) for number in numbers),
        *((path(Kind.GATEWAY, namespace), _gateway(number, port)) for number in gateways),
        *((path(Kind.HTTP_ROUTE, namespace), _route(number)) for number in numbers),
    ]


def service_name(number: int) -> str:
    return f"app{number}"


def _service(number: int) -> Manifest:
    # A cluster IP would only make the API server search for a free one.
    spec = {"clusterIP": "None", "ports": [{"name": "http", "port": PORT}]}
    return manifest(Kind.SERVICE, service_name(number), spec=spec)


def _slice(number: int) -> Manifest:
    return manifest(
        Kind.ENDPOINT_SLICE,
        service_name(number),
        metadata={"labels": {"kubernetes.io/service-name": service_name(number)}},
        addressType="IPv4",
        ports=[{"name": "http", "port": 8080}],
        endpoints=endpoints(number, 0),
    )


def endpoints(number: int, edit: int) -> list[Manifest]:
    """Two endpoints, one of which an edit moves. They lead nowhere."""
    moved = f"10.{edit % 200 + 20}.{number // 250}.{number % 250 + 1}"
    return [{"addresses": [address]} for address in (f"10.10.{number // 250}.{number % 250 + 1}", moved)]


def _gateway(number: int, port: int) -> Manifest:
    listener = {
        "name": "web",
        "protocol": "HTTP",
        "port": port,
        "hostname": f"*.gateway{number}.example.com",
    }
    return manifest(Kind.GATEWAY, f"gateway{number}", spec={"gatewayClassName": CLASS, "listeners": [listener]})


def _route(number: int) -> Manifest:
    redirect = {"path": {"type": "ReplaceFullPath", "replaceFullPath": stamp(0)}, "statusCode": 302}
    rules = [
        {
            "matches": [{"path": {"type": "Exact", "value": "/stamp"}}],
            "filters": [{"type": "RequestRedirect", "requestRedirect": redirect}],
        },
        {
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "filters": [
                {
                    "type": "RequestHeaderModifier",
                    "requestHeaderModifier": {"set": [{"name": "X-App", "value": str(number)}]},
                }
            ],
            "backendRefs": [{"name": service_name(number), "port": PORT}],
        },
    ]
    spec = {
        "parentRefs": [{"name": f"gateway{number // ROUTES_A_GATEWAY}"}],
        "hostnames": [host(number)],
        "rules": rules,
    }
    return manifest(Kind.HTTP_ROUTE, f"app{number}", spec=spec)
