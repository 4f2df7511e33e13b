"""Whether the edge is still alive: it answers PINGs, or acknowledges the data sent before them.

A PING queues behind everything sent before it. On a slow line, or if the edge reads slowly, that may be many seconds'
worth of downloads; its answer may queue behind uploads in the same way. So an edge that has not answered counts as dead
only if no data has moved meanwhile, or if its kernel has long acknowledged everything.
"""

import math
from typing import Final

from proxy.tunnel.wirebytes import LOST_RETRANSMITS, WireBytes

PING_PERIOD_S: Final = 10.0
"""The time between two checks."""


class Heartbeat:
    __slots__ = ("_asked_at_s", "_had_more", "_wire", "is_heard", "round_trip_s")

    def __init__(self, wire: WireBytes) -> None:
        """`wire` must not be shared, since it reports what has changed since its last call."""
        self._wire = wire
        self._asked_at_s: float | None = None
        self.round_trip_s = math.inf
        """The shortest so far, since longer ones include time in queues. Infinite before the first."""
        self._had_more = False
        """Some data was unacknowledged at the previous check."""
        self.is_heard = False
        """The last check found new data from the edge."""

    @property
    def is_awaited(self) -> bool:
        return self._asked_at_s is not None

    def asked(self, now_s: float) -> None:
        """A PING has been sent."""
        self._asked_at_s = now_s
        self._wire.growth()
        self._had_more = True
        self.is_heard = False

    def answered(self, now_s: float) -> float | None:
        """The PING was answered. Returns the seconds that it took; None if no answer was awaited."""
        asked_at_s, self._asked_at_s = self._asked_at_s, None
        if asked_at_s is None:
            return None
        took_s = now_s - asked_at_s
        self.round_trip_s = min(self.round_trip_s, took_s)
        return took_s

    def end(self) -> str:
        """Check the connection. Returns why it is dead; empty if it is not.

        To be called every PING_PERIOD_S after `asked`, as long as the answer is awaited.
        """
        acknowledged_bytes, received_bytes = self._wire.growth()
        had_more, self._had_more = self._had_more, self._wire.has_more
        self.is_heard = bool(received_bytes)
        if not received_bytes:
            if acknowledged_bytes and self._wire.has_more:
                return ""
            return f"the edge answered no PING within {PING_PERIOD_S:g} s"
        if had_more and not acknowledged_bytes and self._wire.retransmits >= LOST_RETRANSMITS:
            return f"nothing that was sent has reached the edge for {PING_PERIOD_S:g} s, although it keeps sending"
        return ""
