"""How a gRPC call ends: with the status that its backend sends, or if the backend resets its stream, as it would for a
client that calls the backend directly.

Only a refused stream is UNAVAILABLE, which clients take as permission to repeat a call: any other call may have been
carried out. Pure: times are arguments.
"""

from typing import Final

from proxy.h2 import ErrorCode
from proxy.heads import Fields, RequestHead
from proxy.routing import header, is_grpc

CANCELLED: Final = 1
DEADLINE_EXCEEDED: Final = 4
INTERNAL: Final = 13
_STATUSES: Final[dict[int, int]] = {
    ErrorCode.REFUSED_STREAM: 14,
    ErrorCode.CANCEL: CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: 8,
    ErrorCode.INADEQUATE_SECURITY: 7,
}
"""The mapping of gRPC over HTTP/2; all other codes are INTERNAL."""
_MAX_STATUS_BYTES: Final = 3
_MAX_BYTES: Final = 9
"""Eight digits and a unit."""
_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def status_in(request: RequestHead, fields: Fields) -> int | None:
    """The `grpc-status` in the last fields of the response to `request`: its trailers, or a head that ends it. None if
    it is no gRPC call, or there is none that can be read."""
    if not is_grpc(request):
        return None
    for name, value in fields:
        if name == b"grpc-status" and value.isdigit() and len(value) <= _MAX_STATUS_BYTES:
            return int(value)
    return None


def status_of_reset(error_code: int, head: RequestHead, took_s: float) -> int:
    """The gRPC status for a reset. A server may cancel a call past its deadline before the client does: then the status
    is DEADLINE_EXCEEDED."""
    status = _STATUSES.get(error_code, INTERNAL)
    if status == CANCELLED:
        deadline_s = _deadline_s(header(head, b"grpc-timeout"))
        if deadline_s is not None and took_s >= deadline_s:
            return DEADLINE_EXCEEDED
    return status


def _deadline_s(value: bytes | None) -> float | None:
    """None if there is none, or none that can be read."""
    if value is None or not 1 < len(value) <= _MAX_BYTES or not value[:-1].isdigit() or value[-1:] not in _UNITS_S:
        return None
    return int(value[:-1]) * _UNITS_S[value[-1:]]
