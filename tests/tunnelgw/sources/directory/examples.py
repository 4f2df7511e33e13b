"""Specs that use every field of every kind, and the ways to spoil one place in them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tunnelgw.model.kinds import Kind

_CA: dict[str, Any] = {"group": "", "kind": "ConfigMap", "name": "ca"}
_BUNDLE: dict[str, Any] = {"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": "ca"}
_TRUSTS: list[dict[str, Any]] = [
    {},
    {"caCertificateRefs": []},
    {"caCertificateRefs": [], "wellKnownCACertificates": "System"},
    {"caCertificateRefs": [_CA], "wellKnownCACertificates": "System"},
]
_LISTENER = {
    "name": "https",
    "hostname": "*.example.org",
    "port": 443,
    "protocol": "HTTPS",
    "tls": {"mode": "Terminate", "certificateRefs": [{"name": "cert", "namespace": "certs"}], "options": {"a": "b"}},
    "allowedRoutes": {
        "namespaces": {
            "from": "Selector",
            "selector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
            },
        },
        "kinds": [{"kind": "HTTPRoute"}],
    },
}
_HEADERS = {"set": [{"name": "a", "value": "b"}], "add": [{"name": "c", "value": "d"}], "remove": ["e"]}
_BACKEND = {"name": "web", "port": 80}
_XBACKEND = {"group": "gateway.networking.x-k8s.io", "kind": "XBackend"}
_ADDRESSES: list[list[dict[str, str]]] = [
    [{}],
    [{}, {}],
    [{"value": "192.0.2.1"}, {"value": "192.0.2.1"}],
    [{"type": "Hostname", "value": "A"}],
    [{"type": "Hostname"}],
    [{"type": "Foo"}],
    [{"type": "example.org/own", "value": "x"}],
    [{"routability": ""}],
    [{"routability": "Cluster"}],
    [{"routability": "Internet"}],
    [{"routability": "example.org/a b"}],
    [{"routability": "example.org/a/b"}],
    [{"routability": "example.org/"}],
    [{"routability": "k8s.io/a"}],
    [{"routability": "x.k8s.io/a"}],
    [{"routability": "xk8s.io/a"}],
    [{"routability": "K8S.io/a"}],
]
_HTTP_FILTERS: list[Any] = [
    {"type": "RequestHeaderModifier", "requestHeaderModifier": _HEADERS},
    {"type": "ResponseHeaderModifier", "responseHeaderModifier": _HEADERS},
    {
        "type": "RequestMirror",
        "requestMirror": {"backendRef": _BACKEND, "fraction": {"numerator": 1, "denominator": 3}},
    },
    {"type": "RequestMirror", "requestMirror": {"backendRef": _BACKEND, "percent": 5}},
    {
        "type": "URLRewrite",
        "urlRewrite": {"hostname": "a.example.org", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/x"}},
    },
    {
        "type": "CORS",
        "cors": {
            "allowOrigins": ["https://*.example.org"],
            "allowMethods": ["GET"],
            "allowHeaders": ["a"],
            "exposeHeaders": ["b"],
            "allowCredentials": True,
            "maxAge": 9,
        },
    },
    {"type": "ExtensionRef", "extensionRef": {"group": "a.b", "kind": "C", "name": "d"}},
    {
        "type": "ExternalAuth",
        "externalAuth": {
            "protocol": "HTTP",
            "backendRef": _BACKEND,
            "http": {"path": "/auth", "allowedHeaders": ["a"], "allowedResponseHeaders": ["b"]},
            "forwardBody": {"maxSize": 5},
        },
    },
]
_REDIRECT = {
    "type": "RequestRedirect",
    "requestRedirect": {
        "scheme": "https",
        "hostname": "a.example.org",
        "path": {"type": "ReplaceFullPath", "replaceFullPath": "/y"},
        "port": 8443,
        "statusCode": 301,
    },
}
_PERSISTENCE = {
    "absoluteTimeout": "1h",
    "type": "Cookie",
    "cookie": {"name": "s", "path": "/", "lifetimeType": "Permanent"},
}
_PERSISTENCES: list[dict[str, Any]] = [
    {},
    {"cookie": {}},
    {"cookie": {"lifetimeType": "Permanent"}},
    {"cookie": {"name": ""}},
    {"cookie": {"name": "a b"}},
    {"header": {"name": "a"}},
    {"type": "Header"},
    {"type": "Header", "cookie": {}},
    {"type": "Header", "header": {}},
    {"type": "Header", "header": {"name": "a"}},
    {"sessionName": "s", "cookie": {}},
    {"cookie": {}, "cookieConfig": {}},
]
_PARENTS = [{"name": "gw", "sectionName": "a", "namespace": "infra"}, {"name": "other", "port": 443}]
_DOORS = {
    "tunnelID": "01234567-89ab-cdef-0123-456789abcdef",
    "accountID": "0123456789abcdef0123456789abcdef",
    "providerCredentialsSecretRef": {"name": "credentials", "key": "token"},
    "direct": {"addresses": ["192.0.2.1"]},
    "publish": "Direct",
    "proxy": {
        "mergeSlashes": False,
        "forwarding": {
            "trustedProxies": ["10.0.0.0/8", "2001:db8::1"],
            "proxyProtocol": ["192.0.2.0/24"],
            "clientCert": True,
            "forwarded": True,
            "via": True,
            "requestIdHeader": "X-Correlation-Id",
        },
        "limits": {
            "maxHeaderBytes": 32768,
            "maxUriBytes": 8192,
            "maxConnections": 500,
            "headerTimeout": "5s",
            "idleTimeout": "1m30s",
            "streamIdleTimeout": "0s",
            "connectTimeout": "500ms",
            "requestTimeout": "1h",
            "backendIdleTimeout": "30s",
        },
    },
}

FULL: list[tuple[Kind, dict[str, Any]]] = [
    (
        Kind.GATEWAY_CLASS,
        {
            "controllerName": "example.org/controller",
            "description": "text",
            "parametersRef": {"group": "a.b", "kind": "C", "name": "d", "namespace": "e"},
        },
    ),
    (
        Kind.GATEWAY,
        {
            "gatewayClassName": "tunnel",
            "listeners": [
                {**_LISTENER, "filters": {"requests": _HTTP_FILTERS[6:8]}},
                {"name": "http", "port": 80, "protocol": "HTTP"},
            ],
            "addresses": [
                {"value": "192.0.2.1"},
                {"type": "Hostname", "value": "a.example.org", "routability": "Cluster"},
            ],
            "infrastructure": {
                "labels": {"example.org/a": "b"},
                "annotations": {"c": "d"},
                "parametersRef": {"group": "tunnelgw.dev", "kind": "GatewayConfig", "name": "own"},
            },
            "allowedListeners": {"namespaces": {"from": "Same"}},
            "tls": {
                "backend": {"clientCertificateRef": {"name": "client"}},
                "frontend": {
                    "default": {"validation": {"caCertificateRefs": [_CA], "mode": "AllowInsecureFallback"}},
                    "perPort": [{"port": 443, "tls": {"validation": {"caCertificateRefs": [_CA]}}}],
                },
            },
        },
    ),
    (Kind.LISTENER_SET, {"parentRef": {"name": "gw", "namespace": "infra"}, "listeners": [_LISTENER]}),
    (
        Kind.HTTP_ROUTE,
        {
            "parentRefs": _PARENTS,
            "hostnames": ["a.example.org", "*.example.net"],
            "rules": [
                {
                    "name": "first",
                    "matches": [
                        {
                            "path": {"type": "PathPrefix", "value": "/a"},
                            "headers": [{"type": "RegularExpression", "name": "h", "value": "v.*"}],
                            "queryParams": [{"name": "q", "value": "v"}],
                            "method": "GET",
                        }
                    ],
                    "filters": _HTTP_FILTERS,
                    "backendRefs": [
                        {**_BACKEND, "weight": 3, "filters": _HTTP_FILTERS[:1]},
                        {"group": "tunnelgw.dev", "kind": "Backend", "name": "nas"},
                    ],
                    "timeouts": {"request": "10s", "backendRequest": "2s"},
                    "retry": {"codes": [500, 503], "attempts": 2, "backoff": "100ms"},
                    "sessionPersistence": _PERSISTENCE,
                },
                {"filters": [_REDIRECT]},
                {},
            ],
        },
    ),
    (
        Kind.GRPC_ROUTE,
        {
            "parentRefs": _PARENTS,
            "hostnames": ["a.example.org"],
            "rules": [
                {
                    "name": "first",
                    "matches": [
                        {
                            "method": {"type": "Exact", "service": "a.B", "method": "C"},
                            "headers": [{"name": "h", "value": "v"}],
                        }
                    ],
                    "filters": _HTTP_FILTERS[:3],
                    "backendRefs": [{**_BACKEND, "weight": 0}],
                    "sessionPersistence": _PERSISTENCE,
                },
                {},
            ],
        },
    ),
    (
        Kind.REFERENCE_GRANT,
        {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "apps"}],
            "to": [{"group": "", "kind": "Service", "name": "web"}, {"group": "", "kind": "Secret"}],
        },
    ),
    (
        Kind.BACKEND_TLS_POLICY,
        {
            "targetRefs": [{"group": "", "kind": "Service", "name": "web", "sectionName": "https"}],
            "validation": {
                "hostname": "web.example.org",
                "caCertificateRefs": [_CA],
                "subjectAltNames": [
                    {"type": "Hostname", "hostname": "*.example.org"},
                    {"type": "URI", "uri": "spiffe://example.org/a"},
                ],
            },
            "options": {"a": "b"},
        },
    ),
    (
        Kind.GATEWAY_CLASS_CONFIG,
        {**_DOORS, "providerCredentialsSecretRef": {"name": "credentials", "namespace": "infra"}},
    ),
    (
        Kind.GATEWAY_CONFIG,
        {
            **_DOORS,
            "direct": {"service": {"name": "direct"}},
            "tunnelTokenSecretRef": {"name": "token"},
            "authSecretRef": {"name": "auth", "key": "k"},
            "proxyEndpoints": ["http://127.0.0.1:8082", "unix:/run/proxy.sock"],
        },
    ),
    (
        Kind.BACKEND,
        {
            "host": "nas.example.org",
            "port": 443,
            "protocol": "https",
            "tls": {"hostname": "nas.example.org", "caCertificate": "pem"},
        },
    ),
]

SMALL: list[tuple[Kind, dict[str, Any]]] = [
    (Kind.HTTP_ROUTE, {}),
    (Kind.HTTP_ROUTE, {"rules": [{"matches": [{}, {"path": {"type": "Exact"}}, {"path": {"value": "/x"}}]}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"filters": [{"type": "URLRewrite"}]}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"filters": [_REDIRECT], "backendRefs": [_BACKEND]}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"filters": [_REDIRECT, _HTTP_FILTERS[4]]}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"filters": [_HTTP_FILTERS[0]] * 2}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"filters": [_HTTP_FILTERS[5]] * 2}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"matches": [{}, {}], "filters": [_HTTP_FILTERS[4]]}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"matches": [{}, {}], "backendRefs": [{**_BACKEND, "filters": [_HTTP_FILTERS[4]]}]}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"matches": [{}] * 64}, {"matches": [{}] * 64}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"matches": [{}] * 64}, {"matches": [{}] * 64}, {}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"name": "a"}, {"name": "a"}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"timeouts": {"request": "1s", "backendRequest": "1m"}}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"timeouts": {"request": "0s", "backendRequest": "1m"}}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"timeouts": {"request": "1m1ms", "backendRequest": "60s1ms"}}]}),
    *((Kind.HTTP_ROUTE, {"rules": [{"sessionPersistence": persistence}]}) for persistence in _PERSISTENCES),
    *((Kind.HTTP_ROUTE, {"rules": [{"retry": retry}]}) for retry in ({}, {"attempts": 0}, {"attempts": -1})),
    (
        Kind.HTTP_ROUTE,
        {"rules": [{"backendRefs": [{**_XBACKEND, "name": "x"}, {**_XBACKEND, "name": "x", "port": 1}]}]},
    ),
    (Kind.HTTP_ROUTE, {"rules": [{"backendRefs": [{**_XBACKEND, "name": "x"}]}]}),
    (Kind.HTTP_ROUTE, {"rules": [{"backendRefs": [{"name": "web"}]}]}),
    *(
        (Kind.HTTP_ROUTE, {"rules": [{"matches": [{"path": {"type": kind, "value": value}}]}]})
        for kind in ("Exact", "RegularExpression")
        for value in ("", "a", "//", "/a/./b", "/a/../b", "/a/..", "/a/.", "/%2f", "/%zz", "/#", "/a b", "/ä", "/%41~")
    ),
    *(
        (Kind.HTTP_ROUTE, {"parentRefs": parents})
        for parents in (
            [{"name": "a"}, {"name": "a"}],
            [{"name": "a"}, {"name": "a", "sectionName": "s"}],
            [{"name": "a", "sectionName": "s"}, {"name": "a", "sectionName": "t"}],
            [{"name": "a", "sectionName": "s"}, {"name": "a", "port": 1}],
            [{"name": "a", "port": 1}, {"name": "a", "port": 2}],
            [{"name": "a", "sectionName": "s", "port": 1}, {"name": "a", "sectionName": "s", "port": 2}],
            [{"name": "a"}, {"name": "a", "namespace": "n"}],
            [{"name": "a"}, {"name": "a", "kind": "ListenerSet"}],
        )
    ),
    (Kind.GRPC_ROUTE, {}),
    (Kind.GRPC_ROUTE, {"rules": [{"matches": [{"method": {}}]}]}),
    (Kind.GRPC_ROUTE, {"rules": [{"matches": [{"method": {"service": "a b"}}]}]}),
    (Kind.GRPC_ROUTE, {"rules": [{"matches": [{"method": {"service": ".A_1.b", "method": "9"}}]}]}),
    (Kind.GRPC_ROUTE, {"rules": [{"matches": [{"method": {"type": "RegularExpression", "method": "9"}}]}]}),
    (Kind.GRPC_ROUTE, {"rules": [{"filters": [_HTTP_FILTERS[0]] * 2}]}),
    (Kind.GRPC_ROUTE, {"rules": [{"filters": [_HTTP_FILTERS[4]]}]}),
    *(
        (Kind.GATEWAY, {"gatewayClassName": "c", "listeners": listeners})
        for listeners in (
            [],
            [{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "a", "port": 81, "protocol": "HTTP"}],
            [{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "b", "port": 80, "protocol": "HTTP"}],
            [{"name": "a", "port": 80, "protocol": "HTTP", "tls": {"certificateRefs": [{"name": "c"}]}}],
            [{"name": "a", "port": 80, "protocol": "HTTPS", "tls": {"mode": "Passthrough"}}],
            [{"name": "a", "port": 80, "protocol": "HTTPS", "tls": {}}],
            [{"name": "a", "port": 80, "protocol": "HTTPS"}],
            [{"name": "a", "port": 80, "protocol": "TLS"}],
            [{"name": "a", "port": 80, "protocol": "TLS", "tls": {"mode": "Passthrough"}}],
            [{"name": "a", "port": 80, "protocol": "TCP", "hostname": "a.example.org"}],
            [{"name": "a", "port": 80, "protocol": "example.org/own", "hostname": "a.example.org"}],
            [{"name": "a", "port": 80, "protocol": "a_b"}],
            [{"name": "a", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {}}}],
            [{"name": "a", "port": 80, "protocol": "HTTP", "filters": {"requests": _HTTP_FILTERS[:1]}}],
            *(
                [{"name": "a", "port": 80, "protocol": each, "filters": {}}]
                for each in ("HTTP", "TCP", "example.org/own")
            ),
        )
    ),
    *(
        (
            Kind.GATEWAY,
            {
                "gatewayClassName": "c",
                "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}],
                "addresses": addresses,
            },
        )
        for addresses in _ADDRESSES
    ),
    *(
        (
            Kind.BACKEND_TLS_POLICY,
            {"targetRefs": targets, "validation": {"hostname": "a.example.org", "wellKnownCACertificates": known}},
        )
        for known in ("System", "Other")
        for targets in (
            [{"group": "", "kind": "Service", "name": "a"}],
            [{"group": "", "kind": "Service", "name": "a"}] * 2,
            [
                {"group": "", "kind": "Service", "name": "a", "sectionName": "s"},
                {"group": "", "kind": "Service", "name": "a"},
            ],
        )
    ),
    *(
        (
            Kind.BACKEND_TLS_POLICY,
            {"targetRefs": [{**_CA, "kind": "Service"}], "validation": dict(trust, hostname="a.b")},
        )
        for trust in _TRUSTS
    ),
    *(
        (
            Kind.GATEWAY,
            {
                "gatewayClassName": "c",
                "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}],
                "tls": {"frontend": {"default": {"validation": {"caCertificateRefs": [{**_BUNDLE, **space}]}}}},
            },
        )
        for space in ({}, {"namespace": "a"})
    ),
    (Kind.GATEWAY_CLASS_CONFIG, {}),
    (Kind.GATEWAY_CLASS_CONFIG, {"publish": "Tunnel", "direct": {"addresses": ["192.0.2.1"]}}),
    (Kind.GATEWAY_CLASS_CONFIG, {"publish": "Direct", "tunnelID": _DOORS["tunnelID"]}),
    (Kind.GATEWAY_CLASS_CONFIG, {"direct": {}}),
    (Kind.GATEWAY_CLASS_CONFIG, {"direct": {"addresses": ["192.0.2.1"], "service": {"name": "a"}}}),
    *(
        (kind, {"direct": {"addresses": [f"192.0.{number >> 8}.{number & 255}" for number in range(count)]}})
        for kind, most in ((Kind.GATEWAY_CLASS_CONFIG, 256), (Kind.GATEWAY_CONFIG, 16))
        for count in (most, most + 1)
    ),
    (
        Kind.GATEWAY_CLASS_CONFIG,
        {"direct": {"addresses": ["192.0.2.1"]}, "providerCredentialsSecretRef": {"name": "a"}},
    ),
    (Kind.GATEWAY_CONFIG, {"direct": {"addresses": ["192.0.2.1"]}, "tunnelTokenSecretRef": {"name": "a"}}),
    (Kind.BACKEND, {"host": "192.0.2.1", "port": 80}),
    (Kind.BACKEND, {"host": "192.0.2.1:80", "port": 80}),
    (Kind.BACKEND, {"host": "2001:db8::1", "port": 80}),
    (Kind.BACKEND, {"host": "::ffff:192.0.2.1", "port": 80}),
    (Kind.BACKEND, {"host": "::", "port": 80}),
    (Kind.BACKEND, {"host": "nas.example.", "port": 80}),
    (Kind.BACKEND, {"host": "nas.example..", "port": 80}),
    (Kind.BACKEND, {"host": "a", "port": 80, "tls": {"hostname": "a"}}),
]

_SPOILED: tuple[Any, ...] = ("", "Bad Value!", "a" * 5000, -1, 70000, 5_000_000, True, None, [], {}, "*", 0)
_ABSENT = object()


def spoiled(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The spec with one place changed, in many ways, and where."""
    for place in _places(spec):
        old = _at(spec, place)
        changes: list[Any] = [_ABSENT]
        changes += [value for value in _SPOILED if type(value) is type(old) or value is None or value == []]
        if isinstance(old, list) and old:
            changes += [old * 2, old * 70]
        if isinstance(old, dict):
            changes.append({**old, "unknown": 1})
        for value in changes:
            yield (
                f"{'.'.join(map(str, place))} = {'absent' if value is _ABSENT else repr(value)[:40]}",
                _with(spec, place, value),
            )


