"""What earlier calls left open (`dnswebhook.notes`), indexed for the difference of a later call (pure)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from dnswebhook.notes import Note
from dnswebhook.wishes import SetKey


class OpenNotes:
    def __init__(self, noted: Iterable[Note]) -> None:
        self._values: dict[SetKey, set[str]] = defaultdict(set)
        self._wholes: dict[SetKey, frozenset[str]] = {}
        self._by_text: dict[str, dict[str, Note]] = defaultdict(dict)
        """By name of the ownership record, then by text."""
        for note in noted:
            self._by_text[note.name][note.value] = note
            for record_type in note.owned.types:
                self._values[note.owned.name, record_type] |= note.owned_values
                if note.is_whole:
                    self._wholes[note.owned.name, record_type] = note.owned_values

    def values(self, key: SetKey) -> set[str]:
        """The values of a record set that are noted as ours."""
        return self._values.get(key, set())

    def whole(self, key: SetKey) -> frozenset[str]:
        """The values that had to be written completely or not at all, of which only some may have been written."""
        return self._wholes.get(key, frozenset())

    def has_text(self, name: str, text: str) -> bool:
        """Whether `text` is noted as one of ours in the ownership record `name`."""
        return text in self._at(name)

    def successor(self, name: str, text: str) -> str:
        """The text that was to replace `text`; empty if there is none."""
        note = self._at(name).get(text)
        return note.successor if note else ""

    def waits(self, name: str, text: str) -> int:
        """For how many more listings the text or its record may still appear."""
        note = self._at(name).get(text)
        return note.waits if note else 0

    def is_unlisted(self, name: str, text: str) -> bool:
        """See `Note.is_unlisted`."""
        note = self._at(name).get(text)
        return note is not None and note.is_unlisted

    def late_texts(self, name: str) -> list[str]:
        """Texts of the ownership record `name` that may still appear, or whose record may."""
        return [text for text, note in self._at(name).items() if note.waits]

    def _at(self, name: str) -> Mapping[str, Note]:
        return self._by_text.get(name, {})
