"""HTTP/1.1 for both roles, without I/O (RFC 9112; RFC 9110 for the meaning of fields).

Callers need only `ServerConnection` and `ClientConnection`, the events named here, and the heads of `proxy.heads`,
which HTTP/2 uses too. A connection is used through `receive(data) -> list[Event]`, `send_...`, and
`buffers_to_send() -> list[bytes | memoryview]`.

server · client                         one for each role: what comes in, what may go out
requesthead · responsehead              complete heads, decoded
headbuffer · bodies                     a head in pieces, complete; bodies without their framing
sending · response                      field lines, framing and the output; what a response's head means
laxheads                                heads of old servers and devices, made readable
grammar · caches                        what both roles share: what a field may be, and those seen before
limits · events · errors                what a peer may cost; what arrived; who broke the contract
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
