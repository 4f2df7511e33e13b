"""external-dns's planning, simplified but faithful: current and desired sets -> Changes (pure).

A row is all record sets of one name and setIdentifier, with one slot for each record type. The rules are those that a
provider can observe: which differences cause an update, what happens to sets without an owner, what each policy strips,
and that updateOld and updateNew grow together.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import idna
import msgspec

from dnswebhook.model import Changes, Endpoint

OWNER = "owner"
RESOURCE = "resource"
DEFAULT_MANAGED_TYPES = frozenset({"A", "AAAA", "CNAME"})

Row = tuple[str, str]


class Policy(Enum):
    SYNC = "sync"
    UPSERT_ONLY = "upsert-only"
    CREATE_ONLY = "create-only"


@dataclass(frozen=True)
class Filter:
    """The domain filter that the provider announced, with the client's own matching."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    regex_include: str = ""
    regex_exclude: str = ""

    def matches(self, name: str) -> bool:
        text = row_name(name).rstrip(".")
        if self.regex_exclude and re.search(self.regex_exclude, text):
            return False
        if self.regex_include:
            return re.search(self.regex_include, text) is not None
        if any(_is_below(text, domain) for domain in self.exclude):
            return False
        return not self.include or any(_is_below(text, domain) for domain in self.include)


@dataclass(frozen=True)
class Planner:
    owner_id: str = ""
    """Empty: no ownership, everything in view is managed (registry `noop`)."""
    policy: Policy = Policy.SYNC
    managed_types: frozenset[str] = DEFAULT_MANAGED_TYPES
    domain_filter: Filter = field(default=Filter())

    def plan(self, current: Iterable[Endpoint], desired: Iterable[Endpoint]) -> Changes:
        held = self._rows(current)
        wanted = self._rows(desired)
        draft = _Draft()
        for row in {**wanted, **held}:
            self._plan_row(draft, held.get(row, {}), _resolved(wanted.get(row, {})))
        return self._stripped(self._owned(draft))

    def _rows(self, endpoints: Iterable[Endpoint]) -> dict[Row, dict[str, list[Endpoint]]]:
        rows: dict[Row, dict[str, list[Endpoint]]] = defaultdict(lambda: defaultdict(list))
        for endpoint in endpoints:
            if endpoint.record_type in self.managed_types and self.domain_filter.matches(endpoint.dns_name):
                row = (row_name(endpoint.dns_name), endpoint.set_identifier)
                rows[row][endpoint.record_type].append(endpoint)
        return rows

    def _plan_row(self, draft: "_Draft", held: dict[str, list[Endpoint]], wanted: dict[str, list[Endpoint]]) -> None:
        creates = []
        for record_type in sorted({*held, *wanted}):
            # Of two listed sets with one name and type, the later hides the earlier.
            current = held[record_type][-1] if record_type in held else None
            candidates = wanted.get(record_type)
            if current is None and candidates:
                creates.append(min(candidates, key=lambda each: sorted(each.targets)))
            elif current is not None and not candidates:
                draft.delete.append(current)
            elif current is not None and candidates:
                draft.update(current, _candidate_for(current, candidates))
        if not self.owner_id or all(_owner(each[-1]) == self.owner_id for each in held.values()):
            draft.create.extend(creates)

    def _owned(self, draft: "_Draft") -> "_Draft":
        """Keep only updates and deletes of our own sets."""
        if not self.owner_id:
            return draft
        pairs = [pair for pair in draft.updates if _owner(pair[0]) == self.owner_id]
        deletes = [endpoint for endpoint in draft.delete if _owner(endpoint) == self.owner_id]
        return _Draft(draft.create, pairs, deletes)

    def _stripped(self, draft: "_Draft") -> Changes:
        updates = [] if self.policy is Policy.CREATE_ONLY else draft.updates
        return Changes(
            create=tuple(draft.create),
            update_old=tuple(old for old, _ in updates),
            update_new=tuple(new for _, new in updates),
            delete=tuple(draft.delete) if self.policy is Policy.SYNC else (),
        )


@dataclass
class _Draft:
    create: list[Endpoint] = field(default_factory=list)
    updates: list[tuple[Endpoint, Endpoint]] = field(default_factory=list)
    delete: list[Endpoint] = field(default_factory=list)

    def update(self, current: Endpoint, candidate: Endpoint) -> None:
        if not differs(current, candidate):
            return
        labels = {**candidate.labels}
        if OWNER in current.labels:
            labels[OWNER] = current.labels[OWNER]
        self.updates.append((current, msgspec.structs.replace(candidate, labels=labels)))


def row_name(name: str) -> str:
    """ASCII lower case with a trailing dot; what IDNA refuses is only lower-cased."""
    bare = name.strip().rstrip(".").lower()
    try:
        return (bare if bare.isascii() else idna.encode(bare, uts46=True).decode()) + "."
    except UnicodeError:
        return bare + "."


def differs(current: Endpoint, wanted: Endpoint) -> bool:
    """Whether the client would send an update."""
    return (
        comparable_targets(current.targets) != comparable_targets(wanted.targets)
        or (wanted.ttl_s > 0 and wanted.ttl_s != current.ttl_s)
        or dict(current.provider_specific) != dict(wanted.provider_specific)
    )


def comparable_targets(targets: Sequence[str]) -> list[str]:
    """Targets in a form that ignores order, letter case and the spelling of IPv6 addresses."""
    return sorted(map(_comparable, targets))


def _comparable(target: str) -> str:
    try:
        return str(ipaddress.ip_address(target))
    except ValueError:
        return target.lower()


def _resolved(candidates: dict[str, list[Endpoint]]) -> dict[str, list[Endpoint]]:
    """Drop a CNAME that is desired beside other types of its name."""
    if "CNAME" in candidates and len(candidates) > 1:
        return {record_type: each for record_type, each in candidates.items() if record_type != "CNAME"}
    return candidates


def _candidate_for(current: Endpoint, candidates: list[Endpoint]) -> Endpoint:
    """The candidate from the same Kubernetes resource, else the smallest."""
    resource = current.labels.get(RESOURCE)
    same = [each for each in candidates if each.labels.get(RESOURCE) == resource]
    return min(same or candidates, key=lambda each: sorted(each.targets))


def _owner(endpoint: Endpoint) -> str:
    return endpoint.labels.get(OWNER, "")


def _is_below(name: str, domain: str) -> bool:
    """Whether `domain` covers `name`: `example.com` covers itself and all below, `.example.com` only those below."""
    suffix = row_name(domain).rstrip(".")
    if suffix.startswith("."):
        return name.endswith(suffix)
    return name == suffix or name.endswith("." + suffix)