def at_limits(
    spec: dict[str, Any], schema: dict[str, Any]
) -> Iterator[tuple[str, int, dict[str, Any], dict[str, Any]]]:
    """For each place with an upper limit in the schema of a CRD: where, the limit, and the spec at it and above it."""
    for place in _places(spec):
        known = schema
        for step in place:
            known = known["items"] if isinstance(step, int) else _field(known, step)
        where = "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        old = _at(spec, place)
        if "maxItems" in known and old:
            limit = known["maxItems"]
            yield where, limit, _with(spec, place, old[:1] * limit), _with(spec, place, old[:1] * (limit + 1))
        if "maxProperties" in known:
            limit = known["maxProperties"]
            full, over = ({f"k{number}": "v" for number in range(count)} for count in (limit, limit + 1))
            yield where, limit, _with(spec, place, full), _with(spec, place, over)
        if "maxLength" in known and "enum" not in known:
            limit = known["maxLength"]
            yield where, limit, _with(spec, place, "a" * limit), _with(spec, place, "a" * (limit + 1))
        if "maximum" in known:
            limit = known["maximum"]
            yield where, limit, _with(spec, place, limit), _with(spec, place, limit + 1)


def _field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema.get("properties", {}).get(name) or schema["additionalProperties"]
    return found


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in children:
        yield from _places(item, (*place, step))


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        value = value[step]
    return value


def _with(spec: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(spec)
    parent = _at(changed, place[:-1])
    if value is _ABSENT:
        del parent[place[-1]]
    else:
        parent[place[-1]] = copy.deepcopy(value)
    return changed
