"""Hypothesis strategies for objects as an API server can hold them: few names, so that they meet, and odd words.

`worlds` have objects of all kinds; what these refer to is there, missing, in another namespace or of a wrong kind about
equally often.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.tunnelgw.translate.pki import authority_pem, secret_data
from tunnelgw.model.kinds import RESOURCES, Kind
from tunnelgw.model.meta import Object
from tunnelgw.options import DEFAULT_CONTROLLER

Item = tuple[Kind, Object]

NAMESPACES = st.sampled_from(["a", "b"])
NAMES = st.sampled_from(["x", "y"])
PORTS = st.sampled_from([80, 443, 8080])
GATEWAY_API = "gateway.networking.k8s.io"
GROUPS = st.sampled_from([GATEWAY_API, GATEWAY_API, GATEWAY_API, "", "tunnelgw.dev", "example.net"])
HOSTNAMES = st.sampled_from(["a.example", "b.a.example", "*.a.example", "*.example", "*.b.a.example", "c.net"])
ADDRESSES = st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.9"])
LABELS = st.dictionaries(
    st.sampled_from(["team", "kubernetes.io/metadata.name"]), st.sampled_from(["a", "b"]), max_size=1
)
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", ""])
ONE, TWO = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
TUNNELS = st.sampled_from([ONE, ONE, TWO, TWO, "", "bad"])

SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": LABELS,
        "matchExpressions": st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(["team", "bad key"]),
                    "operator": st.sampled_from(["In", "NotIn", "Exists", "Odd"]),
                },
                optional={"values": st.lists(st.sampled_from(["a", "b/c"]), max_size=1)},
            ),
            max_size=1,
        ),
    },
)
NAMESPACES_FROM = st.fixed_dictionaries(
    {"from": st.sampled_from(["All", "All", "Same", "Selector", "None", "Odd"])}, optional={"selector": SELECTORS}
)


def _some(strategy: st.SearchStrategy[Any], at_most: int, at_least: int = 0) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, min_size=at_least, max_size=at_most)


def _ref(kinds: list[str], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The first kind is the one that the reference is for, and the default."""
    group = GROUPS if kinds[0] == "Gateway" else st.sampled_from(["", "", "tunnelgw.dev", "example.net"])
    optional = {"namespace": NAMESPACES, "kind": st.sampled_from([*kinds[:1] * 3, *kinds]), **more}
    odd = st.fixed_dictionaries({"name": NAMES, "group": group}, optional=optional)
    return st.one_of(odd, st.fixed_dictionaries({"name": NAMES}, optional=optional))


PARENT_REFS = _ref(["Gateway", "ListenerSet", "Service"], sectionName=st.sampled_from(["l0", "l1"]), port=PORTS)
SECRET_REFS = _ref(["Secret", "ConfigMap"])
CA_REFS = st.fixed_dictionaries(
    {"name": NAMES, "group": st.sampled_from(["", "example.net"]), "kind": st.sampled_from(["ConfigMap", "Secret"])},
    optional={"namespace": NAMESPACES},
)
VALIDATIONS = st.fixed_dictionaries(
    {},
    optional={
        "validation": st.fixed_dictionaries(
            {"caCertificateRefs": _some(CA_REFS, 2, 1)},
            optional={"mode": st.sampled_from(["AllowValidOnly", "AllowInsecureFallback", "Odd"])},
        )
    },
)
LISTENERS = st.fixed_dictionaries(
    {"port": PORTS, "protocol": st.sampled_from(["HTTP", "HTTP", "HTTPS", "HTTPS", "TLS", "UDP", "example.net/odd"])},
    optional={
        "hostname": HOSTNAMES,
        "tls": st.fixed_dictionaries(
            {"certificateRefs": _some(SECRET_REFS, 2)}, optional={"mode": st.sampled_from(["Terminate", "Passthrough"])}
        ),
        "allowedRoutes": st.fixed_dictionaries(
            {},
            optional={
                "namespaces": NAMESPACES_FROM,
                "kinds": _some(
                    st.fixed_dictionaries(
                        {"kind": st.sampled_from(["HTTPRoute", "GRPCRoute", "TCPRoute"])}, optional={"group": GROUPS}
                    ),
                    2,
                ),
            },
        ),
    },
)


