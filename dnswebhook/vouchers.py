"""What a failed or killed apply can leave: ownership records whose records may not have followed them, halves of sets
(pure).

external-dns never looks again at an ownership record without its record. Such a leftover is rubbish at best; at
worst it claims a record that somebody else adds under that name later, and external-dns then removes it. So every
ownership record that an apply adds or removes is noted until a listing shows that both sides agree.

A text that another one replaces is noted too, while the record stays: external-dns knows one text of an ownership
record, and never names a second one again. So is a text that was written in the same moment as that of another owner:
only the first of the two is read, so the other external-dns never removes its own.

TXT sets that come whole or not at all are noted as well: external-dns never looks at such a set again, so half of one
would stay half.

Until external-dns has listed again, the notes also tell what was to be removed and may still be there: with
`--txt-cache-interval` it takes for present what it has sent, even if that failed (`dnswebhook.difference`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set

import msgspec

from dnswebhook.canonical import KNOWN_TYPES
from dnswebhook.model import Origin, Record, RecordSpec
from dnswebhook.ownership import OwnedSet, owner_in, place_in_listing, usual_names

LATE_LISTINGS = 10
"""So many passes of external-dns; ten minutes, by default."""
MAX_NOTED_TEXTS = 16
"""Per name and apply. external-dns writes one text into an ownership record; so many must come from somebody else under
its name, and each would be noted with all values of the record."""

IsDesired = Callable[[str, str], bool | None]
"""Whether external-dns wants a record set (name, type); None when that is not known yet."""


class Voucher(msgspec.Struct, frozen=True):
    """One row of an ownership record that was to be added, removed (`is_leaving`), or only to see its record change."""

    name: str
    value: str
    owned: OwnedSet
    owned_values: frozenset[str]
    """Values of the vouched-for record that are ours: those wanted, or those to be removed."""
    is_leaving: bool
    is_staying: bool = False
    successor: str = ""
    """The text that was to replace it: where both are there, this one goes, whatever it vouches for."""
    is_done: bool = False
    """All that it was noted for has been written: what became of its record since is not for us to judge."""
    is_given_up: bool = False
    """Another owner has claimed the record, and external-dns did not want it when that was looked at before."""
    waits: int = 0
    """For so many listings more, it and its record may come late: a create without an answer may yet be carried out."""
    is_whole: bool = False
    """No ownership record, but a set, of all `owned_values` or of none of them. It has no `value` of its own."""


class Settlement(msgspec.Struct, frozen=True):
    remove: tuple[Record, ...]
    """Rows of ownership records that vouch for nothing of ours, and those of half a set."""
    open: tuple[Voucher, ...]
    """Not decided yet: look again at the next listing. Includes those to be removed, until they are gone."""
    contested: tuple[Voucher, ...] = ()
    """Of those, the ones whose record another owner has claimed."""
    claims: tuple[Record, ...] = ()
    """Of `remove`, those that claim what somebody else has put there: external-dns would take it for its own."""


def settle(vouchers: Iterable[Voucher], records: Iterable[Record], is_desired: IsDesired) -> Settlement:
    """What to do about `vouchers`, given a complete listing in which no apply is under way."""
    noted = tuple(vouchers)
    names = {voucher.name for voucher in noted} | {voucher.owned.name for voucher in noted}
    names |= {name for voucher in noted for kind in KNOWN_TYPES for name in usual_names(voucher.owned.name, kind)}
    rows: dict[str, list[Record]] = {}
    for record in records:
        if record.name in names and record.is_enabled and record.origin is Origin.USER_DEFINED:
            rows.setdefault(record.name, []).append(record)
    halves = {voucher: _half(voucher, rows.get(voucher.name, ())) for voucher in noted if voucher.is_whole}
    remove = [row for half in halves.values() for row in half]
    going = frozenset(remove)
    still_open = [voucher for voucher, half in halves.items() if half]
    contested: list[Voucher] = []
    claims: list[Record] = []
    for voucher in noted:
        if voucher.is_whole:
            continue
        own = [row for row in rows.get(voucher.name, ()) if _says(row, voucher.value)]
        covered = [
            row
            for row in rows.get(voucher.owned.name, ())
            if row not in own and row not in going and voucher.owned.covers(*_key(row))
        ]
        if own and voucher.successor and any(_says(row, voucher.successor) for row in rows[voucher.name]):
            still_open.append(voucher)
            remove += own
            continue
        if not own and voucher.waits:
            still_open.append(_after_listing(voucher))
            continue
        is_with_ours = any(row.value in voucher.owned_values or voucher.is_staying for row in covered)
        if own and _is_unread(voucher, rows[voucher.name]):
            contested.append(msgspec.structs.replace(voucher, is_given_up=False))
            is_given_up = not _may_be_desired(voucher, is_desired)
            if is_with_ours and not (is_given_up and voucher.is_given_up):
                # The other one, whose record may not have come, lets go of ours now. If both did, it would be nobody's.
                still_open.append(msgspec.structs.replace(voucher, is_given_up=is_given_up))
                continue
        elif not own or is_with_ours or (covered and voucher.is_done):
            # Gone, or with its record, and with any where it was there before: external-dns looks after it again.
            # Unless it is to go, and does so later than its removal was answered.
            if voucher.waits or (own and voucher.is_leaving and not _may_be_desired(voucher, is_desired)):
                still_open.append(_after_listing(done(voucher)))
            continue
        still_open.append(_after_listing(voucher))
        if covered and not is_with_ours:
            claims += own
        elif (
            not voucher.waits and (voucher.is_leaving or not _may_be_desired(voucher, is_desired))
        ) or _is_held_by_another(voucher, rows):
            remove += own
    return Settlement((*claims, *remove), tuple(still_open), tuple(contested), tuple(claims))


def unsettled(vouchers: Iterable[Voucher], records: Iterable[Record]) -> tuple[Voucher, ...]:
    """Without sets that are there as a whole, or not at all: what a later call makes of them is no half."""
    noted = tuple(vouchers)
    rows: dict[str, list[Record]] = {voucher.name: [] for voucher in noted if voucher.is_whole}
    for record in records:
        if record.name in rows:
            rows[record.name].append(record)
    return tuple(voucher for voucher in noted if not voucher.is_whole or _half(voucher, rows[voucher.name]))


def extended(vouchers: Iterable[Voucher], added: Iterable[RecordSpec]) -> tuple[Voucher, ...]:
    """Those that vouch for one of the records about to be written, which are then ours as well.

    external-dns does not send an ownership record again that it has seen, so only the record names its voucher here.
    """
    by_name: dict[str, list[RecordSpec]] = {}
    for spec in added:
        by_name.setdefault(spec.name, []).append(spec)
    found = []
    for voucher in vouchers:
        if voucher.is_whole:
            continue
        values = {
            spec.value
            for spec in by_name.get(voucher.owned.name, ())
            if voucher.owned.covers(spec.name, spec.type) and (spec.name, spec.value) != (voucher.name, voucher.value)
        }
        if values - voucher.owned_values:
            found.append(msgspec.structs.replace(voucher, owned_values=voucher.owned_values | values))
    return tuple(found)


def awaited(vouchers: Iterable[Voucher], pending: Set[RecordSpec]) -> tuple[Voucher, ...]:
    """Those whose text, successor or record may come late, by a create that was not answered."""
    keys = {_key(spec) for spec in pending}
    texts = {(spec.name, spec.value) for spec in pending if spec.type == "TXT"}
    found = []
    counts: Counter[str] = Counter()
    for voucher in reversed(tuple(vouchers)):
        if voucher.is_whole:
            continue
        counts[voucher.name] += 1
        # An encrypted text is another one in each pass: those of before have gone, and must not wait on and on.
        has_record = counts[voucher.name] <= MAX_NOTED_TEXTS and any(voucher.owned.covers(*key) for key in keys)
        replacing = voucher.successor if voucher.is_staying else voucher.value
        if has_record or not texts.isdisjoint(((voucher.name, voucher.value), (voucher.name, replacing))):
            found.append(msgspec.structs.replace(voucher, waits=LATE_LISTINGS))
    return tuple(reversed(found))


def done(voucher: Voucher) -> Voucher:
    """As it is noted for what may still come when its record is there: that may be edited, as any that is owned."""
    return voucher if voucher.is_leaving or voucher.successor else msgspec.structs.replace(voucher, is_done=True)


def _after_listing(voucher: Voucher) -> Voucher:
    return msgspec.structs.replace(voucher, waits=voucher.waits - 1) if voucher.waits else voucher


def _half(voucher: Voucher, rows: Iterable[Record]) -> list[Record]:
    """What is there of a set that is not there as a whole."""
    found = [row for row in rows if row.value in voucher.owned_values and voucher.owned.covers(*_key(row))]
    return found if {row.value for row in found} < voucher.owned_values else []


def _is_unread(voucher: Voucher, rows: Iterable[Record]) -> bool:
    """external-dns parses the first text only, and that is another owner's."""
    owner = owner_in(voucher.value)
    if not owner or voucher.is_leaving or voucher.is_staying:
        return False
    first = min((row.value for row in rows if row.type == "TXT"), key=place_in_listing)
    return owner_in(first) not in ("", owner)


def _is_held_by_another(voucher: Voucher, rows: Mapping[str, list[Record]]) -> bool:
    """The name has a record of some other type, and that another owner. So external-dns asks for nothing there, and
    that of the other writes no ownership record of this type as long as ours is there."""
    ours = owner_in(voucher.value)
    texts = [
        min((text.value for text in rows.get(name, ()) if text.type == "TXT"), key=place_in_listing, default="")
        for row in rows.get(voucher.owned.name, ())
        for name in usual_names(row.name, row.type)
    ]
    return bool(ours) and any(owner_in(text) not in ("", ours) for text in texts)


def _says(row: Record, text: str) -> bool:
    return row.type == "TXT" and row.value == text


def _key(row: Record | RecordSpec) -> tuple[str, str]:
    return row.name, row.type


def _may_be_desired(voucher: Voucher, is_desired: IsDesired) -> bool:
    """True as well when nobody knows: the record may be about to follow."""
    if not voucher.owned.types:
        return True
    return any(is_desired(voucher.owned.name, kind) is not False for kind in voucher.owned.types)
