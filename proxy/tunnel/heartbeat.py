"""Whether the edge still lives: it answers PINGs, or takes what lies before one.

A PING waits behind all that was sent before it. Over a narrow line, or to an edge that reads slowly, that may be many
seconds' worth of downloads, and its answer waits behind uploads likewise. So an edge that has not answered is dead only
if nothing has moved meanwhile, or if its system has long had all that we said.
"""

from typing import Final

from proxy.tunnel.wirebytes import WireBytes

PING_PERIOD_S: Final = 10.0
"""From one look to the next."""


class Heartbeat:
    __slots__ = ("_asked_at_s", "_wire")

    def __init__(self, wire: WireBytes) -> None:
        """`wire`: nobody else asks it."""
        self._wire = wire
        self._asked_at_s: float | None = None

    @property
    def is_awaited(self) -> bool:
        return self._asked_at_s is not None

    def asked(self, now_s: float) -> None:
        """A PING is sent."""
        self._asked_at_s = now_s
        self._wire.growth()

    def answered(self, now_s: float) -> float | None:
        """Seconds since it was asked for; None: it was not."""
        asked_at_s, self._asked_at_s = self._asked_at_s, None
        return None if asked_at_s is None else now_s - asked_at_s

    def has_stopped(self) -> bool:
        """Asked PING_PERIOD_S after `asked`, and again and again, while the answer is awaited."""
        acknowledged_bytes, received_bytes = self._wire.growth()
        return not received_bytes and not (acknowledged_bytes and self._wire.has_more)
