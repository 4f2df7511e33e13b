"""Whether the edge is still alive: it answers PINGs, or takes what was sent before them.

A PING waits behind everything that was sent before it. Over a narrow line, or to an edge that reads slowly, that may be
many seconds' worth of downloads; its answer may wait behind uploads in the same way. So an edge that has not answered
counts as dead only if nothing has moved meanwhile, or if its kernel has long acknowledged everything.
"""

import math
from typing import Final

from proxy.tunnel.wirebytes import VAIN_REPEATS, WireBytes

PING_PERIOD_S: Final = 10.0
"""The time from one check to the next."""


class Heartbeat:
    __slots__ = ("_asked_at_s", "_had_more", "_wire", "is_heard", "round_trip_s")

    def __init__(self, wire: WireBytes) -> None:
        """Nobody else may ask `wire`, which tells what is new since it was asked last."""
        self._wire = wire
        self._asked_at_s: float | None = None
        self.round_trip_s = math.inf
        """The shortest so far, since others have waited behind something. Infinite until there is one."""
        self._had_more = False
        """At the check before, something was not acknowledged."""
        self.is_heard = False
        """At the last check, something had come from the edge."""

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
        """The PING is answered. Returns the seconds that it took; None: no answer was awaited."""
        asked_at_s, self._asked_at_s = self._asked_at_s, None
        if asked_at_s is None:
            return None
        took_s = now_s - asked_at_s
        self.round_trip_s = min(self.round_trip_s, took_s)
        return took_s

    def end(self) -> str:
        """Check the connection: why it is dead; empty: it is not.

        To be called PING_PERIOD_S after `asked`, and as often again, as long as the answer is awaited.
        """
        acknowledged_bytes, received_bytes = self._wire.growth()
        had_more, self._had_more = self._had_more, self._wire.has_more
        self.is_heard = bool(received_bytes)
        if not received_bytes:
            if acknowledged_bytes and self._wire.has_more:
                return ""
            return f"the edge answered no PING within {PING_PERIOD_S:g} s"
        if had_more and not acknowledged_bytes and self._wire.repeats >= VAIN_REPEATS:
            return f"nothing that was sent has reached the edge for {PING_PERIOD_S:g} s, though it sends"
        return ""
