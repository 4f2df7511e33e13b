"""Which TXT record says who owns which record set: external-dns' TXT registry, seen from the store (pure).

For an owned set, external-dns writes one TXT record, by default named `<type>-<name>`, with the text
`"heritage=external-dns,external-dns/owner=...,external-dns/resource=..."`. Its endpoint carries the label `ownedRecord`
with the owned name. Prefixes, suffixes and `%{record_type}` templates (`--txt-prefix`) change the name, and encryption
hides the text. So the label decides; name and text are used only if an old client sends no label.

When external-dns changes or deletes a record, the text that it names is not always the stored one. It composes the text
from the labels that it has read (`Reading`), as it would write it now: encrypted or not, or with the id of a new owner.

An encrypted text differs each time it is composed. So the text wanted for a changed record is new on every pass, even
if it says the same as the stored one. Whether it does is decided by the labels of the record, which are not encrypted
(`same_texts`).
"""

import re
from collections.abc import Iterable, Mapping, Set

import msgspec

from dnswebhook.canonical import KNOWN_TYPES, stored_name
from dnswebhook.model import Endpoint

OWNED_RECORD_LABEL = "ownedRecord"
OWNER_LABEL = "owner"
NONCE_LABEL = "txt-encryption-nonce"
_NONCE_CHARACTERS = 16
"""The 12 octets with which an encrypted text begins, in base64."""
_HERITAGE = re.compile(r'(?:^"?|,)heritage=external-dns(?:,|"?$)')
"""external-dns writes it first, and accepts it anywhere."""
_TYPE_WORDS = frozenset(map(str.lower, KNOWN_TYPES))
# Static expressions only: compiling one per name would take longer than everything else in a plan.
_WORD = re.compile(r"[a-z0-9]+")


class OwnedSet(msgspec.Struct, frozen=True):
    """The record sets that an ownership record vouches for. Empty `types`: its name tells none, so it may be any."""

    name: str
    types: frozenset[str]

    def covers(self, name: str, record_type: str) -> bool:
        return name == self.name and (not self.types or record_type in self.types)

    @property
    def keys(self) -> set[tuple[str, str]]:
        """Name and type of each set; empty if `types` is."""
        return {(self.name, record_type) for record_type in self.types}


class Reading(msgspec.Struct, frozen=True):
    """What external-dns has read in an ownership record: the labels of the record that it now changes or deletes.

    Labels can come from nowhere else, since our listings have none.
    """

    owner: str
    """The id of this external-dns, even if the text has the id that it migrates from."""
    other_labels: frozenset[tuple[str, str]]
    nonce: str = ""
    """The nonce of the text that was decrypted, or a new one if the text was not encrypted."""

    def is_of(self, value: str, *, is_first: bool) -> bool:
        """Whether this was read in the text `value`; `is_first`: external-dns was shown that text before all others.

        1. An encrypted text: if it begins with the nonce, which is random and known only to those who can decrypt it.
        2. A readable text with the same labels, including the owner: yes.
        3. A readable text with the same labels and another owner: only if it was shown first. external-dns reads only
           that one, and changes no records of other owners, so it treats this owner's records as its own
           (`--migrate-from-txt-owner`).
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
    """What was read according to a record's labels; None if they name no owner, as with registries other than TXT."""
    owner = labels.get(OWNER_LABEL)
    if not owner:
        return None
    nonce = labels.get(NONCE_LABEL, "")
    others = frozenset(item for item in labels.items() if item[0] not in (OWNER_LABEL, NONCE_LABEL))
    return Reading(owner, others, nonce if len(nonce) == _NONCE_CHARACTERS else "")


def same_texts(
    wanted: str, written: Iterable[Reading], named: Iterable[str], read: Iterable[Reading]
) -> frozenset[str]:
    """Those of the `named` texts that say the same as the `wanted` one; all of these are encrypted.

    `named` are the texts that external-dns wants removed. It has composed them from the labels in `read`; `written`
    holds the labels that records are to have now. If a named text is stored exactly so, it says what was read. A text
    of the owner that external-dns migrates from is never stored exactly so, since the named one has the id of
    external-dns.
    """
    shall_be = [labels for labels in written if labels.is_in(wanted)]
    were = [labels for labels in read if any(labels.has_labels_of(other) for other in shall_be)]
    return frozenset(text for text in named if any(labels.is_in(text) for labels in were))


def is_heritage(value: str) -> bool:
    return _HERITAGE.search(value) is not None


def owner_in(value: str) -> str:
    """The owner named by an ownership text; empty if the text is encrypted or not an ownership text."""
    return (_labels(value) or {}).get(OWNER_LABEL, "")


def usual_names(name: str, record_type: str) -> tuple[str, ...]:
    """The names that a set's ownership record usually has: by default, and with `--txt-prefix=%{record_type}.`."""
    return f"{record_type.lower()}-{name}", f"{record_type.lower()}.{name}"


