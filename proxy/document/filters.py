"""Filters: what is changed, answered, or copied on the way of a request and its response.

They are fields and not a list, so the order is fixed: CORS preflight, redirect, then the question to who authorizes,
then request header changes and rewrite, then the backend's own, then mirrors, which get the request as the backend
does; header changes and CORS headers of the response come last.
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
    """Changes of header fields. Of entries whose names differ only in case the first counts."""

    set: Annotated[tuple[HeaderValue, ...], msgspec.Meta(max_length=16)] = ()
    """Overwrites the field, or creates it."""
    add: Annotated[tuple[HeaderValue, ...], msgspec.Meta(max_length=16)] = ()
    """Appends one more field of this name."""
    remove: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=16)] = ()


class PathModifier(Part, frozen=True):
    """A new path: `ReplaceFullPath` replaces all of it, `ReplacePrefixMatch` the prefix that the rule matched."""

    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    replace_full_path: PathText | Unset = UNSET
    replace_prefix_match: PathText | Unset = UNSET


class RequestRedirect(Part, frozen=True):
    """Answer with a redirect; what is absent stays as the client sent it."""

    scheme: Literal["http", "https"] | Unset = UNSET
    hostname: PlainHostname | Unset = UNSET
    port: Port | Unset = UNSET
    """Default: the well-known port of `scheme` when that is given, else the listener's public port."""
    path: PathModifier | Unset = UNSET
    status_code: Literal[301, 302, 303, 307, 308] = 302


class UrlRewrite(Part, frozen=True):
    """Change host or path before forwarding."""

    hostname: PlainHostname | Unset = UNSET
    """Sent as Host; the original goes to X-Forwarded-Host."""
    path: PathModifier | Unset = UNSET


class Fraction(Part, frozen=True):
    """A share, numerator of denominator."""

    numerator: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    denominator: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 100


class RequestMirror(Part, frozen=True):
    """Send a copy of requests to another backend and ignore what it answers."""

    backend: BackendTarget
    percent: Percent | Unset = UNSET
    """Share of requests to copy; neither this nor `fraction` copies all."""
    fraction: Fraction | Unset = UNSET


class Cors(Part, frozen=True):
    """Cross-origin resource sharing: preflights are answered here, responses get the headers that browsers ask for.

    A preflight is matched as the request that it announces; docs/proxy-document.md says what that means.
    """

    allow_origins: Annotated[tuple[Origin, ...], msgspec.Meta(max_length=64)] = ()
    allow_methods: Annotated[tuple[Method | Literal["*"], ...], msgspec.Meta(max_length=9)] = ()
    """GET, HEAD and POST are always usable."""
    allow_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    expose_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    allow_credentials: bool = False
    max_age: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 5
    """Seconds for which browsers may remember a preflight."""


class ExternalAuth(Part, frozen=True):
    """Ask a server whether a request is allowed, before anything of it goes to a backend.

    The server is asked with the request's method, host, normal path and query, and no body. Status code 200 allows
    the request, and its cookies go to the client. 3xx, 4xx and 5xx go to the client as they are, other codes become
    403; where the server cannot be asked, the request fails as it does for a backend.
    """

    backend: BackendTarget
    path: PathText | Unset = UNSET
    """Put before the request's path."""
    allowed_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    """Fields of the request that the server gets beside Authorization. X-Forwarded-* are those that backends get."""
    allowed_response_headers: Annotated[tuple[FieldName, ...], msgspec.Meta(max_length=64)] = ()
    """Fields of its 200 that backends get; what clients send by these names is taken away. Empty: all but those that
    describe the message itself, in place of the client's."""


class BackendFilters(Part, frozen=True):
    """Filters of one backend of a rule."""

    request_header_modifier: HeaderModifier | Unset = UNSET
    response_header_modifier: HeaderModifier | Unset = UNSET
    url_rewrite: UrlRewrite | Unset = UNSET
    """A backend's takes precedence over its rule's, part by part."""
    request_mirrors: Annotated[tuple[RequestMirror, ...], msgspec.Meta(max_length=16)] = ()


class Filters(BackendFilters, frozen=True):
    """Filters of a rule."""

    request_redirect: RequestRedirect | Unset = UNSET
    cors: Cors | Unset = UNSET
    external_auth: ExternalAuth | Unset = UNSET
