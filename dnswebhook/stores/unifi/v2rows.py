"""The rows of the v2 "static-dns" API, translated from and to records (pure).

Each type accepts only its own fields: the controller refuses a `ttl` on MX, SRV and TXT rows, so requests are built
from a list of allowed fields per type. Rows of types that we do not write are left out of listings. The most important
are NS rows, which hold the *address* of a server: they mean conditional forwarding of a whole domain, and are not
records of a name.
"""

from collections import Counter

import msgspec

from dnswebhook.canonical import stored_name, stored_ttl_s, stored_value
from dnswebhook.model import Capabilities, Origin, Record, RecordSpec
from dnswebhook.stores.unifi.targets import MxTarget, SrvTarget, parse_mx, parse_srv

CAPABILITIES = Capabilities(
    store="unifi v2",
    max_ttl_s={"A": 86400, "AAAA": 86400, "CNAME": 86400, "TXT": 0, "MX": 0, "SRV": 0},
    max_name_octets=253,
    max_target_octets=253,
    max_text_octets=255,
    wildcard_types=frozenset({"A", "AAAA"}),
    reserved_name_octets=6,
    has_lasting_ids=True,
    may_accept_overlaps=True,
)

_TYPES = frozenset(CAPABILITIES.max_ttl_s)
_PLAIN_TYPES = frozenset({"A", "AAAA", "CNAME", "TXT"})


class V2Row(msgspec.Struct, frozen=True, gc=False):
    """A row as the controller sends it; numbers may be absent or null, unknown fields are ignored."""

    id: str = msgspec.field(name="_id", default="")
    enabled: bool = True
    key: str = ""
    record_type: str = ""
    value: str = ""
    ttl: int | None = None
    priority: int | None = None
    weight: int | None = None
    port: int | None = None


class _Kind(msgspec.Struct, frozen=True):
    id: str = msgspec.field(name="_id", default="")
    record_type: str = ""


_kind_decoder = msgspec.json.Decoder(_Kind)


class V2Body(msgspec.Struct):
    """A row as we send it; fields that its type does not have stay unset."""

    key: str
    record_type: str
    value: str
    enabled: bool = True
    ttl: int | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    weight: int | msgspec.UnsetType = msgspec.UNSET
    port: int | msgspec.UnsetType = msgspec.UNSET
    id: str | msgspec.UnsetType = msgspec.field(name="_id", default=msgspec.UNSET)


def no_record(octets: bytes) -> V2Row | None:
    """Id and type of a row that is not a record; None for a record."""
    kind = _kind_decoder.decode(octets)
    return None if kind.record_type in _TYPES else V2Row(kind.id, record_type=kind.record_type)


def records_of(rows: list[V2Row]) -> tuple[Record, ...]:
    """The records among `rows`, in order. Rows that share an id are ambiguous: none of them may be written."""
    shared: set[str] = set()
    if len({row.id for row in rows}) != len(rows):
        shared = {row_id for row_id, count in Counter(row.id for row in rows).items() if count > 1}
    return tuple(record_of(row, is_shared=row.id in shared) for row in rows if row.record_type in _TYPES)


class RowMemory:
    """Translates listings, reusing the previous one, since hardly any row has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[V2Row, Record]] = {}
        """By row id. An unchanged row keeps its old objects: its texts are in memory once, not once per listing."""

    def records_of(self, rows: list[V2Row]) -> tuple[Record, ...]:
        """The same as the module's `records_of`."""
        known, used = self._known, {}
        for row in rows:
            if row.record_type in _TYPES:
                entry = known.get(row.id)
                if entry is None or entry[0] != row:
                    entry = (row, record_of(row))
                used[entry[0].id] = entry
        self._known = used
        if len({row.id for row in rows}) != len(rows):
            return records_of(rows)
        return tuple(record for _, record in used.values())


def record_of(row: V2Row, *, is_shared: bool = False) -> Record:
    record_type = row.record_type
    text = row.value if record_type in _PLAIN_TYPES else _target_text(row)
    value = stored_value(record_type, text)
    origin = Origin.AMBIGUOUS if is_shared or not row.id else Origin.USER_DEFINED
    return Record(row.id, stored_name(row.key), record_type, value, stored_ttl_s(row.ttl), row.enabled, origin)


def _target_text(row: V2Row) -> str:
    if row.record_type == "MX":
        return MxTarget(row.priority or 0, row.value).text
    return SrvTarget(row.priority or 0, row.weight or 0, row.port or 0, row.value.rstrip(".")).text


def body_of(spec: RecordSpec, row_id: str | None = None) -> bytes:
    """The JSON that creates `spec`, or replaces row `row_id` with it."""
    row = V2Body(
        key=spec.name,
        record_type=spec.type,
        value=spec.value,
        id=msgspec.UNSET if row_id is None else row_id,
    )
    match spec.type:
        case "A" | "AAAA" | "CNAME":
            row.ttl = spec.ttl_s
        case "MX":
            mx = parse_mx(spec.value)
            row.value, row.priority = mx.host, mx.preference
        case "SRV":
            srv = parse_srv(spec.value)
            row.value, row.priority, row.weight, row.port = srv.host, srv.priority, srv.weight, srv.port
    return msgspec.json.encode(row)
