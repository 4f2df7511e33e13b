"""The document as a whole, and its settings that belong to no listener, backend or route."""

from typing import Annotated

import msgspec

from proxy.document.listeners import Listener
from proxy.document.part import UNSET, FieldName, Part, Timeout, Unset
from proxy.document.routes import Route
from proxy.document.targets import Backend

MAX_VERSION = 2**63 - 1

Version = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]


class Forwarding(Part, frozen=True):
    """Which fields tell backends about the client, and which peers are trusted to name the client."""

    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks (10.0.0.0/8) whose X-Forwarded-* and Forwarded fields are kept; those from other peers are
    replaced. Their X-Forwarded-Proto also sets the scheme of redirects, and decides whether session cookies are
    Secure. The tunnel's edge is always trusted."""
    proxy_protocol: tuple[str, ...] = ()
    """Addresses or networks of load balancers whose connections all begin with a PROXY protocol header, version 1 or 2.
    The client address in it is used as the peer's. Connections from other addresses must not begin with one."""
    client_cert: bool = False
    """Also send Client-Cert (RFC 9440): the client's certificate in base64, where a listener requires one."""
    forwarded: bool = False
    """Also send the standard field Forwarded (RFC 7239)."""
    via: bool = False
    """Also send Via."""
    request_id_header: FieldName = "X-Request-Id"
    """Header field that carries the request id. An id from a trusted proxy is kept."""


class Limits(Part, frozen=True):
    """Limits that protect the proxy. A duration of 0s means no limit."""

    max_header_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1024 * 1024)] = 64 * 1024
    """Larger request heads are answered with 431. Through the tunnel the limit is always 1 MiB."""
    max_uri_bytes: Annotated[int, msgspec.Meta(ge=256, le=1024 * 1024)] = 16 * 1024
    """Longer request targets are answered with 414."""
    max_connections: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Maximum number of client connections of one worker process."""
    header_timeout: Timeout = "10s"
    """Time for a request head to arrive; over HTTP/2, for the first SETTINGS frame. A PROXY protocol header and the TLS
    handshake, which come before it, may each take as long."""
    idle_timeout: Timeout = "75s"
    """A client connection with no request in progress is closed after this time."""
    stream_idle_timeout: Timeout = "5m"
    """A request is aborted when neither its body nor the response's makes progress for this time."""
    connect_timeout: Timeout = "5s"
    """Time to connect to a backend, TLS handshake included."""
    request_timeout: Timeout = "0s"
    """Applies to rules that set no `timeouts.request`."""
    backend_idle_timeout: Timeout = "60s"
    """An unused connection to a backend is closed after this time."""


class Settings(Part, frozen=True):
    """Everything except backends and routes. It is small and is read in one go; backends and routes may be thousands,
    and are read a few at a time."""

    version: Version | Unset = UNSET
    """Must rise with each change. Absent: the loaded version plus one."""
    listeners: tuple[Listener, ...] = ()
    """Empty: no port is bound, and the tunnel serves every route for http and https requests."""
    merge_slashes: bool = True
    """Collapse repeated slashes in request paths into one, for matching and for forwarding."""
    forwarding: Forwarding = Forwarding()
    limits: Limits = Limits()


class Document(Settings, frozen=True):
    """The whole document, for example:

    {"routes": [{"hostnames": ["a.example"], "backends": [{"address": "127.0.0.1:3000"}]}]}
    """

    backends: tuple[Backend, ...] = ()
    """Backends that rules refer to by name."""
    routes: tuple[Route, ...] = ()


class Outline(Settings, frozen=True):
    """The document with backends and routes still encoded, so that those already known need no decoding."""

    backends: tuple[msgspec.Raw, ...] = ()
    routes: tuple[msgspec.Raw, ...] = ()
