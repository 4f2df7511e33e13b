"""One spelling for every name and every target, so that equal data compares equal wherever it comes from (pure).

`canonical_name` and `canonical_value` are strict: they take what external-dns or a person wrote, and either return the
canonical spelling or raise `Unacceptable` with a reason from a closed set. `stored_name` and `stored_value` never
raise: they read what a store already holds, rows created by hand included, and leave what they cannot interpret
unchanged.

Spellings: names are ASCII lower case (punycode, UTS 46) without a trailing dot; addresses follow RFC 5952; a TXT value
is plain if it is one word without special characters, and in double quotes otherwise; SRV and NAPTR targets end in a
dot, as external-dns 0.21 and later write them. Nothing that passes here can break the line format of dnsmasq's
configuration: no control characters, no backslash, no quote inside a text, no comma outside quotes.
"""

import ipaddress
import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

import idna

MAX_NAME_OCTETS = 253
MAX_LABEL_OCTETS = 63
_MAX_WRITTEN_CHARACTERS = 4 * MAX_NAME_OCTETS
"""Normalisation shortens a name with combining characters, but not by more than this factor."""


class DropReason(StrEnum):
    """Why an endpoint or one of its targets cannot be held. A closed set: each value is a metric label."""

    UNSUPPORTED_TYPE = "unsupported_type"
    INVALID_NAME = "invalid_name"
    NAME_TOO_LONG = "name_too_long"
    UNSUPPORTED_WILDCARD = "unsupported_wildcard"
    INVALID_TARGET = "invalid_target"
    TARGET_TOO_LONG = "target_too_long"
    NO_TARGETS = "no_targets"
    SURPLUS_CNAME_TARGET = "surplus_cname_target"
    OWNERSHIP_TEXT = "ownership_text"
    PROTECTED = "protected"


