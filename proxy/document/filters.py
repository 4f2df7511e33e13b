"""Filters: what is changed, answered or copied between a request and its response.

Filters are fields, not a list, so their order is fixed: CORS preflight, redirect, external authorization, request
header changes and rewrite, the same of the chosen backend, then mirrors, which get the request as the backend does.
Header changes and CORS headers of the response come last.
"""

from typing import Annotated, Literal

import msgspec

from proxy.document.part import END, UNSET, FieldName, FieldValue, Part, PathText, PlainHostname, Port, Unset
from proxy.document.targets import BackendTarget

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Method = Literal["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]
Origin = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(\*|[a-z][a-z0-9+.-]*://(\*|(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?)" + END,
        max_length=253,
        description="`*`, or scheme://host[:port] whose host may begin with `*.` for any names below.",
    ),
]


class HeaderValue(Part, frozen=True):
    """A header field."""

    name: FieldName
    value: FieldValue


class HeaderModifier(Part, frozen=True):
    """Changes to header fields. Of entries whose names differ only in case, the first counts."""

    set: Annotated[tuple[HeaderValue, ...], msgspec.Meta(max_length=16)] = ()
    """Sets the field to this value, whether or not it was there."""
    add: Annotated[tuple[HeaderValue, ...], msgspec.Meta(max_length=16)] = ()
    """Adds one more field of this name; to Cookie, which must be one field, more cookies."""
    remove: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=16)] = ()


class PathModifier(Part, frozen=True):
    """How to replace the path: `ReplaceFullPath` replaces all of it, `ReplacePrefixMatch` the prefix that the rule
    matched."""

    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    replace_full_path: PathText | Unset = UNSET
    replace_prefix_match: PathText | Unset = UNSET


class RequestRedirect(Part, frozen=True):
    """Answer with a redirect. Parts of the URL that are not given stay as the client sent them."""

    scheme: Literal["http", "https"] | Unset = UNSET
    hostname: PlainHostname | Unset = UNSET
    port: Port | Unset = UNSET
    """Default: the default port of `scheme` if that is given, else the listener's public port."""
    path: PathModifier | Unset = UNSET
    status_code: Literal[301, 302, 303, 307, 308] = 302


class UrlRewrite(Part, frozen=True):
    """Change the host or the path before forwarding."""

    hostname: PlainHostname | Unset = UNSET
    """Sent as Host; the original host is sent in X-Forwarded-Host."""
    path: PathModifier | Unset = UNSET


class Fraction(Part, frozen=True):
    """A share of requests: numerator divided by denominator."""

    numerator: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    denominator: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 100


class RequestMirror(Part, frozen=True):
    """Send a copy of requests to another backend, and ignore its responses."""

    backend: BackendTarget
    percent: Percent | Unset = UNSET
    """Share of requests to copy. With neither this nor `fraction`, all are copied."""
    fraction: Fraction | Unset = UNSET


class Cors(Part, frozen=True):
    """Cross-origin resource sharing: the proxy answers preflights, and adds the CORS headers to responses.

    A preflight is matched as if it were the request that it announces, see docs/proxy-document.md.
    """

    allow_origins: Annotated[tuple[Origin, ...], msgspec.Meta(max_length=64)] = ()
    allow_methods: Annotated[tuple[Method | Literal["*"], ...], msgspec.Meta(max_length=9)] = ()
    """Browsers always allow GET, HEAD and POST."""
    allow_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    expose_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    allow_credentials: bool = False
    max_age: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 5
    """Seconds for which browsers may cache the response to a preflight."""


class ExternalAuth(Part, frozen=True):
    """Ask an authorization server whether a request is allowed, before any of it goes to a backend.

    The server gets a request with the same method, host, query and normalised path, without a body. Status code 200
    allows the request, and cookies set by that response go to the client. 3xx, 4xx and 5xx responses go to the client
    as they are; other codes become 403. An unreachable server has the same effect as an unreachable backend.
    """

    backend: BackendTarget
    path: PathText | Unset = UNSET
    """Prefix for the path in the request to the server."""
    allowed_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    """Fields of the request that the server gets, besides Authorization. X-Forwarded-* have the values that backends
    get."""
    allowed_response_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    """Fields of the server's 200 response that are passed to backends; fields of these names from the client are
    removed. Empty: all except those that describe the message itself, each replacing the client's."""


class BackendFilters(Part, frozen=True):
    """Filters of one backend of a rule."""

    request_header_modifier: HeaderModifier | Unset = UNSET
    response_header_modifier: HeaderModifier | Unset = UNSET
    url_rewrite: UrlRewrite | Unset = UNSET
    """On a backend, `hostname` and `path` each take precedence over the rule's."""
    request_mirrors: Annotated[tuple[RequestMirror, ...], msgspec.Meta(max_length=16)] = ()


class Filters(BackendFilters, frozen=True):
    """Filters of a rule."""

    request_redirect: RequestRedirect | Unset = UNSET
    cors: Cors | Unset = UNSET
    external_auth: ExternalAuth | Unset = UNSET
