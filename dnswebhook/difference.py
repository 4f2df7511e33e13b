"""Compares wishes with rows: what each record set lacks, what it has too much of, and what must be refused (pure).

The rules are those of `dnswebhook.plan`, which puts the result in order. Names that are protected or outside the domain
filter do not get here (`dnswebhook.wishes`).
"""

from collections import defaultdict
from collections.abc import Collection
from functools import cached_property

import msgspec

from dnswebhook.canonical import host_of
from dnswebhook.chains import MAX_NAMES, Chains
from dnswebhook.claims import Claims
from dnswebhook.errors import excerpt
from dnswebhook.model import Origin, Record, RecordSpec
from dnswebhook.opennotes import OpenNotes
from dnswebhook.operations import Update
from dnswebhook.ownership import owner_in
from dnswebhook.past import Past
from dnswebhook.wishes import Refusal, RefusalReason, SetKey, Skip, SkipReason, Wish, Wishes

LEADING_TYPES = frozenset({"A", "AAAA", "CNAME"})
"""Types that lead a client to a host, so that a record of one can replace one of another. Others replace nothing."""
_MAX_WAY_CHARACTERS = 1000


class SetDifference(msgspec.Struct):
    """What one record set needs."""

    updates: list[Update]
    creates: list[RecordSpec]
    deletes: list[Record]
    has_blocked_delete: bool = False

    @property
    def adds_or_rewrites(self) -> bool:
        return bool(self.creates or self.updates)


