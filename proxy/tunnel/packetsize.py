"""Whether the edge is dialled for packets smaller than full size.

Where a hop loses packets of full size and no ICMP says so (PPPoE, VPNs, overlays), the kernel sends the same again and
again: no connection comes up whose first words fill one, and others hang once an answer does. So the dials that follow
ask for smaller ones, until those end like that as well. Nothing else leads back: smaller packets cost next to nothing,
and trying the full ones again on such a line costs a connection. Pure: the clock is given.
"""

import math
from enum import StrEnum
from typing import Final

SMALL_SEGMENT_BYTES: Final = 1200
"""With its headers it passes wherever IPv6 does."""
_CUT_S: Final = 15.0
"""Connections that end in vain with less between them ended of one cut: they notice up to a PING apart."""
_DOUBT_S: Final = 120.0


class Vain(StrEnum):
    """Whether a connection ended with more in its kernel than a small packet holds, sent again and again."""

    NO = "no"
    PERHAPS = "perhaps"
    """It did, but the line may have been cut just as well."""
    YES = "yes"
    """And the edge was heard meanwhile."""


class PacketSize:
    """Of all connections: most such hops are near."""

    def __init__(self) -> None:
        self.is_small = False
        self._doubted_at_s = -math.inf
        self._was_small = False
        """Once at least."""

    def ended(self, vain: Vain, now_s: float, *, was_small: bool) -> bool:
        """A connection, or an attempt, dialled for small packets or not. True: they are small now, and never were."""
        if vain is Vain.NO:
            return False
        since_s, self._doubted_at_s = now_s - self._doubted_at_s, now_s
        if vain is Vain.PERHAPS and not _CUT_S < since_s < _DOUBT_S:
            return False
        self.is_small = not was_small
        is_news = self.is_small and not self._was_small
        self._was_small = self._was_small or self.is_small
        return is_news
