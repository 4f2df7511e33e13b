"""Backends: the services that requests are forwarded to, how to reach them, and when to stop sending them requests."""

from typing import Annotated, Literal

import msgspec

from proxy.document.part import END, UNSET, Certificate, Duration, Name, Part, Pem, PlainHostname, ServerName, Unset

AddressText = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=300,
        description="host:port, where host is a name, an IPv4 or a [bracketed] IPv6 address.",
    ),
]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
StatusCode = Annotated[int, msgspec.Meta(ge=100, le=599)]


class SubjectAltName(Part, frozen=True):
    """A name that a backend's certificate may carry; exactly one of the two fields must be set."""

    hostname: PlainHostname | Unset = UNSET
    uri: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] | Unset = UNSET


class BackendTLS(Part, frozen=True):
    """How a backend's certificate is verified. One that fails gets no requests; the check cannot be turned off."""

    server_name: ServerName
    """Sent as SNI, and the name that the certificate must carry unless `subjectAltNames` is given. The certificate's
    common name counts only if it has no other names and is itself in `ca`."""
    ca: Pem | Unset = UNSET
    """The certificate authorities to trust. Absent: the system's."""
    subject_alt_names: Annotated[tuple[SubjectAltName, ...], msgspec.Meta(max_length=16)] = ()
    """When given, the certificate must carry one of these, and `serverName` is used for SNI only."""
    client_certificate: Certificate | Unset = UNSET


class Circuit(Part, frozen=True):
    """Limits of one worker process for one backend. Requests beyond `maxRequests` or `maxPending` are answered with 503
    at once; those beyond `maxConnections` wait for a connection, at most for `limits.connectTimeout`."""

    max_connections: Count = 1024
    max_requests: Count = 4096
    """Requests in progress."""
    max_pending: Count = 1024
    """Requests waiting for a connection."""


class PassiveHealth(Part, frozen=True):
    """Stop sending requests for a while to addresses that keep failing (outlier ejection)."""

    consecutive_failures: Count = 5
    """Connection errors, timeouts, and status codes 502, 503 and 504, in a row."""
    ejection_time: Duration = "30s"
    max_ejected_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    """Share of the backend's addresses that may be ejected at the same time."""


class ActiveHealth(Part, frozen=True):
    """Probe each address regularly; one that fails its probes gets no requests. Probes do not count towards
    `circuit`."""

    path: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^/[!\"$-~]*" + END, max_length=1024, description="Path in ASCII, without spaces and `#`."
        ),
    ] = "/"
    host: PlainHostname | Unset = UNSET
    """Host of the probe request. Default: the address."""
    interval: Duration = "10s"
    """Longer than 0s."""
    timeout: Duration = "2s"
    """Longer than 0s. A response that takes longer than this counts as a failure."""
    unhealthy_threshold: Count = 3
    """Failures in a row."""
    healthy_threshold: Count = 1
    """Successes in a row."""
    status_codes: tuple[StatusCode, ...] = (200, 204)
    """Status codes that count as success."""


class BackendTarget(Part, frozen=True):
    """Where requests go: either the name of an entry in `backends`, or addresses given right here."""

    backend: Name | Unset = UNSET
    """Name of an entry in `backends`; excludes `address`, `addresses`, `protocol` and `tls`."""
    address: AddressText | Unset = UNSET
    """Shorthand for `addresses` with one entry."""
    addresses: tuple[AddressText, ...] = ()
    protocol: Literal["http", "h2c", "https"] = "http"
    """HTTP/1.1 in clear, HTTP/2 in clear, or TLS with the version by ALPN."""
    tls: BackendTLS | Unset = UNSET
    """Needed for protocol https."""


class Backend(Part, frozen=True):
    """A backend that several rules can refer to. They share its connections, limits and health."""

    name: Name
    """Unique. Rules refer to the backend by it."""
    addresses: tuple[AddressText, ...] = ()
    """Requests are spread over these. Empty: the backend's share is answered with 503."""
    protocol: Literal["http", "h2c", "https"] = "http"
    """HTTP/1.1 in clear, HTTP/2 in clear, or TLS with the version by ALPN."""
    tls: BackendTLS | Unset = UNSET
    """Needed for protocol https."""
    circuit: Circuit = Circuit()
    passive_health: PassiveHealth | Unset = UNSET
    active_health: ActiveHealth | Unset = UNSET
