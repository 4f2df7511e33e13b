"""From changes and the store's rows to the writes that are needed, by value, in a safe order (pure).

The result is a `Plan`: strands that may run in parallel, each a sequence of steps for one name and the ownership
records that vouch for it. The rules, each with its reason:

1. By value. Wanted values that are not served are added, values of `updateOld` and `delete` that are not wanted are
   removed, and everything else on the name stays. So repeating a plan does nothing, and input order does not matter.
   The text of an ownership record that external-dns has read counts as named, too (`ownership.Reading`).
2. In place first: a surplus row is rewritten to a missing value, so that the name is never empty.
3. A CNAME is the only record on its name: two of them stop dnsmasq, and DHCP with it. A change to or from a CNAME
   removes first and adds at once (`Switch`); if rows that are not ours would remain, the addition is refused.
4. The ownership record is written before the record it vouches for and removed after it: a record without its ownership
   record would never be claimed again, while an ownership record without its record is cleaned up by a later pass. A
   text that only replaces one that says the same is written after its record, and only if the record could be written.
   external-dns sends a record without an ownership record if it has seen one. If that one belongs to another owner, or
   has been removed since, the record is refused; if external-dns itself has removed it since, it is written again.
5. Only enabled, user-defined rows are written. Protected names are left alone.

Equal input gives equal output, whatever the order of rows and changes.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from dnswebhook.difference import LEADING_TYPES, Difference, SetDifference
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.model import Capabilities, Changes, Origin, Record, RecordSpec
from dnswebhook.notes import MAX_NOTED_TEXTS, Note
from dnswebhook.operations import Create, CreateTogether, Delete, Operation, Plan, Step, Strand, Switch
from dnswebhook.ownership import OwnedSet, owner_in
from dnswebhook.past import Past
from dnswebhook.served import Served
from dnswebhook.wishes import RefusalReason, SetKey, Wish, collect_wishes


def make_plan(
    changes: Changes,
    records: Iterable[Record],
    capabilities: Capabilities,
    domain_filter: DomainFilter,
    protected: ProtectedNames,
    past: Past,
) -> Plan:
    """The plan for `changes`. `records` is a complete listing; only rows whose name occurs in `changes` matter."""
    records = tuple(records)
    asked = collect_wishes(changes, capabilities, domain_filter, protected, Served(records))
    difference = Difference(asked, records, past)
    strands = [_StrandBuilder(difference).build(names) for names in _strand_names(difference)]
    return Plan(
        strands=tuple(strand for strand in strands if strand.steps),
        refusals=tuple(sorted(difference.refusals, key=lambda refusal: (refusal.name, refusal.type, refusal.detail))),
        skips=tuple(sorted(difference.skips, key=lambda skip: (skip.name, skip.type, skip.detail))),
        vanishing_sets=_vanishing_sets(difference),
        notes=_notes(difference),
    )


def _strand_names(difference: Difference) -> list[list[str]]:
    """Groups of names that must not be written in parallel: a record's name and those of its ownership records."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            name = leader[name]
        return name

    for wish in difference.wishes.values():
        ends = sorted((find(wish.name), find(wish.owned.name if wish.owned else wish.name)))
        leader[ends[1]] = ends[0]
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(difference.by_name):
        groups[find(name)].append(name)
    return [groups[key] for key in sorted(groups)]


def _vanishing_sets(difference: Difference) -> tuple[SetKey, ...]:
    vanishing = []
    for key, needed in difference.sets.items():
        live = [row for row in difference.live(key) if row.origin is Origin.USER_DEFINED]
        if live and len(needed.deletes) == len(live) and not needed.creates:
            vanishing.append(key)
    return tuple(vanishing)


def _notes(difference: Difference) -> tuple[Note, ...]:
    """Notes about ownership records that come or go with a record of the same call, or whose record changes.

    A store that cannot change a row in place either removes it first, and then the new one may fail, or adds the new
    one first, and then the old one may stay. So both texts are noted when one is replaced, and no older note that says
    the opposite counts any more. Sets that must be written completely, or of which only part is there, are noted too.
    """
    notes: list[Note] = []
    for wish in difference.wishes.values():
        if difference.must_come_whole(wish) or difference.is_half(wish):
            notes.append(_whole_note(difference, wish))
        if wish.owned is not None and (subjects := difference.subjects(wish)):
            notes += _ownership_notes(difference, wish, wish.owned, subjects)
    return tuple(notes)


def _whole_note(difference: Difference, wish: Wish) -> Note:
    here = {row.value for row in difference.live(wish.key)}
    needed = difference.sets[wish.key]
    values = frozenset(
        {spec.value for spec in needed.creates}
        | {update.spec.value for update in needed.updates}
        | here.intersection(wish.wanted)
    )
    owned = OwnedSet(wish.name, frozenset({wish.type}))
    return Note(wish.name, "", owned, values, is_leaving=False, is_whole=True)


