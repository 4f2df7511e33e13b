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
    """A condition on the path, without query. `PathPrefix` goes by whole elements: /a covers /a and /a/b, not /ab."""

    type: Literal["PathPrefix", "Exact", "RegularExpression"] = "PathPrefix"
    value: PathText = "/"
    """A regular expression must match the whole path; docs/proxy-document.md describes the dialect."""


class HeaderMatch(Part, frozen=True):
    """A condition on a header field. A field that was sent several times is compared as one list, joined by ", "."""

    name: FieldName
    value: FieldValue
    type: ValueType = "Exact"


class QueryParamMatch(Part, frozen=True):
    """A condition on a query parameter; of a repeated parameter the first value counts."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    """Compared exactly, case included, after percent-decoding."""
    value: QueryText
    type: ValueType = "Exact"


class GrpcMethodMatch(Part, frozen=True):
    """A condition on the gRPC method; at least one of the two names."""

    type: ValueType = "Exact"
    service: PathText | Unset = UNSET
    method: PathText | Unset = UNSET


class Match(Part, frozen=True):
    """Conditions that must all hold. Everything absent: matches each request."""

    path: PathMatch | Unset = UNSET
    """For routes of kind http."""
    method: Method | Unset = UNSET
    """For routes of kind http."""
    grpc: GrpcMethodMatch | Unset = UNSET
    """For routes of kind grpc."""
    headers: Annotated[tuple[HeaderMatch, ...], msgspec.Meta(max_length=16)] = ()
    """Of entries whose names differ only in case the first counts."""
    query_params: Annotated[tuple[QueryParamMatch, ...], msgspec.Meta(max_length=16)] = ()
    """For routes of kind http."""

    def expressions(self) -> Iterator[tuple[str, str]]:
        """The regular expressions, each with its place in the match; a new one takes up to 10 ms to build."""
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
    """A response that comes from the document."""

    status_code: Annotated[int, msgspec.Meta(ge=200, le=599)]
    body: Annotated[str, msgspec.Meta(max_length=65536)] = ""
    content_type: FieldValue = "text/plain; charset=utf-8"


class BackendRef(BackendTarget, frozen=True):
    """A backend with its share of a rule's requests: weight divided by the sum of weights."""

    weight: Weight = 1
    """0 takes no new requests; sessions that a cookie or header ties to this backend stay until it leaves the rule."""
    respond: FixedResponse | Unset = UNSET
    """Answer this share instead of forwarding it: status code 500 for a reference that is not valid."""
    filters: BackendFilters = BackendFilters()
    """Applied after the rule's filters, and only to requests that go to this backend."""


class Timeouts(Part, frozen=True):
    """Limits of a rule; one that expires before the response began is answered 504."""

    request: Duration | Unset = UNSET
    """From the complete request head to the complete response, retries included."""
    backend_request: Duration | Unset = UNSET
    """One attempt against one backend; at most `request`."""


class Retry(Part, frozen=True):
    """When a failed attempt is repeated."""

    attempts: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    """Retries after the first attempt."""
    codes: Annotated[tuple[Annotated[int, msgspec.Meta(ge=400, le=599)], ...], msgspec.Meta(max_length=200)] = ()
    """Status codes of the backend that count as failure; other responses are passed on."""
    backoff: Duration = "25ms"
    """Shortest wait between attempts."""
    connection_errors: bool = True
    """Also retry when connecting fails, or the connection breaks before a response began."""
    max_body_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BODY_BYTES)] = 64 * 1024
    """Requests with a larger body cannot be repeated, and are not."""


class SessionPersistence(Part, frozen=True):
    """Requests of one session go to the same address of the same backend."""

    session_name: FieldName | Unset = UNSET
    """Name of the cookie or of the header field; no two rules of a host should have the same. Default:
    `tunnelgw-session`, and for a rule with matches or a route with `listeners`, a hyphen and a number that stands for
    them."""
    type: Literal["Cookie", "Header"] = "Cookie"
    absolute_timeout: Duration | Unset = UNSET
    """A session ends after this time, however busy it is."""
    idle_timeout: Duration | Unset = UNSET
    """A session ends after this time without a request."""
    lifetime_type: Literal["Session", "Permanent"] = "Session"
    """`Permanent` lets the cookie outlive the browser and needs `absoluteTimeout`."""


class Rule(Part, frozen=True):
    """What to do with requests that fit one of the matches."""

    name: str = ""
    """Unique in the route."""
    matches: Annotated[tuple[Match, ...], msgspec.Meta(max_length=64)] = ()
    """Any of these; none given matches every request."""
    filters: Filters = Filters()
    backends: tuple[BackendRef, ...] = ()
    """None, and neither a redirect nor `respond`: requests are answered 500."""
    respond: FixedResponse | Unset = UNSET
    """Answer with this response; excludes `backends` and a redirect."""
    timeouts: Timeouts = Timeouts()
    retry: Retry | Unset = UNSET
    session_persistence: SessionPersistence | Unset = UNSET


class Route(Part, frozen=True):
    """Rules for some hosts. Among equally good matches the older route wins, then the first name in the alphabet."""

    name: Name | Unset = UNSET
    """Unique among routes of its kind, such as `namespace/name`. Default: `routes[N]`."""
    kind: Literal["http", "grpc"] = "http"
    """Routes of kind grpc see gRPC requests only, and before routes of kind http with an equally good hostname."""
    created_at: Timestamp | Unset = UNSET
    """Routes without a time count as younger than all others."""
    hostnames: tuple[Hostname, ...] = ()
    """Empty: every host of the listener."""
    listeners: tuple[Name, ...] = ()
    """Names of listeners that serve this route. Empty: all."""
    rules: Annotated[tuple[Rule, ...], msgspec.Meta(max_length=128)] = ()
    backends: tuple[BackendRef, ...] = ()
    """Short for one rule that matches everything and has these backends; excludes `rules`."""

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules, with the short form written out."""
        return self.rules or (Rule(backends=self.backends),)
