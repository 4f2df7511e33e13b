"""The places of the tunnel's connections: one per connection index, which is dialled whenever it is empty."""

import math
from collections import Counter
from dataclasses import dataclass, field

from proxy.supervisor.slot import Slot
from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.retry import Waits


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
    is_registered: bool = False
    registered_at_s: float = 0.0
    is_moving: bool = False
    """Withdrawn by us, to be dialled again at once."""
    location: str = ""
    registrations: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By cause, lost connections included."""

    def __repr__(self) -> str:
        return f"<Place {self.index}, dial {self.number}>"

    def clear(self) -> None:
        """The connection is gone."""
        self.number = 0
        self.slot = self.pid = None
        self.is_registered = False
        self.location = ""
