"""What is named and held without its data: what the source has yet to read, and for how long the store waits for it.

Until the source has tried, the store gives nothing out, so that a new reference never looks broken for a moment. Once
it has given something, this wait is limited: to `patience_s` if the source comes to nothing, and to twice that if it
does, since somebody who names other objects again and again, in a loop of edits, would otherwise hold up everybody. At
the start the source has all the time that it needs for what was named when every kind had been listed, and then twice
`patience_s` for what has been named since. To be used by one thread at a time.
"""

import math
from collections.abc import Iterable

from tunnelgw.model.snapshot import Entry

_MOST_PATIENCE = 2
"""Times `patience_s`, where the source comes to something all along."""


class Unread:
    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._is_untried: dict[Entry, bool] = {}
        """False once the source has tried in vain."""
        self._asked: set[Entry] = set()
        """What the source was told of last, less what became unread again since: of that it may find what was."""
        self._patient_until_s = 0.0
        self._is_all_listed = False
        self._first: set[Entry] = set()
        """Those that were unread when everything was listed, and that the source has not tried yet."""
        self._first_until_s = math.inf
        """From then on the first change waits no longer for what was named since."""

    @property
    def has_untried(self) -> bool:
        return any(self._is_untried.values())

    def is_disjoint(self, entries: Iterable[Entry]) -> bool:
        return self._is_untried.keys().isdisjoint(entries)

    def add(self, entry: Entry, now_s: float) -> None:
        if not self.has_untried:
            self._be_patient(now_s)
        if entry not in self._is_untried:
            self._is_untried[entry] = True
            self._asked.discard(entry)
            if not self._is_all_listed:
                self._first.add(entry)

    def drop(self, entry: Entry, now_s: float) -> None:
        """It is not named any more, or is gone."""
        self._is_untried.pop(entry, None)
        self._note_tried(entry, now_s)

    def found(self, entry: Entry, now_s: float) -> bool:
        """Its data has come. False: it was not unread."""
        if entry not in self._is_untried:
            return False
        self.drop(entry, now_s)
        self._be_patient(now_s)
        return True

    def give_up(self, entry: Entry, now_s: float) -> None:
        """It could not be read now, and stays here."""
        self._is_untried[entry] = False
        self._note_tried(entry, now_s)

    def note_all_listed(self, now_s: float) -> None:
        """Every kind was listed."""
        self._is_all_listed = True
        self._time_first(now_s)

    def ask(self) -> tuple[Entry, ...]:
        """All, for the source to read."""
        self._asked = set(self._is_untried)
        return tuple(self._is_untried)

    def awaits_answer(self, entry: Entry) -> bool:
        """Whether what the source has found is what was asked for."""
        return entry in self._is_untried and entry in self._asked

    def holds_up(self, since_s: float, now_s: float) -> bool:
        """Whether a change of `since_s` has to wait."""
        return self.has_untried and now_s < min(self._patient_until_s, since_s + _MOST_PATIENCE * self._patience_s)

    def holds_up_first(self, now_s: float) -> bool:
        """Whether the first change has to wait."""
        return self.has_untried and now_s < self._first_until_s

    def _be_patient(self, now_s: float) -> None:
        """Anew: the source has come to something, or has something to do."""
        self._patient_until_s = now_s + self._patience_s

    def _note_tried(self, entry: Entry, now_s: float) -> None:
        """Also where it need not be any more."""
        self._first.discard(entry)
        self._time_first(now_s)

    def _time_first(self, now_s: float) -> None:
        if self._is_all_listed and not self._first and self._first_until_s == math.inf:
            self._first_until_s = now_s + _MOST_PATIENCE * self._patience_s
