"""The document that `PUT /config` takes: everything a proxy knows about the traffic it serves.

People or a controller write it and the proxy reads it, so the proxy owns the contract. Bytes are decoded to frozen
structs (`Document` and its parts), or refused with a `DocumentError` that lists each problem with the path of its
field. Nothing here uses sockets, clocks or random numbers, and any thread may call it. docs/proxy-document.md is the
manual and docs/proxy-document.schema.json the JSON Schema. Field names and meanings follow Gateway API v1.6 wherever
it has an equivalent. Others import from here, apart from `handover`, with which the supervisor tells its workers of a
new document.

reader > codec                          one document after another; bytes to document and back
handover > content                      what a worker is told of the next document; its pieces, recognised again
check > checkroutes > checkfilters      what spans several fields, checked from the whole down
checktargets · tlsparts                 likewise of backends; all TLS settings, wherever they are
shape · repeats                         all fields of a wrong type, out of range, or there twice
model > listeners · routes · targets    the whole, where requests enter, which go where, and the backends
filters                                 what is changed, answered or copied on the way
part > durations                        the base class and value types of all parts
problems                                what is wrong, by path
"""

from proxy.document.check import check_backends, check_routes
from proxy.document.checkroutes import MAX_RULE_WEIGHT, Patterns, sound_matches
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
from proxy.document.model import MAX_VERSION, Document, Forwarding, Limits, Outline, Settings
from proxy.document.part import TIMESTAMP, UNSET, Certificate, Unset
from proxy.document.problems import MAX_PROBLEMS, DocumentError, Findings, Problem, excerpt
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
from proxy.document.shape import find_shape_problems
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
    "MAX_PROBLEMS",
    "MAX_RULE_WEIGHT",
    "MAX_VERSION",
    "TIMESTAMP",
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
    "Findings",
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
    "Patterns",
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
    "check_backends",
    "check_routes",
    "decode",
    "decode_backend",
    "decode_outline",
    "decode_route",
    "encode_redacted",
    "excerpt",
    "find_shape_problems",
    "seconds",
    "settings_of",
    "sound_matches",
    "tls_parts",
]
