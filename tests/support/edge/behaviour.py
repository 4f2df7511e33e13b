"""How the edge treats a connection, from its first byte to its end: correctly, unless a test says otherwise."""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from proxy import h2
from proxy.tunnel.registration import DUPLICATE_CONNECTION, Refusal

CONNECTION_WINDOW_BYTES = 64 * 1024 * 1024
DEFAULT_SETTINGS = h2.Settings(stream_window_bytes=1 << 20, connection_window_bytes=CONNECTION_WINDOW_BYTES)


class Hang(Enum):
    """Where a connection gets stuck: the edge keeps it open and sends nothing more."""

    BEFORE_TLS = auto()
    BEFORE_HTTP = auto()
    """TLS is set up; no preface follows."""
    BEFORE_CONTROL = auto()
    """HTTP/2 is set up; the control stream is never opened."""
    BEFORE_BOOTSTRAP = auto()
    """The control stream is open; no question on it is answered."""
    BEFORE_REGISTRATION = auto()
    """The bootstrap is answered, the registration is not."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    location: str = "LIS"
    is_remotely_managed: bool = True
    hang: Hang | None = None
    refusal: Refusal | None = None
    """The response to the registration; the edge then closes the connection, as connectors expect."""
    exception: str | None = None
    """The registration ends in an RPC exception with this reason."""
    closes_refused: bool = True
    register_delay_s: float = 0.0
    """Delay before the registration is answered."""
    request_delay_s: float = 0.0
    """Delay before a request of the front door is sent."""
    keeps_sending_s: float = 0.5
    """For how long requests are still sent after an unregistration."""
    drop_after_s: float | None = None
    """The connection breaks this long after it was accepted."""
    drops_at_register: bool = False
    """The connection breaks when the connector asks to register."""
    is_scattered: bool = False
    """RPC messages are sent in several segments."""
    rpc_piece_bytes: int = 0
    """RPC messages are sent in pieces of this size; 0 means whole."""
    control_authority: bytes = b"edge.internal"
    """Of the control stream. Which one the provider's edge sends, or whether it sends any, is not known."""
    h2_settings: h2.Settings = DEFAULT_SETTINGS


def unauthorized(cause: str = "Unauthorized: Invalid tunnel secret") -> Refusal:
    return Refusal(cause, should_retry=False, retry_after_s=0.0)


def busy(retry_after_s: float = 1.0, cause: str = "try later") -> Refusal:
    return Refusal(cause, should_retry=True, retry_after_s=retry_after_s)


DUPLICATE = Refusal(DUPLICATE_CONNECTION, should_retry=False, retry_after_s=0.0)
WELL = Behaviour()
