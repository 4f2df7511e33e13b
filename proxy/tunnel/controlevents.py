"""The events of `ControlStream`."""

from typing import TypeAlias

import msgspec

from proxy.tunnel.failures import FailureCause
from proxy.tunnel.registration import ConnectionDetails


class Registered(msgspec.Struct, frozen=True):
    """The connection is registered: the edge sends requests from now on."""

    details: ConnectionDetails


class RegistrationFailed(msgspec.Struct, frozen=True):
    """The connection is not registered. We must close it, as the edge may never do so."""

    cause: FailureCause
    error: str
    """For the log: the edge's own words, truncated and in one line."""
    retry_after_s: float = 0.0


class LocalConfigurationAnswered(msgspec.Struct, frozen=True):
    error: str | None
    """None if the edge has accepted it."""


class Unregistered(msgspec.Struct, frozen=True):
    """The connection is unregistered. The edge may still send requests for a moment, then closes it."""

    error: str | None
    """None if the edge has confirmed. After an error, nothing more can be done."""


class ControlStreamBroken(msgspec.Struct, frozen=True):
    """The control stream can no longer be used, nor can its connection."""

    reason: str


ControlEvent: TypeAlias = (
    Registered | RegistrationFailed | LocalConfigurationAnswered | Unregistered | ControlStreamBroken
)
