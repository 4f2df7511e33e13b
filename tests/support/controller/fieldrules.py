"""Checks of single texts that both APIs share: names, host names, addresses."""

import ipaddress
import re

_FORBIDDEN_IN_KEY = re.compile(r"[\s,]")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def is_key(text: str, max_characters: int) -> bool:
    """Whether the controller accepts this name: no white space, no comma, no trailing dot."""
    if not 1 <= len(text) <= max_characters or text.endswith("."):
        return False
    return _FORBIDDEN_IN_KEY.search(text) is None


def is_host(text: str) -> bool:
    """A host name without wildcard and without trailing dot."""
    return bool(text) and len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))


def is_service_name(text: str) -> bool:
    """Whether this is `_service._proto.name`."""
    labels = text.split(".", 2)
    return len(labels) == 3 and all(len(label) > 1 and label[0] == "_" for label in labels[:2]) and bool(labels[2])


def is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def is_ipv6(text: str) -> bool:
    """An IPv6 literal without zone that is not an IPv4 address in disguise (`::ffff:192.0.2.1`)."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return address.ipv4_mapped is None and address.scope_id is None
