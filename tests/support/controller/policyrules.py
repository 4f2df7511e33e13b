"""The objects of the integration API and its requirements for them: request body -> draft, row -> JSON.

Bodies are strict: a property that the type does not have is refused. The code `unknown-property` is attested; the codes
of other refused bodies are only plausible.
"""

from typing import Any

import msgspec

from tests.support.controller.fieldrules import is_host, is_ipv4, is_ipv6, is_key
from tests.support.controller.rows import Draft, RecordType, Row

UNKNOWN_PROPERTY = "api.request.unknown-property"
MISSING_PROPERTY = "api.request.missing-property"
INVALID_BODY = "api.request.invalid-body"
VALIDATION = "api.dns.policy.validation."
MAX_DOMAIN_CHARACTERS = 127
MAX_TEXT_CHARACTERS = 1024

_COMMON = {"type": str, "enabled": bool, "domain": str}
_PROPERTIES: dict[str, dict[str, type]] = {
    "A_RECORD": {**_COMMON, "ipv4Address": str, "ttlSeconds": int},
    "AAAA_RECORD": {**_COMMON, "ipv6Address": str, "ttlSeconds": int},
    "CNAME_RECORD": {**_COMMON, "targetDomain": str, "ttlSeconds": int},
    "MX_RECORD": {**_COMMON, "mailServerDomain": str, "priority": int},
    "TXT_RECORD": {**_COMMON, "text": str},
    "SRV_RECORD": {
        **_COMMON,
        "service": str,
        "protocol": str,
        "serverDomain": str,
        "port": int,
        "priority": int,
        "weight": int,
    },
    "FORWARD_DOMAIN": {**_COMMON, "ipAddress": str},
}
_TYPES = {
    "A_RECORD": RecordType.A,
    "AAAA_RECORD": RecordType.AAAA,
    "CNAME_RECORD": RecordType.CNAME,
    "MX_RECORD": RecordType.MX,
    "TXT_RECORD": RecordType.TXT,
    "SRV_RECORD": RecordType.SRV,
    "FORWARD_DOMAIN": RecordType.NS,
}
_POLICY_TYPES = {record_type.value: policy_type for policy_type, record_type in _TYPES.items()}
_VALUE_PROPERTY = {
    "A_RECORD": "ipv4Address",
    "AAAA_RECORD": "ipv6Address",
    "CNAME_RECORD": "targetDomain",
    "MX_RECORD": "mailServerDomain",
    "TXT_RECORD": "text",
    "SRV_RECORD": "serverDomain",
    "FORWARD_DOMAIN": "ipAddress",
}
_LIMITS = {"priority": 65535, "weight": 65535, "port": 65535, "ttlSeconds": 86400}
_MAX_CNAME_TTL_S = 604800