class Difference:
    """All record sets of one call. After construction, `sets`, `refusals` and `skips` hold the complete result."""

    def __init__(self, asked: Wishes, records: Collection[Record], past: Past) -> None:
        self.notes = OpenNotes(past.noted)
        self._claims = Claims(records, past)
        self.wishes = dict(sorted(asked.wishes.items()))
        self.refusals = list(asked.refusals)
        self._refused = {(refusal.name, refusal.type) for refusal in asked.refusals}
        self.skips = list(asked.skips)
        self.by_name: dict[str, list[Wish]] = defaultdict(list)
        self._ownership_records: dict[str, list[Wish]] = defaultdict(list)
        """Ownership records by the name that they vouch for."""
        for wish in self.wishes.values():
            self.by_name[wish.name].append(wish)
            if wish.owned is not None:
                self._ownership_records[wish.owned.name].append(wish)
        self._rows: dict[str, list[Record]] = defaultdict(list)
        self._chains = Chains()
        for record in records:
            if record.name in self.by_name:
                self._rows[record.name].append(record)
            if record.type == "CNAME" and record.is_enabled:
                self._chains.add(record.name, record.value)
        for rows in self._rows.values():
            rows.sort(key=lambda row: (row.type, row.value, row.id))
        self.sets = {key: self._difference(wish) for key, wish in self.wishes.items()}
        self._apply_rules()

    def _apply_rules(self) -> None:
        """Take from `sets` what may not be written, and refuse it. A rule sees what those before it have left."""
        # First: nothing is refused, or taken for an obstacle, because of a record that is left to others.
        for wish in self.wishes.values():
            self._leave_to_who_came_first(wish)
        # Before loops: a CNAME that does not come leads nowhere.
        for name in self.by_name:
            self._keep_cname_alone(name)
        for wish in self.wishes.values():
            if wish.type == "CNAME":
                self._keep_out_of_loops(wish)
        # After all that refuses a record or its ownership record for itself: each goes with the other.
        self._drop_ownership_of_refused()
        self._refuse_unvouched()
        # Last: only now is known what comes in place of what goes.
        self._keep_what_refused_ones_replace()

    def subjects(self, ownership: Wish) -> list[Wish]:
        """The record sets of this call that an ownership record vouches for."""
        owned = ownership.owned
        if owned is None:
            return []
        return [wish for wish in self.by_name.get(owned.name, ()) if wish.owned is None and owned.covers(*wish.key)]

    def live(self, key: SetKey) -> list[Record]:
        """The rows of a set that the resolver serves."""
        name, record_type = key
        return [row for row in self._rows.get(name, ()) if row.is_enabled and row.type == record_type]

    @staticmethod
    def may_wait(ownership: Wish, update: Update) -> bool:
        """Whether a text may be rewritten after its record, since the old text says the same.

        An encrypted text differs on every pass: written first, it would be rewritten each time its record fails.
        """
        return update.record.value in ownership.same

    def values_of_ours(self, subject: Wish) -> set[str]:
        """The subject's values in this call, and those that an earlier call should have removed and this one omits."""
        return {*subject.wanted, *subject.removed, *self.notes.values(subject.key)}

    def must_come_whole(self, wish: Wish) -> bool:
        """Whether the set must be created completely or not at all: external-dns 0.21 does not recognise its own TXT
        sets, so half of one would never be completed."""
        is_new_text = wish.type == "TXT" and wish.owned is None and not self.live(wish.key)
        return is_new_text and len(self.sets[wish.key].creates) > 1

    def is_half(self, wish: Wish) -> bool:
        """Whether an earlier call has created only part of such a set, and this call wants the set."""
        whole = self.notes.whole(wish.key)
        here = {row.value for row in self.live(wish.key) if row.value in whole}
        return bool(wish.wanted and here) and here < whole

    def is_refused_in_part(self, wish: Wish) -> bool:
        return wish.key in self._refused

    def is_emptied(self, name: str) -> bool:
        """Whether none of the rows of a name that lead to a host stays, not even rewritten."""
        removed = {row.id for wish in self.by_name[name] for row in self.sets[wish.key].deletes}
        leading = [row for row in self._rows.get(name, ()) if row.is_enabled and row.type in LEADING_TYPES]
        return all(row.id in removed for row in leading)

    def refuse(self, wish: Wish, reason: RefusalReason, detail: str) -> None:
        self.refusals.append(Refusal(reason, wish.name, wish.type, detail))
        self._refused.add(wish.key)

    def _difference(self, wish: Wish) -> SetDifference:
        result = SetDifference([], [], [])
        live = self.live(wish.key)
        missing = self._missing(wish, {row.value for row in live})
        surplus = []
        for row in live:
            if row.value in wish.wanted:
                if wish.ttl_s and row.ttl_s != wish.ttl_s and row.origin is Origin.USER_DEFINED:
                    result.updates.append(Update(row, _spec(wish, row.value)))
            elif self._is_released(wish, row) and self._may_remove(wish, row, result):
                surplus.append(row)
        if surplus and wish.is_wanted and not missing and not any(row.value in wish.wanted for row in live):
            # The replacement was refused: an old answer is better than none.
            result.has_blocked_delete = True
            surplus = []
        pairs, missing, surplus = _paired(wish.type, missing, surplus)
        result.updates += [Update(row, _spec(wish, value)) for row, value in pairs]
        result.creates = [_spec(wish, value) for value in missing]
        result.deletes = surplus
        return result

    def _missing(self, wish: Wish, served: set[str]) -> list[str]:
        rows = self._rows.get(wish.name, ())
        disabled = {row.value for row in rows if row.type == wish.type and not row.is_enabled}
        missing = []
        for value in wish.wanted:
            if value in served:
                continue
            if value in disabled:
                detail = f"the controller holds {value!r} as a disabled row; enable or delete that row there"
                self.refuse(wish, RefusalReason.DISABLED_ROW, detail)
            else:
                missing.append(value)
        return missing

    def _is_released(self, wish: Wish, row: Record) -> bool:
        """Whether this call gives the row up: by value, or as a text that external-dns has read and rewords now.

        A row that an earlier call should have removed, or replaced by a value that this call names, is given up too: if
        external-dns has not listed since (`--txt-cache-interval`), it believes that what it sent is there.
        """
        if row.value in wish.removed:
            return True
        if row.value in self.notes.values(wish.key) and (wish.is_released or self._is_claimed(wish)):
            return True
        successor = self.notes.successor(wish.name, row.value)
        if successor and (successor in wish.wanted or successor in wish.removed):
            return True
        if wish.owned and self._is_succeeded(wish, row.value):
            return True
        if not wish.readings:
            return False
        if wish.owned and self._claims.is_restored(row, wish.owned, {read.owner for read in wish.readings}):
            return True
        # external-dns does not read the format of 0.17 and before if a record in another format exists.
        is_first = bool(wish.owned and wish.owned.types) and self._claims.is_first_told(row)
        return any(read.is_of(row.value, is_first=is_first) for read in wish.readings)

    def _is_succeeded(self, ownership: Wish, text: str) -> bool:
        """Whether an earlier call left this text open, and its owner now gets another text in that ownership record."""
        is_noted = self.notes.has_text(ownership.name, text)
        return is_noted and owner_in(text) in map(owner_in, ownership.wanted)

    def _is_claimed(self, wish: Wish) -> bool:
        """Whether an ownership record that an earlier call left open is there, and this call sends it again."""
        return any(
            self.notes.has_text(ownership.name, row.value)
            for ownership in self._ownership_records_of(wish)
            for row in self.live(ownership.key)
        )

    def _may_remove(self, wish: Wish, row: Record, result: SetDifference) -> bool:
        if row.origin is Origin.USER_DEFINED:
            return True
        if row.origin is Origin.DERIVED:
            detail = f"{row.value!r} was made by the controller itself and stays"
            self.skips.append(Skip(SkipReason.DERIVED_ROW, wish.name, wish.type, detail))
            return False
        result.has_blocked_delete = True
        detail = (
            f"{row.value!r} has id {row.id!r}, as another row has, so a write could hit either; set UNIFI_API=v2, "
            "which may give each an id of its own, or delete the row in the controller's UI"
        )
        self.refuse(wish, RefusalReason.AMBIGUOUS_ID, detail)
        return False

    def _leave_to_who_came_first(self, wish: Wish) -> None:
        """Refuse a new set if somebody else has added values to it that external-dns has not seen.

        external-dns claims whole sets, and would remove those values. If it asks for a change to the set
        (`--txt-cache-interval`), refuse only if no row is left that it may have known.
        """
        ownership_records = self._ownership_records_of(wish)
        is_claimed_now = any(self.sets[ownership.key].creates for ownership in ownership_records)
        if not is_claimed_now or any(
            self.live(each.key) or self.subjects(each) != [wish] for each in ownership_records
        ):
            return
        live, ours = self.live(wish.key), self.values_of_ours(wish)
        new = [row for row in live if row.origin is Origin.USER_DEFINED and self._claims.is_unseen(row)]
        theirs = [row.value for row in new if row.value not in ours]
        if not theirs or (wish.is_released and len(theirs) < len(live)):
            return
        detail = (
            f"somebody has added {excerpt(', '.join(theirs))!r} since external-dns listed, which would claim it, and "
            "remove it in a later pass, so it stays; to hand the name over to external-dns, remove it by hand"
        )
        self.refuse(wish, RefusalReason.NO_OWNERSHIP, detail)
        self.sets[wish.key] = SetDifference([], [], [])
        for ownership in ownership_records:
            self.sets[ownership.key].creates = []

    def _keep_cname_alone(self, name: str) -> None:
        """Drop creates that would put a CNAME beside another record, or a second CNAME beside the first."""
        here = [(wish, self.sets[wish.key]) for wish in self.by_name[name]]
        if not any(result.creates for _, result in here):
            return
        removed = {row.id: row for _, result in here for row in result.deletes}
        staying = [row for row in self._rows.get(name, ()) if row.id not in removed]
        staying.sort(key=lambda row: not row.is_enabled)
        others_come = [wish.type for wish, result in here if wish.type != "CNAME" and result.creates]
        for wish, result in here:
            if not result.creates:
                continue
            # A disabled row is an obstacle only if something would be removed first: if the controller then objects to
            # the row, all of that would have to be put back. Otherwise the controller may decide.
            makes_room = any(_exclude_each_other(wish, row) for row in removed.values())
            in_the_way = (row for row in staying if _exclude_each_other(wish, row) and (row.is_enabled or makes_room))
            if row := next(in_the_way, None):
                obstacle = _told_as(row)
            elif wish.type == "CNAME" and others_come:
                obstacle = f"a wanted {others_come[0]}"
            else:
                continue
            values = excerpt(", ".join(spec.value for spec in result.creates))
            detail = f"{values!r} cannot be added: the name also has {obstacle}, and a CNAME must stand alone"
            self.refuse(wish, RefusalReason.CNAME_CONFLICT, detail)
            result.creates = []
        self._keep_unless_replaced(name)

    def _keep_out_of_loops(self, wish: Wish) -> None:
        """Drop values that would make a CNAME lead back to its own name.

        Both the current and the coming CNAMEs count: strands run in parallel, and some may fail.
        """
        result = self.sets[wish.key]
        rewrites = [update for update in result.updates if update.spec.value != update.record.value]
        for spec in (*result.creates, *(update.spec for update in rewrites)):  # at most one
            if way := self._chains.path(spec.value, wish.name):
                named = excerpt(" -> ".join(way), _MAX_WAY_CHARACTERS)
                detail = f"it leads back to the name ({named}), and no resolver starts with a CNAME loop"
                if way[-1] != wish.name:
                    detail = f"it leads on to more than {MAX_NAMES} names ({named}), which no client follows"
                self.refuse(wish, RefusalReason.CNAME_LOOP, f"{spec.value!r} cannot be added: {detail}")
                result.creates = []
                result.updates = [update for update in result.updates if update not in rewrites]
                self._keep_unless_replaced(wish.name)
                result.has_blocked_delete |= bool(rewrites)
            else:
                self._chains.add(wish.name, spec.value)

    def _keep_unless_replaced(self, name: str, kept: Collection[str] | None = None) -> None:
        """If nothing is left to be written to a name, because it was refused, do not remove anything from it either.

        `kept`: the row types to keep if none of them is written; a CNAME is kept only if nothing at all is written.
        None means all types.
        """
        here = [(wish, self.sets[wish.key]) for wish in self.by_name[name]]
        written = {wish.type for wish, result in here if result.adds_or_rewrites}
        if not (written if kept is None else written.intersection(kept)):
            for wish, result in here:
                if (kept is None or wish.type in kept) and not (written and wish.type == "CNAME"):
                    result.has_blocked_delete |= bool(result.deletes)
                    result.deletes = []

    def _drop_ownership_of_refused(self) -> None:
        """Write no ownership record for a record that will not be there: it would claim one that somebody else adds."""
        for ownership in self.wishes.values():
            subjects = self.subjects(ownership)
            if subjects and all(self._is_refused(subject) for subject in subjects):
                self.sets[ownership.key].creates = []

    def _is_refused(self, wish: Wish) -> bool:
        return wish.key in self._refused and not self.sets[wish.key].adds_or_rewrites and not self.live(wish.key)

    def _refuse_unvouched(self) -> None:
        """Write no record without its ownership record: it would never be claimed, hence never removed."""
        for subject in list(self.wishes.values()):
            result = self.sets[subject.key]
            if subject.owned is not None or not result.creates:
                continue
            if subject.owner and not self._ownership_records_of(subject):
                self._bring_ownership_back(subject)
            ownership_records = self._ownership_records_of(subject)
            if ownership_records and all(self._is_refused(ownership) for ownership in ownership_records):
                named = repr(ownership_records[0].name)
                detail = f"its ownership record {named} cannot be written, so external-dns would not manage it"
                self.refuse(subject, RefusalReason.NO_OWNERSHIP, detail)
                result.creates = []
            elif (
                not ownership_records
                and subject.owner
                and (detail := self._claims.why_unclaimed(subject, self._taken_over, self._sent_owners))
            ):
                self.refuse(subject, RefusalReason.NO_OWNERSHIP, detail)
                result.creates = []

    def _bring_ownership_back(self, subject: Wish) -> None:
        """Create the subject's ownership record again if external-dns does not send it.

        external-dns 0.23 with `--txt-cache-interval` assumes that each ownership record it has listed is still there.
        So if a record is removed and comes back before the next listing, it sends no ownership record with it.
        """
        gone = self._claims.gone_from(subject)
        if gone is None or gone.name in self.by_name:
            return
        ownership = Wish(gone.name, "TXT", (gone.value,), is_wanted=True, owned=gone.owned)
        self.wishes[ownership.key] = ownership
        self.by_name[ownership.name].append(ownership)
        self._ownership_records[subject.name].append(ownership)
        self.sets[ownership.key] = SetDifference([], [_spec(ownership, gone.value)], [])
        self._leave_to_who_came_first(subject)

    def _ownership_records_of(self, subject: Wish) -> list[Wish]:
        return [each for each in self._ownership_records.get(subject.name, ()) if subject in self.subjects(each)]

    @cached_property
    def _sent_owners(self) -> frozenset[str]:
        """Owners in the ownership records that this call wants; those of encrypted ones are not known."""
        return frozenset(owner_in(text) for wish in self.wishes.values() if wish.owned for text in wish.wanted)

    @cached_property
    def _taken_over(self) -> frozenset[str]:
        """Owners whose records external-dns takes over in this call, as with `--migrate-from-txt-owner`."""
        return frozenset(
            owner_in(row.value)
            for wish in self.wishes.values()
            if wish.readings
            for row in self.live(wish.key)
            if self._is_released(wish, row)
        )

    def _keep_what_refused_ones_replace(self) -> None:
        """A name keeps its last addresses, or its alias, if their replacement is refused, even one of another type,
        such as IPv6 for IPv4."""
        for name, wishes in self.by_name.items():
            leading = [wish for wish in wishes if wish.type in LEADING_TYPES]
            if any(wish.is_wanted and wish.key in self._refused for wish in leading) and self.is_emptied(name):
                self._keep_unless_replaced(name, LEADING_TYPES)


