"""The values the webhook works with: frozen, without I/O, importing nothing of ours.

Two views of DNS data meet here. An `Endpoint` of external-dns is a whole record set (name, type, all its targets). A
store holds `Record` rows: one row per value. Names in a `Record` are canonical (ASCII lower case, no trailing dot), and
`value` is the canonical target text of `dnswebhook.canonical`: `10 mail.example.com` for MX,
`1 2 443 host.example.com.` for SRV, quoted text for a TXT that needs quotes.
"""

from enum import Enum

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """One record set as external-dns describes it (external-dns `endpoint.Endpoint`)."""

    dns_name: str
    record_type: str
    targets: tuple[str, ...]
    ttl_s: int = 0
    """Seconds; 0 means "not configured"."""
    set_identifier: str = ""
    labels: dict[str, str] = {}
    provider_specific: tuple[tuple[str, str], ...] = ()
    """Pairs of property name and value."""


class Changes(msgspec.Struct, frozen=True):
    """The body of `POST /records`: what external-dns wants applied; `update_old[i]` belongs to `update_new[i]`."""

    create: tuple[Endpoint, ...] = ()
    update_old: tuple[Endpoint, ...] = ()
    update_new: tuple[Endpoint, ...] = ()
    delete: tuple[Endpoint, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.update_old or self.update_new or self.delete)


class Origin(Enum):
    """Who created a row, hence whether it may be written."""

    USER_DEFINED = "user-defined"
    DERIVED = "derived"
    """Created by the controller itself (a device's or client's local name): never written."""
    AMBIGUOUS = "ambiguous"
    """Its id names more than one row, so a write could hit somebody else's row: never written."""


class RecordSpec(msgspec.Struct, frozen=True, gc=False):
    """The desired content of a row: the part of a `Record` that a write sends."""

    name: str
    type: str
    value: str
    ttl_s: int = 0
    """Seconds; 0 lets the store choose."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row of a store. The resolver serves only enabled rows; we write only enabled, user-defined ones."""

    id: str
    name: str
    type: str
    value: str
    ttl_s: int = 0
    is_enabled: bool = True
    origin: Origin = Origin.USER_DEFINED

    @property
    def spec(self) -> RecordSpec:
        return RecordSpec(self.name, self.type, self.value, self.ttl_s)


class Listing(msgspec.Struct, frozen=True, eq=False):
    """Every row of a store at one moment. If its content has not changed, a store may return the same object again."""

    records: tuple[Record, ...]
    generation: int = 0
    """Changes when another store has replaced this one and lacks what was written to the old one."""


class Capabilities(msgspec.Struct, frozen=True):
    """What a store can hold; `adjust` drops or rewrites the rest, so that a second pass finds nothing to do."""

    store: str
    """For messages: `embedded`, `unifi v2`, `unifi integration`."""
    max_ttl_s: dict[str, int]
    """Supported record types, each with the largest TTL in seconds that it keeps; 0 if the type carries no TTL."""
    max_name_octets: int
    max_target_octets: int
    """Longest host name inside a CNAME, MX or SRV target."""
    max_text_octets: int
    """Longest TXT value, quotes included."""
    wildcard_types: frozenset[str]
    """Types whose name may start with the label `*`."""
    reserved_name_octets: int = 0
    """Room kept free below `max_name_octets` for the prefix of the ownership TXT record (`cname-` and the like)."""
    has_lasting_ids: bool = False
    """The id of a deleted row is never reused."""
    may_accept_overlaps: bool = False
    """The store may put a CNAME and other rows on one name, so nobody but us prevents it."""
