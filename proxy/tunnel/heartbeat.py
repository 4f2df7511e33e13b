"""Whether the edge still lives: it answers PINGs, or takes what lies before one.

A PING waits behind all that was sent before it. Over a narrow line, or to an edge that reads slowly, that may be many
seconds' worth of downloads, and its answer waits behind uploads likewise. So an edge that has not answered is dead only
if nothing has moved meanwhile, or if its system has long had all that we said.
"""

import math
from typing import Final

from proxy.tunnel.wirebytes import VAIN_REPEATS, WireBytes

PING_PERIOD_S: Final = 10.0
"""From one look to the next."""


class Heartbeat:
    __slots__ = ("_asked_at_s", "_had_more", "_wire", "is_heard", "round_trip_s")

    def __init__(self, wire: WireBytes) -> None:
        """`wire`: nobody else asks it."""
        self._wire = wire
        self._asked_at_s: float | None = None
        self.round_trip_s = math.inf
        """The shortest so far: the others have waited behind something. Infinite until there is one."""
        self._had_more = False
        """At the look before something was not acknowledged."""
        self.is_heard = False
        """Something had come at the last look for an answer."""

    @property
    def is_awaited(self) -> bool:
        return self._asked_at_s is not None

    def asked(self, now_s: float) -> None:
        """A PING is sent."""
        self._asked_at_s = now_s
        self._wire.growth()
        self._had_more = True
        self.is_heard = False

    def answered(self, now_s: float) -> float | None:
        """Seconds since it was asked for; None: it was not."""
        asked_at_s, self._asked_at_s = self._asked_at_s, None
        if asked_at_s is None:
            return None
        took_s = now_s - asked_at_s
        self.round_trip_s = min(self.round_trip_s, took_s)
        return took_s

    def end(self) -> str:
        """Why the connection is dead; empty: it is not.

        Asked PING_PERIOD_S after `asked`, and again and again, while the answer is awaited.
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