def _exclude_each_other(wish: Wish, row: Record) -> bool:
    """Whether one name cannot have both, since a CNAME stands alone, without a second one too."""
    return "CNAME" in (wish.type, row.type)


def _told_as(row: Record) -> str:
    return f"{row.type} {row.value!r}" if row.is_enabled else f"{row.type} {row.value!r} in a disabled row"


def _paired(
    record_type: str, missing: list[str], surplus: list[Record]
) -> tuple[list[tuple[Record, str]], list[str], list[Record]]:
    """Which row is rewritten to which value, then the remaining values and rows.

    A row with the same host is preferred: to a controller, MX and SRV rows with one host are the same, whatever their
    numbers, so it would refuse to give a row a host that another row still has.
    """
    by_host: dict[str, list[Record]] = defaultdict(list)
    for row in reversed(surplus):
        by_host[host_of(record_type, row.value)].append(row)
    pairs, others = [], []
    for value in missing:
        rows = by_host[host_of(record_type, value)]
        if rows:
            pairs.append((rows.pop(), value))
        else:
            others.append(value)
    taken = {row.id for row, _ in pairs}
    rest = [row for row in surplus if row.id not in taken]
    pairs += zip(rest, others, strict=False)
    reused = min(len(rest), len(others))
    return pairs, others[reused:], rest[reused:]


def _spec(wish: Wish, value: str) -> RecordSpec:
    return RecordSpec(wish.name, wish.type, value, wish.ttl_s)