def _ownership_notes(difference: Difference, wish: Wish, owned: OwnedSet, subjects: list[Wish]) -> list[Note]:
    values = frozenset[str]().union(*(difference.values_of_ours(subject) for subject in subjects))
    needed = difference.sets[wish.key]
    coming = {spec.value for spec in needed.creates}
    sets = [difference.sets[subject.key] for subject in subjects]
    is_changed = any(each.updates or each.deletes or each.creates for each in sets)
    replaced = _replaced_texts(wish, needed)
    superseded = _superseded_texts(difference, wish)
    staying = set(wish.wanted) - coming if is_changed or replaced or superseded else set()
    leaving = [row.value for row in needed.deletes if row.value not in replaced]
    if len(coming) + len(staying) + len(replaced) + len(leaving) > MAX_NOTED_TEXTS:
        return []
    about = partial(Note, wish.name, owned=owned, owned_values=values, is_leaving=False)
    notes = [about(value) for value in sorted(coming)]
    notes += [about(value, is_staying=True) for value in sorted(staying)]
    notes += [about(value, is_staying=True, successor=successor) for value, successor in replaced.items()]
    notes += [
        about(value, is_leaving=True, successor=difference.notes.successor(wish.name, value)) for value in leaving
    ]
    notes += [about(value, successor=successor) for value, successor in superseded.items()]
    waits = {each.value: difference.notes.waits(wish.name, each.value) for each in notes}
    unlisted = {
        each.value for each in notes if not each.successor and difference.notes.is_unlisted(wish.name, each.value)
    }
    for old, new in replaced.items():  # what may appear late is noted under the new text
        waits[new] = max(waits[new], waits[old])
        if waits[old]:
            unlisted.discard(new)
    return [replace(each, waits=waits[each.value], is_unlisted=each.value in unlisted) for each in notes]


def _replaced_texts(wish: Wish, needed: SetDifference) -> dict[str, str]:
    """The texts that are replaced in an ownership record that stays, each with its successor."""
    if not wish.wanted:
        return {}
    rewritten = {update.record.value: update.spec.value for update in needed.updates}
    rewritten = {old: new for old, new in rewritten.items() if old != new}
    return rewritten | {row.value: wish.wanted[0] for row in needed.deletes}


def _superseded_texts(difference: Difference, wish: Wish) -> dict[str, str]:
    """Texts that may still appear beside the wanted one, their successor: external-dns would never name them."""
    here = {row.value for row in difference.live(wish.key)}
    late = [text for text in difference.notes.late_texts(wish.name) if text not in here and text not in wish.wanted]
    return {text: new for text in sorted(late) for new in wish.wanted[:1] if owner_in(text) == owner_in(new)}


