"""The places of the tunnel's connections: one per connection index, which is dialled whenever it is empty."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.supervisor.slot import Slot
from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.retry import Waits


class Registration(NamedTuple):
    at_s: float
    """By the monotonic clock."""
    location: str
    edge: str
    worker: int
    """The worker's index."""


@dataclass(eq=False)
class Place:
    """Written only by the tunnel's thread; other threads read single values."""

    index: int
    waits: Waits = field(default_factory=Waits)
    due_s: float = math.inf
    """When to dial, by the monotonic clock; only counts while `number` is 0."""
    number: int = 0
    """The number of the dial, or of the resulting connection; 0: none."""
    slot: Slot | None = None
    """The slot of the worker that has it."""
    pid: int | None = None
    address: EdgeAddress | None = None
    edge: str = ""
    """The name of the edge that the address belongs to."""
    token: str = ""
    """The token that it was dialled with."""
    is_small: bool = False
    """Dialled with small packets."""
    registration: Registration | None = None
    """None: not registered. Replaced as a whole, so that a metric has no label of an earlier or later one."""
    is_moving: bool = False
    """Withdrawn by us, to be dialled again at once."""
    registrations: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By cause, lost connections included."""

    def __repr__(self) -> str:
        return f"<Place {self.index}, dial {self.number}>"

    @property
    def is_registered(self) -> bool:
        return self.registration is not None

    def clear(self) -> None:
        """The connection is gone."""
        self.number = 0
        self.slot = self.pid = None
        self.registration = None
