r"""Regular expressions of matches: the dialect, parsed into a tree that an automaton is built from.

The dialect is the regular core of RE2: its patterns can be matched in time linear in the input, so no pattern and no
request can stall the proxy. A pattern must match the whole value, as if in ^(?:...)$.

    literals      any printable ASCII character; \ before punctuation takes it literally; \a \f \n \r \t \v, \xHH
    classes       . (all but newline), [a-z_], [^/], \d \D \w \W \s \S and [:alpha:], [:^alpha:] ... inside brackets
    groups        (...), (?:...), (?P<name>...), (?<name>...); what a group matched is not kept
    alternatives  a|b
    repetition    * + ? {2} {2,} {2,5}, also followed by a lazy ?, which changes nothing here
    anchors       ^ or \A and $ or \z for the beginning and the end of the value, as in (/|$); one alone is not repeated
    flags         (?i) to the end of its group, (?i:...), (?-i), (?-i:...): ASCII letters match in either case;
                  s: . is any byte, also a newline; U changes nothing here

Look-around, back-references, \b and possessive repetition are not regular or not needed, and refused. Limits: 1,024
characters, 32 nested groups, 256 characters or classes once repetitions with numbers are expanded, and the size of the
automaton's table (1,024 states), which only patterns such as .*a.{20} exceed.
"""

import re
import string
from dataclasses import dataclass
from typing import TypeAlias

MAX_LENGTH = 1024
MAX_POSITIONS = 256
MAX_DEPTH = 32

ByteSet: TypeAlias = int
"""256 bits; bit N stands for byte N."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """One byte out of a set."""

    members: ByteSet


@dataclass(frozen=True, slots=True)
class Edge:
    """No byte, but the beginning or the end of the value."""

    is_end: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after another; without parts, the empty text."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several alternatives."""

    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """`node` at least `least` times and, unless `most` is None, at most that often."""

    node: "Node"
    least: int
    most: int | None


Node: TypeAlias = Bytes | Edge | Sequence | Choice | Repeat


class PatternError(ValueError):
    """The pattern is outside the dialect; the message names the place."""


def parse(pattern: str) -> Node:
    """The tree of `pattern`. Raises PatternError."""
    if len(pattern) > MAX_LENGTH:
        raise PatternError(f"regular expression of {len(pattern)} characters, want at most {MAX_LENGTH}")
    node = _Parser(pattern).parse()
    size = positions(node)
    if size > MAX_POSITIONS:
        raise PatternError(
            f"regular expression of {size} characters and classes with repetitions written out, "
            f"want at most {MAX_POSITIONS}"
        )
    return node


def positions(node: Node) -> int:
    """How many single-byte positions the tree has, at most, when its repetitions are expanded."""
    match node:
        case Bytes() | Edge():
            return 1
        case Sequence(parts):
            # The empty text counts too: it takes no position, but repeating it takes time.
            return sum(map(positions, parts)) or 1
        case Choice(options):
            return sum(map(positions, options))
        case Repeat(inner, least, most):
            return positions(inner) * max(1, least if most is None else most)


def byte_set(characters: str) -> ByteSet:
    return sum(1 << ord(character) for character in set(characters))


