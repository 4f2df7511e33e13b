"""What can go wrong on an HTTP/2 connection, by who broke the contract.

`LocalProtocolError` is our caller's mistake and leaves the method that was called wrongly. `RemoteProtocolError` is the
peer's: it carries the wire code and whether it costs one stream or the whole connection (RFC 9113, 5.4). It is raised
and caught inside the codec; callers see it as a `StreamReset`, `RequestRejected` or `ConnectionTerminated` event.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    """RFC 9113, 7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ProtocolError(Exception):
    """Base of what this codec raises."""


class LocalProtocolError(ProtocolError):
    """Our caller asked for something that HTTP/2 or the state of the stream forbids; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; `stream_id` 0 means a connection error."""

    def __init__(self, code: ErrorCode, reason: str, stream_id: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.stream_id = stream_id


def protocol_error(reason: str, stream_id: int = 0) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.PROTOCOL_ERROR, reason, stream_id)
