"""HTTPRoute and GRPCRoute (gateway.networking.k8s.io/v1), including the fields of the experimental channel.

Both kinds have the same shape here, since they share parents, hostnames, filters and backends. Only matches, timeouts
and retries differ.
"""

from collections.abc import Iterator

import msgspec

from tunnelgw.model.meta import NO_STATUS, Object
from tunnelgw.model.part import Part
from tunnelgw.model.refs import CORE, LocalRef, ParentRef


class HeaderValue(Part, frozen=True):
    name: str
    value: str


class HeaderModifier(Part, frozen=True):
    set: tuple[HeaderValue, ...] = ()
    add: tuple[HeaderValue, ...] = ()
    remove: tuple[str, ...] = ()


class PathModifier(Part, frozen=True):
    type: str
    replace_full_path: str | None = None
    replace_prefix_match: str | None = None


class RequestRedirect(Part, frozen=True):
    scheme: str | None = None
    hostname: str | None = None
    path: PathModifier | None = None
    port: int | None = None
    status_code: int = 302


class UrlRewrite(Part, frozen=True):
    hostname: str | None = None
    path: PathModifier | None = None


class Fraction(Part, frozen=True):
    numerator: int
    denominator: int = 100


class BackendObjectRef(Part, frozen=True):
    """`namespace` empty: the route's. `port` is the Service's port, 0 when absent."""

    name: str
    group: str = CORE
    kind: str = "Service"
    namespace: str = ""
    port: int = 0


class RequestMirror(Part, frozen=True):
    backend_ref: BackendObjectRef
    percent: int | None = None
    fraction: Fraction | None = None


class Cors(Part, frozen=True):
    allow_origins: tuple[str, ...] = ()
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    allow_credentials: bool | None = None
    max_age: int = 5


class HttpAuth(Part, frozen=True):
    path: str = ""
    allowed_headers: tuple[str, ...] = ()
    allowed_response_headers: tuple[str, ...] = ()


class ForwardBody(Part, frozen=True):
    max_size: int = 0
    """In bytes; 0 forwards none."""


class ExternalAuth(Part, frozen=True):
    protocol: str
    backend_ref: BackendObjectRef
    http: HttpAuth = HttpAuth()
    forward_body: ForwardBody = ForwardBody()


class Filter(Part, frozen=True):
    """`type` determines which of the other fields is set."""

    type: str
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_mirror: RequestMirror | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: UrlRewrite | None = None
    cors: Cors | None = None
    external_auth: ExternalAuth | None = None
    extension_ref: LocalRef | None = None


class BackendRef(BackendObjectRef, frozen=True):
    weight: int = 1
    filters: tuple[Filter, ...] = ()


class PathMatch(Part, frozen=True):
    type: str = "PathPrefix"
    value: str = "/"


class ValueMatch(Part, frozen=True):
    """A match of a header field or a query parameter."""

    name: str
    value: str
    type: str = "Exact"


class GrpcMethodMatch(Part, frozen=True):
    type: str = "Exact"
    service: str | None = None
    method: str | None = None


class HttpMatch(Part, frozen=True):
    path: PathMatch = PathMatch()
    headers: tuple[ValueMatch, ...] = ()
    query_params: tuple[ValueMatch, ...] = ()
    method: str | None = None


class GrpcMatch(Part, frozen=True):
    method: GrpcMethodMatch | None = None
    headers: tuple[ValueMatch, ...] = ()


class Timeouts(Part, frozen=True):
    """Durations in Gateway API's format, such as `1m30s`."""

    request: str | None = None
    backend_request: str | None = None


class Retry(Part, frozen=True):
    codes: tuple[int, ...] = ()
    attempts: int | None = None
    backoff: str | None = None


class CookieConfig(Part, frozen=True):
    name: str | None = None
    path: str = "/"
    lifetime_type: str = "Session"


class HeaderConfig(Part, frozen=True):
    name: str | None = None


class SessionPersistence(Part, frozen=True):
    """Up to Gateway API v1.6 it has `session_name`, `idle_timeout` and `cookie_config`; later versions have `cookie`
    and `header` instead.
    """

    session_name: str | None = None
    absolute_timeout: str | None = None
    idle_timeout: str | None = None
    type: str = "Cookie"
    cookie_config: CookieConfig | None = None
    cookie: CookieConfig | None = None
    header: HeaderConfig | None = None


class RouteRule(Part, frozen=True):
    name: str = ""
    filters: tuple[Filter, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()
    session_persistence: SessionPersistence | None = None


class HttpRule(RouteRule, frozen=True):
    matches: tuple[HttpMatch, ...] = ()
    timeouts: Timeouts | None = None
    retry: Retry | None = None


class GrpcRule(RouteRule, frozen=True):
    matches: tuple[GrpcMatch, ...] = ()


class RouteSpec(Part, frozen=True):
    parent_refs: tuple[ParentRef, ...] = ()
    hostnames: tuple[str, ...] = ()


class HttpRouteSpec(RouteSpec, frozen=True):
    rules: tuple[HttpRule, ...] = ()


class GrpcRouteSpec(RouteSpec, frozen=True):
    rules: tuple[GrpcRule, ...] = ()


class HttpRoute(Object, frozen=True):
    spec: HttpRouteSpec
    status: msgspec.Raw = NO_STATUS


class GrpcRoute(Object, frozen=True):
    spec: GrpcRouteSpec
    status: msgspec.Raw = NO_STATUS


Route = HttpRoute | GrpcRoute
Rule = HttpRule | GrpcRule


def backend_refs(route: Route) -> Iterator[BackendObjectRef]:
    """All backends to which a route forwards or mirrors requests, or which it has authorize them."""
    for rule in route.spec.rules:
        yield from rule.backend_refs
        for filters in (rule.filters, *(ref.filters for ref in rule.backend_refs)):
            for entry in filters:
                for asked in (entry.request_mirror, entry.external_auth):
                    if asked is not None:
                        yield asked.backend_ref
