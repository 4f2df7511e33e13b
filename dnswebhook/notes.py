"""Notes on what a failed or killed apply can leave behind: ownership records without records, partial TXT sets (pure).

external-dns never looks again at an ownership record without its record. Such a leftover is harmless at best; at worst
it claims a record that somebody else adds under that name later, and external-dns then removes it. So every ownership
record that an apply adds or removes is noted (as a `Note`) until a listing shows that it and its record are both
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
"""For how many listings to await a row whose create had no clear result, or was confirmed but is not listed yet.
external-dns lists every minute by default."""
MAX_NOTED_TEXTS = 16
"""How many texts of one ownership record are noted per apply. external-dns writes one; this many must come from
somebody else who uses its name, and each note holds all values of the record."""

IsDesired = Callable[[str, str], bool | None]
"""Whether external-dns wants a record set (name, type); None if that is not known yet."""


class Note(msgspec.Struct, frozen=True):
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
    """For how many more listings it or its record may appear: a create without a response may yet be carried out, and a
    listing may be older than one that was confirmed."""
    is_unlisted: bool = False
    """It waits only because its create, which was confirmed, was not listed: until it is listed with its whole
    record."""
    is_whole: bool = False
    """The note is not about an ownership record but about a TXT set, which must have all `owned_values` or none;
    `value` is empty."""


class Settlement(msgspec.Struct, frozen=True):
    """What `settle` has decided."""

    remove: tuple[Record, ...]
    """Rows to be removed: ownership records that vouch for nothing of ours, and partial sets."""
    open: tuple[Note, ...]
    """The notes to keep until the next listing, including those about rows to be removed."""
    contested: tuple[Note, ...] = ()
    """Those of `open` whose record another owner has claimed."""
    claims: tuple[Record, ...] = ()
    """Those of `remove` that vouch for somebody else's record, which external-dns would treat as its own."""


def settle(notes: Iterable[Note], records: Iterable[Record], is_desired: IsDesired) -> Settlement:
    """Decide what to do about `notes`, given a complete listing made while no apply is running."""
    noted = tuple(notes)
    rows = _rows_about(noted, records)
    halves = {note: _half(note, rows.get(note.name, ())) for note in noted if note.is_whole}
    partial = [row for half in halves.values() for row in half]
    going = frozenset(partial)
    texts = Counter(note.name for note in noted if any(_says(row, note.value) for row in rows.get(note.name, ())))
    verdicts = [
        _verdict(note, rows, going, is_desired, is_only_text=texts[note.name] <= 1)
        for note in noted
        if not note.is_whole
    ]
    claims = tuple(row for verdict in verdicts for row in verdict.claims)
    return Settlement(
        remove=(*claims, *partial, *(row for verdict in verdicts for row in verdict.remove)),
        open=(
            *(note for note, half in halves.items() if half),
            *(verdict.open for verdict in verdicts if verdict.open is not None),
        ),
        contested=tuple(verdict.contested for verdict in verdicts if verdict.contested is not None),
        claims=claims,
    )


def _rows_about(noted: Iterable[Note], records: Iterable[Record]) -> dict[str, list[Record]]:
    """Our rows by name, of all names that matter for the notes."""
    names = {name for note in noted for name in (note.name, note.owned.name)}
    names |= {name for note in noted for kind in KNOWN_TYPES for name in _ownership_names(note, kind)}
    rows: dict[str, list[Record]] = {}
    for record in records:
        if record.name in names and record.is_enabled and record.origin is Origin.USER_DEFINED:
            rows.setdefault(record.name, []).append(record)
    return rows


class _Verdict(NamedTuple):
    """What `settle` has decided about one note on an ownership record."""

    open: Note | None
    """The note to keep; None: it is settled."""
    remove: Sequence[Record] = ()
    claims: Sequence[Record] = ()
    """To be removed as well; see `Settlement`."""
    contested: Note | None = None


def _verdict(
    note: Note,
    rows: Mapping[str, Sequence[Record]],
    going: Set[Record],
    is_desired: IsDesired,
    *,
    is_only_text: bool,
) -> _Verdict:
    """`going`: rows that are removed in any case; `is_only_text`: no text of another note is beside its own."""
    texts = rows.get(note.name, ())
    own = [row for row in texts if _says(row, note.value)]
    if not own:
        return _Verdict(_after_listing(note) if note.waits else None)
    if note.successor and any(_says(row, note.successor) for row in texts):
        return _Verdict(note, remove=own)
    covered = [
        row
        for row in rows.get(note.owned.name, ())
        if row not in own and row not in going and note.owned.covers(*_key(row))
    ]
    is_with_ours = any(row.value in note.owned_values or note.is_staying for row in covered)
    may_be_desired = _may_be_desired(note, is_desired)
    contested = msgspec.structs.replace(note, is_given_up=False) if _is_unread(note, texts) else None
    if contested and is_with_ours and (may_be_desired or not note.is_given_up):
        # Kept once more: the other owner, whose record may not have been added, may be removing its text for the same
        # reason. If both did, nobody would own the record.
        return _Verdict(msgspec.structs.replace(note, is_given_up=not may_be_desired), contested=contested)
    if not contested and (is_with_ours or (covered and note.is_done)):
        if note.is_unlisted and note.owned_values <= {row.value for row in covered}:
            note = msgspec.structs.replace(note, waits=0, is_unlisted=False)
        # The record is there (with any values once all writes have succeeded). external-dns takes care of the rest,
        # unless the record is to go, perhaps only after the call was answered, or another text of ours is beside it.
        is_going = note.is_leaving and not may_be_desired
        is_open = note.waits or is_going or not is_only_text
        return _Verdict(_after_listing(done(note)) if is_open else None)
    # The text vouches for nothing, for somebody else's record, or for ours that is left to the owner who claims it.
    kept = _after_listing(note)
    if covered and not is_with_ours:
        return _Verdict(kept, claims=own, contested=contested)
    is_unwanted = not note.waits and (note.is_leaving or not may_be_desired)
    is_removed = is_unwanted or _is_held_by_another(note, rows)
    return _Verdict(kept, remove=own if is_removed else (), contested=contested)


