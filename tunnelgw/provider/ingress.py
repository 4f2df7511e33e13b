"""The ingress document: which hostnames the provider's edge sends into a tunnel. Pure.

The provider stores one document for each tunnel, shared by everybody with access to the account, and replaced as a
whole, so we must keep what others wrote in it. Our rules are those whose `service` is our marker, a name that no one
else uses. Everything else is foreign: it is kept with all its keys and in its order, and reported.

    current configuration + wanted hostnames -> Revision (the configuration to write, and what to tell people)

The first rule that matches a request wins, and the last one must match all. So our exact hostnames come first and the
catch-all last. Each of our wildcards comes before the first foreign rule that would take its requests, but after
foreign rules for hostnames below it, since it would take theirs.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import idna
import msgspec

Config = Mapping[str, Any]
"""The provider's `config` object. Its unknown keys belong to others, hence no struct."""
Rule = Mapping[str, Any]

EVERYTHING = "*"
"""The hostname of routes without hostnames on listeners without a hostname."""
NOWHERE = "http_status:404"
_PLACEHOLDERS = frozenset({NOWHERE, "http_status:503"})
"""Catch-alls that are there only because one is required: the dashboard's and the connector's."""


def marker(controller_id: str) -> str:
    """The `service` of our rules. `controller_id`: a DNS label that no other writer of the document has."""
    return f"http://{controller_id}.tunnelgw.internal"


class Conflict(msgspec.Struct, frozen=True):
    """A hostname of ours for which somebody else has a rule: theirs stays, ours is left out."""

    hostname: str
    service: str
    path: str = ""


