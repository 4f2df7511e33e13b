"""Whether the edge is dialled for packets smaller than full size.

If a hop loses packets of full size and no ICMP message says so (PPPoE, VPNs, overlays), the kernel sends the same
packet again and again. A connection whose first message fills a packet does not come up; others hang once an answer
fills one. So later dials ask for smaller packets, until such connections end in the same way. Nothing else leads back
to full size: smaller packets cost next to nothing, and trying full ones on such a line costs a connection. Pure: the
clock is given.
"""

import math
from enum import StrEnum
from typing import Final

SMALL_SEGMENT_BYTES: Final = 1200
"""A packet of this size, with its headers, passes wherever IPv6 does."""
_CUT_S: Final = 15.0
"""If connections end in vain within this time of each other, one cut of the line was the cause: each notices it at its
next PING."""
_DOUBT_S: Final = 120.0


class Vain(StrEnum):
    """Whether a connection ended while the kernel resent, in vain, more than a small packet holds."""

    NO = "no"
    PERHAPS = "perhaps"
    """It did, but the line may have been cut as well."""
    YES = "yes"
    """It did, although something came from the edge meanwhile."""


class PacketSize:
    """The decision for all connections together, since most such hops are near to us."""

    def __init__(self) -> None:
        self.is_small = False
        self._doubted_at_s = -math.inf
        self._was_small = False
        """`is_small` was true at least once."""

    def ended(self, vain: Vain, now_s: float, *, was_small: bool) -> bool:
        """A connection or an attempt has ended; `was_small`: it was dialled for small packets.

        Returns True if packets become small for the first time.
        """
        if vain is Vain.NO:
            return False
        since_s, self._doubted_at_s = now_s - self._doubted_at_s, now_s
        if vain is Vain.PERHAPS and not _CUT_S < since_s < _DOUBT_S:
            return False
        self.is_small = not was_small
        is_news = self.is_small and not self._was_small
        self._was_small = self._was_small or self.is_small
        return is_news
