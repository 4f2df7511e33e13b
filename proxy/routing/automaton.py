"""Regular expressions at work: an automaton that reads each byte of its input once.

The tree is turned into a position automaton (Glushkov): one bit per character of the pattern, so a set of states is
one integer. Sets met while matching are kept as rows of a table; reading a byte then is one list lookup. Input that
meets ever new sets refills a bounded table and costs a little more per byte, but never more than linear time.

Bytes that no class of the pattern tells apart share a column, so rows stay short.
"""

from functools import lru_cache
from typing import NamedTuple

from proxy.document.pattern import Bytes, Choice, Node, Repeat, Sequence, parse

MAX_ROWS = 512
"""Rows kept per pattern; with the usual ten columns about 64 KiB at most."""


class _Part(NamedTuple):
    """What Glushkov's construction knows of a subtree: position sets are bit masks."""

    nullable: bool
    first: int
    last: int


_EMPTY = _Part(True, 0, 0)


class Automaton:
    """A compiled pattern; `matches` says whether it fits a whole value."""

    __slots__ = (
        "_accepting",
        "_classes",
        "_columns",
        "_follow",
        "_followers",
        "_members",
        "_rows",
        "_start",
        "pattern",
    )

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._members: list[int] = []
        self._follow: list[int] = []
        whole = self._add(parse(pattern))
        # Position 0 stands before the first byte; its successors are the pattern's first positions.
        self._follow = [whole.first << 1, *(follow << 1 for follow in self._follow)]
        self._members = [0, *self._members]
        self._classes, self._columns = _byte_classes(self._members)
        self._accepting = whole.last << 1 | whole.nullable
        self._followers: dict[int, int] = {}
        self._rows: dict[int, _Row] = {}
        self._start = self._row(1)

    def matches(self, value: bytes) -> bool:
        row = self._start
        for column in value.translate(self._classes):
            row = row.next[column] or self._step(row, column)
        return row.accepts

    def _step(self, row: "_Row", column: int) -> "_Row":
        """Compute the row that follows `row` on bytes of class `column`, and remember it there."""
        target = self._reached(row.states) & self._columns[column]
        found = self._rows.get(target)
        if found is None:
            if len(self._rows) >= MAX_ROWS:
                self._forget()
            found = self._rows[target] = self._row(target)
        row.next[column] = found
        return found

    def _reached(self, states: int) -> int:
        """All positions that follow a position of `states`, looked up by groups of eight positions."""
        reached = 0
        known = self._followers
        for group, eight in enumerate(states.to_bytes(len(self._follow) // 8 + 1, "little")):
            if eight:
                key = group << 8 | eight
                if key not in known:
                    known[key] = self._followers_of(eight, group * 8)
                reached |= known[key]
        return reached

    def _followers_of(self, eight: int, offset: int) -> int:
        reached = 0
        for bit in range(8):
            if eight >> bit & 1:
                reached |= self._follow[offset + bit]
        return reached

    def _row(self, states: int) -> "_Row":
        return _Row(states, bool(states & self._accepting), len(self._columns))

    def _forget(self) -> None:
        """Drop all rows, and the links between them: rows point to each other, and would wait for the collector."""
        for row in (self._start, *self._rows.values()):
            row.next[:] = [None] * len(row.next)
        self._rows.clear()

    def _add(self, node: Node) -> _Part:
        match node:
            case Bytes(members):
                self._members.append(members)
                self._follow.append(0)
                position = 1 << len(self._members) - 1
                return _Part(False, position, position)
            case Sequence(parts):
                return self._sequence([self._add(part) for part in parts])
            case Choice(options):
                added = [self._add(option) for option in options]
                first = last = 0
                for part in added:
                    first |= part.first
                    last |= part.last
                return _Part(any(part.nullable for part in added), first, last)
            case Repeat():
                return self._repeat(node)

    def _sequence(self, parts: list[_Part]) -> _Part:
        whole = _EMPTY
        for part in parts:
            self._link(whole.last, part.first)
            whole = _Part(
                whole.nullable and part.nullable,
                whole.first | part.first if whole.nullable else whole.first,
                whole.last | part.last if part.nullable else part.last,
            )
        return whole

    def _repeat(self, node: Repeat) -> _Part:
        copies = [self._add(node.node) for _ in range(node.least)]
        if node.most is None:
            again = self._add(node.node)
            self._link(again.last, again.first)
            copies.append(again._replace(nullable=True))
        else:
            copies += [self._add(node.node)._replace(nullable=True) for _ in range(node.most - node.least)]
        return self._sequence(copies)

    def _link(self, last: int, first: int) -> None:
        """Let every position of `first` follow every position of `last`."""
        while last:
            lowest = last & -last
            self._follow[lowest.bit_length() - 1] |= first
            last ^= lowest


class _Row:
    """A set of states, whether it ends a match, and the rows that follow it by byte class."""

    __slots__ = ("accepts", "next", "states")

    def __init__(self, states: int, accepts: bool, columns: int) -> None:
        self.states = states
        self.accepts = accepts
        self.next: list[_Row | None] = [None] * columns


def _byte_classes(members: list[int]) -> tuple[bytes, list[int]]:
    """A table from byte to class, and for each class the positions that take its bytes.

    Bytes are of one class when they are in the same sets, that is, when their columns of bits are equal.
    """
    bits = [f"{found:0256b}" for found in members]
    columns: dict[tuple[str, ...], int] = {}
    table = bytes(columns.setdefault(signature, len(columns)) for signature in zip(*bits, strict=True))[::-1]
    return table, [sum(1 << place for place, bit in enumerate(signature) if bit == "1") for signature in columns]


@lru_cache(maxsize=1024)
def automaton(pattern: str) -> Automaton:
    """The automaton of `pattern`; many routes, and one document after another, share it. Raises PatternError."""
    return Automaton(pattern)
