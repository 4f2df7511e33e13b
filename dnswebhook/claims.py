"""Who will own a record that external-dns sends without an ownership record (pure).

external-dns sends none if it has already seen one: either its own, which it assumes is still there, or another owner's.
What it has seen may differ from what is there now, so both are considered. A record that nobody claims would never be
removed.

The other registries of external-dns send no ownership records at all, and may never list (`crd`). They can be
recognised: after a refusal they send the same record again at once, while the TXT registry lists first.
"""

from collections import defaultdict
from collections.abc import Collection
from functools import cached_property

from dnswebhook.canonical import MAX_LABEL_OCTETS
from dnswebhook.errors import excerpt
from dnswebhook.model import Record
from dnswebhook.notes import Note
from dnswebhook.ownership import (
    OwnedSet,
    may_vouch_for,
    names_within,
    owner_in,
    place_in_listing,
    types_in,
    usual_names,
    words_in,
)
from dnswebhook.past import Past
from dnswebhook.wishes import SetKey, Wish


class Claims:
    """The ownership records that are served, and those that external-dns has seen. Indexed on first use."""

    def __init__(self, records: Collection[Record], past: Past) -> None:
        self._records = records
        self._insisted = past.insisted
        self._told = past.told
        self._seen = records if past.told is None else past.told
        """The records that external-dns has seen, as far as we know."""
        self._removed: dict[str, list[Note]] = defaultdict(list)
        """By the name that they vouched for; the latest is last."""
        for note in past.removed:
            self._removed[note.owned.name].append(note)

    def is_first_told(self, row: Record) -> bool:
        """Whether `row` was the first text of its ownership record in the listing that external-dns got."""
        texts = () if self._told is None else self._seen_texts.get(row.name, ())
        return bool(texts) and row.value == min((text.value for text in texts), key=place_in_listing)

    def is_unseen(self, row: Record) -> bool:
        """Whether `row` was not there yet when external-dns listed."""
        return self._told is not None and (row.name, row.type, row.value) not in self._told_values

    def gone_from(self, subject: Wish) -> Note | None:
        """The subject's ownership record, if it was removed after external-dns had seen it and nothing replaced it."""
        own = ("", subject.owner)  # an encrypted text may be its own
        for note in reversed(self._removed.get(subject.name, [])):
            if note.owned.covers(*subject.key) and owner_in(note.value) in own:
                return None if note.name in self._served_texts else note
        return None

    def is_restored(self, row: Record, owned: OwnedSet, owners: Collection[str]) -> bool:
        """Whether `row` is an ownership text of `owners` that was removed after external-dns had seen it and has come
        back (`gone_from`). external-dns then knows only the text that it has seen, which may be an older one."""
        return owner_in(row.value) in ("", *owners) and any(  # an encrypted text may be their own
            (note.name, note.value) == (row.name, row.value) for note in self._removed.get(owned.name, ())
        )

    def why_unclaimed(self, subject: Wish, taken_over: Collection[str], sent: Collection[str] = ()) -> str:
        """Why nobody would own `subject`; empty if somebody would.

        `taken_over` are the owners whose records external-dns takes over in this call, as with
        `--migrate-from-txt-owner`: records under their ownership records are taken over in the next pass. `sent` are
        the owners in the ownership records of this call that can be read.
        """
        names = usual_names(*subject.key)
        # Owners, each with the name of an ownership record.
        owners = {owner_in(text): name for name in names for text in self._served_texts.get(name, ())}
        if subject.owner in owners:
            return ""
        seen = [row for name in names for row in self._seen_texts.get(name, ())]
        elsewhere = self._seen_elsewhere_for(subject)
        its_owners = {"", subject.owner}  # an encrypted text may be its own
        with_affix = [row for row in elsewhere if owner_in(row.value) in its_owners]
        own = [row for row in seen if owner_in(row.value) in its_owners] + with_affix
        may_wait = subject.key not in self._insisted
        if may_wait and own and not any(row.value in self._served_texts.get(row.name, ()) for row in own):
            gone = repr(own[0].name)
            return (
                f"external-dns has seen its ownership record {gone}, which was removed since: both will be written "
                "after the next listing"
            )
        if may_wait and not own:
            owners |= {owner_in(row.value): row.name for row in elsewhere}
        owners |= {owner_in(row.value): row.name for row in seen}  # even if it has been removed since
        others = owners.keys() - its_owners
        if not others:
            return "" if own or not may_wait else self._why_never_seen(subject, sent)
        if with_affix or not others.isdisjoint(taken_over):
            return ""
        other = min(others)
        who = repr(excerpt(other, 100))
        return (
            f"external-dns has seen an ownership record of {who} for it, {owners[other]!r}, and writes no other beside "
            f"that: it will be written once that one is gone; if {who} no longer exists, remove that one by hand"
        )

    def _why_never_seen(self, subject: Wish, sent: Collection[str]) -> str:
        """Why external-dns sends no ownership record with `subject` although it has seen none, as far as we know; empty
        if it keeps none."""
        label = usual_names(*subject.key)[0].partition(".")[0]
        # It changes what it owns: by an ownership record of the format of 0.17 and before, which has no type in front.
        is_owned = subject.is_released
        if len(label) > MAX_LABEL_OCTETS and not is_owned and self._has_txt_registry(subject, sent):
            return (
                f"external-dns has written none, since {label!r} would have {len(label)} octets and a label of a name "
                f"has at most {MAX_LABEL_OCTETS}: it would neither change nor remove the record; shorten the name"
            )
        if self._told is None and subject.owner in self._served_owners:
            return (
                "external-dns sends no ownership record with it, and the store has none, so it has seen one before "
                "dnswebhook was restarted: both will be written after the next listing"
            )
        return ""

    def _has_txt_registry(self, subject: Wish, sent: Collection[str]) -> bool:
        """Whether its external-dns keeps its ownership records in the store, as far as we know."""
        return subject.is_ownership_encrypted or subject.owner in self._served_owners or subject.owner in sent

    @cached_property
    def _told_values(self) -> frozenset[tuple[str, str, str]]:
        return frozenset((row.name, row.type, row.value) for row in self._told or () if row.is_enabled)

    @cached_property
    def _served_texts(self) -> dict[str, set[str]]:
        texts: dict[str, set[str]] = defaultdict(set)
        for row in self._records:
            if row.type == "TXT" and row.is_enabled:
                texts[row.name].add(row.value)
        return texts

    @cached_property
    def _served_owners(self) -> frozenset[str]:
        """The owners in all ownership records of the store."""
        return frozenset(owner_in(text) for texts in self._served_texts.values() for text in texts)

    @cached_property
    def _seen_texts(self) -> dict[str, list[Record]]:
        texts: dict[str, list[Record]] = defaultdict(list)
        for row in self._seen:
            if row.type == "TXT" and row.is_enabled:
                texts[row.name].append(row)
        return texts

    def _seen_elsewhere_for(self, subject: Wish) -> list[Record]:
        """What external-dns has seen under other names than the usual ones and may be ownership records of the subject.

        If some of the subject's owner are among them, external-dns considers no others.
        """
        first_label, _, domain = subject.name.partition(".")
        words = words_in(domain if first_label == "*" else first_label)
        rows = min((self._seen_elsewhere[word] for word in words), key=len, default=[])
        rows = [row for row in rows if may_vouch_for(row.name, *subject.key)]
        if first_label == "*":  # any word may stand for it, so leave out what belongs to another name
            rows = [row for row in rows if not self._is_taken(row.name, domain)]
        return rows

    def _is_taken(self, own_name: str, domain: str) -> bool:
        return any(
            (name, record_type) in self._seen_keys
            for record_type in types_in(own_name.removesuffix(domain)) - {"TXT"}
            for name in names_within(own_name, domain, record_type)
        )

    @cached_property
    def _seen_keys(self) -> frozenset[SetKey]:
        return frozenset((row.name, row.type) for row in self._seen)

    @cached_property
    def _seen_elsewhere(self) -> dict[str, list[Record]]:
        """Texts under names other than the usual ones, by each word in the name."""
        usual = {name for row in self._seen for name in usual_names(row.name, row.type)}
        found: dict[str, list[Record]] = defaultdict(list)
        for name, rows in self._seen_texts.items():
            for word in words_in(name) if name not in usual else ():
                found[word] += rows
        return found
