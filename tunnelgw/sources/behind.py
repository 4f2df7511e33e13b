"""Kinds whose watch is broken, and how long the store waits for them to recover.

This wait ends `patience_s` after the last kind fell behind or recovered, and at the latest when a change has waited for
`patience_s`. For use by one thread at a time.
"""

from collections.abc import Callable

from tunnelgw.sources.scope import Part


class Behind:
    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._parts: set[Part] = set()
        self._patient_until_s = 0.0
        """Changes wait until then; each part that falls behind or recovers extends it."""

    def __contains__(self, part: object) -> bool:
        return part in self._parts

    def note(self, part: Part, *, is_behind: bool) -> bool:
        """Returns whether this is news: the part has fallen behind, or has recovered."""
        if is_behind == (part in self._parts):
            return False
        (self._parts.add if is_behind else self._parts.remove)(part)
        self._patient_until_s = self._clock() + self._patience_s
        return True

    def holds_up(self, since_s: float) -> bool:
        """Whether a change that came at `since_s` has to wait."""
        return bool(self._parts) and self._clock() < min(self._patient_until_s, since_s + self._patience_s)
