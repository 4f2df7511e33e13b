"""HTTP/1.1 for both roles, without I/O (RFC 9112; RFC 9110 for the meaning of fields).

Callers need only `ServerConnection` and `ClientConnection`, the events named here, and the heads of `proxy.heads`,
which HTTP/2 uses too. A connection is used through `receive(data) -> list[Event]`, `send_...`, and
`buffers_to_send() -> list[bytes | memoryview]`.
"""

from proxy.h1.caches import Caches
from proxy.h1.client import ClientConnection
from proxy.h1.errors import NOT_HTTP, LocalProtocolError
from proxy.h1.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    Http2PrefaceReceived,
    InformationalReceived,
    RequestReceived,
    ResponseReceived,
    TrailersReceived,
)
from proxy.h1.limits import Limits
from proxy.h1.server import ServerConnection

__all__ = [
    "NOT_HTTP",
    "Caches",
    "ClientConnection",
    "ConnectionTerminated",
    "DataReceived",
    "Event",
    "Http2PrefaceReceived",
    "InformationalReceived",
    "Limits",
    "LocalProtocolError",
    "RequestReceived",
    "ResponseReceived",
    "ServerConnection",
    "TrailersReceived",
]