class PolicyRefused(Exception):
    """A 400 with `code`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def decode(body: bytes) -> Draft:
    """The draft that a create or update requests; raises PolicyRefused."""
    try:
        wanted = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise PolicyRefused(INVALID_BODY, f"Request body is no JSON: {error}") from error
    if not isinstance(wanted, dict):
        raise PolicyRefused(INVALID_BODY, "Request body is no object")
    policy_type = wanted.get("type")
    properties = _PROPERTIES.get(policy_type) if isinstance(policy_type, str) else None
    if properties is None or not isinstance(policy_type, str):
        raise PolicyRefused(INVALID_BODY, f"Invalid value of '$.type': want one of {', '.join(_PROPERTIES)}")
    _check_properties(wanted, properties)
    _check_limits(policy_type, wanted)
    value = wanted[_VALUE_PROPERTY[policy_type]]
    key = wanted["domain"]
    if policy_type == "SRV_RECORD":
        key = f"{wanted['service']}.{wanted['protocol']}.{key}"
    _check_value(policy_type, key, value)
    return Draft(
        key,
        _TYPES[policy_type].value,
        value,
        wanted.get("ttlSeconds", 0),
        wanted["enabled"],
        wanted.get("priority", 0),
        wanted.get("weight", 0),
        wanted.get("port", 0),
    )


def _check_properties(wanted: dict[str, Any], properties: dict[str, type]) -> None:
    for name in wanted:
        if name not in properties:
            raise PolicyRefused(UNKNOWN_PROPERTY, f"Unknown request body property '$.{name}'")
    for name, kind in properties.items():
        if name not in wanted:
            raise PolicyRefused(MISSING_PROPERTY, f"Missing request body property '$.{name}'")
        if type(wanted[name]) is not kind:
            raise PolicyRefused(INVALID_BODY, f"Invalid type of '$.{name}': want {kind.__name__}")


def _check_limits(policy_type: str, wanted: dict[str, Any]) -> None:
    limits = {**_LIMITS, "ttlSeconds": _MAX_CNAME_TTL_S} if policy_type == "CNAME_RECORD" else _LIMITS
    for name, limit in limits.items():
        if not 0 <= wanted.get(name, 0) <= limit:
            raise PolicyRefused(f"{VALIDATION}out-of-range", f"'$.{name}' must be between 0 and {limit}")
    for name in ("domain", "targetDomain", "serverDomain", "mailServerDomain"):
        if name in wanted and not is_key(wanted[name], MAX_DOMAIN_CHARACTERS):
            raise PolicyRefused(
                f"{VALIDATION}invalid-domain", f"'$.{name}' must be a domain of 1 to {MAX_DOMAIN_CHARACTERS} characters"
            )
    for name in ("service", "protocol"):
        if name in wanted and not (len(wanted[name]) > 1 and wanted[name][0] == "_" and is_host(wanted[name])):
            raise PolicyRefused(f"{VALIDATION}invalid-{name}", f"'$.{name}' must start with an underscore")


def _check_value(policy_type: str, key: str, value: str) -> None:
    match policy_type:
        case "A_RECORD":
            problem = "" if is_ipv4(value) else "invalid-ipv4-address"
        case "AAAA_RECORD":
            problem = "" if is_ipv6(value) else "invalid-ipv6-address"
        case "FORWARD_DOMAIN":
            problem = "" if all(is_ipv4(part) or is_ipv6(part) for part in value.split("|")) else "invalid-ip-address"
        case "TXT_RECORD":
            problem = _text_problem(value)
        case "CNAME_RECORD" if "*" in key or value.lower() == key.lower():
            problem = "invalid-hostname"
        case _:
            problem = "" if is_host(value) else "invalid-hostname"
    if problem:
        raise PolicyRefused(VALIDATION + problem, f"'$.{_VALUE_PROPERTY[policy_type]}' refused: {problem}")


def _text_problem(value: str) -> str:
    if not 1 <= len(value) <= MAX_TEXT_CHARACTERS:
        return "txt-length"
    is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    if '"' in (value[1:-1] if is_quoted else value):
        return "txt-incorrectly-quoted"
    if "," in value and not is_quoted:
        return "txt-not-quoted"
    return ""


def as_request(draft: Draft) -> dict[str, Any]:
    """The body that a client sends for `draft`."""
    policy_type = _POLICY_TYPES[draft.type]
    content: dict[str, Any] = {"type": policy_type, "enabled": draft.enabled, "domain": draft.key}
    if policy_type == "SRV_RECORD":
        labels = draft.key.split(".", 2)
        content["service"], content["protocol"], content["domain"] = (*labels, "", "")[:3]
    content[_VALUE_PROPERTY[policy_type]] = draft.value
    numbers = {"ttlSeconds": draft.ttl_s, "priority": draft.priority, "weight": draft.weight, "port": draft.port}
    content.update({name: number for name, number in numbers.items() if name in _PROPERTIES[policy_type]})
    return content


def as_policy(row: Row, policy_id: str) -> dict[str, Any]:
    """The row as the integration API shows it, under `policy_id`."""
    return {"id": policy_id, "metadata": {"origin": row.origin.value}, **as_request(row.draft)}
