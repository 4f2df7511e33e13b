"""Notes on what a failed or killed apply can leave behind: ownership records without records, partial TXT sets (pure).

external-dns never looks again at an ownership record without its record. Such a leftover is harmless at best; at worst
it claims a record that somebody else adds under that name later, and external-dns then removes it. So every ownership
record that an apply adds or removes is noted (as a `Voucher`) until a listing shows that it and its record are both
there or both gone. Also noted are:

- A text that another one replaces while its record stays: external-dns knows one text of an ownership record, and would
  never name a second one again.
- A text that was written at the same moment as another owner's: external-dns reads only the first of the two, so the
  owner of the second would never remove it.
- TXT sets that must be written completely or not at all: external-dns never looks at such a set again, so a partial one
  would never be completed.

Until external-dns lists again, the notes also tell what should have been removed and may still be there: with
`--txt-cache-interval` it believes that what it has sent was carried out (`dnswebhook.difference`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from dnswebhook.canonical import KNOWN_TYPES
from dnswebhook.model import Origin, Record, RecordSpec
from dnswebhook.ownership import OwnedSet, names_alike, owner_in, place_in_listing, usual_names

LATE_LISTINGS = 10
"""For how many listings to await a row whose create had no clear result. external-dns lists every minute by default."""
MAX_NOTED_TEXTS = 16
"""How many texts of one ownership record are noted per apply. external-dns writes one; this many must come from
somebody else who uses its name, and each note holds all values of the record."""

IsDesired = Callable[[str, str], bool | None]
"""Whether external-dns wants a record set (name, type); None if that is not known yet."""


class Voucher(msgspec.Struct, frozen=True):
    """A note about one row of an ownership record: it was to be added, to be removed (`is_leaving`), or to stay while
    its record changes (`is_staying`)."""

    name: str
    value: str
    owned: OwnedSet
    owned_values: frozenset[str]
    """Values of the vouched-for record that are ours: those wanted, or those to be removed."""
    is_leaving: bool
    is_staying: bool = False
    successor: str = ""
    """The text that was to replace this one: if both are there, this one is removed, whatever it vouches for."""
    is_done: bool = False
    """All writes of its apply have succeeded. If the record has got other values since, that is not our concern."""
    is_given_up: bool = False
    """Another owner has claimed the record, and at the previous listing external-dns did not want it."""
    waits: int = 0
    """For how many more listings it or its record may appear: a create without a response may yet be carried out."""
    is_whole: bool = False
    """The note is not about an ownership record but about a TXT set, which must have all `owned_values` or none;
    `value` is empty."""


class Settlement(msgspec.Struct, frozen=True):
    """What `settle` has decided."""

    remove: tuple[Record, ...]
    """Rows to be removed: ownership records that vouch for nothing of ours, and partial sets."""
    open: tuple[Voucher, ...]
    """The notes to keep until the next listing, including those about rows to be removed."""
    contested: tuple[Voucher, ...] = ()
    """Those of `open` whose record another owner has claimed."""
    claims: tuple[Record, ...] = ()
    """Those of `remove` that vouch for somebody else's record, which external-dns would treat as its own."""


def settle(vouchers: Iterable[Voucher], records: Iterable[Record], is_desired: IsDesired) -> Settlement:
    """Decide what to do about `vouchers`, given a complete listing made while no apply is running."""
    noted = tuple(vouchers)
    rows = _rows_about(noted, records)
    halves = {voucher: _half(voucher, rows.get(voucher.name, ())) for voucher in noted if voucher.is_whole}
    partial = [row for half in halves.values() for row in half]
    going = frozenset(partial)
    texts = Counter(
        voucher.name for voucher in noted if any(_says(row, voucher.value) for row in rows.get(voucher.name, ()))
    )
    verdicts = [
        _verdict(voucher, rows, going, is_desired, is_only_text=texts[voucher.name] <= 1)
        for voucher in noted
        if not voucher.is_whole
    ]
    claims = tuple(row for verdict in verdicts for row in verdict.claims)
    return Settlement(
        remove=(*claims, *partial, *(row for verdict in verdicts for row in verdict.remove)),
        open=(
            *(voucher for voucher, half in halves.items() if half),
            *(verdict.open for verdict in verdicts if verdict.open is not None),
        ),
        contested=tuple(verdict.contested for verdict in verdicts if verdict.contested is not None),
        claims=claims,
    )


