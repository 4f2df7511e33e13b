"""What the supervisor wants of a worker's connections to the edge, and what they report.

The supervisor decides who dials when and where (`proxy.supervisor.tunnel`); a worker carries it out (`links`) and
reports each step of a dial by its number: `Registered` at most once, and in the end one of `Reached` and `Ended`.
"""

from typing import TypeAlias

import msgspec

from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.packetsize import Vain


class Order(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """To a worker."""


class Dial(Order, frozen=True):
    """Make a connection; `DialMeans` come along."""

    number: int
    """New for every dial of the proxy."""
    conn_index: int
    address: EdgeAddress
    previous_attempts: int
    registers: bool
    """False: only see whether the edge can be reached, then close."""
    is_small: bool = False
    """Packets of full size may not get there."""


class Withdraw(Order, frozen=True):
    """Unregister, let running requests finish, close."""

    number: int


class PushTaken(Order, frozen=True):
    """The answer to a `Pushed`."""

    push: int
    applied_version: int


class DialMeans(msgspec.Struct, frozen=True):
    """What is the same for all connections; secret."""

    token: str
    client_id: bytes
    trusted_roots: str
    """PEM; no other authority is trusted."""
    source: str = ""
    """The address of this host that connections come from; empty: as the routes say."""

    def __repr__(self) -> str:
        return "<DialMeans>"


class Report(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a worker."""


class Reached(Report, frozen=True):
    """TLS is set up, and was closed again as ordered."""

    number: int


class Registered(Report, frozen=True):
    number: int
    connection_id: str
    location: str


class Ended(Report, frozen=True):
    """The connection is gone, or never came to be, or is unregistered and only finishes what runs."""

    number: int
    cause: FailureCause
    error: str
    """In one line, for the log."""
    retry_after_s: float
    registered_for_s: float
    """0: it was never registered."""
    vain: Vain = Vain.NO


class Pushed(Report, frozen=True):
    """The provider has pushed a configuration."""

    push: int
    """Number of the worker's own; the answer names it."""
    version: int | None
    """None: the configuration cannot be taken, and the answer is only to say which version is in force."""


EdgeOrder: TypeAlias = Dial | Withdraw | PushTaken
EdgeReport: TypeAlias = Reached | Registered | Ended | Pushed
