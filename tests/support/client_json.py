"""JSON as Go's standard package writes and reads it, for the types that external-dns sends and receives (pure).

Independent of `dnswebhook.wire`, so that a mistake there is not repeated here. The bytes match the facts: keys in the
order of the Go structs, empty fields left out, maps sorted, `<`, `>` and `&` escaped, a newline at the end.
"""

import json
from collections.abc import Sequence
from enum import Enum
from typing import Any

from dnswebhook.model import Changes, Endpoint

MAX_INT64 = 2**63 - 1


class Generation(Enum):
    """How a client spells the four lists of Changes."""

    PASCAL = "0.14 to 0.16: PascalCase, empty lists are null"
    CAMEL = "since 0.17: camelCase, empty lists are absent"


class Undecodable(Exception):
    """Go's decoder would return an error."""


def encode_endpoints(endpoints: Sequence[Endpoint]) -> bytes:
    """The body of `POST /adjustendpoints`; an empty list is `null`, as for a nil slice in Go."""
    return _go_bytes([_wire(endpoint) for endpoint in endpoints] or None)


def encode_changes(changes: Changes, generation: Generation) -> bytes:
    """The body of `POST /records`."""
    lists = {
        "create": [_wire(endpoint) for endpoint in changes.create],
        "updateOld": [_wire(endpoint) for endpoint in changes.update_old],
        "updateNew": [_wire(endpoint) for endpoint in changes.update_new],
        "delete": [_wire(endpoint) for endpoint in changes.delete],
    }
    if generation is Generation.PASCAL:
        return _go_bytes({key[0].upper() + key[1:]: endpoints or None for key, endpoints in lists.items()})
    return _go_bytes({key: endpoints for key, endpoints in lists.items() if endpoints})


def decode_endpoints(body: bytes) -> tuple[Endpoint, ...]:
    """A bare array or null, as the client requires it; raises Undecodable."""
    value = first_value(body)
    return tuple(_endpoint(item) for item in _expect(value, list) or ())


def first_value(body: bytes) -> Any:
    """Reads one JSON value and ignores what follows it, as Go does."""
    try:
        value, _ = json.JSONDecoder().raw_decode(body.decode("utf-8", "replace").lstrip())
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"no JSON value in {body[:80]!r}") from error
    return value


def _wire(endpoint: Endpoint) -> dict[str, Any]:
    fields = {
        "dnsName": endpoint.dns_name,
        "targets": list(endpoint.targets),
        "recordType": endpoint.record_type,
        "setIdentifier": endpoint.set_identifier,
        "recordTTL": endpoint.ttl_s,
        "labels": dict(sorted(endpoint.labels.items())),
        "providerSpecific": [_property(name, value) for name, value in endpoint.provider_specific],
    }
    return {key: value for key, value in fields.items() if value}


def _property(name: str, value: str) -> dict[str, str]:
    return {key: text for key, text in (("name", name), ("value", value)) if text}


def _go_bytes(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode() + b"\n"


def _endpoint(item: Any) -> Endpoint:
    fields = folded(_expect(item, dict) or {})
    ttl_s = fields.get("recordttl") or 0
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int) or not -MAX_INT64 <= ttl_s <= MAX_INT64:
        raise Undecodable(f"recordTTL is {ttl_s!r}, want an integer of 64 bits")
    properties = [folded(_expect(pair, dict) or {}) for pair in _expect(fields.get("providerspecific"), list) or ()]
    return Endpoint(
        dns_name=_text(fields.get("dnsname")),
        record_type=_text(fields.get("recordtype")),
        targets=tuple(_text(target) for target in _expect(fields.get("targets"), list) or ()),
        ttl_s=ttl_s,
        set_identifier=_text(fields.get("setidentifier")),
        labels={key: _text(value) for key, value in (_expect(fields.get("labels"), dict) or {}).items()},
        provider_specific=tuple((_text(pair.get("name")), _text(pair.get("value"))) for pair in properties),
    )


def folded(fields: dict[str, Any]) -> dict[str, Any]:
    """Keys in lower case: Go matches them without regard to case, and the later of two wins."""
    return {key.lower(): value for key, value in fields.items()}


def _text(value: Any) -> str:
    return _expect(value, str) or ""


def _expect(value: Any, kind: type) -> Any:
    """`value` if it is null or of that kind."""
    if value is not None and not isinstance(value, kind):
        raise Undecodable(f"cannot decode {str(value)[:80]!r} into {kind.__name__}")
    return value