ALL: ByteSet = (1 << 256) - 1
NOT_NEWLINE: ByteSet = ALL & ~byte_set("\n")
_CLASSES = {
    "d": byte_set(string.digits),
    "w": byte_set(string.ascii_letters + string.digits + "_"),
    "s": byte_set(" \t\n\r\f"),  # unlike [:space:], without \v
}
_CLASSES |= {name.upper(): ALL & ~members for name, members in _CLASSES.items()}
# RE2 has these names; their members are those of the C locale.
_POSIX_CLASSES = {
    "alnum": byte_set(string.ascii_letters + string.digits),
    "alpha": byte_set(string.ascii_letters),
    "ascii": (1 << 128) - 1,
    "blank": byte_set(" \t"),
    "cntrl": (1 << 32) - 1 | 1 << 127,
    "digit": byte_set(string.digits),
    "graph": byte_set(string.ascii_letters + string.digits + string.punctuation),
    "lower": byte_set(string.ascii_lowercase),
    "print": byte_set(string.ascii_letters + string.digits + string.punctuation + " "),
    "punct": byte_set(string.punctuation),
    "space": byte_set(" \t\n\r\f\v"),
    "upper": byte_set(string.ascii_uppercase),
    "word": byte_set(string.ascii_letters + string.digits + "_"),
    "xdigit": byte_set(string.hexdigits),
}
_POSIX_CLASS = re.compile(r"\[:(\^?)(.*?):\]")
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANCHORS = {"^": Edge(is_end=False), r"\A": Edge(is_end=False), "$": Edge(is_end=True), r"\z": Edge(is_end=True)}
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_REFUSED_GROUPS = {
    "(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind",
    "(?P=": "a back-reference", "(?(": "a condition", "(?>": "an atomic group", "(?#": "a comment",
}  # fmt: skip


