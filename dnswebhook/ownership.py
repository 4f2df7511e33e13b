"""Which TXT record says who owns which record set: external-dns' TXT registry, seen from the store (pure).

For an owned set external-dns writes one TXT record, by default named `<type>-<name>`, with the text
`"heritage=external-dns,external-dns/owner=...,external-dns/resource=..."`. Its endpoint carries the label
`ownedRecord` with the owned name. Prefixes, suffixes and `%{record_type}` templates (`--txt-prefix`) change the name,
encryption hides the text: so the label decides, and name and text only help out where an old client sends no label.
"""

import re
from collections.abc import Mapping, Set

import msgspec

from dnswebhook.canonical import stored_name
from dnswebhook.model import Endpoint

OWNED_RECORD_LABEL = "ownedRecord"
_HERITAGE = re.compile(r'"?heritage=external-dns(,|"?$)')
TYPES = ("aaaa", "cname", "naptr", "dname", "ptr", "srv", "txt", "mx", "ns", "a")


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
    if dash and prefix in TYPES and rest in changed:
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
    subject = rf"(?<![a-z0-9]){re.escape(first_label)}(?![a-z0-9])"
    found = _types_in(head, rf"[-.]{subject}") or _types_in(re.sub(subject, " ", head), "")
    named = found & changed.get(owned, frozenset()) or found
    return named if len(named) == 1 else frozenset()


def _types_in(text: str, behind: str) -> frozenset[str]:
    """Types that stand in `text` as a word of their own, with the expression `behind` right after them."""
    kinds = (kind for kind in TYPES if re.search(rf"(?<![a-z0-9]){kind}(?![a-z0-9]){behind}", text))
    return frozenset(map(str.upper, kinds))
