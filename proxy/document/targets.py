"""Backends: the services that requests are forwarded to, how they are reached, and when they are left alone."""

from typing import Annotated, Literal

import msgspec

from proxy.document.part import END, UNSET, Certificate, Duration, Name, Part, Pem, PlainHostname, Unset

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
    """A name that a backend's certificate may carry; exactly one of the two fields."""

    hostname: PlainHostname | Unset = UNSET
    uri: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] | Unset = UNSET


class BackendTLS(Part, frozen=True):
    """How a backend proves who it is. A backend that cannot is never spoken to; nothing turns this check off."""

    server_name: PlainHostname
    """Sent as SNI, and the name that the certificate must carry unless `subjectAltNames` is given. The common name
    counts only where the certificate has no other and is in `ca` itself."""
    ca: Pem | Unset = UNSET
    """The authorities to trust. Absent: those of the system."""
    subject_alt_names: Annotated[tuple[SubjectAltName, ...], msgspec.Meta(max_length=16)] = ()
    """When given, the certificate must carry one of these, and `serverName` is only sent."""
    client_certificate: Certificate | Unset = UNSET


class Circuit(Part, frozen=True):
    """Limits of one worker process towards one backend. Requests beyond `maxRequests` or `maxPending` are answered 503
    at once; those beyond `maxConnections` wait for a connection, for `limits.connectTimeout` at most."""

    max_connections: Count = 1024
    max_requests: Count = 4096
    """Requests under way."""
    max_pending: Count = 1024
    """Requests that wait for a connection."""


class PassiveHealth(Part, frozen=True):
    """Addresses that keep failing get no requests for a while."""

    consecutive_failures: Count = 5
    """Connection errors, timeouts and status codes 502, 503 and 504 in a row."""
    ejection_time: Duration = "30s"
    max_ejected_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    """Share of the backend's addresses that may be ejected at once."""


class ActiveHealth(Part, frozen=True):
    """Each address is asked regularly, beside `circuit`; one that does not answer as wanted gets no requests."""

    path: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^/[!\"$-~]*" + END, max_length=1024, description="Path in ASCII, without spaces and `#`."
        ),
    ] = "/"
    host: PlainHostname | Unset = UNSET
    """Host of the question. Default: the address."""
    interval: Duration = "10s"
    """Longer than 0s."""
    timeout: Duration = "2s"
    """Longer than 0s: an answer that never comes is a failure."""
    unhealthy_threshold: Count = 3
    """Failures in a row."""
    healthy_threshold: Count = 1
    """Successes in a row."""
    status_codes: tuple[StatusCode, ...] = (200, 204)
    """Status codes that count as success."""


class BackendTarget(Part, frozen=True):
    """Where requests go: either the name of an entry in `backends`, or addresses given on the spot."""

    backend: Name | Unset = UNSET
    """Name of an entry in `backends`; excludes the other fields of a target."""
    address: AddressText | Unset = UNSET
    """Short for `addresses` with one entry."""
    addresses: tuple[AddressText, ...] = ()
    protocol: Literal["http", "h2c", "https"] = "http"
    """HTTP/1.1 in clear, HTTP/2 in clear, or TLS with the version by ALPN."""
    tls: BackendTLS | Unset = UNSET
    """Needed for protocol https."""


class Backend(Part, frozen=True):
    """A backend that several rules share: its connections, limits and health are counted together."""

    name: Name
    """Unique; references name their backend by it."""
    addresses: tuple[AddressText, ...] = ()
    """Requests are spread over these. None: the backend's share is answered 503."""
    protocol: Literal["http", "h2c", "https"] = "http"
    """HTTP/1.1 in clear, HTTP/2 in clear, or TLS with the version by ALPN."""
    tls: BackendTLS | Unset = UNSET
    """Needed for protocol https."""
    circuit: Circuit = Circuit()
    passive_health: PassiveHealth | Unset = UNSET
    active_health: ActiveHealth | Unset = UNSET
