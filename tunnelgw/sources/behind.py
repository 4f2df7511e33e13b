"""Kinds whose watch is broken, and how long the store waits for them to recover.

This wait ends `patience_s` after the last kind fell behind or recovered, and at the latest when a change has waited for
`patience_s`. For use by one thread at a time.
"""

from tunnelgw.sources.scope import Part


class Behind:
    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._parts: set[Part] = set()
        self._patient_until_s = 0.0
        """Changes wait until then; each part that falls behind or recovers extends it."""

    def __contains__(self, part: object) -> bool:
        return part in self._parts

    def add(self, part: Part, now_s: float) -> None:
        self._parts.add(part)
        self._be_patient(now_s)

    def drop(self, part: Part, now_s: float) -> None:
        """The part has recovered."""
        self._parts.remove(part)
        self._be_patient(now_s)

    def holds_up(self, since_s: float, now_s: float) -> bool:
        """Whether a change that came at `since_s` has to wait."""
        return bool(self._parts) and now_s < min(self._patient_until_s, since_s + self._patience_s)

    def _be_patient(self, now_s: float) -> None:
        self._patient_until_s = now_s + self._patience_s
