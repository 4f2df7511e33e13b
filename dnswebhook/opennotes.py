"""What earlier calls left open (`dnswebhook.vouchers`), indexed for the difference of a later call (pure)."""

from collections import defaultdict
from collections.abc import Iterable

from dnswebhook.vouchers import Voucher
from dnswebhook.wishes import SetKey


class OpenNotes:
    def __init__(self, noted: Iterable[Voucher]) -> None:
        self._values: dict[SetKey, set[str]] = defaultdict(set)
        self._wholes: dict[SetKey, frozenset[str]] = {}
        self._texts: dict[str, set[str]] = defaultdict(set)
        self._successors: dict[tuple[str, str], str] = {}
        self._replaced: dict[tuple[str, str], set[str]] = defaultdict(set)
        """By name of the ownership record and text, like `_successors`."""
        self._waits: dict[tuple[str, str], int] = {}
        for note in noted:
            self._waits[note.name, note.value] = note.waits
            self._texts[note.name].add(note.value)
            if note.successor:
                self._successors[note.name, note.value] = note.successor
                self._replaced[note.name, note.successor].add(note.value)
            for record_type in note.owned.types:
                self._values[note.owned.name, record_type] |= note.owned_values
                if note.is_whole:
                    self._wholes[note.owned.name, record_type] = note.owned_values

    def values(self, key: SetKey) -> set[str]:
        """The values in a record set that are noted as ours."""
        return self._values.get(key, set())

    def whole(self, key: SetKey) -> frozenset[str]:
        """The values that were to be written completely or not at all, of which only some may have been."""
        return self._wholes.get(key, frozenset())

    def has_text(self, name: str, text: str) -> bool:
        """Whether `text` is noted as one of ours in the ownership record `name`."""
        return text in self._texts.get(name, ())

    def successor(self, name: str, text: str) -> str:
        """The text that was to replace `text` there; empty if none was."""
        return self._successors.get((name, text), "")

    def waits(self, name: str, text: str) -> int:
        """For how many more listings it, or its record, may still come late."""
        return self._waits.get((name, text), 0)

    def late_texts(self, name: str) -> list[str]:
        """Texts of the ownership record `name` that may come late, or whose record may."""
        return [text for text in self._texts.get(name, ()) if self.waits(name, text)]

    def replaced(self, name: str, text: str) -> set[str]:
        """The texts that `text` was to replace there."""
        return self._replaced.get((name, text), set())
