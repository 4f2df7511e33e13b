"""Which TXT record says who owns which record set: external-dns' TXT registry, seen from the store (pure).

For an owned set external-dns writes one TXT record, by default named `<type>-<name>`, with the text
`"heritage=external-dns,external-dns/owner=...,external-dns/resource=..."`. Its endpoint carries the label
`ownedRecord` with the owned name. Prefixes, suffixes and `%{record_type}` templates (`--txt-prefix`) change the name,
encryption hides the text: so the label decides, and name and text only help out where an old client sends no label.
"""

import re
from collections.abc import Mapping, Set

import msgspec

from dnswebhook.canonical import KNOWN_TYPES, stored_name
from dnswebhook.model import Endpoint

OWNED_RECORD_LABEL = "ownedRecord"
_HERITAGE = re.compile(r'"?heritage=external-dns(,|"?$)')
_TYPE_WORDS = frozenset(map(str.lower, KNOWN_TYPES))
# Static expressions only: compiling one per name would take longer than everything else in a plan.
_WORD = re.compile(r"[a-z0-9]+")


class OwnedSet(msgspec.Struct, frozen=True):
    """What an ownership record vouches for. Empty `types`: the name does not tell, so every type of that name."""

    name: str
    types: frozenset[str]

    def covers(self, name: str, record_type: str) -> bool:
        return name == self.name and (not self.types or record_type in self.types)


def is_heritage(value: str) -> bool:
    return _HERITAGE.match(value) is not None


def owned_set(endpoint: Endpoint, changed: Mapping[str, Set[str]]) -> OwnedSet | None:
    """What this endpoint vouches for; None when it is no ownership record.

    `changed` names what is written in the same call: canonical name -> record types, ownership records included.
    """
    if endpoint.record_type != "TXT":
        return None
    own_name = stored_name(endpoint.dns_name)
    label = endpoint.labels.get(OWNED_RECORD_LABEL)
    if label:
        owned = stored_name(label)
    elif any(map(is_heritage, endpoint.targets)):
        owned = _owned_by_name(own_name, changed)
    else:
        return None
    return OwnedSet(owned, _owned_types(own_name, owned, changed))


def _owned_by_name(own_name: str, changed: Mapping[str, Set[str]]) -> str:
    """`a-app.example.com` -> `app.example.com` when that is written too; else the record is its own subject."""
    prefix, dash, rest = own_name.partition("-")
    if dash and prefix in _TYPE_WORDS and rest in changed:
        return rest
    return own_name


def _owned_types(own_name: str, owned: str, changed: Mapping[str, Set[str]]) -> frozenset[str]:
    """The type that the ownership record's name carries in front of, or around, the owned name's first label.

    Only what differs from the owned name is searched: `a-host.srv.lan` is about an A record, `srv` is its domain. A
    prefix may be a type's name by chance (`--txt-prefix=txt-`), so types written in the same call go first.
    """
    if own_name == owned:
        return frozenset()  # the format of external-dns 0.17 and before: one record for every type of the name
    first_label, dot, domain = owned.partition(".")
    head = own_name.removesuffix(dot + domain)
    found = _types_before(first_label, head) or frozenset(_WORD.findall(_without(first_label, head))) & _TYPE_WORDS
    named = frozenset(map(str.upper, found))
    named = named & changed.get(owned, frozenset()) or named
    return named if len(named) == 1 else frozenset()


def _types_before(label: str, text: str) -> frozenset[str]:
    """Types that stand in `text` as a word of their own, with one dash or dot and then `label` right after them."""
    words = (word for word in _WORD.finditer(text) if word[0] in _TYPE_WORDS)
    return frozenset(
        word[0]
        for word in words
        if text[word.end() : word.end() + 1] in ("-", ".") and _stands_at(word.end() + 1, label, text)
    )


def _without(label: str, text: str) -> str:
    """`text` with a space in place of each `label` that stands on its own."""
    parts: list[str] = []
    done, start = 0, text.find(label)
    while start >= 0:
        if _stands_at(start, label, text):
            parts.append(text[done:start])
            done = start + len(label)
        start = text.find(label, max(done, start + 1))
    return " ".join([*parts, text[done:]])


def _stands_at(start: int, label: str, text: str) -> bool:
    end = start + len(label)
    neighbours = (text[start - 1 : start], text[end : end + 1])
    return text.startswith(label, start) and not any(map(_WORD.match, neighbours))
