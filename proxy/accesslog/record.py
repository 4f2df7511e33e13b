"""What the access log says about one exchange. Values as the exchange has them; they become text in the writer."""

from typing import Protocol

import msgspec


class Record(msgspec.Struct, gc=False):
    """One finished exchange."""

    request_id: bytes
    door: str
    protocol: str
    """Of the client: HTTP/1.0, HTTP/1.1 or HTTP/2."""
    client: str
    """Address of the client: what a trusted proxy says, else the peer of the connection."""
    method: bytes
    host: bytes
    path: bytes
    """As sent; the query is cut off before anything is written."""
    status_code: int
    """0: ended without a response."""
    duration_s: float
    request_bytes: int = 0
    response_bytes: int = 0
    route: str = ""
    rule: str = ""
    backend: str = ""
    """Key of the backend that answered, or was asked last."""
    address: str = ""
    """Its address."""
    attempts: int = 0
    """Requests to backends made for it."""
    reason: str = ""
    """Why the proxy answered by itself, or why the exchange broke; a closed set of words."""
    detail: str = ""
    """What was seen, where `reason` does not say it all."""
    user_agent: bytes = b""
    grpc_status: int | None = None


class AccessLog(Protocol):
    """What an exchange knows of it."""

    def wants(self, status_code: int) -> bool:
        """Whether an exchange that ended so is written: all, errors only, or a sample."""

    def write(self, record: Record) -> None:
        """Never waits, never raises."""
