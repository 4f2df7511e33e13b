"""The row that the simulated controller stores, seen in the same way by both APIs, the resolver model and assertions.

A row holds one value. `Draft` is what a caller wants stored; `Row` adds what the controller decides: the two
identifiers (24 hexadecimal digits for v2, a UUID for the integration API), the row's origin, and the API that created
it. Texts are kept exactly as they were sent.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class RecordType(StrEnum):
    A = "A"
    AAAA = "AAAA"
    CNAME = "CNAME"
    MX = "MX"
    NS = "NS"
    SRV = "SRV"
    TXT = "TXT"


class Origin(StrEnum):
    """`metadata.origin` of the integration API; v2 lists only what a user defined."""

    USER_DEFINED = "USER_DEFINED"
    SYSTEM_DEFINED = "SYSTEM_DEFINED"
    DERIVED = "DERIVED"
    ORCHESTRATED = "ORCHESTRATED"


class Api(StrEnum):
    V2 = "v2"
    INTEGRATION = "integration"


class Draft(msgspec.Struct, frozen=True, gc=False):
    """The content of a row, before the controller has stored it."""

    key: str
    type: str
    value: str
    ttl_s: int = 0
    enabled: bool = True
    priority: int = 0
    weight: int = 0
    port: int = 0


class Row(msgspec.Struct, frozen=True, gc=False):
    """One stored row."""

    id: str
    policy_id: str
    key: str
    type: str
    value: str
    ttl_s: int = 0
    enabled: bool = True
    origin: Origin = Origin.USER_DEFINED
    priority: int = 0
    weight: int = 0
    port: int = 0
    made_by: Api = Api.V2

    @property
    def name(self) -> str:
        """The key in the form in which the resolver compares it."""
        return self.key.lower()

    @property
    def draft(self) -> Draft:
        return Draft(self.key, self.type, self.value, self.ttl_s, self.enabled, self.priority, self.weight, self.port)


def stored(draft: Draft, number: int, origin: Origin, made_by: Api) -> Row:
    """`draft` as row `number`, with the identifiers derived from the number."""
    return Row(
        id=f"65f0c0de{number:016x}",
        policy_id=f"0192b7e0-51aa-4c00-8000-{number:012x}",
        key=draft.key,
        type=draft.type,
        value=draft.value,
        ttl_s=draft.ttl_s,
        enabled=draft.enabled,
        origin=origin,
        priority=draft.priority,
        weight=draft.weight,
        port=draft.port,
        made_by=made_by,
    )


def replaced(row: Row, draft: Draft) -> Row:
    """`row` with new content and unchanged identity."""
    return Row(
        id=row.id,
        policy_id=row.policy_id,
        key=draft.key,
        type=draft.type,
        value=draft.value,
        ttl_s=draft.ttl_s,
        enabled=draft.enabled,
        origin=row.origin,
        priority=draft.priority,
        weight=draft.weight,
        port=draft.port,
        made_by=row.made_by,
    )


def generated_drafts(count: int) -> Iterator[Draft]:
    """`count` A records with one name each, for listings of a given size; `count` is at most 2^24."""
    for number in range(count):
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        yield Draft(f"host-{number:05d}.bulk.example.com", RecordType.A, address, ttl_s=300)
