"""Whether many objects are being written just now, as `kubectl apply` of a folder or a GitOps sync does. Pure.

Each status is one more write for an API server that is busy with theirs: begun at once, it would hold up the edits that
are still to come, and be written again for the next of them. So statuses wait for the end of a rush, though not for
long: people and tools wait for them too.
"""

from typing import Final

BURST: Final = 20
"""As many objects may change at once without being a rush."""
RATE: Final = 20.0
"""Objects a second that may go on changing."""
QUIET_S: Final = 0.3
"""A rush ends when nothing has changed for so long."""
MAX_S: Final = 3.0
"""However long it lasts, statuses wait no longer than this; the next rush begins after a quiet time."""


class Rush:
    """Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._level = 0.0
        """Of a leaky bucket: objects that came, less those that `RATE` lets go."""
        self._newest_s = 0.0
        self._since_s: float | None = None
        """When it began, while it lasts and for the quiet time after it."""

    def note(self, objects: int, now_s: float) -> None:
        """So many were changed by others than ourselves."""
        if not objects:
            return
        if now_s - self._newest_s >= QUIET_S:
            self._since_s = None
            self._level = min(self._level, BURST)  # else thousands at once would make rushes of single edits for long
        self._level = max(0.0, self._level - (now_s - self._newest_s) * RATE) + objects
        self._newest_s = now_s
        if self._since_s is None and self._level > BURST:
            self._since_s = now_s

    def over_s(self, now_s: float) -> float:
        """When statuses need not wait any longer; `now_s` or before: there is no rush."""
        if self._since_s is None:
            return now_s
        return min(self._newest_s + QUIET_S, self._since_s + MAX_S)
