"""external-dns's TXT registry: who owns which record set, stored in TXT records beside them (pure).

Reading removes the ownership TXT records from a listing and puts their labels on the sets that they vouch for. Writing
adds, for every set in Changes, the TXT record that vouches for it: to the same list, at the end, in the same order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from dnswebhook.model import Changes, Endpoint
from tests.support.client_plan import OWNER

HERITAGE = "heritage=external-dns"
LABEL_PREFIX = "external-dns/"
OWNED_RECORD = "ownedRecord"
FORCE_UPDATE = ("txt/force-update", "true")
NAMED_TYPES = ("a", "aaaa", "cname", "ns", "mx", "srv", "txt", "ptr", "naptr", "dname")


@dataclass(frozen=True)
class Registered:
    """A listing as the client sees it: sets with their labels, without ownership TXT records."""

    endpoints: tuple[Endpoint, ...]
    ownership_names: frozenset[str]


@dataclass(frozen=True)
class TxtRegistry:
    owner_id: str
    writes_old_format: bool = False
    """Up to 0.17, a second TXT record with the same name as the set is written too."""

    def read(self, listed: Iterable[Endpoint]) -> Registered:
        labels: dict[tuple[str, str, str], dict[str, str]] = {}
        names = set()
        sets = []
        for endpoint in listed:
            found = parse_heritage(endpoint)
            if found is None:
                sets.append(endpoint)
                continue
            name, record_type = owned_by_name(endpoint.dns_name)
            labels[name, record_type, endpoint.set_identifier] = found
            names.add(endpoint.dns_name)
        return Registered(tuple(self._labelled(each, labels, names) for each in sets), frozenset(names))

    def write(self, changes: Changes, known: Registered) -> Changes:
        """`changes` with the ownership records that belong to them."""
        create = [
            msgspec.structs.replace(each, labels={**each.labels, OWNER: self.owner_id}) for each in changes.create
        ]
        vouching = [txt for each in create for txt in self._vouching(each) if txt.dns_name not in known.ownership_names]
        return Changes(
            create=(*create, *vouching),
            update_old=(*changes.update_old, *self._all_vouching(changes.update_old)),
            update_new=(*changes.update_new, *self._all_vouching(changes.update_new)),
            delete=(*changes.delete, *self._all_vouching(changes.delete)),
        )

    def _labelled(
        self, endpoint: Endpoint, labels: dict[tuple[str, str, str], dict[str, str]], names: set[str]
    ) -> Endpoint:
        name, record_type, identifier = endpoint.dns_name, endpoint.record_type, endpoint.set_identifier
        found = labels.get((name, record_type, identifier))
        if found is None and record_type != "AAAA":
            found = labels.get((name, "", identifier))
        labelled = msgspec.structs.replace(endpoint, labels={**endpoint.labels, **(found or {})})
        if labelled.labels.get(OWNER) == self.owner_id and ownership_name(endpoint) not in names:
            properties = (*endpoint.provider_specific, FORCE_UPDATE)
            return msgspec.structs.replace(labelled, provider_specific=properties)
        return labelled

    def _all_vouching(self, endpoints: Iterable[Endpoint]) -> Iterator[Endpoint]:
        for endpoint in endpoints:
            yield from self._vouching(endpoint)

    def _vouching(self, endpoint: Endpoint) -> Iterator[Endpoint]:
        if self.writes_old_format and endpoint.record_type != "AAAA":
            yield self._txt(endpoint, endpoint.dns_name)
        yield self._txt(endpoint, ownership_name(endpoint))

    def _txt(self, endpoint: Endpoint, name: str) -> Endpoint:
        return Endpoint(
            dns_name=name,
            record_type="TXT",
            targets=(heritage(endpoint.labels),),
            set_identifier=endpoint.set_identifier,
            labels={OWNED_RECORD: endpoint.dns_name},
            provider_specific=endpoint.provider_specific,
        )


def heritage(labels: dict[str, str]) -> str:
    """The text of an ownership record; its quotes are part of the target."""
    parts = [f"{LABEL_PREFIX}{key}={value}" for key, value in sorted(labels.items())]
    return f'"{",".join([HERITAGE, *parts])}"'


def parse_heritage(endpoint: Endpoint) -> dict[str, str] | None:
    """The labels in the first target of an ownership record; None for any other record."""
    if endpoint.record_type != "TXT" or not endpoint.targets:
        return None
    first, *parts = endpoint.targets[0].removeprefix('"').removesuffix('"').split(",")
    if first != HERITAGE:
        return None
    pairs = (part.removeprefix(LABEL_PREFIX).partition("=") for part in parts if part.startswith(LABEL_PREFIX))
    return {key: value for key, _, value in pairs}


def ownership_name(endpoint: Endpoint) -> str:
    return f"{endpoint.record_type.lower()}-{endpoint.dns_name}"


def owned_by_name(name: str) -> tuple[str, str]:
    """Name and type of the set that an ownership record of this name vouches for; no type in the old format."""
    prefix, dash, rest = name.partition("-")
    if dash and prefix in NAMED_TYPES:
        return rest, prefix.upper()
    return name, ""
