"""A text that must never be shown: passwords, API keys, tokens.

Everything that could carry it into a log, a message or a file by accident returns `<redacted>` or raises: `repr`,
`str`, formatting, pickling. Code that really needs the text calls `reveal()` at the point where the text leaves the
process. Comparison takes the same time wherever the texts differ, so response times reveal nothing about the secret.
What a peer answers may still contain it; `without` takes it out of that.
"""

import hmac
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

REDACTED: Final = "<redacted>"
_LONG: Final = 8
_IN_HTML: Final = tuple(
    str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': quote, "'": apostrophe})
    for quote in ("&quot;", "&#34;", '"')
    for apostrophe in ("&#x27;", "&#39;", "&#039;", "'")
)
"""How servers escape text in HTML."""
_IN_JSON: Final = (
    str.maketrans({"/": r"\/"}),
    *(str.maketrans({character: f"\\u{ord(character):04x}" for character in special}) for special in ("<>&", "<>&='")),
)
"""How PHP, Go and Gson escape more than they must in JSON."""


class Secret:
    """Immutable; falsy when empty. `path` is the file it was read from, or empty."""

    __slots__ = ("__text", "path")

    path: str

    def __init__(self, text: str, path: str = "") -> None:
        object.__setattr__(self, "_Secret__text", text)
        object.__setattr__(self, "path", path)

    def reveal(self) -> str:
        """The text itself."""
        return self.__text  # type: ignore[no-any-return, attr-defined]

    def fits_header(self) -> bool:
        """Whether an HTTP header can carry it. Check before use: errors of HTTP libraries quote a rejected text."""
        text = self.reveal()
        return text.isascii() and text.isprintable()

    def matches(self, other: "str | bytes | Secret") -> bool:
        """True if `other` is the same text; takes constant time for texts of equal length."""
        if isinstance(other, Secret):
            other = other.reveal()
        if isinstance(other, str):
            other = _octets(other)
        return hmac.compare_digest(_octets(self.reveal()), other)

    def __bool__(self) -> bool:
        return bool(self.reveal())

    def __eq__(self, other: object) -> bool:
        return self.matches(other) if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self.reveal()))

    def __repr__(self) -> str:
        return REDACTED

    def __format__(self, _spec: str) -> str:
        return REDACTED

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        raise AttributeError(f"a Secret cannot be changed ({name})")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Secret cannot be changed ({name})")

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Secret":
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: it would leave the process in clear text")


def without(octets: bytes, secrets: Iterable[str]) -> bytes:
    """An answer with `<redacted>` in place of these texts, before it is shortened and quoted: servers, and what stands
    in front of them, repeat requests in their errors. A short text may be a part of many words, and is replaced only
    where it is none."""
    is_short = {spelling: len(secret) < _LONG for secret in secrets for spelling in _spellings(secret)}
    for spelling in sorted(is_short, key=len, reverse=True):
        if is_short[spelling]:
            octets = re.sub(rb"(?<!\w)%b(?!\w)" % re.escape(spelling), REDACTED.encode(), octets)
        else:
            octets = octets.replace(spelling, REDACTED.encode())
    return octets


def text_without(text: str, secrets: Iterable[str]) -> str:
    """The same for a text, such as an error that quotes an answer that is no HTTP."""
    return without(text.encode("utf-8", "replace"), secrets).decode()


def _spellings(secret: str) -> Iterator[bytes]:
    """As it is, in a JSON string, in JSON inside a JSON string, and in HTML, as different servers write them."""
    text = secret
    for _ in range(3 if secret else 0):
        yield _octets(text)
        yield from (_octets(text.translate(habit)) for habit in _IN_HTML)
        in_ascii, in_unicode = _in_json(text, ensure_ascii=True), _in_json(text, ensure_ascii=False)
        for in_json in (in_ascii, in_unicode):
            yield _octets(in_json)
            yield from (_octets(in_json.translate(habit)) for habit in _IN_JSON)
        text = in_unicode


def _in_json(text: str, *, ensure_ascii: bool) -> str:
    return json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]


def _octets(text: str) -> bytes:
    # Header values contain lone surrogates if a client sends bytes that are not UTF-8.
    return text.encode("utf-8", "surrogatepass")
