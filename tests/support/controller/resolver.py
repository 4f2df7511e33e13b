"""A model of the gateway's resolver: the effect of writes on the names of the local network.

Every committed write reloads it. It breaks, and stays broken until the record is reset, as soon as one name has two
CNAMEs or a CNAME beside other enabled data, or a CNAME leads back to its own name (dnsmasq then refuses to start, and
DHCP goes with it), or a value does not fit into a line of dnsmasq's configuration. It also records gaps: the times
during which a name, or one type of a name, that had been served was not served any more. The record store calls it
under its own lock.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

import msgspec

from tests.support.controller.rows import RecordType, Row

K = TypeVar("K")

MAX_LINE_OCTETS = 1023
_PLAIN_KEY = re.compile(r"[!#-+\--.0-~]+")
_PLAIN_VALUE = re.compile(r"[!#-+\--\[\]-~]+")
# Quoted text may contain anything printable; a backslash inside escapes the next character.
_QUOTED_OR_PLAIN = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s,"])*')


class Gap(msgspec.Struct, frozen=True):
    """A key was served, then was not, then was again."""

    who: str
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


class GapTracker(Generic[K]):
    """Counts the enabled rows of each key and records when a count falls to zero and rises again."""

    def __init__(self, spell: Callable[[K], str]) -> None:
        self._spell = spell
        self._rows: Counter[K] = Counter()
        self._empty_since_s: dict[K, float] = {}
        self.ever_empty: set[str] = set()
        self.gaps: list[Gap] = []

    def add(self, key: K, now_s: float) -> None:
        self._rows[key] += 1
        since_s = self._empty_since_s.pop(key, None)
        if since_s is not None:
            self.gaps.append(Gap(self._spell(key), since_s, now_s))

    def remove(self, key: K, now_s: float) -> None:
        self._rows[key] -= 1
        if not self._rows[key]:
            del self._rows[key]
            self._empty_since_s[key] = now_s
            self.ever_empty.add(self._spell(key))

    def forget_history(self) -> None:
        self._empty_since_s.clear()
        self.ever_empty.clear()
        self.gaps.clear()


class Resolver:
    """The resolver of one site."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.reloads = 0
        self.breakages: list[str] = []
        """Why it would not start, one text per cause; empty while all is well."""
        self.by_name: GapTracker[str] = GapTracker(str)
        self.by_record_set: GapTracker[tuple[str, str]] = GapTracker(" ".join)
        self._aliases: dict[str, list[str]] = defaultdict(list)
        """The targets of each name's CNAMEs."""

    def reload(self, removed: Row | None, added: Row | None, same_name: Collection[Row]) -> None:
        """Apply one committed write; `same_name` holds all rows under the name of `added`, including itself."""
        self.reloads += 1
        self.load(removed, added, same_name)

    def load(self, removed: Row | None, added: Row | None, same_name: Collection[Row]) -> None:
        now_s = self._clock()
        # Adding first: a replacement leaves no moment without a row.
        if added is not None and added.enabled:
            self.by_name.add(added.name, now_s)
            self.by_record_set.add((added.name, added.type), now_s)
            self._inspect(added, same_name)
            if added.type == RecordType.CNAME:
                self._alias(added.name, _host(added.value))
        if removed is not None and removed.enabled:
            self.by_name.remove(removed.name, now_s)
            self.by_record_set.remove((removed.name, removed.type), now_s)
            if removed.type == RecordType.CNAME:
                self._aliases[removed.name].remove(_host(removed.value))

    def _inspect(self, row: Row, same_name: Collection[Row]) -> None:
        if not fits_one_line(row.key, row.value):
            self.breakages.append(f"{row.type} {row.key!r}: the line format cannot carry {row.value!r}")
        if len(same_name) < 2:
            return
        served = [other.type for other in same_name if other.enabled]
        if len(served) > 1 and RecordType.CNAME in served:
            self.breakages.append(f"{row.key!r}: CNAME beside other records ({', '.join(sorted(served))})")

    def _alias(self, name: str, target: str) -> None:
        self._aliases[name].append(target)
        led_to = [target]
        for each in led_to:  # grows during the loop
            led_to += [further for further in self._aliases.get(each, ()) if further not in led_to]
        if name in led_to:
            self.breakages.append(f"{name!r}: CNAME loop by way of {led_to}")

    def forget_history(self) -> None:
        self.reloads = 0
        self.breakages.clear()
        self.by_name.forget_history()
        self.by_record_set.forget_history()


def _host(value: str) -> str:
    return value.rstrip(".").lower()


def fits_one_line(key: str, value: str) -> bool:
    """Whether dnsmasq's `option=key,value` can hold this: no comma, space or open quote, no control character, and no
    more than dnsmasq reads at once."""
    if len(f'txt-record={key},"{value}"'.encode()) > MAX_LINE_OCTETS:
        return False
    if _PLAIN_KEY.fullmatch(key) and _PLAIN_VALUE.fullmatch(value):
        return True
    if not _PLAIN_KEY.fullmatch(key) or not value.isprintable():
        return False
    return value != "" and _QUOTED_OR_PLAIN.fullmatch(value) is not None
