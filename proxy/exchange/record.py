"""What the access log is told about an exchange: the facts, unformatted, since another thread formats them."""

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """One exchange that has ended. Holds no query and no field values but the request id."""

    began_s: float
    """Seconds since 1970."""
    request_id: bytes
    client: str
    """Address of the peer."""
    protocol: str
    door: str
    listener: str
    """Empty if no listener took the request; likewise `route` and `rule` without a rule, and `backend` and `address` if
    the request was for no backend."""
    route: str
    rule: str
    """Its name, if it has one."""
    rule_index: int
    """Its index in the route; -1 without a rule."""
    backend: str
    address: str
    """The last attempt's."""
    method: bytes
    host: bytes
    path: bytes
    status_code: int
    """0 if the exchange ended without a response."""
    request_bytes: int
    """Bytes of the body; likewise `response_bytes`."""
    response_bytes: int
    duration_s: float
    response_after_s: float
    """Time from the beginning until the final response head was passed on; 0.0 if it never was."""
    retries: int
    reason: str
    """Empty for a complete response of the backend. Otherwise why there was another answer, or what cut it short:
    a `backend.stream.Reason`, a reason of `routing.Answer`, redirect, request_timeout, backend_timeout, idle_timeout,
    denied, bug, not_implemented, bad_host, bad_upgrade, max_forwards, client_gone, client_behind, backend_behind."""
    detail: str = ""
    """More about `reason`, for people."""
    has_failed: bool = False
    """Our own answer was an error, the response broke off, or a gRPC call ended with an error of the server.
    `status_code` alone does not say it: a gRPC call gets its errors with 200, and a response that breaks off may have
    begun with 200."""
    grpc_status: int | None = None
    """None if this is no gRPC call, or it ended without a status."""
