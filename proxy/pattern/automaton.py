"""Match regular expressions with a deterministic automaton that is built completely before it first runs.

The tree is turned into a position automaton (Glushkov): one bit per character of the pattern, so a set of positions
is one integer. Each set that bytes can lead to becomes a row of a table (subset construction). A few patterns need a
number of rows that is exponential in their length, such as `.*a.{20}`, which has to remember which of the last 20 bytes
were an `a`; these are refused.

Bytes that no class of the pattern distinguishes share a column, so rows stay short. Automata are immutable, so threads
may share them.
"""

from functools import lru_cache
from operator import length_hint
from typing import NamedTuple

from proxy.pattern.syntax import Bytes, Choice, Edge, Node, PatternError, Repeat, Sequence, parse

MAX_STATES = 1024
MAX_ENTRIES = 32 * 1024
"""Rows times columns: at most 256 KiB, and some 10 ms to build; usual patterns have a hundredth of it."""

_FIRST_BYTES = 256
_GROWTH = 4
"""Pieces of a value are prepared as they are reached: most patterns reject a long value at its first bytes."""


class TooManyStates(PatternError):
    """Detecting this takes as long as building the largest automaton."""


class Automaton:
    """A compiled pattern: whether it matches a whole value, and how much of the value has to be read to tell."""

    __slots__ = ("_accepting", "_classes", "_table", "pattern", "weight")

    def __init__(self, pattern: str) -> None:
        """Raises PatternError."""
        self.pattern = pattern
        positions = _Positions(parse(pattern))
        self._classes, columns = _byte_classes(positions.members)
        states = _reachable(positions, columns)
        # An entry of the table is where the row of the next state starts. The state in which nothing can match any more
        # has no row: the next step leaves the table.
        live = [state for state in states if state]
        starts = {state: number * len(columns) for number, state in enumerate(live)}
        starts[0] = len(live) * len(columns)
        self._table = tuple(starts[target] for state in live for target in states[state])
        self._accepting = frozenset(starts[state] for state in live if positions.accepts(state))
        # Finding out which bytes a position takes is as much work as several entries.
        self.weight = len(self._table) + positions.links + 8 * len(positions.members)
        """The cost of building it, in table entries, of which a million take some 0.7 s and 8 MiB."""

    def read(self, value: bytes) -> tuple[bool, int]:
        """Whether the pattern matches, and how many bytes were read, each of which takes some 10 ns."""
        table = self._table
        row = start = 0
        end = _FIRST_BYTES
        while True:
            piece = value[start:end]
            columns = iter(piece.translate(self._classes))
            try:
                for column in columns:
                    row = table[row + column]
            except IndexError:
                return False, start + len(piece) - length_hint(columns)
            if end >= len(value):
                return row in self._accepting, len(value)
            start, end = end, end * _GROWTH


class _Part(NamedTuple):
    """What Glushkov's construction knows about a subtree. Sets of positions are bit masks."""

    nullable: bool
    first: int
    last: int


_EMPTY = _Part(True, 0, 0)


