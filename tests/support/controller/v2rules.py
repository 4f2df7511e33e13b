"""The v2 API's requirements for one record, checked on the request body alone.

`decode` takes the body of a create or update and returns the draft to store, or raises Refused with the error code and
the fields that the controller would name. The exact codes for malformed bodies are not attested.
"""

import msgspec

from tests.support.controller.fieldrules import is_host, is_ipv4, is_ipv6, is_key, is_service_name
from tests.support.controller.rows import Draft, RecordType

INVALID_PARAMETERS = "api.err.StaticDnsRecordInvalidParameters"
MAX_VALUE_CHARACTERS = 256
MAX_TEXT_LINE_CHARACTERS = 255
MAX_NUMBER = 65535

_MAX_TTL_S = {RecordType.A: 86400, RecordType.AAAA: 86400, RecordType.CNAME: 604800}
# Numeric fields that may be non-zero; all others are refused by name.
_NUMERIC_FIELDS: dict[RecordType, frozenset[str]] = {
    RecordType.A: frozenset({"ttl"}),
    RecordType.AAAA: frozenset({"ttl"}),
    RecordType.CNAME: frozenset({"ttl"}),
    RecordType.MX: frozenset({"priority"}),
    RecordType.NS: frozenset(),
    RecordType.SRV: frozenset({"priority", "weight", "port"}),
    RecordType.TXT: frozenset(),
}
_TYPES: dict[str, RecordType] = {record_type.value: record_type for record_type in RecordType}


class Refused(Exception):
    """A 400 with `code`."""

    def __init__(self, message: str, *fields: str, code: str = INVALID_PARAMETERS) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.fields = fields


class V2Body(msgspec.Struct, gc=False):
    """The fields that are read; unknown ones are tolerated."""

    key: str
    record_type: str
    value: str
    enabled: bool = True
    ttl: int = 0
    priority: int = 0
    weight: int = 0
    port: int = 0


_decode = msgspec.json.Decoder(V2Body).decode


def decode(body: bytes, max_key_characters: int) -> Draft:
    try:
        wanted = _decode(body)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid request body: {error}") from error
    except msgspec.DecodeError as error:
        raise Refused(f"Invalid JSON: {error}", code="api.err.InvalidPayload") from error
    record_type = _TYPES.get(wanted.record_type)
    if record_type is None:
        raise Refused("Invalid record type", "record_type")
    _check_key(record_type, wanted.key, max_key_characters)
    _check_numbers(record_type, wanted)
    _check_value(record_type, wanted.key, wanted.value)
    return Draft(
        wanted.key,
        record_type.value,
        wanted.value,
        wanted.ttl,
        wanted.enabled,
        wanted.priority,
        wanted.weight,
        wanted.port,
    )


def _check_key(record_type: RecordType, key: str, max_characters: int) -> None:
    if not is_key(key, max_characters):
        raise Refused(f"Invalid key: want 1-{max_characters} characters, no white space, comma or final dot", "key")
    if record_type is RecordType.SRV and not is_service_name(key):
        raise Refused("Invalid key: want _service._proto.name", "key")
    if record_type is RecordType.CNAME and "*" in key:
        raise Refused("Invalid hostname", "key")


def _check_numbers(record_type: RecordType, wanted: V2Body) -> None:
    allowed = _NUMERIC_FIELDS[record_type]
    numbers = {"ttl": wanted.ttl, "priority": wanted.priority, "weight": wanted.weight, "port": wanted.port}
    surplus = tuple(name for name, number in numbers.items() if number and name not in allowed)
    if surplus:
        listed = ", ".join(surplus)
        raise Refused(f"{record_type} records may not have a value set on the following parameters: {listed}", *surplus)
    for name, number in numbers.items():
        limit = _MAX_TTL_S.get(record_type, 0) if name == "ttl" else MAX_NUMBER
        if not 0 <= number <= limit:
            raise Refused(f"Invalid {name}: want 0-{limit}", name)


def _check_value(record_type: RecordType, key: str, value: str) -> None:
    if not 1 <= len(value) <= MAX_VALUE_CHARACTERS:
        raise Refused(f"Invalid value: want 1-{MAX_VALUE_CHARACTERS} characters", "value")
    problem = _value_problem(record_type, key, value)
    if problem:
        raise Refused(problem, "value")


def _value_problem(record_type: RecordType, key: str, value: str) -> str:
    match record_type:
        case RecordType.A:
            return "" if is_ipv4(value) else "Invalid IPv4 address"
        case RecordType.AAAA:
            return "" if is_ipv6(value) else "Invalid IPv6 address"
        case RecordType.NS:
            return "" if is_ipv4(value) or is_ipv6(value) else "Invalid IP address"
        case RecordType.TXT:
            return _text_problem(value)
    if not is_host(value):
        return "Invalid hostname"
    if record_type is RecordType.CNAME and value.lower() == key.lower():
        return "CNAME points to itself"
    return ""


def _text_problem(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    if '"' in (value[1:-1] if is_quoted else value):
        return "Double quotes are allowed only around the whole value"
    if any(len(line) > MAX_TEXT_LINE_CHARACTERS for line in value.split("\n")):
        return f"Each line may have at most {MAX_TEXT_LINE_CHARACTERS} characters"
    return ""