class Revision(msgspec.Struct, frozen=True):
    config: Config
    is_changed: bool
    """False: what the provider has already means the same."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    foreign: tuple[str, ...] = ()
    """Hostnames of foreign rules, in their order; `*` for a catch-all that is more than a placeholder."""


def revise(current: Config | None, hostnames: Iterable[str], service: str, *, adopt: bool = False) -> Revision:
    """`current` is None for a new tunnel. `service` is our marker. `adopt`: replace foreign rules for our hostnames."""
    before = _rules(current)
    wanted = set(hostnames)
    foreign, catch_all = _parted([rule for rule in before if _service(rule) != service])
    # A foreign rule for one path of every host is no conflict with our catch-all, which comes after it.
    taken = {
        hostname: rule
        for rule in foreign
        if (hostname := _hostname(rule)) in wanted and not (hostname == EVERYTHING and rule.get("path"))
    }
    if EVERYTHING in wanted and _service(catch_all) not in _PLACEHOLDERS:
        taken[EVERYTHING] = catch_all
    if adopt:
        foreign = [rule for rule in foreign if _hostname(rule) not in taken]
        catch_all = {"service": NOWHERE} if EVERYTHING in taken else catch_all
        taken = {}
    ours = wanted - taken.keys()
    after = [*_arranged(foreign, ours, service), {"service": service} if EVERYTHING in ours else catch_all]
    mine_before = {_hostname(rule) for rule in before if _service(rule) == service}
    return Revision(
        config={**(current or {}), "ingress": after},
        # A document without rules that has none of ours, and gets none, is not ours to complete by a catch-all.
        is_changed=bool(ours or mine_before) and _sense(before) != _sense(after),
        added=tuple(sorted(ours - mine_before)),
        removed=tuple(sorted(mine_before - ours)),
        conflicts=tuple(
            Conflict(hostname, _service(rule), str(rule.get("path") or "")) for hostname, rule in sorted(taken.items())
        ),
        foreign=(
            *(_hostname(rule) for rule in foreign),
            *(() if _service(catch_all) in _PLACEHOLDERS else (EVERYTHING,)),
        ),
    )


def _rules(config: Config | None) -> list[Rule]:
    rules = (config or {}).get("ingress")
    return [rule for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, Sequence) else []


def _parted(foreign: list[Rule]) -> tuple[list[Rule], Rule]:
    """The foreign rules without their catch-all, and that: the last rule if it matches every request, else the
    default."""
    if foreign and _hostname(foreign[-1]) == EVERYTHING and not foreign[-1].get("path"):
        return foreign[:-1], foreign[-1]
    return foreign, {"service": NOWHERE}


def _arranged(foreign: list[Rule], ours: set[str], service: str) -> list[Rule]:
    wildcards = [hostname for hostname in ours if hostname.startswith("*.")]
    places = _Places(foreign)
    for wildcard in sorted(wildcards, key=lambda hostname: (len(hostname), hostname)):  # the most specific comes last
        places.put(wildcard)
    arranged: list[Rule] = []
    for before, rule in zip(places.gaps, [*foreign, None], strict=True):
        arranged += [_rule(wildcard, service) for wildcard in before]
        if rule is not None:
            arranged.append(rule)
    exact = sorted(hostname for hostname in ours if not hostname.startswith("*"))
    return [_rule(hostname, service) for hostname in exact] + arranged


class _Places:
    """Our wildcards among foreign rules: `gaps` has the wildcards before each foreign rule, and after the last one.

    Everything is looked up by hostname: comparing each wildcard with each rule would take seconds for thousands.
    """

    def __init__(self, foreign: Sequence[Rule]) -> None:
        self.gaps: list[list[str]] = [[] for _ in range(len(foreign) + 1)]
        self._gap_of: dict[str, int] = {}
        """The gap of each of our wildcards."""
        self._first: dict[str, int] = {}
        """The first foreign rule for each hostname."""
        self._first_whole: dict[str, int] = {}
        """The first foreign rule for each hostname that is for all paths."""
        self._below: dict[str, list[int]] = {}
        """Foreign rules for hostnames below a wildcard, by wildcard."""
        for number, rule in enumerate(foreign):
            hostname = _hostname(rule)
            self._first.setdefault(hostname, number)
            if not rule.get("path"):
                self._first_whole.setdefault(hostname, number)
            for wildcard in _wildcards_over(hostname):
                if wildcard != hostname:
                    self._below.setdefault(wildcard, []).append(number)

    def put(self, wildcard: str) -> None:
        """Put it before the first rule that would take its requests, but after rules for hostnames below it. Of these,
        those after a rule that takes all of the wildcard's requests do not count: they get none anyway. More general
        wildcards of ours must have been put before.
        """
        last = len(self.gaps) - 1
        covering = [*_wildcards_over(wildcard), EVERYTHING]
        first = min((self._first[one] for one in covering if one in self._first), default=last)
        whole = min((self._first_whole[one] for one in covering if one in self._first_whole), default=last)
        # Of our wildcards over it, the most specific is the first in the document; it is for all paths.
        nearest = next((one for one in covering if one in self._gap_of), None)
        gap = last if nearest is None else self._gap_of[nearest]
        below = self._below.get(wildcard, [])
        count = bisect_left(below, min(gap, whole))
        behind = below[count - 1] + 1 if count else 0
        if behind > min(gap, first):
            self._insert(wildcard, behind, 0)
        elif nearest is not None and gap <= first:
            self._insert(wildcard, gap, self.gaps[gap].index(nearest))
        else:
            self._insert(wildcard, first, len(self.gaps[first]))

    def _insert(self, wildcard: str, gap: int, place: int) -> None:
        self.gaps[gap].insert(place, wildcard)
        self._gap_of[wildcard] = gap


def _wildcards_over(hostname: str) -> Iterator[str]:
    """Wildcards that cover the hostname, itself included if it is one, the most specific first."""
    dot = hostname.find(".")
    while dot >= 0:
        yield f"*{hostname[dot:]}"
        dot = hostname.find(".", dot + 1)


def _rule(hostname: str, service: str) -> Rule:
    return {"hostname": hostname, "service": service}


def _hostname(rule: Rule) -> str:
    """In lower case, Unicode names in ASCII, as the connector compares them; `*` if the rule names none."""
    hostname = str(rule.get("hostname") or EVERYTHING).lower()
    if hostname.isascii():
        return hostname
    star = "*." if hostname.startswith("*.") else ""
    try:
        return star + idna.encode(hostname.removeprefix(star), uts46=True).decode()
    except idna.IDNAError:
        return hostname


def _service(rule: Rule) -> str:
    return str(rule.get("service") or "")


def _sense(rules: Iterable[Rule]) -> dict[tuple[str, int], tuple[dict[str, Any], dict[str, int]]]:
    """What is the same for documents that send every request to the same rule. The order of two rules counts only if
    a request may match both: otherwise two controllers of one tunnel would put their rules first in turn, for ever.

    Each rule is named by its hostname and how many it follows of that, and has its meaning, and how many it follows
    of each hostname that covers its own.
    """
    seen: Counter[str] = Counter()
    sense = {}
    for rule in rules:
        hostname = _hostname(rule)
        covering = {hostname, *_wildcards_over(hostname), EVERYTHING}
        sense[hostname, seen[hostname]] = _meaning(rule), {one: seen[one] for one in covering if one in seen}
        seen[hostname] += 1
    return sense


def _meaning(rule: Rule) -> dict[str, Any]:
    """A rule without empty fields, which the provider may add or leave out."""
    return {
        **{key: value for key, value in rule.items() if value not in (None, "", {}, [])},
        "hostname": _hostname(rule),
    }
