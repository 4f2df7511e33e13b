"""HTTP/2 for both roles, without I/O (RFC 9113, RFC 7541, RFC 8441).

Callers need only `Connection.server` and `Connection.client`, the events named here, and the heads of `proxy.heads`,
which HTTP/1.1 uses too.

connection > receiving > sending        one connection; what the peer and our side do on streams
framereader · frames · blocks           bytes to frames and back; field blocks in several frames
fieldcache · literals · huffman         field blocks decoded, from their raw bytes down to one string
fieldlines · fields                     field blocks encoded; which fields and heads are valid
streams · windows · settings            what is open, how much may be sent, what both sides have agreed on
abuse · events · errors                 what costs a peer little and us much; what arrived; who broke the contract
"""

from proxy.h2.abuse import Limits
from proxy.h2.connection import Caches, Connection
from proxy.h2.errors import ErrorCode, LocalProtocolError
from proxy.h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    GoawayReceived,
    InformationalReceived,
    PingAcked,
    RequestReceived,
    RequestRejected,
    RequestTooLarge,
    ResponseReceived,
    SettingsChanged,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from proxy.h2.settings import Settings

__all__ = [
    "Caches",
    "Connection",
    "ConnectionTerminated",
    "DataReceived",
    "ErrorCode",
    "Event",
    "GoawayReceived",
    "InformationalReceived",
    "Limits",
    "LocalProtocolError",
    "PingAcked",
    "RequestReceived",
    "RequestRejected",
    "RequestTooLarge",
    "ResponseReceived",
    "Settings",
    "SettingsChanged",
    "StreamReset",
    "TrailersReceived",
    "WindowUpdated",
]