def _rows_about(noted: Iterable[Voucher], records: Iterable[Record]) -> dict[str, list[Record]]:
    """Our rows by name, of all names that matter for the notes."""
    names = {name for voucher in noted for name in (voucher.name, voucher.owned.name)}
    names |= {name for voucher in noted for kind in KNOWN_TYPES for name in _ownership_names(voucher, kind)}
    rows: dict[str, list[Record]] = {}
    for record in records:
        if record.name in names and record.is_enabled and record.origin is Origin.USER_DEFINED:
            rows.setdefault(record.name, []).append(record)
    return rows


class _Verdict(NamedTuple):
    """What `settle` has decided about one note on an ownership record."""

    open: Voucher | None
    """The note to keep; None: it is settled."""
    remove: Sequence[Record] = ()
    claims: Sequence[Record] = ()
    """To be removed as well; see `Settlement`."""
    contested: Voucher | None = None


def _verdict(
    voucher: Voucher,
    rows: Mapping[str, Sequence[Record]],
    going: Set[Record],
    is_desired: IsDesired,
    *,
    is_only_text: bool,
) -> _Verdict:
    """`going`: rows that are removed in any case; `is_only_text`: no text of another note is beside its own."""
    texts = rows.get(voucher.name, ())
    own = [row for row in texts if _says(row, voucher.value)]
    covered = [
        row
        for row in rows.get(voucher.owned.name, ())
        if row not in own and row not in going and voucher.owned.covers(*_key(row))
    ]
    if own and voucher.successor and any(_says(row, voucher.successor) for row in texts):
        return _Verdict(voucher, remove=own)
    if not own and voucher.waits:
        return _Verdict(_after_listing(voucher))
    is_with_ours = any(row.value in voucher.owned_values or voucher.is_staying for row in covered)
    contested = None
    if own and _is_unread(voucher, texts):
        contested = msgspec.structs.replace(voucher, is_given_up=False)
        is_given_up = not _may_be_desired(voucher, is_desired)
        if is_with_ours and not (is_given_up and voucher.is_given_up):
            # Kept once more: the other owner, whose record may not have been added, may be removing its text for the
            # same reason. If both did, nobody would own the record.
            return _Verdict(msgspec.structs.replace(voucher, is_given_up=is_given_up), contested=contested)
    elif not own or is_with_ours or (covered and voucher.is_done):
        # The text is gone, or its record is there (with any values once all writes have succeeded). external-dns takes
        # care of the rest, unless the record is to go, perhaps only after the call was answered, or another text of
        # ours is beside it.
        is_going = voucher.is_leaving and not _may_be_desired(voucher, is_desired)
        is_open = voucher.waits or (own and (is_going or not is_only_text))
        return _Verdict(_after_listing(done(voucher)) if is_open else None)
    note = _after_listing(voucher)
    if covered and not is_with_ours:
        return _Verdict(note, claims=own, contested=contested)
    is_unwanted = not voucher.waits and (voucher.is_leaving or not _may_be_desired(voucher, is_desired))
    is_removed = is_unwanted or _is_held_by_another(voucher, rows)
    return _Verdict(note, remove=own if is_removed else (), contested=contested)


def unsettled(vouchers: Iterable[Voucher], records: Iterable[Record]) -> tuple[Voucher, ...]:
    """The notes without TXT sets that are there completely or not at all: these have not been left half-written."""
    noted = tuple(vouchers)
    rows: dict[str, list[Record]] = {voucher.name: [] for voucher in noted if voucher.is_whole}
    for record in records:
        if record.name in rows:
            rows[record.name].append(record)
    return tuple(voucher for voucher in noted if not voucher.is_whole or _half(voucher, rows[voucher.name]))


