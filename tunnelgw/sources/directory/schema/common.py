"""Names, references and the like, which the kinds of Gateway API share."""

from collections.abc import Callable
from typing import Any, Final

from tunnelgw.model.meta import LABEL, SUBDOMAIN
from tunnelgw.model.refs import GATEWAY_API
from tunnelgw.sources.directory.schema.shapes import NO_DEFAULT, Fields, Number, Table, Text

KEY: Final = rf"({SUBDOMAIN}/)?([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]"
PATH: Final = r"(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+"
_DOMAIN_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
CONTROLLER: Final = rf"{SUBDOMAIN}/{_DOMAIN_PATH}"
ADDRESS_TYPE: Final = rf"Hostname.*|.*IPAddress.*|.*NamedAddress.*|.*{SUBDOMAIN}/{_DOMAIN_PATH}"
"""As loose as the API's own expression, of which only the first and the last alternative are anchored."""
PROTOCOL: Final = rf"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?|.*{SUBDOMAIN}/[A-Za-z0-9]+"

NAME: Final = Text(1, 253)
NAMESPACE: Final = Text(1, 63, LABEL, "a valid namespace name")
SECTION: Final = Text(1, 253, SUBDOMAIN, "a name of lower-case letters, digits, '-' and '.'")
PRECISE_HOSTNAME: Final = Text(1, 253, SUBDOMAIN, "a domain name in lower case")
HOSTNAME: Final = Text(1, 253, rf"(\*\.)?{SUBDOMAIN}", "a domain name in lower case, with '*.' before it or not")
PORT: Final = Number(1, 65535)
DURATION: Final = Text(0, None, r"([0-9]{1,5}(h|m|s|ms)){1,4}", "a duration such as 1m30s")
_FIELD_NAME: Final = r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+"
HEADER_NAME: Final = Text(1, 256, _FIELD_NAME, "a valid header name")
COOKIE_NAME: Final = Text(1, 256, _FIELD_NAME, "a valid cookie name")
HEADER_VALUE: Final = Text(1, 4096, r"[!-~]+([\t ][!-~]+)*", "a valid header value")
"""Matches the same values as the API's own expression, which has `[\t ]?`: with that, `re` would need years."""


def group(default: Any = NO_DEFAULT) -> Text:
    return Text(0, 253, rf"|{SUBDOMAIN}", "an API group", default=default)


def kind(default: Any = NO_DEFAULT) -> Text:
    return Text(1, 63, r"[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?", "a valid name of a kind", default=default)


LOCAL_REF: Final = Fields({"group": group(), "kind": kind(), "name": NAME}, "group", "kind", "name")
PARAMETERS_REF: Final = Fields(
    {"group": group(), "kind": kind(), "name": NAME, "namespace": NAMESPACE}, "group", "kind", "name"
)
OBJECT_REF: Final = PARAMETERS_REF
SECRET_REF: Final = Fields({"group": group(""), "kind": kind("Secret"), "name": NAME, "namespace": NAMESPACE}, "name")
PARENT_GATEWAY: Final = Fields(
    {"group": group(GATEWAY_API), "kind": kind("Gateway"), "name": NAME, "namespace": NAMESPACE}, "name"
)
OPTIONS: Final = Table(Text(0, 4096), 16)
_XBACKEND: Final = ("gateway.networking.x-k8s.io", "XBackend")


def needs_by(told_by: str, field_of: dict[str, str]) -> Callable[[Any], str | None]:
    """`field_of`: for each value of `told_by`, the field that is required then, and not allowed for other values."""

    def rule(value: Any) -> str | None:
        word = value.get(told_by)
        for each, field in field_of.items():
            if (each == word) != (field in value):
                return f"{field} is missing for {told_by} {word}" if each == word else f"{field} needs {told_by} {each}"
        return None

    return rule


def port_of_reference(value: Any) -> str | None:
    target = (value["group"], value["kind"])
    if target == ("", "Service") and "port" not in value:
        return "port is missing, which a reference to a Service needs"
    if target == _XBACKEND and "port" in value:
        return "port is not allowed in a reference to an XBackend"
    return None


def told_apart(*parts: str) -> tuple[Callable[[Any], str | None], ...]:
    """Rules for references: those to the same target must differ in `parts` (sectionName, port)."""

    def rule(refs: Any) -> str | None:
        seen: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for ref in refs:
            target = (ref["group"], ref["kind"], ref.get("namespace", ""), ref["name"])
            told_by = tuple(ref.get(part) or None for part in parts)
            for other in seen.setdefault(target, []):
                if other == told_by or any(
                    (one is None) != (two is None) for one, two in zip(other, told_by, strict=True)
                ):
                    return f"several references to {ref['name']} need a {' or '.join(parts)} each, all different"
            seen[target].append(told_by)
        return None

    return (rule,)