def names_alike(own_name: str, owned: OwnedSet, record_type: str) -> tuple[str, ...]:
    """The names that the ownership record of another type of the same name may have, with the same prefix, suffix and
    word for `*` as `own_name`; none if that does not tell its type."""
    if len(owned.types) != 1:
        return ()
    (own_type,) = map(str.lower, owned.types)
    domain = owned.name.partition(".")[2]
    ends = len(own_name.removesuffix(domain))
    words = [word for word in _WORD.finditer(own_name, 0, ends) if word[0] == own_type]
    return tuple(own_name[: word.start()] + record_type.lower() + own_name[word.end() :] for word in words)


def words_in(name: str) -> frozenset[str]:
    """The words in a name. An index by words finds the names that may contain another name."""
    return frozenset(_WORD.findall(name))


def types_in(text: str) -> frozenset[str]:
    """The record types that occur in part of a name, as words of their own."""
    return frozenset(map(str.upper, words_in(text) & _TYPE_WORDS))


def may_vouch_for(own_name: str, name: str, record_type: str) -> bool:
    """Whether an ownership record of this name may belong to a record set, whatever the prefix or the suffix.

    external-dns has one of them at most, and puts it around the name's first label. Either may contain dots. With
    `--txt-wildcard-replacement` any word may stand for `*`.
    """
    first_label, dot, domain = name.partition(".")
    if not own_name.endswith(dot + domain):
        return False
    head = own_name.removesuffix(dot + domain)
    if first_label == "*":
        return record_type.lower() in _WORD.findall(head)
    behind_prefix = len(head) - len(first_label)
    if not any(_stands_at(start, first_label, head) for start in (*_starts(record_type), behind_prefix)):
        return False
    return record_type in _owned_types(own_name, name, {name: {record_type}})


def names_within(own_name: str, domain: str, record_type: str) -> set[str]:
    """The names below `domain`, other than `*` there, to which an ownership record of this name may belong."""
    names: set[str] = set()
    head = own_name.removesuffix("." + domain)
    first = head.partition(".")[0]
    ends = [word.end() for word in _WORD.finditer(first)]
    has_type_in_front = len(record_type) in ends and first.startswith(record_type.lower())
    starts = _starts(record_type) if has_type_in_front else (0,)
    before_suffix = {first[start:end] for start in starts for end in ends}
    while head:
        head, _, last = head.rpartition(".")
        behind_prefix = {last, *(last[word.end() + 1 :] for word in _WORD.finditer(last))}
        names |= {f"{label}.{domain}" for label in before_suffix | behind_prefix}
        domain = f"{last}.{domain}"
        names.add(f"*.{domain}")
    return names


def _starts(record_type: str) -> tuple[int, int]:
    """Where the first label may begin in the name of an ownership record with a suffix: `app-owned`, `a-app-owned`."""
    return 0, len(record_type) + 1


def place_in_listing(value: str) -> tuple[bool, str]:
    """Sort key for the texts of a listed set: ownership texts first, since external-dns parses only the first text."""
    return not is_heritage(value), value


def _labels(value: str) -> dict[str, str] | None:
    """The labels in an ownership text, as external-dns parses it; None if it is encrypted or not an ownership text."""
    if not is_heritage(value):
        return None
    pairs = (part.split("=") for part in value.strip('"').split(","))
    return {pair[0].removeprefix("external-dns/"): pair[1] for pair in pairs if _is_label(pair)}


def _is_label(pair: list[str]) -> bool:
    return len(pair) == 2 and pair[0].startswith("external-dns")


def owned_set(endpoint: Endpoint, changed: Mapping[str, Set[str]]) -> OwnedSet | None:
    """What this endpoint vouches for; None if it is not an ownership record.

    `changed` lists what is written in the same call: canonical name -> record types, ownership records included.
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
    """`a-app.example.com` -> `app.example.com` if that is written too; otherwise the record is its own subject."""
    prefix, _, rest = own_name.partition("-")
    if prefix in _TYPE_WORDS and rest in changed:
        return rest
    return own_name


def _owned_types(own_name: str, owned: str, changed: Mapping[str, Set[str]]) -> frozenset[str]:
    """The type that the ownership record's name contains, in front of or around the owned name's first label.

    Only what differs from the owned name is searched: `a-host.srv.lan` is about an A record, `srv` is its domain. A
    prefix may be a type's name by chance (`--txt-prefix=txt-`), so types written in the same call take precedence.
    Empty for the owned name itself: in the format of external-dns 0.17 and before, it has one record for every type.
    """
    first_label, dot, domain = owned.partition(".")
    head = own_name.removesuffix(dot + domain)
    found = _types_before(first_label, head) or frozenset(_WORD.findall(_without(first_label, head))) & _TYPE_WORDS
    named = frozenset(map(str.upper, found))
    named = named & changed.get(owned, frozenset()) or named
    return named if len(named) == 1 else frozenset()


def _types_before(label: str, text: str) -> frozenset[str]:
    """Types that occur in `text` as a word of their own, followed by one dash, dot or the like and then `label`."""
    words = (word for word in _WORD.finditer(text) if word[0] in _TYPE_WORDS)
    return frozenset(word[0] for word in words if _stands_at(word.end() + 1, label, text))


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