def extended(vouchers: Iterable[Voucher], added: Iterable[RecordSpec]) -> tuple[Voucher, ...]:
    """The notes whose ownership records vouch for some of the records `added`; their `owned_values` include these.

    external-dns does not resend an ownership record that it has listed, so a plan may contain the record alone.
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
    """The notes whose text, successor or record may still appear (`pending`, see `Run`), set to wait for that."""
    keys = {_key(spec) for spec in pending}
    texts = {(spec.name, spec.value) for spec in pending if spec.type == "TXT"}
    found = []
    counts: Counter[str] = Counter()
    for voucher in reversed(tuple(vouchers)):
        if voucher.is_whole:
            continue
        counts[voucher.name] += 1
        # Encrypted texts differ on every pass. Notes about older ones are obsolete, and must not start to wait again.
        has_record = counts[voucher.name] <= MAX_NOTED_TEXTS and any(voucher.owned.covers(*key) for key in keys)
        replacing = voucher.successor if voucher.is_staying else voucher.value
        if has_record or not texts.isdisjoint(((voucher.name, voucher.value), (voucher.name, replacing))):
            found.append(msgspec.structs.replace(voucher, waits=LATE_LISTINGS))
    return tuple(reversed(found))


def done(voucher: Voucher) -> Voucher:
    """The note once all writes have succeeded: from now on its record may be edited, like any owned record."""
    return voucher if voucher.is_leaving or voucher.successor else msgspec.structs.replace(voucher, is_done=True)


def _after_listing(voucher: Voucher) -> Voucher:
    return msgspec.structs.replace(voucher, waits=voucher.waits - 1) if voucher.waits else voucher


def _half(voucher: Voucher, rows: Iterable[Record]) -> list[Record]:
    """The rows of a TXT set that is there in part; empty if all or none of it is there."""
    found = [row for row in rows if row.value in voucher.owned_values and voucher.owned.covers(*_key(row))]
    return found if {row.value for row in found} < voucher.owned_values else []


def _is_unread(voucher: Voucher, rows: Iterable[Record]) -> bool:
    """Whether external-dns does not read the text: it parses only the first one, which is another owner's."""
    owner = owner_in(voucher.value)
    if not owner or voucher.is_leaving or voucher.is_staying:
        return False
    first = min((row.value for row in rows if row.type == "TXT"), key=place_in_listing)
    return owner_in(first) not in ("", owner)


def _is_held_by_another(voucher: Voucher, rows: Mapping[str, Sequence[Record]]) -> bool:
    """Whether another owner has a record of another type on the name.

    Our external-dns then wants nothing there, and the other one writes no ownership record of this type while ours is
    there.
    """
    ours = owner_in(voucher.value)
    texts = [
        min((text.value for text in rows.get(name, ()) if text.type == "TXT"), key=place_in_listing, default="")
        for row in rows.get(voucher.owned.name, ())
        for name in _ownership_names(voucher, row.type)
    ]
    return bool(ours) and any(owner_in(text) not in ("", ours) for text in texts)


def _ownership_names(voucher: Voucher, record_type: str) -> tuple[str, ...]:
    """Where another owner may keep the ownership record of this type of the name."""
    return (*usual_names(voucher.owned.name, record_type), *names_alike(voucher.name, voucher.owned, record_type))


def _says(row: Record, text: str) -> bool:
    return row.type == "TXT" and row.value == text


def _key(row: Record | RecordSpec) -> tuple[str, str]:
    return row.name, row.type


def _may_be_desired(voucher: Voucher, is_desired: IsDesired) -> bool:
    """Whether external-dns wants the record, or may want it: while that is not known, it may be about to send it."""
    if not voucher.owned.types:
        return True
    return any(is_desired(voucher.owned.name, kind) is not False for kind in voucher.owned.types)
