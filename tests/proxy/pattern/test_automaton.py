"""The automaton matches what Python's `re` matches; its table is bounded, and so are the steps of a match."""

import re
import signal
import string
from types import FrameType
from typing import Any, SupportsIndex

import pytest
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st

from proxy.pattern import MAX_ENTRIES, MAX_POSITIONS, MAX_STATES, Automaton, PatternError, TooManyStates
from proxy.pattern.automaton import _Positions
from proxy.pattern.syntax import MAX_DEPTH, MAX_LENGTH

CPU_S = 1
"""What `re` gets for a verdict: it tries one way after the other, and some patterns have more than can be tried."""

EXAMPLES = [
    (r"/v\d+/.*", ["/v1/a", "/v12/", "/v/a", "/v1"]),
    (r"", ["", "a"]),
    (r"a{0}", ["", "a"]),
    (r"(a*)*b", ["b", "aab", "aa"]),
    (r"a{2,3}", ["a", "aa", "aaa", "aaaa"]),
    (r"a{2,}", ["a", "aa", "aaaaa"]),
    (r"(ab|a)(bc|c)?", ["a", "ab", "abc", "abbc", "ac", "b"]),
    (r"(?i)/Foo[x-z]?", ["/foo", "/FOOX", "/fooa"]),
    (r"(?i)[^a]", ["a", "A", "b"]),
    (r"[^/]+", ["a", "a/b", "/"]),
    (r"[]a]+", ["]a", "b"]),
    (r"[b-d]+", ["a", "b", "c", "d", "e", "-"]),
    (r"[ -~]+", [" ", "~", "a", "\t", "\x7f"]),
    (r"[+-.]", ["+", ",", "-", ".", "/", "*"]),
    (r"a?b", ["b", "ab", "aab"]),
    (r"(a)" * 40, ["a" * 40, "a" * 39]),
    (r"(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH, ["a", ""]),
    (r"\x61" * (MAX_LENGTH // 4), ["a" * (MAX_LENGTH // 4), "a"]),
    (r"[a\-z]", ["-", "m", "z"]),
    (r"[a-]", ["-", "a", "b"]),
    (r"\.\x41\t", [".A\t", ".a\t"]),
    (r"[\d.]+", ["1.2", "1a"]),
    (r"\W\S\D", ["-x-", "ax-", "- -"]),
    (r"^/a$|^/b$", ["/a", "/b", "/ab"]),
    (r"(?i)/app(/|$)(.*).*", ["/app", "/App/", "/app/x", "/apple", "/ap"]),
    (r"(^|.*;)(user=eve)(;.*|$)", ["user=eve", "a=b;user=eve", "user=eve;a=b", "auser=eve", "user=eves", ""]),
    (r"(^a)", ["a", "aa", ""]),
    (r"a*^b", ["b", "ab", "a"]),
    (r"a$b*", ["a", "ab", "b"]),
    (r"a$b", ["a", "ab"]),
    (r"($^)+(^$)", ["", "a"]),
    (r"(?P<x>a)(?:b)", ["ab", "a"]),
    (r"a+?b*?c??", ["aabb", "abc", "b"]),
    (r".", ["\n", "a"]),
    (r"a||b", ["", "a", "b", "ab"]),
    (r"(.*foo){20}", ["foo" * 19, "foo" * 20, "foo" * 2700, "foo" * 19 + "fo"]),
    (r".*a.{8}", ["b" * 9, "a" + "b" * 8, "ab" * 200, "a" + "b" * 9]),
    (r"((a?){4}b+){2}", ["bb", "aaaabaaaab", "aaaaab", "abab"]),
    (r"(a{0}b?)+", ["", "b", "bbb", "a"]),
    (r"a\Ab", ["ab", "a", "b"]),
    (r"a(?i:b|c)d", ["abd", "aBd", "aCd", "Abd", "abD"]),
    (r"(?i)a(?-i:b)c", ["abc", "AbC", "aBc"]),
    (r"(?s:.).", ["\na", "a\n", "ab"]),
    (r"(?is:.a)", ["\nA", "\na", "A"]),
    (r"\a\f\n\r\t\v", ["\a\f\n\r\t\v", "afnrtv"]),
    (r"[[:/]+", ["[:/", "a"]),
]


def fits(automaton: Automaton, value: bytes) -> bool:
    return automaton.read(value)[0]


# `re` warns of what it might read as an operation on sets one day, such as [[] and [a&&b].
ignore_warnings_of_sets = pytest.mark.filterwarnings("ignore:Possible:FutureWarning")


@ignore_warnings_of_sets
@pytest.mark.parametrize(("pattern", "values"), EXAMPLES)
def test_the_automaton_matches_examples_as_re_does(pattern: str, values: list[str]) -> None:
    automaton, expected = Automaton(pattern), re.compile(pattern.encode())

    for value in values:
        assert bool(expected.fullmatch(value.encode())) == fits(automaton, value.encode()), value


def test_groups_are_named_in_either_spelling() -> None:
    for opening in ("(?P<user>", "(?<user>"):
        automaton = Automaton(opening + r"[a-z]+)/profile")
        assert [fits(automaton, value) for value in (b"eve/profile", b"/profile", b"eve")] == [True, False, False]


# RE2 syntax for which `re` has another spelling, or another meaning.
ALIKE = [
    (r"[[:alnum:]]", r"[0-9A-Za-z]"),
    (r"[[:alpha:]]", r"[A-Za-z]"),
    (r"[[:ascii:]]", r"[\x00-\x7f]"),
    (r"[[:blank:]]", r"[\t ]"),
    (r"[[:cntrl:]]", r"[\x00-\x1f\x7f]"),
    (r"[[:digit:]]", r"[0-9]"),
    (r"[[:graph:]]", r"[!-~]"),
    (r"[[:lower:]]", r"[a-z]"),
    (r"[[:print:]]", r"[ -~]"),
    (r"[[:punct:]]", r"[!-/:-@[-`{-~]"),
    (r"[[:space:]]", r"[\t\n\v\f\r ]"),
    (r"[[:upper:]]", r"[A-Z]"),
    (r"[[:word:]]", r"[0-9A-Za-z_]"),
    (r"[[:xdigit:]]", r"[0-9A-Fa-f]"),
    (r"[[:^lower:]]", r"[^a-z]"),
    (r"[^[:lower:]_]", r"[^a-z_]"),
    (r"[-[:digit:].]", r"[-0-9.]"),
    (r"(?i)[[:upper:]]", r"[a-zA-Z]"),
    (r"(?i)[[:^upper:]]", r"[^a-zA-Z]"),
    (r"\s", r"[\t\n\f\r ]"),
    (r"[^\S/]", r"[\t\n\f\r ]"),
    (r"\A/\z|b", r"/|b"),
    (r"(/|\z)", r"/|"),
    (r"\\z|\\A", r"\\z|\\A"),
    (r"(a(?i)b|c)D", r"(a[bB]|[cC])D"),
    (r"a|(?i)b|c", r"a|[bB]|[cC]"),
    (r"(?i)(?-i)a", r"a"),
    (r"(?i)^/a$", r"/[aA]"),
    (r"(?U)a+?", r"a+"),
]


@ignore_warnings_of_sets
@pytest.mark.parametrize(("pattern", "alike"), ALIKE)
def test_re2_syntax_that_re_lacks_or_reads_differently_has_its_re2_meaning(pattern: str, alike: str) -> None:
    automaton, expected = Automaton(pattern), re.compile(alike.encode())
    values = [bytes([byte]) for byte in range(256)]
    values += [a + b + c for a in (b"a", b"A", b"/") for b in (b"b", b"B", b"a", b"A", b"") for c in (b"d", b"D", b"")]
    values += [b + c for b in (b"c", b"C") for c in (b"d", b"D")]

    assert [value for value in values if fits(automaton, value)] == [
        value for value in values if expected.fullmatch(value)
    ]


REFUSED = [
    (r"(?=a)", "look-ahead"),
    (r"(?!a)", "look-ahead"),
    (r"(?<=a)b", "look-behind"),
    (r"(?<!a)b", "look-behind"),
    (r"(?P<x>a)(?P=x)", "a back-reference"),
    (r"(?(1)a)", "a condition"),
    (r"(?>a)", "an atomic group"),
    (r"(?#a)", "a comment"),
    (r"(?P<1>a)", "a group name that is not one word"),
    (r"(?P<x", "a group name that is not one word"),
    (r"(?<x-y>a)", "a group name that is not one word"),
    (r"(?)", "`(?` that opens no known group"),
    (r"(?", "`(?` that opens no known group"),
    (r"(?i", "`(?` that opens no known group"),
    (r"(?'x'a)", "`(?` that opens no known group"),
    (r"(?mi)a", "flag `m`, which is not part of the dialect; want i, s or U"),
    (r"(?i-x:a)", "flag `x`, which is not part of the dialect; want i, s or U"),
    (r"a(?i)*", "nothing before `*` to repeat"),
    (r"(a", "`(` without `)`"),
    (r"a)", "`)` without `(`"),
    (r"(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} nested groups"),
    (r"a**", "a repetition of a repetition"),
    (r"a+?{2}", "a repetition of a repetition"),
    (r"*a", "nothing before `*` to repeat"),
    (r"a{", "`{` that does not begin a count"),
    (r"a{x}", "`{` that does not begin a count"),
    (r"a{02}", "`{` that does not begin a count"),
    (r"a{1,02}", "`{` that does not begin a count"),
    (r"a{2,1}", "repetition {2,1}"),
    (r"a{257}", "repetition {257,257}"),
    (r"a{1,257}", "repetition {1,257}"),
    (r"^*", "nothing before `*` to repeat"),
    (r"(a$+)", "nothing before `+` to repeat"),
    (r"[a", "`[` without `]`"),
    (r"[[:letter:]]", "class `[:letter:]`; want one of alnum, alpha, "),
    (r"[[:^:]]", "class `[:^:]`; want one of alnum, alpha, "),
    (r"[[:digit:]-z]", "a range that does not go from one character up to another"),
    (r"[b-a]", "a range that does not go from one character up to another"),
    (r"[!-\d]", "a range that does not go from one character up to another"),
    (r"[\d-z]", "a range that does not go from one character up to another"),
    (r"\x4", "`\\x` without two hexadecimal digits"),
    (r"\xg1", "`\\x` without two hexadecimal digits"),
    (r"\q", "escape `\\q`"),
    ("\\", "escape `\\`"),
    ("\x1f", r"character '\x1f'"),
    ("\x7f", r"character '\x7f'"),
    ("ü", r"character '\xfc'"),
    ("^" + r"\x61" * (MAX_LENGTH // 4), f"of {MAX_LENGTH + 1} characters, want at most {MAX_LENGTH}"),
]


@pytest.mark.parametrize(("pattern", "what"), REFUSED)
def test_unsupported_syntax_is_refused_by_its_name(pattern: str, what: str) -> None:
    with pytest.raises(PatternError, match=re.escape(what)):
        Automaton(pattern)


atoms = st.sampled_from(["a", "b", "/", ".", "[ab]", "[^a]", r"\d", "(a|b/)", "(?:ab)", "(?:(?:ab)*)", "(a|)", "()"])
atoms |= st.sampled_from(["(^|b)", "(/|$)", "(a$)"])
pieces = st.tuples(atoms, st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "{2,}", "*?"])).map("".join)
sequences = st.lists(pieces, max_size=4).map("".join)
groups = st.tuples(sequences, st.sampled_from(["*", "+", "{2}", "{0,3}"])).map(lambda group: f"({group[0]}){group[1]}")
patterns = st.lists(sequences | groups, min_size=1, max_size=3).map("|".join)
values = st.text("ab/1\n", max_size=12)


def verdict_of_re(pattern: re.Pattern[bytes], text: bytes) -> bool | None:
    """None if `re` takes too long."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        return pattern.fullmatch(text) is not None
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_the_reference_recognizes_a_match_that_takes_re_too_long() -> None:
    assert verdict_of_re(re.compile(rb"(a*)*b"), b"a" * 60) is None
    assert verdict_of_re(re.compile(rb"(a*)*"), b"a" * 60) is True


@given(patterns, st.lists(values, min_size=1, max_size=6))
@settings(max_examples=400, deadline=None)
def test_the_automaton_matches_as_re_does(pattern: str, texts: list[str]) -> None:
    expected = re.compile(pattern.replace("$", r"\Z").encode())  # in `re`, `$` also matches before a final newline
    try:
        automaton = Automaton(pattern)
    except TooManyStates:
        reject()

    for text in texts:
        verdict = verdict_of_re(expected, text.encode())
        assert verdict in (None, fits(automaton, text.encode()))


FLAG = re.compile(r"\(\?[a-zA-Z]+\)")


@ignore_warnings_of_sets
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
@example("[[]")
@example(r"\z|\\z")
@settings(max_examples=300, deadline=None)
def test_any_text_is_refused_or_is_a_pattern_that_matches_as_in_re(pattern: str) -> None:
    try:
        automaton = Automaton(pattern)
    except PatternError as error:
        refusal = str(error)
    else:
        refusal = ""
        # Literal characters, and the syntax that both dialects share, mean the same.
        assume(not FLAG.search(pattern))  # `re` has flags at the beginning only
        spelled = pattern.replace("(?<", "(?P<")  # `re` names groups in one spelling only
        spelled = re.sub(r"\\(.)", lambda escape: r"\Z" if escape[1] == "z" else escape[0], spelled)
        expected = re.compile(spelled.encode())
        verdict = verdict_of_re(expected, pattern.encode())
        assert verdict in (None, fits(automaton, pattern.encode()))

    assert not refusal or refusal.startswith("regular expression ")


# Patterns with values on which backtracking matchers take exponential time. The verdict is known by construction.
SLOW_ELSEWHERE = [
    (r"(a*)*b", b"a" * 65536, False),
    (r"(a|a)*b", b"a" * 65536, False),
    (r"(a|aa)+b", b"a" * 65536, False),
    (r".*.*.*.*=.*", b"x" * 65536, False),
    (r"(.*foo){20}", b"foo" * 21000, True),
    (r"(.*foo){20}", b"fo" * 32768, False),
    (r"([a-zA-Z]+)*!", b"a" * 65536, False),
    (r"(x+x+)+y", b"x" * 65536, False),
    (r"(a?){64}a{64}", b"a" * 64, True),
    (r"(((((a*)*)*)*)*)*c", b"a" * 65536, False),
]


class Steps(tuple[int, ...]):
    """A table that counts its look-ups."""

    __slots__ = ()
    taken = 0

    def __getitem__(self, place: SupportsIndex) -> int:  # type: ignore[override]
        Steps.taken += 1
        return super().__getitem__(place)


@pytest.mark.parametrize(("pattern", "value", "verdict"), SLOW_ELSEWHERE)
def test_a_match_takes_one_step_for_each_byte_whatever_the_pattern(pattern: str, value: bytes, verdict: bool) -> None:
    automaton = Automaton(pattern)
    assert len(automaton._table) <= MAX_ENTRIES
    automaton._table = Steps(automaton._table)
    Steps.taken = 0

    assert verdict == fits(automaton, value)
    assert Steps.taken == len(value)


@pytest.mark.parametrize(
    ("value", "fits", "read_bytes"),
    [(b"", False, 0), (b"/a", True, 2), (b"/b" + b"x" * 1000, False, 3), (b"x" * 1000, False, 2), (b"/", False, 1)],
)
def test_read_returns_how_many_bytes_of_the_value_it_has_read(value: bytes, fits: bool, read_bytes: int) -> None:
    assert (fits, read_bytes) == Automaton("/a").read(value)


def test_reading_ends_where_no_match_is_possible_any_more() -> None:
    """Otherwise each of many expressions would read all of a long path that matches none of them."""
    automaton = Automaton(r"/api/v[0-9]+/.*")
    automaton._table = Steps(automaton._table)
    Steps.taken = 0

    assert not fits(automaton, b"/apis" + b"a" * 65536)
    assert Steps.taken <= len(b"/apis") + 1


class Prepared(bytes):
    """Counts the bytes that are translated to an automaton's character classes."""

    bytes_prepared = 0

    def __getitem__(self, place: Any) -> Any:
        return Prepared(super().__getitem__(place))

    def translate(self, *args: Any) -> bytes:
        Prepared.bytes_prepared += len(self)
        return super().translate(*args)


@pytest.mark.parametrize("read_bytes", [1, 5, 256, 257, 1024, 1025, 5000, 65536])
def test_the_bytes_prepared_are_bounded_by_a_multiple_of_the_bytes_read(read_bytes: int) -> None:
    """Otherwise a thousand expressions took 40 ms for a field of 60 KiB of which they read one byte."""
    Prepared.bytes_prepared = 0

    found = Automaton("a*").read(Prepared(b"a" * (read_bytes - 1) + b"b" * 1_000_000))

    assert found == (False, read_bytes + 1)
    assert Prepared.bytes_prepared <= 4 * read_bytes + 256


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 20_000])
def test_values_of_any_length_are_read_to_their_end(length: int) -> None:
    value = b"a" * length

    assert [Automaton("a*").read(value), Automaton("a*b").read(value + b"b")] == [(True, length), (True, length + 1)]
    assert Automaton("a*b").read(value) == (False, length)


@pytest.mark.parametrize("pattern", [r"(a|b)*a(a|b){120}", r".*a.{9}", r"[ab]*a[ab]{250}"])
def test_patterns_whose_table_would_explode_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=f"more than {MAX_STATES} states"):
        Automaton(pattern)