def unsettled(notes: Iterable[Note], records: Iterable[Record]) -> tuple[Note, ...]:
    """The notes without TXT sets that are there completely or not at all: these have not been left half-written."""
    noted = tuple(notes)
    rows: dict[str, list[Record]] = {note.name: [] for note in noted if note.is_whole}
    for record in records:
        if record.name in rows:
            rows[record.name].append(record)
    return tuple(note for note in noted if not note.is_whole or _half(note, rows[note.name]))


def extended(notes: Iterable[Note], added: Iterable[RecordSpec]) -> tuple[Note, ...]:
    """The notes whose ownership records vouch for some of the records `added`; their `owned_values` include these.

    external-dns does not resend an ownership record that it has listed, so a plan may contain the record alone.
    """
    by_name: dict[str, list[RecordSpec]] = {}
    for spec in added:
        by_name.setdefault(spec.name, []).append(spec)
    found = []
    for note in notes:
        if note.is_whole:
            continue
        values = {
            spec.value
            for spec in by_name.get(note.owned.name, ())
            if note.owned.covers(spec.name, spec.type) and (spec.name, spec.value) != (note.name, note.value)
        }
        if values - note.owned_values:
            found.append(msgspec.structs.replace(note, owned_values=note.owned_values | values))
    return tuple(found)


def awaited(notes: Iterable[Note], pending: Set[RecordSpec]) -> tuple[Note, ...]:
    """The notes whose text, successor or record may still appear (`pending`, see `Run`), set to wait for that."""
    keys = {_key(spec) for spec in pending}
    texts = {(spec.name, spec.value) for spec in pending if spec.type == "TXT"}
    found = []
    counts: Counter[str] = Counter()
    for note in reversed(tuple(notes)):
        if note.is_whole:
            continue
        counts[note.name] += 1
        # Encrypted texts differ on every pass. Notes about older ones are obsolete, and must not start to wait again.
        has_record = counts[note.name] <= MAX_NOTED_TEXTS and any(note.owned.covers(*key) for key in keys)
        replacing = note.successor if note.is_staying else note.value
        if has_record or not texts.isdisjoint(((note.name, note.value), (note.name, replacing))):
            found.append(msgspec.structs.replace(note, waits=LATE_LISTINGS, is_unlisted=False))
    return tuple(reversed(found))


def awaited_if_unlisted(notes: Iterable[Note], records: Iterable[Record]) -> tuple[Note, ...]:
    """Notes about texts whose create was confirmed, set to wait for those that a listing lacks: it may be older."""
    texts = {(row.name, row.value) for row in records if row.type == "TXT"}
    return tuple(
        note
        if (note.name, note.value) in texts
        else msgspec.structs.replace(note, waits=LATE_LISTINGS, is_unlisted=True)
        for note in notes
    )


def done(note: Note) -> Note:
    """The note once all writes have succeeded: from now on its record may be edited, like any owned record."""
    return note if note.is_leaving or note.successor else msgspec.structs.replace(note, is_done=True)


def _after_listing(note: Note) -> Note:
    return msgspec.structs.replace(note, waits=note.waits - 1) if note.waits else note


def _half(note: Note, rows: Iterable[Record]) -> list[Record]:
    """The rows of a TXT set that is there in part; empty if all or none of it is there."""
    found = [row for row in rows if row.value in note.owned_values and note.owned.covers(*_key(row))]
    return found if {row.value for row in found} < note.owned_values else []


def _is_unread(note: Note, rows: Iterable[Record]) -> bool:
    """Whether external-dns does not read the text: it parses only the first one, which is another owner's."""
    owner = owner_in(note.value)
    if not owner or note.is_leaving or note.is_staying:
        return False
    first = min((row.value for row in rows if row.type == "TXT"), key=place_in_listing)
    return owner_in(first) not in ("", owner)


def _is_held_by_another(note: Note, rows: Mapping[str, Sequence[Record]]) -> bool:
    """Whether another owner has a record of another type on the name.

    Our external-dns then wants nothing there, and the other one writes no ownership record of this type while ours is
    there.
    """
    ours = owner_in(note.value)
    texts = [
        min((text.value for text in rows.get(name, ()) if text.type == "TXT"), key=place_in_listing, default="")
        for row in rows.get(note.owned.name, ())
        for name in _ownership_names(note, row.type)
    ]
    return bool(ours) and any(owner_in(text) not in ("", ours) for text in texts)


def _ownership_names(note: Note, record_type: str) -> tuple[str, ...]:
    """Where another owner may keep the ownership record of this type of the name."""
    return (*usual_names(note.owned.name, record_type), *names_alike(note.name, note.owned, record_type))


def _says(row: Record, text: str) -> bool:
    return row.type == "TXT" and row.value == text


def _key(row: Record | RecordSpec) -> tuple[str, str]:
    return row.name, row.type


def _may_be_desired(note: Note, is_desired: IsDesired) -> bool:
    """Whether external-dns wants the record, or may want it: while that is not known, it may be about to send it."""
    if not note.owned.types:
        return True
    return any(is_desired(note.owned.name, kind) is not False for kind in note.owned.types)
