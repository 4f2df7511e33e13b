"""Routes: which requests go where. A route has rules; a rule has matches, filters and backends."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec

from proxy.document.filters import BackendFilters, Filters, Method
from proxy.document.part import (
    UNSET,
    Duration,
    FieldName,
    FieldValue,
    Hostname,
    Name,
    Part,
    PathText,
    Timeout,
    Timestamp,
    Unset,
    ValueType,
)
from proxy.document.targets import BackendTarget

Weight = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
QueryText = Annotated[str, msgspec.Meta(max_length=1024)]
MAX_BODY_BYTES = 16 * 1024 * 1024
_EXPRESSION: Final = "RegularExpression"


class PathMatch(Part, frozen=True):
    """A condition on the path, without the query. `PathPrefix` compares whole elements: /a covers /a and /a/b, not
    /ab."""

    type: Literal["PathPrefix", "Exact", "RegularExpression"] = "PathPrefix"
    value: PathText = "/"
    """A regular expression must match the whole path; docs/proxy-document.md describes the dialect."""


class HeaderMatch(Part, frozen=True):
    """A condition on a header field. A field sent several times is compared as one value, joined by ", ". Fields that
    describe clients, such as X-Forwarded-For, are compared as the backend gets them."""

    name: FieldName
    value: FieldValue
    type: ValueType = "Exact"


class QueryParamMatch(Part, frozen=True):
    """A condition on a query parameter. The first value of a repeated parameter counts."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    """Compared case-sensitively, after percent-decoding."""
    value: QueryText
    type: ValueType = "Exact"


class GrpcMethodMatch(Part, frozen=True):
    """A condition on the gRPC call; needs `service`, `method` or both."""

    type: ValueType = "Exact"
    service: PathText | Unset = UNSET
    method: PathText | Unset = UNSET


class Match(Part, frozen=True):
    """Conditions that must all hold. Without any condition it matches every request."""

    path: PathMatch | Unset = UNSET
    """For routes of kind http."""
    method: Method | Unset = UNSET
    """For routes of kind http."""
    grpc: GrpcMethodMatch | Unset = UNSET
    """For routes of kind grpc."""
    headers: Annotated[tuple[HeaderMatch, ...], msgspec.Meta(max_length=16)] = ()
    """Of entries whose names differ only in case, the first counts."""
    query_params: Annotated[tuple[QueryParamMatch, ...], msgspec.Meta(max_length=16)] = ()
    """For routes of kind http. Of entries with the same name, the first counts."""

    def expressions(self) -> Iterator[tuple[str, str]]:
        """The regular expressions, each with its path inside the match. Compiling a new one takes up to 10 ms."""
        if self.path and self.path.type == _EXPRESSION:
            yield self.path.value, "path.value"
        if self.grpc and self.grpc.type == _EXPRESSION:
            names = (("service", self.grpc.service), ("method", self.grpc.method))
            yield from ((value, f"grpc.{name}") for name, value in names if value)
        groups: tuple[tuple[str, tuple[HeaderMatch | QueryParamMatch, ...]], ...] = (
            ("headers", self.headers),
            ("queryParams", self.query_params),
        )
        for group, fields in groups:
            for place, field in enumerate(fields):
                if field.type == _EXPRESSION:
                    yield field.value, f"{group}[{place}].value"


class FixedResponse(Part, frozen=True):
    """A response that the proxy sends by itself, without a backend."""

    status_code: Annotated[int, msgspec.Meta(ge=200, le=599)]
    body: Annotated[str, msgspec.Meta(max_length=65536)] = ""
    content_type: FieldValue = "text/plain; charset=utf-8"


class BackendRef(BackendTarget, frozen=True):
    """A backend with its share of a rule's requests: its weight divided by the sum of all weights."""

    weight: Weight = 1
    """0 gets no new requests. Sessions already bound to this backend stay with it until it leaves the rule."""
    respond: FixedResponse | Unset = UNSET
    """Answer this share instead of forwarding it. A controller uses it for invalid references, with status code 500."""
    filters: BackendFilters = BackendFilters()
    """Applied after the rule's filters, to requests that go to this backend only."""