class _Parser:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._flags = frozenset[str]()

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._error("`)` without `(`")
        return node

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        self._switched_flags(")")
        if self._depth == 0:
            self._take("^")
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if (
                self._depth == 0
                and self._text[self._at] == "$"
                and self._text[self._at + 1 : self._at + 2] in ("", "|")
            ):
                self._at += 1
                break
            if not self._switched_flags(")"):
                parts.append(self._edge() or self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _edge(self) -> Node | None:
        for anchor, edge in _ANCHORS.items():
            if self._take(anchor):
                return edge
        return None

    def _repeated(self, node: Node) -> Node:
        limits = self._repetition()
        if limits is None:
            return node
        self._take("?")
        if self._at < len(self._text) and (self._text[self._at] in "*+?" or self._counts() is not None):
            raise self._error("a repetition of a repetition; put the inner one into a group")
        return Repeat(node, *limits)

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return limits
        counts = self._counts()
        if counts is None:
            return None
        self._at = self._text.index("}", self._at) + 1
        least, most = counts
        if (most is not None and most < least) or max(least, most or 0) > MAX_POSITIONS:
            raise self._error(f"repetition {{{least},{most}}}: want rising counts of at most {MAX_POSITIONS}")
        return counts

    def _counts(self) -> tuple[int, int | None] | None:
        """The numbers of the `{2}`, `{2,}` or `{2,5}` at this place; None if there is none."""
        if not self._text.startswith("{", self._at):
            return None
        inner, closing, _ = self._text[self._at + 1 :].partition("}")
        first, comma, second = inner.partition(",")
        if not closing or not _is_count(first) or not (_is_count(second) or not second):
            return None
        if not comma:
            return int(first), int(first)
        return int(first), int(second) if second else None

    def _atom(self) -> Node:
        character = self._text[self._at]
        if character == "(":
            return self._group()
        if character == "[":
            return Bytes(self._folded(self._bracket()))
        if character == "\\":
            return Bytes(self._folded(self._escape()))
        if character in "*+?":
            raise self._error(f"nothing before `{character}` to repeat")
        if character == "{":
            raise self._error(r"`{` that does not begin a count such as {2} or {2,5}; the character itself is `\{`")
        self._at += 1
        if character == ".":
            return Bytes(ALL if "s" in self._flags else NOT_NEWLINE)
        return Bytes(self._folded(self._literal(character)))

    def _group(self) -> Node:
        for opening, meaning in _REFUSED_GROUPS.items():
            if self._text.startswith(opening, self._at):
                raise self._error(f"{meaning}, which is not part of the dialect")
        flags_outside = self._flags
        if not self._switched_flags(":"):
            self._opening()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} nested groups")
        node = self._choice()
        if not self._take(")"):
            raise self._error("`(` without `)`")
        self._depth -= 1
        self._flags = flags_outside
        return node

    def _opening(self) -> None:
        if self._take("(?P<") or self._take("(?<"):
            name, closing, _ = self._text[self._at :].partition(">")
            if not closing or not name.isidentifier():
                raise self._error("a group name that is not one word closed by `>`")
            self._at += len(name) + 1
        elif not self._take("(") or self._take("?"):
            raise self._error("`(?` that opens no known group")

    def _switched_flags(self, closing: str) -> bool:
        """Consume and apply `(?i)`, or `(?i:` if `closing` is a colon. Returns False if there is none."""
        opening = _FLAGS.match(self._text, self._at)
        if opening is None or opening[3] != closing or opening[0] == "(?)":
            return False
        switched_on, switched_off = frozenset(opening[1]), frozenset(opening[2] or "")
        for flag in sorted((switched_on | switched_off) - frozenset("isU")):
            raise self._error(f"flag `{flag}`, which is not part of the dialect; want i, s or U")
        self._flags = (self._flags | switched_on) - switched_off
        self._at = opening.end()
        return True

    def _bracket(self) -> ByteSet:
        self._at += 1
        negated = self._take("^")
        members = 0
        first = True
        while first or not self._text.startswith("]", self._at):
            first = False
            low = self._member()
            if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                members |= self._range(low, self._member())
            else:
                members |= low
        self._at += 1
        return ALL & ~self._folded(members) if negated else members

    def _member(self) -> ByteSet:
        if self._at >= len(self._text):
            raise self._error("`[` without `]`")
        character = self._text[self._at]
        if character == "\\":
            return self._escape()
        posix = _POSIX_CLASS.match(self._text, self._at)
        if posix is not None:
            if posix[2] not in _POSIX_CLASSES:
                raise self._error(f"class `{posix[0]}`; want one of {', '.join(_POSIX_CLASSES)}")
            self._at = posix.end()
            members = self._folded(_POSIX_CLASSES[posix[2]])
            return ALL & ~members if posix[1] else members
        self._at += 1
        return self._literal(character)

    def _range(self, low: ByteSet, high: ByteSet) -> ByteSet:
        if low.bit_count() != 1 or high.bit_count() != 1 or high < low:
            raise self._error("a range that does not go from one character up to another")
        return (high << 1) - low

    def _escape(self) -> ByteSet:
        character = self._text[self._at + 1 : self._at + 2]
        if character in _CLASSES:
            self._at += 2
            return _CLASSES[character]
        if character == "x":
            digits = self._text[self._at + 2 : self._at + 4]
            if len(digits) != 2 or not set(digits) <= set(string.hexdigits):
                raise self._error("`\\x` without two hexadecimal digits")
            self._at += 4
            return 1 << int(digits, 16)
        if character in _CONTROLS:
            self._at += 2
            return byte_set(_CONTROLS[character])
        if not character or character not in string.punctuation:
            raise self._error(f"escape `\\{character}`, which is not part of the dialect")
        self._at += 2
        return byte_set(character)

    def _literal(self, character: str) -> ByteSet:
        if not " " <= character <= "~":
            raise self._error(f"character {character!a}; want ASCII, with other characters percent-encoded as in a URL")
        return byte_set(character)

    def _folded(self, members: ByteSet) -> ByteSet:
        if "i" not in self._flags:
            return members
        upper = members & byte_set(string.ascii_uppercase)
        lower = members & byte_set(string.ascii_lowercase)
        return members | upper << 32 | lower >> 32

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _error(self, what: str) -> PatternError:
        return PatternError(f"regular expression has {what} (character {self._at + 1} of {self._text!r})")


def _is_count(text: str) -> bool:
    """In RE2, digits after a zero are no count, and `a{02}` is literal text."""
    return text.isascii() and text.isdigit() and len(text) <= 4 and (text == "0" or text[0] != "0")
