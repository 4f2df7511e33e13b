"""The document that `PUT /config` takes: everything a proxy knows about the traffic it serves.

People or a controller write it and the proxy reads it, so the proxy owns the contract. Bytes are decoded to frozen
structs (`Document` and its parts), or refused with a `DocumentError` that lists each problem with the path of its
field. Nothing here uses sockets, clocks or random numbers, and any thread may call it. docs/proxy-document.md is the
manual and docs/proxy-document.schema.json the JSON Schema. Field names and meanings follow Gateway API v1.6 wherever
it has an equivalent.
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
