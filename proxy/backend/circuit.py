"""How much one worker may have in flight at one backend. Pure counters: whoever increments one decrements it again."""

from proxy import document


class Circuit:
    __slots__ = ("connections", "limits", "pending", "running")

    def __init__(self, limits: document.Circuit) -> None:
        self.limits = limits
        self.connections = 0
        """Open, and being opened."""
        self.running = 0
        """Requests that have not ended."""
        self.pending = 0
        """Those of the running requests that wait for a connection."""

    @property
    def has_connection_left(self) -> bool:
        return self.connections < self.limits.max_connections
