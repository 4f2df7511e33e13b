"""What the reset of its stream means for a request over HTTP/2: may it be repeated, and is the address to blame? Pure.

The backend resets a stream with an error code (RFC 9113, 7). REFUSED_STREAM says that it has not processed the request
(8.7); the codec also reports it for streams that a GOAWAY leaves out. HTTP_1_1_REQUIRED says the same of a request that
has no response yet. CANCEL of a gRPC call with a deadline may only mean that the client has chosen a short one. After
any other code the request may have been processed.

We reset a stream if its response is not valid HTTP, or has fields that are too large for us.
"""

from proxy.backend.stream import Failure, Reason
from proxy.h2 import ErrorCode, StreamReset
from proxy.heads import RequestHead
from proxy.routing import header


def failure_of(
    reset: StreamReset, request: RequestHead, connection: str, *, is_answered: bool, is_draining: bool
) -> Failure:
    """The failure of the request whose stream was reset.

    `connection` is for the detail. `is_answered`: a final response has begun. `is_draining`: the connection opens no
    more streams.
    """
    detail = f"{connection}: stream reset with error code {reset.error_code}: {reset.reason}"
    if not reset.by_peer:
        reason = Reason.FIELDS_TOO_LARGE if reset.are_fields_too_large else Reason.PROTOCOL
        return Failure(reason, detail, is_unprocessed=False)
    code = reset.error_code
    is_refused = code == ErrorCode.REFUSED_STREAM
    wants_http_1 = code == ErrorCode.HTTP_1_1_REQUIRED and not is_answered
    return Failure(
        Reason.RESET,
        detail,
        is_unprocessed=is_refused or wants_http_1,
        was_reused=is_refused and is_draining,
        error_code=code,
        is_by_deadline=code == ErrorCode.CANCEL and header(request, b"grpc-timeout") is not None,
        wants_http_1=wants_http_1,
    )