class Unacceptable(ValueError):
    """The text cannot be held; the message says what was seen and what was wanted."""

    def __init__(self, reason: DropReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# The usual case, with nothing to rewrite, is decided by one match without backtracking.
_LABEL = r"[a-z0-9_]++(?:-++[a-z0-9_]++)*+"
_CANONICAL_NAME = re.compile(rf"(?:\*\.)?(?:{_LABEL}\.)*+{_LABEL}")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_CANONICAL_IPV4 = re.compile(rf"(?:{_OCTET}\.){{3}}{_OCTET}")
# As RFC 5952 writes it: `::` replaces the longest run of zero groups, so no two zero groups are left side by side, and
# `::` never replaces a single group (seven colons). Texts that begin with `::` are left to `ipaddress`.
_GROUP = r"[1-9a-f][0-9a-f]{0,3}"
_GROUP_OR_ZERO = rf"(?:{_GROUP}|0(?!:0))"
_CANONICAL_IPV6 = re.compile(
    rf"(?:{_GROUP_OR_ZERO}:){{7}}{_GROUP_OR_ZERO}"
    rf"|(?!(?:[^:]*:){{7}})(?:{_GROUP_OR_ZERO}:){{0,5}}{_GROUP}::(?:{_GROUP}(?::{_GROUP_OR_ZERO}){{0,4}})?"
)
_ASCII_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
# The ownership record of `*.example.com` is `a-*.example.com`, or with `--txt-prefix` has other text around the star.
_FIRST_LABEL = re.compile(r"[a-z0-9_*-]{1,63}")


def canonical_name(text: str) -> str:
    """`text` as an ASCII lower-case DNS name without trailing dot; a `*` is accepted in the first label only."""
    if _CANONICAL_NAME.fullmatch(text) and _has_room_for(text):
        return text
    return _rewritten_name(text)


def _has_room_for(name: str) -> bool:
    if len(name) <= MAX_LABEL_OCTETS:
        return True
    return len(name) <= MAX_NAME_OCTETS and max(map(len, name.split("."))) <= MAX_LABEL_OCTETS


@lru_cache(maxsize=4096)
def _rewritten_name(text: str) -> str:
    if len(text) > _MAX_WRITTEN_CHARACTERS:  # before any work: a name may be as long as a body
        raise Unacceptable(
            DropReason.NAME_TOO_LONG,
            f"name of {len(text)} characters, want at most {MAX_NAME_OCTETS} octets: {text[:60]!r}…",
        )
    labels = text.rstrip(".").split(".") if text.isascii() else re.split("[.。．｡]", text.rstrip(".。．｡"))
    written = [_canonical_label(label, is_first=index == 0, name=text) for index, label in enumerate(labels)]
    name = ".".join(written)
    if len(name) > MAX_NAME_OCTETS:
        raise Unacceptable(
            DropReason.NAME_TOO_LONG, f"name of {len(name)} octets, want at most {MAX_NAME_OCTETS}: {text[:60]!r}…"
        )
    return name


def _canonical_label(label: str, *, is_first: bool, name: str) -> str:
    lowered = label.lower()
    if lowered.isascii():
        grammar = _FIRST_LABEL if is_first else _ASCII_LABEL
        if grammar.fullmatch(lowered):
            return lowered
        wanted = "1 to 63 letters, digits, hyphens or underscores"
        raise Unacceptable(DropReason.INVALID_NAME, f"label {label[:70]!r} in name {name[:260]!r}, want {wanted}")
    try:
        return idna.encode(label, uts46=True).decode("ascii")
    except UnicodeError as error:
        raise Unacceptable(
            DropReason.INVALID_NAME, f"label {label[:70]!r} in name {name[:260]!r} is not a valid IDN: {error}"
        ) from error


def is_wildcard(name: str) -> bool:
    """True for `*.example.com`; false for an ownership name such as `a-*.example.com`."""
    return name.startswith("*.") or name == "*"


def canonical_value(record_type: str, text: str) -> str:
    """The canonical spelling of a target of `record_type`; raises Unacceptable."""
    spell = _SPELLINGS.get(record_type)
    if spell is None:
        known = ", ".join(sorted(_SPELLINGS))
        raise Unacceptable(DropReason.UNSUPPORTED_TYPE, f"record type {record_type[:20]!r}, want one of {known}")
    return spell(text)


def host_of(record_type: str, value: str) -> str:
    """The host name inside a canonical CNAME, MX, SRV, NS, PTR or DNAME value; empty for other types."""
    if record_type in ("CNAME", "NS", "PTR", "DNAME"):
        return value
    if record_type in ("MX", "SRV"):
        return value.rpartition(" ")[2].rstrip(".")
    return ""


def stored_name(text: str) -> str:
    """The canonical spelling of a name in a store; an invalid one is only lower-cased, without trailing dots."""
    try:
        return canonical_name(text)
    except Unacceptable:
        return text.rstrip(".").lower()


def stored_value(record_type: str, text: str) -> str:
    """The canonical spelling of a value in a store; an invalid one stays as it is."""
    try:
        return canonical_value(record_type, text)
    except Unacceptable:
        return text


MAX_TTL_S = 2**31 - 1
"""RFC 2181, 8."""


def stored_ttl_s(seconds: int | None) -> int:
    """A TTL from a store, limited to what DNS and external-dns can represent; 0 for none."""
    return max(0, min(seconds or 0, MAX_TTL_S))


def _invalid(record_type: str, text: str, wanted: str) -> Unacceptable:
    return Unacceptable(DropReason.INVALID_TARGET, f"{record_type} target {text[:100]!r}, want {wanted}")


def _ipv4(text: str) -> str:
    if _CANONICAL_IPV4.fullmatch(text):
        return text
    try:
        return str(ipaddress.IPv4Address(text.strip()))
    except ValueError:
        raise _invalid("A", text, "an IPv4 address") from None


def _ipv6(text: str) -> str:
    if _CANONICAL_IPV6.fullmatch(text):
        return text
    return _rewritten_ipv6(text.strip())  # stripped, since the argument is a cache key


@lru_cache(maxsize=4096)
def _rewritten_ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise _invalid("AAAA", text, "an IPv6 address") from None
    if address.scope_id is not None:
        raise _invalid("AAAA", text, "an IPv6 address without zone")
    if address.ipv4_mapped is not None:  # no client may use it from DNS (RFC 4038, 4.2), and controllers refuse it
        raise _invalid("AAAA", text, "an IPv6 address, not a mapped IPv4 address")
    return str(address)


def _host(record_type: str) -> Callable[[str], str]:
    def spell(text: str) -> str:
        try:
            host = canonical_name(text.strip())
        except Unacceptable as error:
            is_too_long = error.reason is DropReason.NAME_TOO_LONG
            reason = DropReason.TARGET_TOO_LONG if is_too_long else DropReason.INVALID_TARGET
            raise Unacceptable(reason, f"{record_type} target: {error}") from error
        if "*" in host:
            raise _invalid(record_type, text, "a host name without wildcard")
        return host

    return spell


def _port_number(record_type: str, word: str, text: str) -> int:
    """Any unsigned 16-bit field; leading zeros are dropped."""
    if word.isascii() and word.isdigit() and len(word) <= 8 and int(word) <= 0xFFFF:
        return int(word)
    raise _invalid(record_type, text, f"numbers of 0 to 65535, not {word[:20]!r}")


def _mx(text: str) -> str:
    words = text.split()
    if len(words) != 2:
        raise _invalid("MX", text, "`preference host`")
    return f"{_port_number('MX', words[0], text)} {_host('MX')(words[1])}"


def _srv(text: str) -> str:
    words = text.split()
    if len(words) != 4:
        raise _invalid("SRV", text, "`priority weight port host.`")
    numbers = " ".join(str(_port_number("SRV", word, text)) for word in words[:3])
    return f"{numbers} {_host('SRV')(words[3])}."


_NAPTR = re.compile(r'(\d+)\s+(\d+)\s+"([^"\\]*)"\s+"([^"\\]*)"\s+"([^"]*)"\s+(\S+)')


def _naptr(text: str) -> str:
    match = _NAPTR.fullmatch(text.strip())
    if match is None or not text.isprintable():
        raise _invalid("NAPTR", text, '`order preference "flags" "service" "regexp" replacement`')
    order, preference, flags, service, regexp, replacement = match.groups()
    numbers = f"{_port_number('NAPTR', order, text)} {_port_number('NAPTR', preference, text)}"
    target = "." if replacement == "." else _host("NAPTR")(replacement) + "."
    return f'{numbers} "{flags}" "{service}" "{regexp}" {target}'


_PLAIN_TEXT = re.compile(r"[!-~]+")
_NEEDS_QUOTES = re.compile(r"[,;#']")
# Zone-file style: several quoted strings, which a resolver joins.
_QUOTED_STRINGS = re.compile(r'"([^"\\]*)"(?:[ \t]+"[^"\\]*")+')


def _text(text: str) -> str:
    inner = text
    if len(text) >= 2 and text[0] == text[-1] == '"':
        inner = text[1:-1]
        if '"' in inner and _QUOTED_STRINGS.fullmatch(text):
            inner = "".join(re.findall(r'"([^"]*)"', text))
    if '"' in inner or "\\" in inner or not inner.isprintable():
        raise _invalid("TXT", text, "printable text without backslash, and quotes only around the whole")
    if _PLAIN_TEXT.fullmatch(inner) and not _NEEDS_QUOTES.search(inner):
        return inner
    return f'"{inner}"'


_SPELLINGS: dict[str, Callable[[str], str]] = {
    "A": _ipv4,
    "AAAA": _ipv6,
    "CNAME": _host("CNAME"),
    "TXT": _text,
    "MX": _mx,
    "SRV": _srv,
    "NS": _host("NS"),
    "PTR": _host("PTR"),
    "NAPTR": _naptr,
    "DNAME": _host("DNAME"),
}

KNOWN_TYPES = tuple(_SPELLINGS)
"""Record types as external-dns names them: each has a canonical spelling."""
