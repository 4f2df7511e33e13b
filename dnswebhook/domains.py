"""Which names we may write: the domain filter, and the names that are never touched (pure).

The filter follows external-dns' own rules (`endpoint.DomainFilter`), because the client applies the same filter: a
suffix match on a label boundary, where `.example.com` matches only names below; or an unanchored regular expression on
the Unicode form of the name, exclusion first. Lists and expressions cannot be mixed: the client would refuse to start.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Sequence

import idna

from dnswebhook.canonical import Unacceptable, canonical_name, stored_name

_UNLIKE_RE2 = (
    (
        re.compile(
            r"\(\?(?:[=!>(#]|<[=!]|P=|[ims]*-?[ims]*[aLux]|P<\w*[^\x00-\x7f]\w*>)|\\(?:[1-9ZuUN]|[^\x00-\x7f])|[*+?}]\+"
        ),
        (
            "does not know: write it without look-around, back-references, atomic groups, possessive quantifiers, and "
            "escapes and group names beyond ASCII"
        ),
    ),
    (
        re.compile(r"\[:\^?\w+:\]"),
        "knows but this program does not: write it with a character class such as [a-z0-9]",
    ),
    (
        re.compile(r"\{(?:,\d*|0\d+(?:,\d*)?|\d+,0\d+)\}"),
        "takes for literal text: write a count such as {0,2}, without zeros in front",
    ),
    (
        re.compile(r"(?<!\\)\{(?:\d+,)?(?:1(?!000)\d{3}|[2-9]\d{3}|\d{5,})(?:,\d*)?\}"),
        "refuses: write counts of at most 1000",
    ),
)
"""What RE2, which the client uses, takes otherwise than Python's `re`, and how: this would show only when the client
starts, or never."""
# What neither a name nor a shell pattern holds. A pattern in quotes (`docker run --env-file` keeps them) or a regular
# expression would be no error otherwise, and protect nothing.
_IN_NO_PATTERN = re.compile(r"[^A-Za-z0-9_.*?!\[\]\x80-\U0010ffff-]|[\s\ud800-\udfff]")
# Bytes of the environment that are not UTF-8.
_NO_CHARACTER = re.compile("[\ud800-\udfff]")
# An escape, a class, or a literal beyond ASCII.
_CHARACTER = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|[^\x00-\x7f]", re.DOTALL)
_ESCAPE = re.compile(r"\\.")
_MEMBERS = {r"\w": "0-9A-Za-z_", r"\d": "0-9", r"\s": r"\t\n\f\r "}
# Classes that cannot be written out, and Turkish letters, which Python takes for an `i`.
_ALWAYS_ASCII = re.compile(r"^\\|\\[WDS]|[\u0130\u0131]")


def unicode_name(name: str) -> str:
    """The form that external-dns matches against: lower case, Unicode, no trailing dot."""
    ascii_name = stored_name(name)
    if "xn--" not in ascii_name:
        return ascii_name
    return ".".join(_unicode_label(label) for label in ascii_name.split("."))


def _unicode_label(label: str) -> str:
    try:
        return idna.decode(label) if label.startswith("xn--") else label
    except UnicodeError:
        return label


class DomainFilter:
    """Which names external-dns may manage.

    Raises ValueError for a mixture of lists and expressions, and for an entry or expression that must be a mistake.
    """

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        regex_include: str = "",
        regex_exclude: str = "",
    ) -> None:
        if (include or exclude) and (regex_include or regex_exclude):
            raise ValueError(
                "domain lists and regular expressions are both set; external-dns accepts only one kind: "
                "use DOMAIN_FILTER and EXCLUDE_DOMAIN_FILTER, or REGEXP_DOMAIN_FILTER and "
                "REGEXP_DOMAIN_FILTER_EXCLUSION"
            )
        self.include = tuple(include)
        self.exclude = tuple(exclude)
        self.regex_include = regex_include
        self.regex_exclude = regex_exclude
        self._include = tuple(_suffix(entry, "DOMAIN_FILTER") for entry in include)
        self._exclude = tuple(_suffix(entry, "EXCLUDE_DOMAIN_FILTER") for entry in exclude)
        self._regex_include = _compiled(regex_include, "REGEXP_DOMAIN_FILTER")
        self._regex_exclude = _compiled(regex_exclude, "REGEXP_DOMAIN_FILTER_EXCLUSION")

    @property
    def accepts_everything(self) -> bool:
        return not (self.include or self.exclude or self.regex_include or self.regex_exclude)

    def matches(self, name: str) -> bool:
        if self.accepts_everything:
            return True
        text = unicode_name(name)
        if self._regex_include or self._regex_exclude:
            if self._regex_exclude and self._regex_exclude.search(text):
                return False
            return self._regex_include is None or self._regex_include.search(text) is not None
        if any(_is_below(text, suffix) for suffix in self._exclude):
            return False
        return not self._include or any(_is_below(text, suffix) for suffix in self._include)


def _suffix(entry: str, option: str) -> str:
    """`.example.com` keeps its dot (only names below); surrounding white space and a trailing dot are dropped.

    external-dns compares entries literally, so anything but a domain would silently match nothing. It drops a lone dot,
    and then matches everything.
    """
    text = entry.strip()
    try:
        bare = canonical_name(text.removeprefix("."))
    except Unacceptable as error:
        raise _no_domain(text, option) from error
    if "*" in bare or text.endswith(".."):
        raise _no_domain(text, option)
    return f".{unicode_name(bare)}" if text.startswith(".") else unicode_name(bare)


def _no_domain(text: str, option: str) -> ValueError:
    return ValueError(
        f"{option}: {text[:260]!r} is not a domain, want domains separated by commas: example.com for a domain and all "
        "below it, .example.com for what is below it"
    )


def _is_below(name: str, suffix: str) -> bool:
    if suffix.startswith("."):
        return name.endswith(suffix)
    return name == suffix or name.endswith(f".{suffix}")


def _compiled(pattern: str, option: str) -> re.Pattern[str] | None:
    if not pattern:
        return None
    if pattern[0] in "\"'" and pattern[0] == pattern[-1]:
        raise ValueError(
            f"{option}: regular expression {pattern!r} is in quotes, which are part of it and match no name: write it "
            "without them"
        )
    for unlike, how in _UNLIKE_RE2:
        if found := unlike.search(pattern):
            raise ValueError(
                f"{option}: regular expression {pattern!r} uses {found.group()!r}, which external-dns (RE2) {how}"
            )
    if _NO_CHARACTER.search(pattern):
        raise ValueError(f"{option}: regular expression {pattern!r} is not valid: it is not UTF-8")
    try:
        re.compile(pattern, re.ASCII)  # first, so that errors name places in what was written
        # With this flag, `\w`, `\d` and `\b` are as RE2 defines them.
        return re.compile(_CHARACTER.sub(_in_either_case, pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"{option}: regular expression {pattern!r} is not valid: {error}") from error


def _in_either_case(found: re.Match[str]) -> str:
    """What RE2 takes the same text for: there `(?i)` applies to all letters, with `re.ASCII` to those of ASCII only."""
    text = found.group()
    if text.isascii() or _ALWAYS_ASCII.search(text):
        return text
    members = _ESCAPE.sub(lambda escape: _MEMBERS.get(escape.group(), escape.group()), text)
    return f"(?u:{members})"


class ProtectedNames:
    """Shell patterns (`*`, `?`, `[...]`) for names; a `*` spans labels, as in `*.lan.example.com`.

    A pattern may be written in either form of an internationalised name and is tried on both: `nas-*.bücher.example`
    has no ASCII form of its own.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self.patterns = tuple(patterns)
        spelled = [text for pattern in patterns for text in _spellings(pattern)]
        self._regex = re.compile("|".join(fnmatch.translate(pattern) for pattern in spelled)) if patterns else None

    def matches(self, name: str) -> bool:
        """`name` must be canonical."""
        if self._regex is None:
            return False
        if self._regex.match(name) is not None:
            return True
        return "xn--" in name and self._regex.match(unicode_name(name)) is not None


def _spellings(pattern: str) -> set[str]:
    text = pattern.strip()
    if _IN_NO_PATTERN.search(text):
        raise ValueError(
            f"DNSWEBHOOK_PROTECT: {text[:260]!r} matches no name, want shell patterns such as *.lan, separated by "
            "commas, without spaces and quotes"
        )
    lowered = unicodedata.normalize("NFC", text.rstrip(".").lower())
    return {lowered} if text.isascii() else {lowered, stored_name(text)}
