"""What can go wrong on an HTTP/2 connection, by who broke the contract.

`LocalProtocolError` is our caller's mistake, raised by the method that was called wrongly. `RemoteProtocolError` is the
peer's: it carries the error code and whether it is a stream or a connection error (RFC 9113, 5.4). It is caught inside
the codec; callers see a `StreamReset`, `RequestRejected` or `ConnectionTerminated` event instead.
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
    """Base of all errors that this codec raises."""


class LocalProtocolError(ProtocolError):
    """Our caller asked for something that HTTP/2 or the state of the stream forbids; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; `stream_id` 0 means a connection error."""

    def __init__(self, code: ErrorCode, reason: str, stream_id: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.stream_id = stream_id


class FieldsTooLargeError(RemoteProtocolError):
    """The peer's fields exceed a limit of ours, but may be valid HTTP all the same."""

    def __init__(self, reason: str, stream_id: int = 0) -> None:
        super().__init__(ErrorCode.ENHANCE_YOUR_CALM, reason, stream_id)


def protocol_error(reason: str, stream_id: int = 0) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.PROTOCOL_ERROR, reason, stream_id)
