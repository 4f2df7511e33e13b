"""Rows whose removal the store has confirmed, until a listing lacks them (pure).

A controller may confirm a removal without carrying it out, and external-dns never looks again at a record or an
ownership record that is left without the other. So a row that is still listed is removed again, unless it is wanted by
now. Only for stores with lasting ids: elsewhere a row listed later might be another one, of somebody else.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from dnswebhook.canonical import stored_name, stored_value
from dnswebhook.model import Changes, Record
from dnswebhook.notes import IsDesired, Note
from dnswebhook.ownership import OwnedSet
from dnswebhook.records import grouped
from dnswebhook.wishes import SetKey


class ConfirmedRemovals:
    def __init__(self) -> None:
        self._owned: dict[Record, OwnedSet] = {}
        """The record set of each row, or, if it is an ownership record, the set that it vouches for."""

    def __bool__(self) -> bool:
        return bool(self._owned)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._owned)

    def __contains__(self, row: Record) -> bool:
        return row in self._owned

    @property
    def ownership_records(self) -> dict[Record, OwnedSet]:
        return {row: owned for row, owned in self._owned.items() if (row.name, row.type) not in owned.keys}

    def add(self, removed: Iterable[Record], notes: Iterable[Note]) -> None:
        """`notes`: those of the same apply. TXT rows that none of them is about are left out."""
        ownership = [each for each in notes if not each.is_whole]
        owned = {(each.name, each.value): each.owned for each in ownership if each.is_leaving or each.successor}
        records = {key for each in ownership for key in each.owned.keys}
        for row in removed:
            if row.type == "TXT" and (subject := owned.get((row.name, row.value))):
                self._owned[row] = subject
            elif row.type != "TXT" or (row.name, row.type) in records:
                self._owned[row] = OwnedSet(row.name, frozenset({row.type}))

    def forget(self, row: Record) -> None:
        self._owned.pop(row, None)

    def forget_asked(self, changes: Changes, told: Collection[Record] | None) -> None:
        """Rows that are still there and are wanted again must not be removed: they will not be written anew.

        `told`: the rows that external-dns has listed; None if that is not known.
        """
        if not self._owned:
            return
        asked: dict[SetKey, set[str]] = defaultdict(set)
        for each in (*changes.create, *changes.update_new):
            values = {stored_value(each.record_type, target) for target in each.targets}
            asked[stored_name(each.dns_name), each.record_type] |= values
        names = {name for name, _ in asked}
        seen = None if told is None else frozenset(told)

        def is_asked(row: Record, owned: OwnedSet) -> bool:
            values = asked.get((row.name, row.type))
            if values is not None:
                return row.value in values
            # external-dns does not resend an ownership record that it has listed.
            is_covered = not owned.keys.isdisjoint(asked) if owned.types else owned.name in names
            return is_covered and (seen is None or row in seen)

        self._owned = {row: owned for row, owned in self._owned.items() if not is_asked(row, owned)}

    def follow(self, records: Collection[Record], is_desired: IsDesired) -> None:
        """Forget rows that a listing lacks, and records that are wanted again with their ownership records."""
        if not self._owned:
            return
        listed = frozenset(records)
        self._owned = {row: owned for row, owned in self._owned.items() if row in listed}
        wanted = [
            (row, owned.keys)
            for row, owned in self.ownership_records.items()
            if any(is_desired(*key) for key in owned.keys)
        ]
        sets = grouped(records) if wanted else {}
        for row, keys in wanted:
            # If the record is still there as well, external-dns has to see both, or it could never change that record.
            # This does not hold if the set has somebody else's values, which external-dns would claim.
            served = [each for key in keys for each in sets.get(key, ())]
            if served and all(each in self._owned for each in served):
                for each in (row, *served):
                    self.forget(each)
