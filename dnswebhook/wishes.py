"""What a Changes body requests, per record set: values to be served, and values that may be removed (pure).

The four lists are merged. `create` and `updateNew` say what is wanted; `updateOld` and `delete` say what external-dns
believes is there, hence what it may remove. Old and new need not be paired: they are matched by canonical name and
type, even if the client spelled them differently or sent lists of unequal length.

An ownership record may be stored in another wording than in `updateOld` and `delete` (see `dnswebhook.ownership`). So
the text that external-dns has read may be removed together with its record. A `create` permits no such removal: older
clients send it without having looked, and what is there may be somebody else's.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar

import msgspec

from dnswebhook.canonical import stored_name, stored_value
from dnswebhook.domains import DomainFilter, ProtectedNames
from dnswebhook.fit import fit
from dnswebhook.model import Capabilities, Changes, Endpoint
from dnswebhook.ownership import NONCE_LABEL, OWNER_LABEL, OwnedSet, Reading, owned_set, reading, same_texts
from dnswebhook.served import Served

T = TypeVar("T")

SetKey = tuple[str, str]
"""Canonical name and record type."""


class RefusalReason(StrEnum):
    """Why something wanted is impossible. A closed set: each value is a metric label."""

    CANNOT_BE_HELD = "cannot_be_held"
    OUTSIDE_FILTER = "outside_filter"
    CNAME_CONFLICT = "cname_conflict"
    CNAME_LOOP = "cname_loop"
    DISABLED_ROW = "disabled_row"
    AMBIGUOUS_ID = "ambiguous_id"
    NO_OWNERSHIP = "no_ownership"


class Refusal(msgspec.Struct, frozen=True):
    reason: RefusalReason
    name: str
    type: str
    detail: str


class SkipReason(StrEnum):
    """Why something was left alone on purpose. A closed set: each value is a metric label."""

    PROTECTED = "protected"
    DERIVED_ROW = "derived_row"
    OLD_FORMAT_BESIDE_CNAME = "old_format_beside_cname"


class Skip(msgspec.Struct, frozen=True):
    reason: SkipReason
    name: str
    type: str
    detail: str


class Wish(msgspec.Struct):
    """What is wanted of one record set. `wanted` is sorted; `removed` holds nothing that is wanted."""

    name: str
    type: str
    wanted: tuple[str, ...] = ()
    ttl_s: int = 0
    removed: frozenset[str] = frozenset()
    is_wanted: bool = False
    """At least one value was requested, even if none can be held."""
    owned: OwnedSet | None = None
    """What it vouches for, if it is an ownership record."""
    readings: frozenset[Reading] = frozenset()
    """For an ownership record: what external-dns had read there before it requested to change or delete the record."""
    same: frozenset[str] = frozenset()
    """For an ownership record: the texts in `removed` that say the same as a wanted one in other words."""
    owner: str = ""
    """The id of the external-dns that wants it, if that keeps ownership records."""
    is_ownership_encrypted: bool = False
    """That external-dns encrypts its ownership records, so it keeps them in the store."""
    is_released: bool = False
    """At least one value was named that may be removed, even if it is wanted as well."""

    @property
    def key(self) -> SetKey:
        return self.name, self.type


class Wishes(msgspec.Struct, frozen=True):
    wishes: dict[SetKey, Wish]
    refusals: tuple[Refusal, ...]
    skips: tuple[Skip, ...]


def collect_wishes(
    changes: Changes,
    capabilities: Capabilities,
    domain_filter: DomainFilter,
    protected: ProtectedNames,
    served: Served,
) -> Wishes:
    """Merge the four lists into one wish per record set; what may not or cannot be written is set aside."""
    return _Collector(changes, capabilities, domain_filter, protected, served).collect()


class _Collector:
    def __init__(
        self,
        changes: Changes,
        capabilities: Capabilities,
        domain_filter: DomainFilter,
        protected: ProtectedNames,
        served: Served,
    ) -> None:
        self.changes = changes
        self.capabilities = capabilities
        self.served = served
        self.domain_filter = domain_filter
        self.protected = protected
        self.wishes: dict[SetKey, Wish] = {}
        self.refusals: list[Refusal] = []
        self.skips: list[Skip] = []
        self.changed: dict[str, set[str]] = defaultdict(set)
        for endpoint in self._all():
            self.changed[stored_name(endpoint.dns_name)].add(endpoint.record_type)
        self.unclaimable = self._unclaimable()
        self.readings: dict[str, list[tuple[str, Reading]]] = defaultdict(list)
        """By record name, each with the record's type."""
        self.writings: dict[str, list[Reading]] = defaultdict(list)
        """By record name: the labels that records will have after the change."""
        for endpoint in self._released():
            if read := reading(endpoint.labels):
                self.readings[stored_name(endpoint.dns_name)].append((endpoint.record_type, read))
        for endpoint in changes.update_new:
            if written := reading(endpoint.labels):
                self.writings[stored_name(endpoint.dns_name)].append(written)

    def _all(self) -> Iterator[Endpoint]:
        yield from self.changes.create
        yield from self.changes.update_new
        yield from self._released()

    def _released(self) -> Iterator[Endpoint]:
        yield from self.changes.update_old
        yield from self.changes.delete

    def _unclaimable(self) -> dict[str, str]:
        """Names whose ownership records may not be written since those have protected names; each with one of these."""
        found: dict[str, str] = {}
        if not self.protected.patterns:
            return found
        for endpoint in self._all():
            if endpoint.record_type != "TXT" or not self.protected.matches(own_name := stored_name(endpoint.dns_name)):
                continue
            owned = owned_set(endpoint, self.changed)
            if owned and owned.name != own_name:
                found[owned.name] = own_name
        return found

    def collect(self) -> Wishes:
        for endpoint in (*self.changes.create, *self.changes.update_new):
            if self._may_write(endpoint):
                self._want(endpoint)
        for endpoint in self._released():
            if self._may_write(endpoint):
                self._release(endpoint)
        self._leave_out_old_format_beside_cname()
        for wish in self.wishes.values():
            wish.removed -= frozenset(wish.wanted)
            if wish.owned and wish.readings and len(wish.wanted) == 1:
                written = self.writings.get(wish.owned.name, ())
                wish.same = same_texts(wish.wanted[0], written, wish.removed, wish.readings)
        return Wishes(self.wishes, _distinct(self.refusals), _distinct(self.skips))

    def _may_write(self, endpoint: Endpoint) -> bool:
        name = stored_name(endpoint.dns_name)
        owned = owned_set(endpoint, self.changed)
        subject = owned.name if owned else name
        if self.protected.matches(name) or self.protected.matches(subject):
            detail = "the name is protected by --protect and was left as it is"
            self.skips.append(Skip(SkipReason.PROTECTED, name, endpoint.record_type, detail))
            return False
        if own_name := self.unclaimable.get(subject):
            detail = f"--protect matches {own_name!r}, its ownership record, which external-dns needs to manage it"
            self.skips.append(Skip(SkipReason.PROTECTED, name, endpoint.record_type, detail))
            return False
        # If an ownership record is its own subject, its name may not tell which record it is for.
        is_told = owned is None or subject != name
        if is_told and not self.domain_filter.matches(subject):
            detail = "the name is outside the domain filter; if the filter was changed, restart external-dns"
            self.refusals.append(Refusal(RefusalReason.OUTSIDE_FILTER, name, endpoint.record_type, detail))
            return False
        return True

    def _wish(self, name: str, record_type: str) -> Wish:
        key = (name, record_type)
        return self.wishes.setdefault(key, Wish(*key))

    def _want(self, endpoint: Endpoint) -> None:
        fitted = fit(
            endpoint.dns_name,
            endpoint.record_type,
            endpoint.targets,
            endpoint.ttl_s,
            self.capabilities,
            self.served,
        )
        self.refusals += [
            Refusal(RefusalReason.CANNOT_BE_HELD, stored_name(drop.name), drop.type, drop.detail)
            for drop in fitted.drops
        ]
        # Kept even if no part of it can be held: a refused ownership record holds back its record.
        wish = self._wish(stored_name(fitted.name), endpoint.record_type)
        wish.is_wanted = True
        wish.owner = wish.owner or endpoint.labels.get(OWNER_LABEL, "")
        wish.is_ownership_encrypted |= NONCE_LABEL in endpoint.labels
        wish.owned = wish.owned or owned_set(endpoint, self.changed)
        wanted = tuple(sorted({*wish.wanted, *fitted.values}))
        wish.wanted = wanted[:1] if endpoint.record_type in ("CNAME", "DNAME") else wanted
        wish.ttl_s = min((ttl for ttl in (wish.ttl_s, fitted.ttl_s) if ttl), default=0)

    def _release(self, endpoint: Endpoint) -> None:
        wish = self._wish(stored_name(endpoint.dns_name), endpoint.record_type)
        if not wish.is_wanted:  # otherwise the wanted values decide, not the old ones
            wish.owned = wish.owned or owned_set(endpoint, self.changed)
        if owned := wish.owned:
            read = self.readings.get(owned.name, ())
            wish.readings |= {each for record_type, each in read if owned.covers(owned.name, record_type)}
        wish.is_released = True
        wish.removed |= {stored_value(endpoint.record_type, target) for target in endpoint.targets}

    def _leave_out_old_format_beside_cname(self) -> None:
        """Drop the ownership record in the old format if its name gets a CNAME.

        external-dns 0.17 and before also writes a TXT with the very name of the record, impossible beside a CNAME. The
        type-prefixed ownership record, which the same clients write, is enough to claim the CNAME.
        """
        ownership_records = Counter(wish.owned.name for wish in self.wishes.values() if wish.owned and wish.wanted)
        for wish in self.wishes.values():
            if wish.owned is None or wish.owned.name != wish.name or not wish.wanted:
                continue
            cname = self.wishes.get((wish.name, "CNAME"))
            if cname is not None and cname.wanted and ownership_records[wish.name] > 1:
                detail = (
                    "an ownership record of the old format cannot stand beside a CNAME, and the one with the type in "
                    "its name is enough; external-dns 0.18 or newer writes no other"
                )
                self.skips.append(Skip(SkipReason.OLD_FORMAT_BESIDE_CNAME, wish.name, wish.type, detail))
                # It is not needed. Identical texts that the same call removes are still removed.
                wish.wanted, wish.is_wanted = (), False


def _distinct(items: list[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))
