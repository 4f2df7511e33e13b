"""What earlier calls have done and answered, as far as the plan of a later call depends on it (pure)."""

from collections.abc import Collection, Iterable

import msgspec

from dnswebhook.model import Record
from dnswebhook.notes import Note
from dnswebhook.wishes import Refusal, RefusalReason, SetKey

_MAX_TOLD_BEFORE = 10_000


class Past(msgspec.Struct, frozen=True):
    told: Collection[Record] | None
    """The last listing that external-dns got; None if that was before our start. Its requests are based on that listing
    or on an earlier one."""
    noted: Collection[Note]
    """What earlier calls have left open."""
    removed: Collection[Note]
    """The ownership records that they have removed, or tried to, since that listing; the latest is last."""
    insisted: Collection[SetKey]
    """The sets that the last call refused because they came without an ownership record; empty after a listing."""


class History:
    """Collects the `Past` from call to call, except for the notes, which outlive the process (`journal`). One thread at
    a time may call."""

    def __init__(self) -> None:
        self.told: tuple[Record, ...] | None = None
        """As in `Past`, but without the rows of earlier listings."""
        self._told_generation = 0
        """The store's generation when it was told, see `Listing.generation`."""
        self._told_before: tuple[Record, ...] = ()
        """TXT rows of earlier listings, under names that had none in the last one. Until its next apply, external-dns
        0.19 believes that these ownership records still exist, and sends none with a record that it creates again."""
        self._removed: dict[tuple[str, str], Note] = {}
        """By name and text."""
        self._insisted: frozenset[SetKey] = frozenset()

    def tell(self, records: tuple[Record, ...], generation: int) -> None:
        """external-dns gets this listing."""
        before = self.told or ()
        if records is not before:
            names = {row.name for row in records if row.type == "TXT"}
            gone = [row for row in (*self._told_before, *before) if row.type == "TXT" and row.name not in names]
            self._told_before = tuple(gone[-_MAX_TOLD_BEFORE:])
        self.told = records
        self._told_generation = generation
        self._removed = {}
        self._insisted = frozenset()

    def is_about(self, generation: int) -> bool:
        """Whether the listing that external-dns got shows the store of this generation, as far as we know."""
        return self.told is None or generation == self._told_generation

    def begin_apply(self, noted: Collection[Note]) -> Past:
        told = None if self.told is None else (*self.told, *self._told_before)
        self._told_before = ()
        return Past(told, noted, tuple(self._removed.values()), self._insisted)

    def note_refusals(self, refusals: Iterable[Refusal]) -> None:
        """All refusals of an apply."""
        unowned = (refusal for refusal in refusals if refusal.reason is RefusalReason.NO_OWNERSHIP)
        self._insisted = frozenset((refusal.name, refusal.type) for refusal in unowned)

    def note_removals(self, notes: Iterable[Note]) -> None:
        """Of the notes of an apply that was carried out, those whose ownership records were to be removed count."""
        for note in notes:
            if note.is_leaving:
                self._removed.pop((note.name, note.value), None)  # so that the latest is last
                self._removed[note.name, note.value] = note
