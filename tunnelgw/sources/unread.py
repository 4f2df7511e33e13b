"""Unread objects, which are named but whose data is missing, and how long the store waits for them.

Until the source has tried to fetch them, the store gives out nothing: a new reference would look broken for a moment.
This wait ends when nothing has been fetched for `patience_s`, and at the latest when a change has waited for twice
that: otherwise an author who keeps naming other objects, in a loop of edits, would hold up everybody. Before the first
snapshot, the source may take as long as it needs for objects that were named by the time all kinds had been listed, and
after that twice `patience_s` for those named since. For use by one thread at a time.
"""

import math
from collections.abc import Callable, Iterable

from tunnelgw.model.snapshot import Entry

_MOST_PATIENCE = 2
"""How long unread objects can delay a change, in multiples of `patience_s`, however many are fetched meanwhile."""


class Unread:
    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._is_untried: dict[Entry, bool] = {}
        """False: the source has tried to fetch the object, without success."""
        self._asked: set[Entry] = set()
        """The unread objects that the source got last, without those that became unread again since: for these, its
        answer may be an older state."""
        self._patient_until_s = 0.0
        """Changes wait until then; each object that is read extends it."""
        self._is_all_listed = False
        self._first: set[Entry] = set()
        """Objects that became unread before all kinds were listed, and that the source has not tried to fetch yet."""
        self._first_until_s = math.inf
        """The first snapshot waits until then for objects named later; inf: it still waits for `_first`."""

    @property
    def has_untried(self) -> bool:
        return any(self._is_untried.values())

    def is_disjoint(self, entries: Iterable[Entry]) -> bool:
        return self._is_untried.keys().isdisjoint(entries)

    def add(self, entry: Entry) -> None:
        if not self.has_untried:
            self._be_patient()
        if entry not in self._is_untried:
            self._is_untried[entry] = True
            self._asked.discard(entry)
            if not self._is_all_listed:
                self._first.add(entry)

    def drop(self, entry: Entry) -> None:
        """The object is not named any more, or is gone."""
        self._is_untried.pop(entry, None)
        self._note_tried(entry)

    def found(self, entry: Entry) -> None:
        """The object's data has arrived, whether or not it was unread."""
        if entry in self._is_untried:
            self.drop(entry)
            self._be_patient()

    def give_up(self, entry: Entry) -> None:
        """The object could not be fetched now. It stays unread, but nothing waits for it any longer."""
        self._is_untried[entry] = False
        self._note_tried(entry)

    def note_all_listed(self) -> None:
        """Every kind has been listed."""
        self._is_all_listed = True
        self._time_first()

    def ask(self) -> tuple[Entry, ...]:
        """All unread objects, for the source to fetch."""
        self._asked = set(self._is_untried)
        return tuple(self._is_untried)

    def awaits_answer(self, entry: Entry) -> bool:
        """Whether an answer from the source about this object counts."""
        return entry in self._is_untried and entry in self._asked

    def holds_up(self, since_s: float) -> bool:
        """Whether a change that came at `since_s` has to wait."""
        until_s = min(self._patient_until_s, since_s + _MOST_PATIENCE * self._patience_s)
        return self.has_untried and self._clock() < until_s

    def holds_up_first(self) -> bool:
        """Whether the first change has to wait."""
        return self.has_untried and self._clock() < self._first_until_s

    def _be_patient(self) -> None:
        """Restart the wait, because the source has got work or has read something."""
        self._patient_until_s = self._clock() + self._patience_s

    def _note_tried(self, entry: Entry) -> None:
        """The source has tried to fetch the object, or no longer needs to."""
        self._first.discard(entry)
        self._time_first()

    def _time_first(self) -> None:
        if self._is_all_listed and not self._first and self._first_until_s == math.inf:
            self._first_until_s = self._clock() + _MOST_PATIENCE * self._patience_s
