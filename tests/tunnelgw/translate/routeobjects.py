"""Hypothesis strategies for routes and what they refer to: whatever an API server can hold, and stranger things.

Mostly sound values, so that whole routes are served; here and there an odd or forbidden one, or any text. Names are
few, so that references meet their objects, and objects each other.
"""

from typing import Any

from hypothesis import strategies as st

from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.model.snapshot import SERVICE_NAME_LABEL

Plain = dict[str, Any]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMESPACES = st.sampled_from(["apps", "apps", "apps", "other"])
NAMES = st.sampled_from(["v1", "v2"])
TIMES = st.sampled_from(["", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"])
_ONE_IN = 24


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(1, _ONE_IN).flatmap(lambda number: odd if number == _ONE_IN else usual)


def words(*known: Any, odd: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """One of those known; now and then one of the odd ones, or, without these, any text."""
    return mostly(st.sampled_from(known), st.sampled_from(odd) if odd else TEXT)


def parts(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Plain]:
    """An object in which each field may be absent."""
    return st.fixed_dictionaries({}, optional=fields)


def whole(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Plain]:
    """An object that has all its fields."""
    return st.fixed_dictionaries(fields)


def both(one: st.SearchStrategy[Plain], other: st.SearchStrategy[Plain]) -> st.SearchStrategy[Plain]:
    """The fields of two objects."""
    return st.builds(lambda first, second: {**first, **second}, one, other)


def lists(item: st.SearchStrategy[Any], most: int = 3, least: int = 0) -> st.SearchStrategy[list[Any]]:
    return st.lists(item, min_size=least, max_size=most)


HOSTS = words("a.example", "nas.lan", "192.0.2.1", odd=("*.example", "A.example", "", "fd00::1", "a b"))
PORTS = words(80, 443, 65535, odd=(-1, 0, 65536, 2**40))
DURATIONS = words("1s", "500ms", "1h30m", odd=("0s", "1.5s", "-1s", "", "99999h", "forever"))
PATTERNS = words("a.*", "[0-9]{2}", "(?i)x", "", odd=("(", "(?=x)", ".*a.{30}", "a{1000}", "\\b"))
PATHS = words("/", "/a", "/a/", "/a/b", odd=("/a//b", "/a/../b", "a", "", "/%2f", "/a?b", "/é", "/" + "a" * 1100))
FIELD_NAMES = words("X-A", "x-a", "X-B", odd=("Host", "Connection", "TE", "two words", ""))

VALUE_MATCHES = st.one_of(
    whole(name=FIELD_NAMES, value=words("1", "")),
    whole(name=FIELD_NAMES, value=PATTERNS, type=words("RegularExpression")),
)
PATH_MATCHES: st.SearchStrategy[Plain] = st.one_of(
    both(whole(value=PATHS), parts(type=words("Exact", "PathPrefix"))),
    whole(type=words("RegularExpression"), value=PATTERNS),
    st.just({}),
)
HTTP_MATCHES = parts(
    path=PATH_MATCHES,
    headers=lists(VALUE_MATCHES, 2),
    queryParams=lists(VALUE_MATCHES, 2),
    method=words("GET", "POST", odd=("BREW", "get")),
)
GRPC_CALLS = st.one_of(
    both(whole(service=words("a.S", odd=("a/b",))), parts(method=words("Get", "", odd=("a/b",)))),
    whole(type=words("RegularExpression"), method=PATTERNS.filter(bool)),
    mostly(whole(method=words("Get")), parts(type=TEXT, service=TEXT, method=TEXT)),
)
GRPC_MATCHES = parts(method=GRPC_CALLS, headers=lists(VALUE_MATCHES, 2))
HEADER_CHANGES = parts(
    set=lists(whole(name=FIELD_NAMES, value=words("a", "b c")), 2),
    add=lists(whole(name=FIELD_NAMES, value=words("a"))),
    remove=lists(FIELD_NAMES, 2),
)
FULL_PATHS = whole(type=words("ReplaceFullPath"), replaceFullPath=PATHS)
PREFIXES = whole(type=words("ReplacePrefixMatch"), replacePrefixMatch=PATHS)
PATH_CHANGES = mostly(FULL_PATHS, st.one_of(PREFIXES, both(FULL_PATHS, PREFIXES), whole(type=TEXT)))
TARGETS = mostly(
    st.one_of(
        whole(name=NAMES, port=st.sampled_from([80, 443])),
        whole(name=NAMES, namespace=NAMESPACES, port=st.just(80)),
        whole(name=NAMES, kind=st.just("Backend"), group=st.just("tunnelgw.dev")),
    ),
    both(
        whole(name=st.sampled_from(["v1", "gone"])),
        parts(
            namespace=st.sampled_from(["other", "nowhere"]),
            kind=st.sampled_from(["Service", "Backend", "Job"]),
            group=st.sampled_from(["", "tunnelgw.dev", "batch"]),
            port=st.sampled_from([0, 8080, 70000]),
        ),
    ),
)
PERCENTS = words(0, 20, 100, odd=(-1, 101))
FRACTIONS = whole(numerator=words(0, 1, 3, odd=(-1, 2**40)), denominator=words(3, 50, odd=(0, 1, -1)))
MIRRORS = both(
    whole(backendRef=TARGETS),
    mostly(
        st.one_of(st.just({}), whole(percent=PERCENTS), whole(fraction=FRACTIONS)),
        whole(percent=PERCENTS, fraction=FRACTIONS),
    ),
)
REDIRECTS = parts(
    scheme=words("http", "https", odd=("ftp",)),
    hostname=HOSTS,
    port=PORTS,
    statusCode=words(301, 302, 303, 307, 308, odd=(200, 0)),
    path=PATH_CHANGES,
)
CORS = parts(
    allowOrigins=mostly(lists(words("https://a.example", "https://*.a.example:8443")), lists(words("*", "a.example"))),
    allowMethods=lists(words("GET", "PUT", odd=("*", "BREW"))),
    allowHeaders=lists(FIELD_NAMES),
    exposeHeaders=lists(FIELD_NAMES),
    allowCredentials=st.booleans(),
    maxAge=words(1, 600, odd=(0, -1, 2**40)),
)


def _filter(type_: str, field: str, content: st.SearchStrategy[Any]) -> st.SearchStrategy[Plain]:
    named = whole(type=st.just(type_))
    return mostly(both(named, st.fixed_dictionaries({field: content})), named)


CHANGES = st.one_of(
    _filter("RequestHeaderModifier", "requestHeaderModifier", HEADER_CHANGES),
    _filter("ResponseHeaderModifier", "responseHeaderModifier", HEADER_CHANGES),
    _filter("RequestMirror", "requestMirror", MIRRORS),
    _filter("URLRewrite", "urlRewrite", parts(hostname=HOSTS, path=PATH_CHANGES)),
)
EXTENSIONS = _filter("ExtensionRef", "extensionRef", whole(group=TEXT, kind=TEXT, name=NAMES))
FILTERS = mostly(
    st.one_of(CHANGES, _filter("CORS", "cors", CORS)),
    st.one_of(EXTENSIONS, _filter("RequestRedirect", "requestRedirect", REDIRECTS), whole(type=TEXT)),
)
BACKEND_REFS = both(
    TARGETS,
    parts(
        weight=words(0, 1, 70, 1_000_000, odd=(-1, 1_000_001)),
        filters=lists(mostly(CHANGES, FILTERS), 1),
    ),
)
SESSIONS = parts(
    sessionName=words("basket", "", odd=("two words",)),
    absoluteTimeout=DURATIONS,
    idleTimeout=DURATIONS,
    type=words("Cookie", "Header"),
    cookieConfig=parts(lifetimeType=words("Session", odd=("Permanent", "Wish"))),
    cookie=parts(
        name=words("basket", odd=("two words", "")),
        path=words("/", odd=("/x", "")),
        lifetimeType=words("Session", odd=("Permanent", "Wish")),
    ),
    header=parts(name=words("X-Session", odd=("two words", ""))),
)
_RULE: dict[str, st.SearchStrategy[Any]] = {
    "name": words("", odd=("same", "\x00")),
    "backendRefs": lists(BACKEND_REFS, 3, 1),
}
_MORE: dict[str, st.SearchStrategy[Any]] = {"filters": lists(FILTERS, 2), "sessionPersistence": SESSIONS}
HTTP_RULES = st.one_of(
    both(
        whole(**_RULE),
        parts(
            **_MORE,
            matches=lists(HTTP_MATCHES),
            timeouts=st.one_of(parts(request=DURATIONS), parts(backendRequest=DURATIONS)),
            retry=parts(
                codes=lists(words(400, 500, 599, odd=(100, 600))),
                attempts=words(0, 1, 100, odd=(-1, 101)),
                backoff=DURATIONS,
            ),
        ),
    ),
    whole(matches=lists(HTTP_MATCHES, 1), filters=lists(_filter("RequestRedirect", "requestRedirect", REDIRECTS), 1)),
)
GRPC_RULES = both(whole(**_RULE), parts(**_MORE, matches=lists(GRPC_MATCHES)))


def objects(
    kind: str,
    spec: st.SearchStrategy[Any],
    names: st.SearchStrategy[str] = NAMES,
    namespaces: st.SearchStrategy[str] = NAMESPACES,
    **fields: st.SearchStrategy[Any],
) -> st.SearchStrategy[Plain]:
    metadata = whole(name=names, namespace=namespaces, creationTimestamp=TIMES)
    return whole(kind=st.just(kind), metadata=metadata, spec=spec, **fields)


PARENTS = both(whole(name=st.just("gw")), parts(namespace=NAMESPACES, kind=words("Gateway", odd=("ListenerSet",))))
ROUTES = st.one_of(
    objects("HTTPRoute", whole(parentRefs=lists(PARENTS, 2), rules=lists(HTTP_RULES))),
    objects("GRPCRoute", whole(parentRefs=lists(PARENTS, 2), rules=lists(GRPC_RULES))),
)
UNSERVABLE: st.SearchStrategy[Plain] = st.sampled_from(
    [
        {"filters": [{"type": "Unheard-Of"}]},
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"port": 80}}]},
        {"sessionPersistence": {"sessionName": "two words"}},
        {"matches": [{"headers": [{"name": "two words", "value": "1"}]}]},
    ]
)
"""What makes a rule with backendRefs one that cannot be served, in both kinds of routes."""
_HTTP_ROUTING = both(whole(**_RULE), parts(matches=lists(HTTP_MATCHES)))
REFUSED_ROUTES = st.one_of(
    objects("HTTPRoute", whole(parentRefs=lists(PARENTS, 2), rules=lists(both(_HTTP_ROUTING, UNSERVABLE), 2, 1))),
    objects("GRPCRoute", whole(parentRefs=lists(PARENTS, 2), rules=lists(both(GRPC_RULES, UNSERVABLE), 2, 1))),
)
"""Routes of which no rule can be served."""
SERVICE_PORTS = both(
    whole(port=st.sampled_from([80, 443])),
    parts(
        name=st.sampled_from(["main", ""]),
        protocol=words("TCP", odd=("UDP",)),
        appProtocol=words("http", "https", "kubernetes.io/h2c", "kubernetes.io/ws", "", odd=("smtp",)),
    ),
)
SERVICES = objects(
    "Service", both(whole(ports=lists(SERVICE_PORTS, 3, 1)), parts(type=words("ClusterIP", odd=("ExternalName",))))
)


