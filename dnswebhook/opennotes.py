"""What earlier calls left open (`dnswebhook.vouchers`), as the difference of a later one asks for it (pure)."""

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
        self._replaced: dict[tuple[str, str], str] = {}
        """By name of the ownership record and text, as `_successors`."""
        self._waits: dict[tuple[str, str], int] = {}
        for note in noted:
            self._waits[note.name, note.value] = note.waits
            self._texts[note.name].add(note.value)
            if note.successor:
                self._successors[note.name, note.value] = note.successor
                self._replaced[note.name, note.successor] = note.value
            for record_type in note.owned.types:
                self._values[note.owned.name, record_type] |= note.owned_values
                if note.is_whole:
                    self._wholes[note.owned.name, record_type] = note.owned_values

    def values(self, key: SetKey) -> set[str]:
        """Those of ours in a record set."""
        return self._values.get(key, set())

    def whole(self, key: SetKey) -> frozenset[str]:
        """What was to come completely or not at all, and may have come by half."""
        return self._wholes.get(key, frozenset())

    def has_text(self, name: str, text: str) -> bool:
        """Whether it is one of ours in the ownership record `name`."""
        return text in self._texts.get(name, ())

    def successor(self, name: str, text: str) -> str:
        """What was to replace it there; empty if nothing was."""
        return self._successors.get((name, text), "")

    def waits(self, name: str, text: str) -> int:
        """For so many listings more, it or its record may come late."""
        return self._waits.get((name, text), 0)

    def replaced(self, name: str, text: str) -> str | None:
        """What it was to replace there."""
        return self._replaced.get((name, text))
