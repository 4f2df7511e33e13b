"""What `ControlStream` reports, in the order in which the edge caused it."""

from typing import TypeAlias

import msgspec

from proxy.tunnel.failures import FailureCause
from proxy.tunnel.registration import ConnectionDetails


class Registered(msgspec.Struct, frozen=True):
    """The edge sends requests from now on."""

    details: ConnectionDetails


class RegistrationFailed(msgspec.Struct, frozen=True):
    """Close the connection: the edge may wait for that for ever."""

    cause: FailureCause
    error: str
    """What to log: the edge's own words, cut and in one line."""
    retry_after_s: float = 0.0


class LocalConfigurationAnswered(msgspec.Struct, frozen=True):
    error: str | None
    """None: the edge has taken it."""


class Unregistered(msgspec.Struct, frozen=True):
    """No new requests will come, but those under way: the edge sends some for a moment still, then closes."""

    error: str | None
    """None: the edge has agreed. With an error there is no more that can be done."""


class ControlStreamBroken(msgspec.Struct, frozen=True):
    """The control stream is of no use any more, and so is its connection."""

    reason: str


ControlEvent: TypeAlias = (
    Registered | RegistrationFailed | LocalConfigurationAnswered | Unregistered | ControlStreamBroken
)