def test_repeated_end_anchors_add_no_work_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    after = _Positions.after

    def counted(positions: _Positions, state: int) -> int:
        looks.append(state)
        return after(positions, state)

    monkeypatch.setattr(_Positions, "after", counted)

    expression = Automaton("(.*a.{8}|.*)" + "$" * 240)

    assert len(looks) <= len(expression._table)
    assert fits(expression, b"b" * 20)
    assert not fits(expression, b"\n")


def test_the_limit_of_states_falls_with_the_number_of_columns() -> None:
    told_apart = string.ascii_letters + string.digits
    columns = len(told_apart) + len(["newline", "all others"])

    with pytest.raises(PatternError, match=f"more than {MAX_ENTRIES // columns} states"):
        Automaton(told_apart + ".*a.{20}")


@pytest.mark.parametrize(
    "pattern",
    [
        r"/users/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(/.*)?",
        r"(?i)/api/v[0-9]+/(users|orders|items)/[^/]+/?",
        r".*(iPhone|Android|iPad).*Mobile.*",
        r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){1,3}",
        "/" + "a1" * 127 + "z",
    ],
)
def test_patterns_of_everyday_use_stay_far_below_the_limits(pattern: str) -> None:
    assert len(Automaton(pattern)._table) < MAX_ENTRIES / 8


@pytest.mark.parametrize(
    "pattern", ["((a{20}){20}){20}", "((((){256}){256}){256}){256}", "(((a|){99}){99}){99}", "a{0,200}b{0,200}"]
)
def test_patterns_that_grow_too_large_are_refused_before_they_are_expanded(pattern: str) -> None:
    with pytest.raises(PatternError, match=f"want at most {MAX_POSITIONS}"):
        Automaton(pattern)
