"""The rows of the Integration API's "DNS policies", translated from and to records (pure).

Each type is a separate object with a strict set of properties; sending any other is an error, so each type has its own
struct here. A row's owner name is `domain`, except for SRV, where it is `service.protocol.domain`. `FORWARD_DOMAIN`
rows are conditional forwarding, not records: they are left out of listings, like all unknown types.
"""

from collections import Counter

import msgspec

from dnswebhook.canonical import stored_name, stored_ttl_s, stored_value
from dnswebhook.errors import RecordError
from dnswebhook.model import Capabilities, Origin, Record, RecordSpec
from dnswebhook.stores.unifi.targets import MxTarget, SrvTarget, parse_mx, parse_srv

_MAX_NAME_OCTETS = 127
_MAX_LINE_OCTETS = 1023
"""dnsmasq splits a longer line of its configuration in two, and then does not start."""
_TEXT_LINE = 'txt-record=,"","","",""'
"""A TXT record's line without name and text; the text is cut into strings of 255 octets."""

CAPABILITIES = Capabilities(
    store="unifi integration",
    max_ttl_s={"A": 86400, "AAAA": 86400, "CNAME": 604800, "TXT": 0, "MX": 0, "SRV": 0},
    max_name_octets=_MAX_NAME_OCTETS,
    max_target_octets=_MAX_NAME_OCTETS,
    # The API accepts 1024 characters.
    max_text_octets=_MAX_LINE_OCTETS - _MAX_NAME_OCTETS - len(_TEXT_LINE),
    wildcard_types=frozenset({"A", "AAAA"}),
    reserved_name_octets=6,
    has_lasting_ids=True,
)

_USER_DEFINED = "USER_DEFINED"


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    origin: str = _USER_DEFINED


_NO_METADATA = _Metadata()


class PolicyRow(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A row as the controller sends it: the union of all types; unknown properties are ignored."""

    id: str = ""
    type: str = ""
    enabled: bool = True
    domain: str = ""
    ttl_seconds: int | None = None
    ipv4_address: str = ""
    ipv6_address: str = ""
    target_domain: str = ""
    mail_server_domain: str = ""
    text: str = ""
    service: str = ""
    protocol: str = ""
    server_domain: str = ""
    priority: int | None = None
    weight: int | None = None
    port: int | None = None
    metadata: _Metadata | None = _NO_METADATA


class _Kind(msgspec.Struct, frozen=True):
    id: str = ""
    type: str = ""


_kind_decoder = msgspec.json.Decoder(_Kind)


class _ABody(msgspec.Struct, tag_field="type", tag="A_RECORD", rename="camel"):
    domain: str
    ipv4_address: str
    ttl_seconds: int
    enabled: bool = True


class _AaaaBody(msgspec.Struct, tag_field="type", tag="AAAA_RECORD", rename="camel"):
    domain: str
    ipv6_address: str
    ttl_seconds: int
    enabled: bool = True


class _CnameBody(msgspec.Struct, tag_field="type", tag="CNAME_RECORD", rename="camel"):
    domain: str
    target_domain: str
    ttl_seconds: int
    enabled: bool = True


class _MxBody(msgspec.Struct, tag_field="type", tag="MX_RECORD", rename="camel"):
    domain: str
    mail_server_domain: str
    priority: int
    enabled: bool = True


class _TxtBody(msgspec.Struct, tag_field="type", tag="TXT_RECORD", rename="camel"):
    domain: str
    text: str
    enabled: bool = True


class _SrvBody(msgspec.Struct, tag_field="type", tag="SRV_RECORD", rename="camel"):
    service: str
    protocol: str
    domain: str
    server_domain: str
    port: int
    priority: int
    weight: int
    enabled: bool = True


_TYPES = {
    "A_RECORD": "A",
    "AAAA_RECORD": "AAAA",
    "CNAME_RECORD": "CNAME",
    "MX_RECORD": "MX",
    "TXT_RECORD": "TXT",
    "SRV_RECORD": "SRV",
}


def no_record(octets: bytes) -> PolicyRow | None:
    """Id and type of a row that is not a record; None for a record."""
    kind = _kind_decoder.decode(octets)
    return None if kind.type in _TYPES else PolicyRow(kind.id, kind.type)


def records_of(rows: list[PolicyRow]) -> tuple[Record, ...]:
    """The records among `rows`, in order. Rows that share an id are ambiguous: none of them may be written."""
    shared: set[str] = set()
    if len({row.id for row in rows}) != len(rows):
        shared = {row_id for row_id, count in Counter(row.id for row in rows).items() if count > 1}
    return tuple(record_of(row, is_shared=row.id in shared) for row in rows if row.type in _TYPES)


def is_record(row: PolicyRow) -> bool:
    return row.type in _TYPES


def record_of(row: PolicyRow, *, is_shared: bool = False) -> Record:
    record_type = _TYPES[row.type]
    name = row.domain
    if record_type == "SRV":
        name = f"{row.service}.{row.protocol}.{row.domain}"
    value = stored_value(record_type, _value_text(row, record_type))
    origin = Origin.AMBIGUOUS if is_shared or not row.id else _origin(row)
    return Record(row.id, stored_name(name), record_type, value, stored_ttl_s(row.ttl_seconds), row.enabled, origin)


def _origin(row: PolicyRow) -> Origin:
    is_ours_to_write = row.metadata is None or row.metadata.origin == _USER_DEFINED
    return Origin.USER_DEFINED if is_ours_to_write else Origin.DERIVED


def _value_text(row: PolicyRow, record_type: str) -> str:
    match record_type:
        case "A":
            return row.ipv4_address
        case "AAAA":
            return row.ipv6_address
        case "CNAME":
            return row.target_domain
        case "TXT":
            return row.text
        case "MX":
            return MxTarget(row.priority or 0, row.mail_server_domain).text
    host = row.server_domain.rstrip(".")
    return SrvTarget(row.priority or 0, row.weight or 0, row.port or 0, host).text


def body_of(spec: RecordSpec) -> bytes:
    """The JSON that creates `spec`, or replaces a row with it; raises RecordError if that is impossible."""
    return msgspec.json.encode(_body(spec))


def _body(spec: RecordSpec) -> _ABody | _AaaaBody | _CnameBody | _MxBody | _TxtBody | _SrvBody:
    match spec.type:
        case "A":
            return _ABody(spec.name, spec.value, spec.ttl_s)
        case "AAAA":
            return _AaaaBody(spec.name, spec.value, spec.ttl_s)
        case "CNAME":
            return _CnameBody(spec.name, spec.value, spec.ttl_s)
        case "TXT":
            return _TxtBody(spec.name, spec.value)
        case "MX":
            mx = parse_mx(spec.value)
            return _MxBody(spec.name, mx.host, mx.preference)
        case "SRV":
            return _srv_body(spec)
    raise RecordError(f"record type {spec.type}, which the integration API cannot hold")


def _srv_body(spec: RecordSpec) -> _SrvBody:
    labels = spec.name.split(".", 2)
    if len(labels) != 3 or not (labels[0].startswith("_") and labels[1].startswith("_")):
        raise RecordError(f"SRV name {spec.name[:260]!r}, want `_service._protocol.domain`")
    target = parse_srv(spec.value)
    return _SrvBody(labels[0], labels[1], labels[2], target.host, target.port, target.priority, target.weight)