def _labelled(item: Plain, service: str) -> Plain:
    return {**item, "metadata": {**item["metadata"], "labels": {SERVICE_NAME_LABEL: service}}}


SLICES = st.builds(
    _labelled,
    objects(
        "EndpointSlice",
        st.just({}),
        addressType=words("IPv4", "IPv6", odd=("FQDN",)),
        ports=lists(
            both(whole(port=PORTS), parts(name=st.sampled_from(["main", ""]), protocol=words("TCP", odd=("UDP",))))
        ),
        endpoints=lists(
            both(
                whole(addresses=lists(words("10.0.0.1", "10.0.0.2", "fd00::1", odd=("fe80::1%eth0", "nas.lan")), 2)),
                parts(conditions=parts(ready=st.booleans(), serving=st.booleans(), terminating=st.booleans())),
            )
        ),
    ),
    NAMES,
)
PEMS = words("$ca:one", "$ca:two", odd=("nonsense", ""))
BACKENDS = objects(
    "Backend",
    mostly(
        st.one_of(
            whole(host=HOSTS, port=PORTS),
            whole(host=HOSTS, port=PORTS, protocol=st.sampled_from(["http", "h2c", "https"])),
            whole(
                host=HOSTS,
                port=PORTS,
                protocol=words("https"),
                tls=both(whole(hostname=HOSTS), parts(caCertificate=PEMS)),
            ),
        ),
        whole(host=TEXT, port=PORTS, protocol=TEXT),
    ),
)
CA_REFS = whole(group=st.just(""), kind=words("ConfigMap"), name=NAMES)
TARGET_REFS = both(
    whole(group=st.just(""), kind=words("Service"), name=NAMES), parts(sectionName=st.sampled_from(["main", "x"]))
)
TRUST = st.one_of(
    whole(caCertificateRefs=lists(CA_REFS, 3, 1)),
    whole(wellKnownCACertificates=words("System")),
    mostly(whole(wellKnownCACertificates=st.just("System")), st.just({})),
)
ALTERNATIVES = st.one_of(
    whole(type=words("Hostname"), hostname=HOSTS), whole(type=words("URI"), uri=words("spiffe://a/b", odd=("",)))
)
POLICIES = objects(
    "BackendTLSPolicy",
    whole(
        targetRefs=lists(TARGET_REFS, 3, 1),
        validation=both(both(whole(hostname=HOSTS), TRUST), parts(subjectAltNames=lists(ALTERNATIVES, 2))),
    ),
)
GRANT_SOURCES = whole(
    group=words(GATEWAY_API),
    kind=st.sampled_from(["HTTPRoute", "GRPCRoute", "Gateway"]),
    namespace=st.sampled_from(["apps", "other"]),
)
GRANT_TARGETS = both(
    st.sampled_from([{"group": "", "kind": "Service"}, {"group": "tunnelgw.dev", "kind": "Backend"}]),
    parts(name=NAMES),
)
GRANTS = objects(
    "ReferenceGrant",
    st.builds(
        lambda sources, targets: {"from": sources, "to": targets},
        lists(GRANT_SOURCES, 3, 1),
        lists(GRANT_TARGETS, 2, 1),
    ),
    namespaces=st.sampled_from(["apps", "other"]),
)
LISTENERS = [{"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}]
GATEWAYS = objects(
    "Gateway",
    whole(
        gatewayClassName=words("tunnel"),
        listeners=st.just(LISTENERS),
        tls=st.one_of(st.just({}), st.just({"backend": {"clientCertificateRef": {"name": "v1"}}})),
    ),
    names=st.just("gw"),
)
CONFIG_MAPS = objects("ConfigMap", st.just({}), data=st.fixed_dictionaries({"ca.crt": PEMS}))
SECRETS = objects(
    "Secret",
    st.just({}),
    type=words("kubernetes.io/tls", odd=("Opaque",)),
    data=st.fixed_dictionaries(
        {"tls.crt": st.just("$base64chain:one"), "tls.key": words("$base64key:one", odd=("!", ""))}
    ),
)
CLASSES = whole(
    kind=st.just("GatewayClass"),
    metadata=st.just({"name": "tunnel"}),
    spec=st.just({"controllerName": "tunnelgw.dev/tunnel-gateway-controller"}),
)


def _distinct(*groups: list[Plain]) -> list[Plain]:
    items = [item for group in groups for item in group]
    places = {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item for item in items}
    return list(places.values())


def worlds(routes: st.SearchStrategy[Plain]) -> st.SearchStrategy[list[Plain]]:
    """Objects of which no two have the same kind, namespace and name."""
    return st.builds(
        _distinct,
        lists(routes, 3, 1),
        lists(SERVICES, 4, 2),
        lists(SLICES, 4, 1),
        lists(GATEWAYS, 2, 1),
        lists(st.one_of(BACKENDS, POLICIES, GRANTS, CONFIG_MAPS, SECRETS), 8, 2),
        lists(CLASSES, 1, 1),
    )


WORLDS = worlds(ROUTES)
