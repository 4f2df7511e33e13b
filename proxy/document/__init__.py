"""The document that `PUT /config` takes: all that a proxy knows about the traffic it serves.

Written by people or by a controller, read by the proxy; the consumer owns the contract. In come bytes, out come
frozen structs (`Document` and its parts), or a `DocumentError` that lists problems by the path of their field.
Nothing here knows sockets, clocks or chance, and any thread may call it. docs/proxy-document.md is its manual and
docs/proxy-document.schema.json its JSON Schema. Field names and meanings follow Gateway API v1.6 where it has them.
"""

from proxy.document.codec import (
    decode,
    decode_backend,
    decode_outline,
    decode_route,
    encode_redacted,
    settings_of,
)
from proxy.document.content import Content, KnownRoute
from proxy.document.durations import seconds
from proxy.document.filters import (
    BackendFilters,
    Cors,
    ExternalAuth,
    Filters,
    Fraction,
    HeaderModifier,
    HeaderValue,
    PathModifier,
    RequestMirror,
    RequestRedirect,
    UrlRewrite,
)
from proxy.document.listeners import TUNNEL_PORTS, ClientValidation, Listener, ListenerTLS, canonical_address
from proxy.document.model import Document, Forwarding, Limits, Outline, Settings
from proxy.document.part import UNSET, Certificate, Unset
from proxy.document.problems import DocumentError, Problem
from proxy.document.reader import Reader, Reading
from proxy.document.routes import (
    BackendRef,
    FixedResponse,
    GrpcMethodMatch,
    HeaderMatch,
    Match,
    PathMatch,
    QueryParamMatch,
    Retry,
    Route,
    Rule,
    SessionPersistence,
    Timeouts,
)
from proxy.document.targets import (
    ActiveHealth,
    Backend,
    BackendTarget,
    BackendTLS,
    Circuit,
    PassiveHealth,
    SubjectAltName,
)
from proxy.document.tlsparts import TLSPart, tls_parts

__all__ = [
    "TUNNEL_PORTS",
    "UNSET",
    "ActiveHealth",
    "Backend",
    "BackendFilters",
    "BackendRef",
    "BackendTLS",
    "BackendTarget",
    "Certificate",
    "Circuit",
    "ClientValidation",
    "Content",
    "Cors",
    "Document",
    "DocumentError",
    "ExternalAuth",
    "Filters",
    "FixedResponse",
    "Forwarding",
    "Fraction",
    "GrpcMethodMatch",
    "HeaderMatch",
    "HeaderModifier",
    "HeaderValue",
    "KnownRoute",
    "Limits",
    "Listener",
    "ListenerTLS",
    "Match",
    "Outline",
    "PassiveHealth",
    "PathMatch",
    "PathModifier",
    "Problem",
    "QueryParamMatch",
    "Reader",
    "Reading",
    "RequestMirror",
    "RequestRedirect",
    "Retry",
    "Route",
    "Rule",
    "SessionPersistence",
    "Settings",
    "SubjectAltName",
    "TLSPart",
    "Timeouts",
    "Unset",
    "UrlRewrite",
    "canonical_address",
    "decode",
    "decode_backend",
    "decode_outline",
    "decode_route",
    "encode_redacted",
    "seconds",
    "settings_of",
    "tls_parts",
]
