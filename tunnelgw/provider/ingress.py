"""The ingress document: which hostnames the provider's edge sends into a tunnel. Pure.

The provider keeps one document for a tunnel, shared by everybody who has access to the account, and replaced as a
whole; so what others wrote in it has to survive. Ours are the rules whose `service` is our marker, a name that no one
else uses; everything else is foreign: it is kept with all its keys and in its order, and reported.

    current configuration + wanted hostnames -> Revision (the configuration to write, and what to tell people)

The first rule that fits a request wins, and the last one must fit all. So our exact hostnames come first, each of our
wildcards before the first foreign rule that would take its requests, but behind those of hostnames below it, from which
it would take theirs, and the catch-all last.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import idna
import msgspec

Config = Mapping[str, Any]
"""The provider's `config` object. Its unknown keys belong to others, hence no struct."""
Rule = Mapping[str, Any]

EVERYTHING = "*"
"""The hostname of routes that have none, on listeners that have none."""
NOWHERE = "http_status:404"
_PLACEHOLDERS = frozenset({NOWHERE, "http_status:503"})
"""Catch-alls that stand there because one must: the dashboard's and the connector's."""


def marker(controller_id: str) -> str:
    """The `service` of our rules. `controller_id`: a DNS label that no other writer of the document has."""
    return f"http://{controller_id}.tunnelgw.internal"


class Conflict(msgspec.Struct, frozen=True):
    """A hostname of ours that somebody else's rule has: theirs stays, ours is left out."""

    hostname: str
    service: str
    path: str = ""


class Revision(msgspec.Struct, frozen=True):
    config: Config
    is_changed: bool
    """False: what the provider has means the same already."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    foreign: tuple[str, ...] = ()
    """Hostnames of foreign rules, in their order; `*` for a catch-all that is more than a placeholder."""


def revise(current: Config | None, hostnames: Iterable[str], service: str, *, adopt: bool = False) -> Revision:
    """`current` is None for a new tunnel. `service` is our marker. `adopt` replaces foreign rules of our hostnames."""
    before = _rules(current)
    wanted = set(hostnames)
    foreign, catch_all = _parted([rule for rule in before if _service(rule) != service])
    # A rule of one path for every host takes nothing from our catch-all, which comes behind it.
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
        is_changed=[_meaning(rule) for rule in before] != [_meaning(rule) for rule in after],
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
    """Foreign rules without, and with, the last one, if that fits every request."""
    if foreign and _hostname(foreign[-1]) == EVERYTHING and not foreign[-1].get("path"):
        return foreign[:-1], foreign[-1]
    return foreign, {"service": NOWHERE}


def _arranged(foreign: list[Rule], ours: set[str], service: str) -> list[Rule]:
    arranged = list(foreign)
    wildcards = [hostname for hostname in ours if hostname.startswith("*.")]
    for wildcard in sorted(wildcards, key=lambda hostname: (len(hostname), hostname)):  # the most specific comes last
        arranged.insert(_place(arranged, wildcard), _rule(wildcard, service))
    exact = sorted(hostname for hostname in ours if not hostname.startswith("*"))
    return [_rule(hostname, service) for hostname in exact] + arranged


def _place(arranged: list[Rule], wildcard: str) -> int:
    """Where a wildcard of ours comes: what is behind a rule that takes all of its requests gets none anyway."""
    covering = [n for n, rule in enumerate(arranged) if _covers(_hostname(rule), wildcard)]
    end = next((n for n in covering if not arranged[n].get("path")), len(arranged))
    behind = max((n + 1 for n, rule in enumerate(arranged[:end]) if _is_below(_hostname(rule), wildcard)), default=0)
    return max(behind, covering[0] if covering else end)


def _rule(hostname: str, service: str) -> Rule:
    return {"hostname": hostname, "service": service}


def _covers(general: str, hostname: str) -> bool:
    """Whether requests for `hostname`, itself perhaps a wildcard, all fit `general`."""
    return general == EVERYTHING or (general.startswith("*.") and hostname.endswith(general[1:]))


def _is_below(hostname: str, wildcard: str) -> bool:
    return hostname != wildcard and _covers(wildcard, hostname)


def _hostname(rule: Rule) -> str:
    """Lower case, names in Unicode as the connector compares them, in ASCII; `*` where the rule names none."""
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


def _meaning(rule: Rule) -> dict[str, Any]:
    """What stays of a rule when the provider adds or leaves out empty parts, as it does."""
    return {
        **{key: value for key, value in rule.items() if value not in (None, "", {}, [])},
        "hostname": _hostname(rule),
    }
