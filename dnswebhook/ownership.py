"""Which TXT record says who owns which record set: external-dns' TXT registry, seen from the store (pure).

For an owned set external-dns writes one TXT record, by default named `<type>-<name>`, with the text
`"heritage=external-dns,external-dns/owner=...,external-dns/resource=..."`. Its endpoint carries the label
`ownedRecord` with the owned name. Prefixes, suffixes and `%{record_type}` templates (`--txt-prefix`) change the name,
encryption hides the text: so the label decides, and name and text only help out where an old client sends no label.

The text that external-dns has read is not always the one that it names when it changes or deletes the record. It makes
the named one anew from what it has read (`Reading`), as it would write it now: encrypted or not any more, or by the id
of its new owner.

Where texts are encrypted, the one that it wants for a changed record is a new one in each pass, also where it says the
same as that which is there. The record beside it tells: it has the labels in clear (`same_texts`).
"""

import re
from collections.abc import Iterable, Mapping, Set

import msgspec

from dnswebhook.canonical import KNOWN_TYPES, stored_name
from dnswebhook.model import Endpoint

OWNED_RECORD_LABEL = "ownedRecord"
OWNER_LABEL = "owner"
_NONCE_LABEL = "txt-encryption-nonce"
_NONCE_CHARACTERS = 16
"""Of base64: 12 octets, with which an encrypted text begins."""
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

    @property
    def keys(self) -> set[tuple[str, str]]:
        """Name and type of each, as far as the name tells."""
        return {(self.name, record_type) for record_type in self.types}


class Reading(msgspec.Struct, frozen=True):
    """What external-dns has read in an ownership record: the labels of the record that it changes or deletes now.

    They come from nowhere else, since no listing of ours has labels.
    """

    owner: str
    """Its own id, even if it read the one that it migrates from."""
    other_labels: frozenset[tuple[str, str]]
    nonce: str = ""
    """Of the text that it has decrypted, or a new one if that was readable."""

    def is_of(self, value: str, *, is_first: bool) -> bool:
        """Whether it was read in this text; `is_first`: that is the one that external-dns was shown first.

        1. An encrypted text: it begins with the nonce, which is random and known to those only who have decrypted it.
        2. A readable one with the same labels, the owner among them. So it is that of this external-dns.
        3. A readable one with the same labels and another owner: that of somebody else, unless it was shown first. Only
           that one is read, and external-dns asks nothing of a record that it has found to be somebody else's. So it
           takes this owner for its own: `--migrate-from-txt-owner`.
        """
        labels = _labels(value)
        if labels is None:
            return self.is_in(value)
        owner = labels.pop(OWNER_LABEL, "")
        return self.other_labels == frozenset(labels.items()) and (owner == self.owner or (is_first and bool(owner)))

    def is_in(self, encrypted: str) -> bool:
        return bool(self.nonce) and encrypted.strip('"').startswith(self.nonce)

    def has_labels_of(self, other: "Reading") -> bool:
        return (self.owner, self.other_labels) == (other.owner, other.other_labels)


def reading(labels: Mapping[str, str]) -> Reading | None:
    """Of the labels of a record; None without an owner, as other registries than TXT send them."""
    owner = labels.get(OWNER_LABEL)
    if not owner:
        return None
    nonce = labels.get(_NONCE_LABEL, "")
    others = frozenset(item for item in labels.items() if item[0] not in (OWNER_LABEL, _NONCE_LABEL))
    return Reading(owner, others, nonce if len(nonce) == _NONCE_CHARACTERS else "")


def same_texts(
    wanted: str, written: Iterable[Reading], named: Iterable[str], read: Iterable[Reading]
) -> frozenset[str]:
    """Those of the `named` texts that say what the `wanted` one says; all of them are encrypted.

    `written` and `read` are the labels as they shall be and as they were. external-dns has encrypted a named text from
    what it has read. So where it is stored to the letter, that is what it says: one of the owner that external-dns
    migrates from is not, since external-dns took its own id for the one that it read.
    """
    shall_be = [labels for labels in written if labels.is_in(wanted)]
    were = [labels for labels in read if any(labels.has_labels_of(other) for other in shall_be)]
    return frozenset(text for text in named if any(labels.is_in(text) for labels in were))


def is_heritage(value: str) -> bool:
    return _HERITAGE.match(value) is not None


def owner_in(value: str) -> str:
    """Empty where the text is encrypted, or no ownership text."""
    return (_labels(value) or {}).get(OWNER_LABEL, "")


def usual_names(name: str, record_type: str) -> tuple[str, ...]:
    """Of the ownership record of a record set: without a prefix, and with `--txt-prefix=%{record_type}.`."""
    return f"{record_type.lower()}-{name}", f"{record_type.lower()}.{name}"


def words_in(name: str) -> frozenset[str]:
    """By which names can be looked up that carry others within them."""
    return frozenset(_WORD.findall(name))


def may_vouch_for(own_name: str, name: str, record_type: str) -> bool:
    """Whether an ownership record of this name may be that of a record set, whatever the prefix or the suffix."""
    first_label, dot, domain = name.partition(".")
    head = own_name.removesuffix(dot + domain)
    if head == own_name or _without(first_label, head) == head:
        return False
    return record_type in _owned_types(own_name, name, {name: {record_type}})


def place_in_listing(value: str) -> tuple[bool, str]:
    """By which the texts of a set are sorted: external-dns parses only the first one."""
    return not is_heritage(value), value


def _labels(value: str) -> dict[str, str] | None:
    """What a readable ownership text says, as external-dns parses it; None when it is none."""
    if not is_heritage(value):
        return None
    pairs = (part.split("=") for part in value.strip('"').split(","))
    return {pair[0].removeprefix("external-dns/"): pair[1] for pair in pairs if _is_label(pair)}


def _is_label(pair: list[str]) -> bool:
    return len(pair) == 2 and pair[0].startswith("external-dns")


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
