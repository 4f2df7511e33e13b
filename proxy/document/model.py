"""The document: all that a proxy knows about the traffic it serves. `PUT /config` replaces it as a whole."""

from typing import Annotated

import msgspec

from proxy.document.listeners import Listener
from proxy.document.part import UNSET, Duration, FieldName, Part, Unset
from proxy.document.routes import Route
from proxy.document.targets import Backend

MAX_VERSION = 2**63 - 1

Version = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]


class Forwarding(Part, frozen=True):
    """What backends learn about the client, and whom we believe when it says who its client is."""

    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks (10.0.0.0/8) whose X-Forwarded-* and Forwarded fields are kept, and whose
    X-Forwarded-Proto is the scheme of redirects and decides whether cookies of sessions are Secure; those of others are
    replaced. The tunnel's edge is trusted always."""
    proxy_protocol: tuple[str, ...] = ()
    """Addresses or networks of balancers whose connections all begin with a header of the PROXY protocol, version 1 or
    2: its client's address counts as that of the peer. Those of others begin without one."""
    client_cert: bool = False
    """Also send Client-Cert (RFC 9440): the certificate of a client that had to show one, in base64."""
    forwarded: bool = False
    """Also send the standard field Forwarded (RFC 7239)."""
    via: bool = False
    """Also send Via."""
    request_id_header: FieldName = "X-Request-Id"
    """Field that carries the request id; taken over from trusted proxies."""


class Limits(Part, frozen=True):
    """Bounds that protect the proxy. A duration of 0s means no limit."""

    max_header_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1024 * 1024)] = 64 * 1024
    """Larger request heads are answered 431. Those of the tunnel may have 1 MiB, whatever is said here."""
    max_uri_bytes: Annotated[int, msgspec.Meta(ge=256, le=1024 * 1024)] = 16 * 1024
    """Longer request targets are answered 414."""
    max_connections: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Client connections of one worker process."""
    header_timeout: Duration = "10s"
    """Time for a request head to arrive; over HTTP/2, for the first SETTINGS. Before that, each as long: for a PROXY
    header, and for the TLS handshake."""
    idle_timeout: Duration = "75s"
    """A client connection without a request under way is closed after this time."""
    stream_idle_timeout: Duration = "5m"
    """A request whose two bodies both stand still is ended after this time."""
    connect_timeout: Duration = "5s"
    """Time to connect to a backend, TLS included."""
    request_timeout: Duration = "0s"
    """For rules that set no `timeouts.request`."""
    backend_idle_timeout: Duration = "60s"
    """An unused connection to a backend is closed after this time."""


class Settings(Part, frozen=True):
    """Everything but backends and routes: small, and read at once, while those are read a few at a time."""

    version: Version | Unset = UNSET
    """Rises with each change. Absent: the loaded version plus one."""
    listeners: tuple[Listener, ...] = ()
    """Empty: the tunnel serves every route, http and https alike."""
    merge_slashes: bool = True
    """Read several slashes in a row in request paths as one, for matching and forwarding alike."""
    forwarding: Forwarding = Forwarding()
    limits: Limits = Limits()


class Document(Settings, frozen=True):
    """The whole document, for example:

    {"routes": [{"hostnames": ["a.example"], "backends": [{"address": "127.0.0.1:3000"}]}]}
    """

    backends: tuple[Backend, ...] = ()
    """Backends that several rules share."""
    routes: tuple[Route, ...] = ()


class Outline(Settings, frozen=True):
    """The document with its backends and routes still undecoded: most of them have been read before."""

    backends: tuple[msgspec.Raw, ...] = ()
    routes: tuple[msgspec.Raw, ...] = ()
