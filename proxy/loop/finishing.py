"""How long a connection that is being finished waits for its peer. Pure: times and counts are passed in.

Until the socket has taken all output, a peer gets PATIENCE_S to take any of it. Then output waits in the kernel, which
would lose it if the socket were closed and the peer sent something; so the wait goes on as long as the peer takes some
at every look. Looks are LOOK_S apart.
"""

from typing import Final

LOOK_S: Final = 2.0
PATIENCE_S: Final = 20.0
"""How long a peer may take none of the queued output."""
_FIN_BYTES: Final = 1
"""A FIN counts as one unacknowledged byte."""


class Finishing:
    __slots__ = ("_give_up_at_s", "_unacknowledged_bytes")

    def __init__(self, now_s: float) -> None:
        self._give_up_at_s = now_s + PATIENCE_S
        self._unacknowledged_bytes = 0
        """As of the last look; 0 before the first."""

    def goes_on(self, now_s: float, unacknowledged_bytes: int, *, is_queued: bool) -> bool:
        """Look whether to wait until the next look. `is_queued`: the socket has not taken all output yet."""
        before, self._unacknowledged_bytes = self._unacknowledged_bytes, unacknowledged_bytes
        is_taking = unacknowledged_bytes < before
        if is_taking:
            self._give_up_at_s = now_s + PATIENCE_S
        if is_queued:
            return now_s < self._give_up_at_s
        is_first_look = not before and unacknowledged_bytes > _FIN_BYTES
        return is_taking or is_first_look