class Timeouts(Part, frozen=True):
    """Time limits of a rule. When one expires before the response has begun, the request is answered with 504."""

    request: Timeout | Unset = UNSET
    """From the end of the request head to the end of the response, retries included."""
    backend_request: Timeout | Unset = UNSET
    """For one attempt at one backend; at most `request`."""


class Retry(Part, frozen=True):
    """Which failed attempts are retried, and how often."""

    attempts: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    """Retries after the first attempt."""
    codes: Annotated[tuple[Annotated[int, msgspec.Meta(ge=400, le=599)], ...], msgspec.Meta(max_length=200)] = ()
    """Status codes from the backend that count as failures; other responses are forwarded."""
    backoff: Duration = "25ms"
    """Shortest delay between attempts. Later delays are longer, by chance, up to some ten times this."""
    connection_errors: bool = True
    """Also retry when connecting fails, or when the connection breaks before the response has begun."""
    max_body_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BODY_BYTES)] = 64 * 1024
    """Requests with a larger body are not retried, since the body is kept in memory for a retry."""


class SessionPersistence(Part, frozen=True):
    """Send all requests of a session to the same address of the same backend."""

    session_name: FieldName | Unset = UNSET
    """Name of the cookie or header field. Rules of one host should use different names. Default: `tunnelgw-session`;
    for a rule with matches, or a route with `listeners` or of kind grpc, followed by a hyphen and a hash of these."""
    type: Literal["Cookie", "Header"] = "Cookie"
    absolute_timeout: Timeout | Unset = UNSET
    """A session ends after this time, even when in use; `0s`: never for that reason."""
    idle_timeout: Timeout | Unset = UNSET
    """A session ends after this time without a request."""
    lifetime_type: Literal["Session", "Permanent"] = "Session"
    """`Permanent`: the cookie survives the end of the browser session. Needs `absoluteTimeout`."""


class Rule(Part, frozen=True):
    """What to do with requests that match any of `matches`."""

    name: str = ""
    """Unique in the route."""
    matches: Annotated[tuple[Match, ...], msgspec.Meta(max_length=64)] = ()
    """A request must match one of these. Empty: every request does."""
    filters: Filters = Filters()
    backends: tuple[BackendRef, ...] = ()
    """Empty, with neither a redirect nor `respond`: requests are answered with 500."""
    respond: FixedResponse | Unset = UNSET
    """Answer with this response; excludes `backends` and a redirect."""
    timeouts: Timeouts = Timeouts()
    retry: Retry | Unset = UNSET
    session_persistence: SessionPersistence | Unset = UNSET


class Route(Part, frozen=True):
    """Rules for some hostnames. Among equally specific matches the older route wins, then the one whose name comes
    first in alphabetical order."""

    name: Name | Unset = UNSET
    """Unique among routes of its kind, such as `namespace/name`. Default: `routes[N]`."""
    kind: Literal["http", "grpc"] = "http"
    """Routes of kind grpc get gRPC requests only. At the same hostname they are tried before routes of kind http."""
    created_at: Timestamp | Unset = UNSET
    """Routes without a time count as the youngest."""
    hostnames: tuple[Hostname, ...] = ()
    """Empty: every host that the listener serves."""
    listeners: tuple[Name, ...] = ()
    """Names of the listeners that serve this route. Empty: all listeners."""
    rules: Annotated[tuple[Rule, ...], msgspec.Meta(max_length=128)] = ()
    backends: tuple[BackendRef, ...] = ()
    """Shorthand for a single rule with these backends that matches everything; excludes `rules`."""

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules, with the shorthand expanded."""
        return self.rules or (Rule(backends=self.backends),)
