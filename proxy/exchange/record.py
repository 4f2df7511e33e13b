"""What the access log is told of an exchange: all facts, unformatted, since that is somebody else's time to spend."""

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
    """Empty where no listener took the request; likewise the next five."""
    route: str
    rule: str
    """Its name, if it has one."""
    rule_index: int
    """Its place in the route; -1 without a rule."""
    backend: str
    address: str
    """Of the last attempt."""
    method: bytes
    host: bytes
    path: bytes
    status_code: int
    """0: ended without a response."""
    request_bytes: int
    """Of the body; likewise `response_bytes`."""
    response_bytes: int
    duration_s: float
    response_after_s: float
    """When the final response head was passed on, since the beginning; 0.0 when that never happened."""
    retries: int
    reason: str
    """Empty for a response of the backend that was complete. Else who or what gave the answer or cut it short:
    a `backend.stream.Reason`, a reason of `routing.Answer`, redirect, request_timeout, backend_timeout, idle_timeout,
    denied, bug, not_implemented, bad_host, bad_upgrade, max_forwards, client_gone."""
    detail: str = ""
    """More about `reason`, for people."""
