"""The supervisor's orders about a worker's edge connections, and the worker's reports.

The supervisor decides which worker dials when and where (`proxy.supervisor.tunnel`). A worker carries it out (`links`)
and reports each step of a dial by its number: `Registered` at most once, and finally either `Reached` or `Ended`.
"""

from typing import TypeAlias

import msgspec

from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.failures import FailureCause
from proxy.tunnel.packetsize import BlackHole


class Order(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """To a worker."""


class Dial(Order, frozen=True):
    """Make a connection; sent along with `DialMeans`."""

    number: int
    """Unique among all dials of the proxy."""
    conn_index: int
    address: EdgeAddress
    previous_attempts: int
    registers: bool
    """False: only check that the edge can be reached, then close."""
    is_small: bool = False
    """Use smaller packets, as full-size ones may be lost."""


class Withdraw(Order, frozen=True):
    """Unregister, let running requests finish, close."""

    number: int


class PushTaken(Order, frozen=True):
    """The answer to a `Pushed`."""

    push: int
    applied_version: int


class DialMeans(msgspec.Struct, frozen=True):
    """The settings that all connections share; secret."""

    token: str
    client_id: bytes
    trusted_roots: str
    """PEM; no other authority is trusted."""
    source: str = ""
    """The source address of connections; empty: chosen by routing."""

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
    """The connection is gone, could not be made, or is unregistered and only finishing its requests."""

    number: int
    cause: FailureCause
    error: str
    """In one line, for the log."""
    retry_after_s: float
    registered_for_s: float
    """0 if it was never registered."""
    black_hole: BlackHole = BlackHole.NO


class Pushed(Report, frozen=True):
    """The provider has pushed a configuration."""

    push: int
    """A number chosen by the worker, repeated in the answer."""
    version: int | None
    """None: the configuration is unusable, and the answer only has to give the version in force."""


EdgeOrder: TypeAlias = Dial | Withdraw | PushTaken
EdgeReport: TypeAlias = Reached | Registered | Ended | Pushed