class _StrandBuilder:
    """Rules 3 and 4: puts one strand's writes in order."""

    def __init__(self, difference: Difference) -> None:
        self._difference = difference
        self._steps: list[Step] = []
        self._vouched: dict[SetKey, list[int]] = defaultdict(list)
        """Steps that write ownership, by the set they vouch for."""
        self._removals: dict[SetKey, list[int]] = defaultdict(list)
        """Steps that remove rows, by set."""
        self._written: dict[SetKey, list[int]] = defaultdict(list)
        """All steps that write or remove rows of a set under its own name."""

    def build(self, names: list[str]) -> Strand:
        wishes = [wish for name in names for wish in self._difference.by_name[name]]
        ownership_records = [wish for wish in wishes if wish.owned is not None]
        # An ownership record cannot be added before its own name has lost a CNAME, nor removed after that name has
        # gained one (as in the format of external-dns 0.17 and before). So it is written together with its name.
        deferred = [ownership for ownership in ownership_records if self._must_swap_with_cname(ownership)]
        for ownership in ownership_records:
            if ownership not in deferred:
                self._write_ownership(ownership)
        late_names = {ownership.name for ownership in deferred}
        for name in sorted(names, key=lambda name: (name not in late_names, name)):
            here = self._difference.by_name[name]
            self._write_name(name, [wish for wish in here if wish.owned is None or wish in deferred])
        for ownership in ownership_records:
            if ownership not in deferred:
                self._rewrite_ownership(ownership)
                self._remove_ownership(ownership)
        subjects = [wish.name for wish in wishes if wish.owned is None]
        return Strand((subjects or names)[0], tuple(self._steps))

    def _must_swap_with_cname(self, ownership: Wish) -> bool:
        cname = self._difference.sets.get((ownership.name, "CNAME"))
        return cname is not None and bool(
            cname.deletes or (cname.creates and self._difference.sets[ownership.key].deletes)
        )

    def _add(self, operation: Operation, needs: tuple[int, ...] = (), needs_one_of: tuple[int, ...] = ()) -> int:
        self._steps.append(Step(operation, needs, needs_one_of))
        return len(self._steps) - 1

    def _write_ownership(self, ownership: Wish) -> None:
        needed = self._difference.sets[ownership.key]
        updates = [update for update in needed.updates if not self._difference.may_wait(ownership, update)]
        operations: list[Operation] = [*updates, *map(Create, needed.creates)]
        for operation in operations:
            self._vouch(ownership, self._add(operation))

    def _rewrite_ownership(self, ownership: Wish) -> None:
        subjects = self._difference.subjects(ownership)
        if any(map(self._difference.is_refused_in_part, subjects)):
            return
        needs = _distinct(step for subject in subjects for step in self._written[subject.key])
        for update in self._difference.sets[ownership.key].updates:
            if self._difference.may_wait(ownership, update):
                self._add(update, needs)

    def _vouch(self, ownership: Wish, step: int) -> None:
        for subject in self._difference.subjects(ownership):
            self._vouched[subject.key].append(step)

    def _write_name(self, name: str, wishes: list[Wish]) -> None:
        """Add a switch if a CNAME comes or goes; otherwise updates, creates and deletes. The name's last address is
        removed only if something has replaced it."""
        needed = [(wish, self._difference.sets[wish.key]) for wish in wishes]
        creates = [(wish, spec) for wish, result in needed for spec in result.creates]
        deletes = [(wish.key, row) for wish, result in needed for row in result.deletes]
        comes = any(wish.type == "CNAME" for wish, _ in creates)
        first = [(key, row) for key, row in deletes if comes or key[1] == "CNAME"]
        later = [(key, row) for key, row in deletes if not (comes or key[1] == "CNAME")]
        if first and creates:
            self._switch(first, creates)
            first, creates = [], []
        self._delete(first)
        for wish, result in needed:
            for update in result.updates:
                self._wrote(wish, self._add(update))
        come = self._create(wishes) if creates else ()
        self._delete(later, come if self._difference.is_emptied(name) else ())

    def _switch(self, rows: list[tuple[SetKey, Record]], creates: list[tuple[Wish, RecordSpec]]) -> None:
        needs = _distinct(step for wish, _ in creates for step in self._vouched[wish.key])
        step = self._add(Switch(tuple(row for _, row in rows), tuple(spec for _, spec in creates)), needs)
        for key, _ in rows:
            self._removed(key, step)
        for wish, _ in creates:
            self._wrote(wish, step)

    def _create(self, wishes: list[Wish]) -> tuple[int, ...]:
        """Returns the steps that add records which lead to a host."""
        whole = [wish for wish in wishes if self._difference.must_come_whole(wish)]
        for wish in whole:
            specs = tuple(self._difference.sets[wish.key].creates)
            self._wrote(wish, self._add(CreateTogether(specs), _distinct(self._vouched[wish.key])))
        others = [wish for wish in wishes if wish not in whole]
        needs = {wish.key: _distinct(self._vouched[wish.key]) for wish in others}  # one tuple for a whole set
        come: list[int] = []
        for wish in others:
            for spec in self._difference.sets[wish.key].creates:
                step = self._add(Create(spec), needs[wish.key])
                self._wrote(wish, step)
                if wish.type in LEADING_TYPES:
                    come.append(step)
        return tuple(come)

    def _delete(self, rows: list[tuple[SetKey, Record]], needs_one_of: tuple[int, ...] = ()) -> None:
        """`needs_one_of`: the steps that replace these rows; it applies only to rows that lead to a host."""
        for key, row in rows:
            needed = needs_one_of if row.type in LEADING_TYPES else ()
            self._removed(key, self._add(Delete(row), needs_one_of=needed))

    def _wrote(self, wish: Wish, step: int) -> None:
        self._vouch(wish, step)
        self._written[wish.key].append(step)

    def _removed(self, key: SetKey, step: int) -> None:
        self._removals[key].append(step)
        self._written[key].append(step)

    def _remove_ownership(self, ownership: Wish) -> None:
        deletes = self._difference.sets[ownership.key].deletes
        subjects = self._difference.subjects(ownership)
        if deletes and any(self._difference.sets[subject.key].has_blocked_delete for subject in subjects):
            detail = "it stays while a record that it vouches for cannot be removed"
            self._difference.refuse(ownership, RefusalReason.NO_OWNERSHIP, detail)
            return
        needs = _distinct(step for subject in subjects for step in self._removals[subject.key])
        for row in deletes:
            if not self._difference.notes.waits(ownership.name, row.value):  # else a late record would have none
                self._add(Delete(row), needs)


def _distinct(steps: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(steps)))
