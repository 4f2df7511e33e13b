"""Whether to dial the edge with packets smaller than full size.

A path MTU black hole is a hop that drops full-size packets without an ICMP message (PPPoE, VPNs, overlays): the kernel
retransmits the same packet again and again. A connection whose first message fills a packet does not come up; others
hang once a response fills one. So later dials use smaller packets, until connections with these end in the same way.
Nothing else returns to full size: smaller packets cost next to nothing, while trying full-size ones on such a line
costs a connection. Pure: the time is passed in.
"""

import math
from enum import StrEnum
from typing import Final

SMALL_SEGMENT_BYTES: Final = 1200
"""A packet with such a segment, headers included, fits wherever IPv6 works."""
_CUT_S: Final = 15.0
"""If several connections end in vain within this time, a single cut of the line was the cause: each notices it at its
next PING."""
_DOUBT_S: Final = 120.0


class BlackHole(StrEnum):
    """Whether a connection ended while the kernel was retransmitting in vain more than a small packet holds, as at a
    path MTU black hole (RFC 2923, 2.1)."""

    NO = "no"
    PERHAPS = "perhaps"
    """It did, but a cut of the line may be the cause as well."""
    YES = "yes"
    """It did, although data was received from the edge meanwhile."""


class PacketSize:
    """The decision, which is made for all connections together, since most such hops are near this host."""

    def __init__(self) -> None:
        self.is_small = False
        self._doubted_at_s = -math.inf
        self._was_small = False
        """`is_small` was true at least once."""

    def ended(self, black_hole: BlackHole, now_s: float, *, was_small: bool) -> bool:
        """A connection or an attempt has ended; `was_small`: it was dialled with small packets.

        Returns whether packets become small for the first time.
        """
        if black_hole is BlackHole.NO:
            return False
        since_s, self._doubted_at_s = now_s - self._doubted_at_s, now_s
        if black_hole is BlackHole.PERHAPS and not _CUT_S < since_s < _DOUBT_S:
            return False
        self.is_small = not was_small
        is_news = self.is_small and not self._was_small
        self._was_small = self._was_small or self.is_small
        return is_news
