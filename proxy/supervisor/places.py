"""The places of the tunnel's connections: one for each connection index, dialled again whenever it is empty."""

import math
from collections import Counter
from dataclasses import dataclass, field

from proxy.supervisor.slot import Slot
from proxy.tunnel.addresses import EdgeAddress
from proxy.tunnel.retry import Waits


@dataclass(eq=False)
class Place:
    """Written by the tunnel's thread alone; what others read are single values."""

    index: int
    waits: Waits = field(default_factory=Waits)
    due_s: float = math.inf
    """When to dial, by the monotonic clock; only while there is no dial."""
    number: int = 0
    """Of the dial, or of the connection that came of it; 0: none."""
    slot: Slot | None = None
    """Whose worker has it."""
    pid: int | None = None
    address: EdgeAddress | None = None
    edge: str = ""
    """Name of the edge that the address was found for."""
    token: str = ""
    """That it registered with."""
    is_small: bool = False
    """Dialled for small packets."""
    is_registered: bool = False
    registered_at_s: float = 0.0
    is_moving: bool = False
    """Withdrawn by us, to come back at once."""
    location: str = ""
    registrations: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By cause, losses included."""

    def __repr__(self) -> str:
        return f"<Place {self.index}, dial {self.number}>"

    def clear(self) -> None:
        """The connection is gone."""
        self.number = 0
        self.slot = self.pid = None
        self.is_registered = False
        self.location = ""