@st.composite
def _listener_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Names are unique in a list, as the API server sees to."""
    found = draw(st.lists(LISTENERS, max_size=3))
    return [{"name": f"l{place}", **listener} for place, listener in enumerate(found)]


CLASSES = st.fixed_dictionaries(
    {"controllerName": st.sampled_from([DEFAULT_CONTROLLER, DEFAULT_CONTROLLER, "example.net/other"])},
    optional={
        "parametersRef": st.fixed_dictionaries(
            {"group": st.just("tunnelgw.dev"), "kind": st.sampled_from(["GatewayClassConfig", "Odd"]), "name": NAMES}
        )
    },
)
KEY_REFS = st.fixed_dictionaries({"name": NAMES}, optional={"namespace": NAMESPACES})
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "tunnelID": TUNNELS,
        "providerCredentialsSecretRef": KEY_REFS,
        "authSecretRef": KEY_REFS,
        "tunnelTokenSecretRef": KEY_REFS,
        "proxyEndpoints": st.lists(st.sampled_from(["http://a:8082", "http://A:8082/", "unix:/run/p"]), max_size=2),
        "publish": st.sampled_from(["Tunnel", "Direct", "Odd"]),
        "direct": st.one_of(
            st.fixed_dictionaries({"addresses": st.lists(ADDRESSES, max_size=3, unique=True)}),
            st.fixed_dictionaries({"service": st.fixed_dictionaries({"name": NAMES, "namespace": NAMESPACES})}),
        ),
        "proxy": st.fixed_dictionaries(
            {},
            optional={
                "mergeSlashes": st.booleans(),
                "forwarding": st.fixed_dictionaries(
                    {},
                    optional={
                        "trustedProxies": st.lists(st.sampled_from(["10.0.0.0/8", "192.0.2.1", "::/200"]), max_size=2),
                        "requestIdHeader": st.sampled_from(["X-Id", "Host", "", "odd name"]),
                    },
                ),
                "limits": st.fixed_dictionaries(
                    {},
                    optional={
                        "maxHeaderBytes": st.integers(-1, 1 << 40),
                        "requestTimeout": st.sampled_from(["1s", "0s", "", "-1s", "1.5s"]),
                    },
                ),
            },
        ),
    },
)
GATEWAYS = st.fixed_dictionaries(
    {"gatewayClassName": st.sampled_from(["x", "x", "x", "x", "y", "gone"]), "listeners": _listener_lists()},
    optional={
        "addresses": _some(
            st.fixed_dictionaries(
                {},
                optional={
                    "type": st.sampled_from(["IPAddress", "Hostname", "example.net/odd"]),
                    "value": st.one_of(ADDRESSES, st.just("host.example")),
                },
            ),
            2,
        ),
        "allowedListeners": st.fixed_dictionaries({"namespaces": NAMESPACES_FROM}),
        "infrastructure": st.fixed_dictionaries(
            {
                "parametersRef": st.fixed_dictionaries(
                    {"group": st.just("tunnelgw.dev"), "kind": st.sampled_from(["GatewayConfig", "Odd"]), "name": NAMES}
                )
            }
        ),
        "tls": st.fixed_dictionaries(
            {},
            optional={
                "backend": st.fixed_dictionaries({"clientCertificateRef": SECRET_REFS}),
                "frontend": st.fixed_dictionaries(
                    {"default": VALIDATIONS},
                    optional={"perPort": _some(st.fixed_dictionaries({"port": PORTS, "tls": VALIDATIONS}), 2)},
                ),
            },
        ),
    },
)
LISTENER_SETS = st.fixed_dictionaries({"parentRef": _ref(["Gateway"]), "listeners": _listener_lists()})
BACKEND_REFS = _ref(["Service", "Backend", "Odd"], port=PORTS, weight=st.integers(0, 2))
FILTERS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("RequestMirror"), "requestMirror": st.fixed_dictionaries({"backendRef": BACKEND_REFS})}
    ),
    st.just({"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}),
    st.just({"type": "URLRewrite", "urlRewrite": {"hostname": "new.example"}}),
    st.just({"type": "Odd"}),
)
MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "path": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["Exact", "PathPrefix", "RegularExpression", "Odd"]),
                "value": st.sampled_from(["/", "/x", "/(", "//"]),
            }
        )
    },
)
RULES = st.fixed_dictionaries({}, optional={"backendRefs": _some(BACKEND_REFS, 2), "filters": _some(FILTERS, 2)})
ROUTES = st.fixed_dictionaries({"parentRefs": _some(PARENT_REFS, 3)}, optional={"hostnames": _some(HOSTNAMES, 2)})


@st.composite
def _route_specs(draw: st.DrawFn, has_paths: bool) -> dict[str, Any]:
    spec = draw(ROUTES)
    rules = draw(st.lists(RULES, min_size=1, max_size=2))
    if has_paths:
        rules = [{**rule, "matches": draw(st.lists(MATCHES, max_size=2))} for rule in rules]
    return {**spec, "rules": rules}


GRANTS = st.fixed_dictionaries(
    {
        "from": _some(
            st.fixed_dictionaries(
                {
                    "group": st.sampled_from([GATEWAY_API, ""]),
                    "kind": st.sampled_from(["Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute"]),
                    "namespace": NAMESPACES,
                }
            ),
            2,
        ),
        "to": _some(
            st.fixed_dictionaries(
                {"group": st.just(""), "kind": st.sampled_from(["Secret", "ConfigMap", "Service"])},
                optional={"name": NAMES},
            ),
            2,
        ),
    }
)
POLICIES = st.fixed_dictionaries(
    {
        "targetRefs": _some(
            st.fixed_dictionaries({"group": st.just(""), "kind": st.just("Service"), "name": NAMES}), 2, 1
        ),
        "validation": st.fixed_dictionaries(
            {"hostname": st.just("s.example")},
            optional={
                "wellKnownCACertificates": st.sampled_from(["System", "Odd"]),
                "caCertificateRefs": _some(
                    st.fixed_dictionaries(
                        {"group": st.just(""), "kind": st.sampled_from(["ConfigMap", "Secret", "Odd"]), "name": NAMES}
                    ),
                    2,
                ),
            },
        ),
    }
)
SERVICES = st.fixed_dictionaries(
    {
        "ports": _some(
            st.fixed_dictionaries(
                {"port": PORTS},
                optional={
                    "appProtocol": st.sampled_from(["https", "kubernetes.io/h2c", "odd"]),
                    "targetPort": st.sampled_from([8080, "web"]),
                    "protocol": st.sampled_from(["TCP", "UDP"]),
                },
            ),
            2,
        )
    },
    optional={"type": st.sampled_from(["ClusterIP", "ExternalName"])},
)
BACKENDS = st.fixed_dictionaries(
    {"host": st.sampled_from(["h.example", "10.0.0.1", "not a host"]), "port": PORTS},
    optional={"protocol": st.sampled_from(["http", "https", "odd"]), "tls": st.just({"hostname": "h.example"})},
)


def _secrets() -> list[dict[str, Any]]:
    good = secret_data("a.example", "*.b.a.example")
    return [
        {"type": "kubernetes.io/tls", "data": good},
        {"type": "kubernetes.io/tls", "data": {**good, "tls.key": "AAAA"}},
        {"type": "kubernetes.io/tls", "data": {"tls.crt": "***"}},
        {"type": "Opaque"},
        {"type": "Opaque", "data": {"api-token": "YWJj", "auth-token": "ZGVm", "tunnel-token": "Z2hp"}},
    ]


def _config_maps() -> list[dict[str, Any]]:
    return [{"data": {"ca.crt": authority_pem()}}, {"data": {"ca.crt": "junk"}}, {}]


SPECS: dict[Kind, st.SearchStrategy[dict[str, Any]]] = {
    Kind.GATEWAY_CLASS: CLASSES,
    Kind.GATEWAY_CLASS_CONFIG: CONFIGS,
    Kind.GATEWAY_CONFIG: CONFIGS,
    Kind.GATEWAY: GATEWAYS,
    Kind.LISTENER_SET: LISTENER_SETS,
    Kind.HTTP_ROUTE: _route_specs(True),
    Kind.GRPC_ROUTE: _route_specs(False),
    Kind.REFERENCE_GRANT: GRANTS,
    Kind.BACKEND_TLS_POLICY: POLICIES,
    Kind.SERVICE: SERVICES,
    Kind.BACKEND: BACKENDS,
}
BODIES: dict[Kind, st.SearchStrategy[dict[str, Any]]] = {
    **{kind: specs.map(lambda spec: {"spec": spec}) for kind, specs in SPECS.items()},
    Kind.SECRET: st.deferred(lambda: st.sampled_from(_secrets())),
    Kind.CONFIG_MAP: st.deferred(lambda: st.sampled_from(_config_maps())),
    Kind.NAMESPACE: st.just({}),
    Kind.ENDPOINT_SLICE: st.fixed_dictionaries(
        {
            "addressType": st.just("IPv4"),
            "endpoints": _some(st.fixed_dictionaries({"addresses": st.just(["10.0.0.1"])}), 2),
            "ports": st.just([{"name": "", "port": 8080}, {"name": "config", "port": 8082}]),
        }
    ),
}
_STATUSES: dict[Kind, Any] = {
    # What an object's status says is not news to translation, so that here it never changes.
    Kind.GATEWAY: {"addresses": [{"type": "IPAddress", "value": "192.0.2.2"}]},
    Kind.SERVICE: {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example"}]}},
}


@st.composite
def items(draw: st.DrawFn, kind: Kind | None = None) -> Item:
    """An object, of any kind unless one is given."""
    kind = kind or draw(st.sampled_from([*BODIES]))
    metadata: dict[str, Any] = {"name": draw(NAMES), "creationTimestamp": draw(TIMES), "labels": draw(LABELS)}
    if RESOURCES[kind].is_namespaced:
        metadata["namespace"] = draw(NAMESPACES)
    elif kind is Kind.NAMESPACE:
        metadata["name"] = draw(NAMESPACES)
    if kind is Kind.ENDPOINT_SLICE:
        metadata["labels"] = {"kubernetes.io/service-name": metadata["name"]}
    plain = {"metadata": metadata, **draw(BODIES[kind])}
    if kind in _STATUSES:
        plain["status"] = _STATUSES[kind]
    return kind, msgspec.json.decode(msgspec.json.encode(plain), type=RESOURCES[kind].struct)


def worlds() -> st.SearchStrategy[list[Item]]:
    """Objects whose names are unique: some that make a sound whole, with others added, or in their place."""
    return st.lists(items(), max_size=14).map(lambda others: unique([*_sound_world(), *others]))


def _sound_world() -> list[Item]:
    listeners = [{"name": "l0", "port": 80, "protocol": "HTTP"}, {"name": "l1", "port": 8080, "protocol": "HTTP"}]
    config = {"tunnelID": "00000000-0000-4000-8000-000000000001", "direct": {"addresses": ["192.0.2.1", "192.0.2.2"]}}
    parameters = {"group": "tunnelgw.dev", "kind": "GatewayClassConfig", "name": "x"}
    rule = {"backendRefs": [{"name": "x", "port": 80}]}
    return [
        _item(Kind.GATEWAY_CLASS, "", {"spec": {"controllerName": DEFAULT_CONTROLLER, "parametersRef": parameters}}),
        _item(Kind.GATEWAY_CLASS_CONFIG, "", {"spec": config}),
        _item(Kind.GATEWAY, "a", {"spec": {"gatewayClassName": "x", "listeners": listeners}}),
        _item(Kind.SERVICE, "a", {"spec": {"ports": [{"port": 80}]}}),
        _item(Kind.HTTP_ROUTE, "a", {"spec": {"parentRefs": [{"name": "x"}], "rules": [rule]}}),
    ]


def _item(kind: Kind, namespace: str, body: dict[str, Any]) -> Item:
    plain = {"metadata": {"name": "x", "namespace": namespace}, **body}
    return kind, msgspec.json.decode(msgspec.json.encode(plain), type=RESOURCES[kind].struct)


def unique(found: list[Item]) -> list[Item]:
    """Of objects of one name the last."""
    return [*{(kind, item.key): (kind, item) for kind, item in found}.values()]