class _Positions:
    """The positions of a pattern: which bytes each takes, which positions follow it, and which may be the last.

    Position 0 is before the first byte. An edge has a position too, which no byte leads to: values pass it where they
    begin or end.
    """

    def __init__(self, node: Node) -> None:
        self.members = [0]
        self._beginnings = self._ends = 0
        self.links = 0
        """The steps it took to link positions to those that follow: one per position in a text or a list of words, half
        the square of their number if any of them may be left out."""
        self._follow = [0]
        whole = self._add(node)
        self._follow[0] = whole.first
        self._accepting = whole.last | whole.nullable
        self._last = self._before_end()
        self._known: dict[int, int] = {}

    def start(self) -> int:
        return self._past(1, self._beginnings)

    def accepts(self, state: int) -> bool:
        """Whether a value may end in `state`. In the first state it has no bytes yet, and passes any edge."""
        if state & 1:
            return bool(self._past(state, self._ends | self._beginnings) & self._accepting)
        return bool(state & self._last)

    def _before_end(self) -> int:
        """All positions that may be the last, before a `$` or not. Found once for all states, as `$` may follow `$`."""
        edges = [place for place in range(len(self._follow)) if self._ends >> place & 1]
        last, known = self._accepting, 0
        while last != known:
            known = last
            for place in reversed(edges):
                if self._follow[place] & last & self._ends:
                    last |= 1 << place
        passed = last & self._ends
        return last | sum(1 << place for place, follow in enumerate(self._follow) if follow & passed)

    def _past(self, state: int, edges: int) -> int:
        """`state` with those of `edges` that follow it, or follow one that does."""
        while edges and (passed := self.after(state) & edges & ~state):
            state |= passed
        return state

    def after(self, state: int) -> int:
        """All positions that follow a position of `state`, looked up by groups of eight positions."""
        reached = 0
        for group, eight in enumerate(state.to_bytes(len(self._follow) // 8 + 1, "little")):
            if eight:
                key = group << 8 | eight
                if key not in self._known:
                    self._known[key] = self._after_group(eight, group * 8)
                reached |= self._known[key]
        return reached

    def _after_group(self, eight: int, offset: int) -> int:
        reached = 0
        for bit in range(8):
            if eight >> bit & 1:
                reached |= self._follow[offset + bit]
        return reached

    def _add(self, node: Node) -> _Part:
        match node:
            case Bytes(members):
                position = 1 << len(self.members)
                self.members.append(members)
                self._follow.append(0)
                return _Part(False, position, position)
            case Edge(is_end):
                part = self._add(Bytes(0))
                self._ends |= part.last if is_end else 0
                self._beginnings |= 0 if is_end else part.last
                return part
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
        if node.most is not None:
            copies = [self._add(node.node) for _ in range(node.most)]
        else:
            copies = [self._add(node.node) for _ in range(max(node.least, 1))]
            self._link(copies[-1].last, copies[-1].first)
        optional = [copy._replace(nullable=True) for copy in copies[node.least :]]
        return self._sequence(copies[: node.least] + optional)

    def _link(self, last: int, first: int) -> None:
        """Let every position of `first` follow every position of `last`."""
        self.links += last.bit_count()
        while last:
            lowest = last & -last
            self._follow[lowest.bit_length() - 1] |= first
            last ^= lowest


def _reachable(positions: _Positions, columns: list[int]) -> dict[int, list[int]]:
    """Every set of positions that bytes lead to, the start first, with the set that each column leads to from there."""
    most = min(MAX_STATES, MAX_ENTRIES // len(columns))
    start = positions.start()
    states: dict[int, list[int]] = {start: []}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        after = positions.after(state)
        targets = states[state] = [after & column for column in columns]
        for target in targets:
            if target not in states:
                states[target] = []
                waiting.append(target)
        if len(states) > most:
            raise TooManyStates(
                f"regular expression needs more than {most} states to be matched in bounded time; "
                "want fewer repetitions with numbers after parts that match the same text, such as `.*`"
            )
    return states


def _byte_classes(members: list[int]) -> tuple[bytes, list[int]]:
    """A table from byte to class, and for each class the positions that take its bytes.

    Bytes are of one class if they are in the same sets, that is, if their columns of bits are equal.
    """
    bits = [f"{found:0256b}" for found in members]
    columns: dict[tuple[str, ...], int] = {}
    table = bytes(columns.setdefault(signature, len(columns)) for signature in zip(*bits, strict=True))[::-1]
    return table, [sum(1 << place for place, bit in enumerate(signature) if bit == "1") for signature in columns]


@lru_cache(maxsize=1024)
def automaton(pattern: str) -> Automaton:
    """The automaton of `pattern`, shared by routes and successive documents. Raises PatternError."""
    return Automaton(pattern)
