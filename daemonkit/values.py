"""Parsers for values written by a person: durations, sizes, booleans, numbers, choices, lists, URLs (pure).

Each takes the text and returns the value, or raises ValueError that says what was seen and what was expected; the
caller adds where the text came from. Factories such as `integer(1, 64)` return a parser. Surrounding white space is
ignored.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from daemonkit.hostnames import has_dns_lengths
from daemonkit.ipv4 import MISTYPED_IPV4, is_mistyped_ipv4
from daemonkit.urls import lacks_interface, split_url

T = TypeVar("T")

_SECONDS_PER_UNIT: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smh]))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smh])")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_BYTES_PER_UNIT: Final = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,18})\s*([a-z]*)", re.IGNORECASE)
_CONTENTS: Final = ("-----BEGIN", "{", "LS0tLS1CRUdJTi", "eyJ", "YXBpVmVyc2lvbj")
"""How PEM, JSON, and in base64, as Secrets have them, PEM, JSON and a kubeconfig begin."""
_INDENTED_JSON: Final = re.compile(r"(?:eyA|ewo)[^.]*")
"""How JSON that begins with white space does in base64, which has no dots, unlike a file such as `ewok.pem`."""
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def parse_text(text: str) -> str:
    """Any text that is not blank."""
    text = text.strip()
    if not text:
        raise ValueError("seen nothing, want some text")
    return text


def parse_file(text: str) -> str:
    """The path of a file. Content in its place, such as a private key, is refused without being repeated."""
    text = parse_text(text)
    if _is_content(text):
        raise ValueError("seen the content of a file, want the path of a file that holds it")
    return text


def shown_path(text: str) -> str:
    """A path that cannot be read, for an error; content in its place is not repeated."""
    return "(the content of a file, not repeated, in place of its path)" if _is_content(text.strip()) else text


def _is_content(text: str) -> bool:
    return "\n" in text or text.startswith(_CONTENTS) or _INDENTED_JSON.fullmatch(text) is not None


def parse_duration(text: str) -> float:
    """`30s`, `500ms`, `1m30s`, `2h` or `1.5s` in seconds."""
    text = text.strip()
    wanted = "want a duration such as 30s, 500ms, 1m30s or 2h"
    if _NUMBER.fullmatch(text):
        raise ValueError(f"seen {text!r} without a unit, {wanted}; did you mean {text}s?")
    if not _DURATION.fullmatch(text):
        raise ValueError(f"seen {text!r}, {wanted}")
    parts = _DURATION_PART.findall(text)
    ranks = [list(_SECONDS_PER_UNIT).index(unit) for _, unit in parts]
    if ranks != sorted(set(ranks)):
        raise ValueError(f"seen {text!r} with repeated or unordered units, {wanted}")
    return sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)


def duration(minimum_s: float = 0.0, maximum_s: float = float("inf")) -> Callable[[str], float]:
    """A duration from `minimum_s` to `maximum_s` seconds, inclusive."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if not minimum_s <= seconds <= maximum_s:
            raise ValueError(f"seen {text.strip()!r}, want {_span(minimum_s, maximum_s, 's')}")
        return seconds

    return parse


def parse_bool(text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"seen {text.strip()!r}, want true, false, 1, 0, yes or no")
    return value


def parse_size(text: str) -> int:
    """`5242880`, `64KiB`, `5MiB` or `1GiB` in bytes."""
    match = _SIZE.fullmatch(text.strip())
    factor = _BYTES_PER_UNIT.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise ValueError(f"seen {text.strip()!r}, want a size such as 5242880, 64KiB, 5MiB or 1GiB")
    return int(match[1]) * factor


def size(minimum_bytes: int) -> Callable[[str], int]:
    """A size of `minimum_bytes` or more."""

    def parse(text: str) -> int:
        value = parse_size(text)
        if value < minimum_bytes:
            raise ValueError(f"seen {text.strip()!r}, want at least {minimum_bytes} bytes")
        return value

    return parse


def integer(minimum: float = float("-inf"), maximum: float = float("inf")) -> Callable[[str], int]:
    """A whole number from `minimum` to `maximum`, inclusive."""

    def parse(text: str) -> int:
        stripped = text.strip()
        if re.fullmatch(r"[+-]?[0-9]{1,18}", stripped) and minimum <= int(stripped) <= maximum:
            return int(stripped)
        raise ValueError(f"seen {stripped!r}, want a whole number, {_span(minimum, maximum)}")

    return parse


def number(minimum: float = float("-inf"), maximum: float = float("inf")) -> Callable[[str], float]:
    """A decimal number from `minimum` to `maximum`, inclusive."""

    def parse(text: str) -> float:
        stripped = text.strip()
        if re.fullmatch(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?", stripped) and minimum <= float(stripped) <= maximum:
            return float(stripped)
        raise ValueError(f"seen {stripped!r}, want a number, {_span(minimum, maximum)}")

    return parse


def _span(minimum: float, maximum: float, unit: str = "") -> str:
    if minimum == float("-inf") and maximum == float("inf"):
        return "of any size"
    if maximum == float("inf"):
        return f"at least {_plain_number(minimum)}{unit}"
    if minimum == float("-inf"):
        return f"at most {_plain_number(maximum)}{unit}"
    return f"{_plain_number(minimum)} to {_plain_number(maximum)}{unit}"


def _plain_number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


@dataclass(frozen=True)
class Choice:
    """Parses one of `words`, in any letter case."""

    words: tuple[str, ...]

    def __call__(self, text: str) -> str:
        word = text.strip().lower()
        if word not in self.words:
            raise ValueError(f"seen {text.strip()!r}, want one of {', '.join(self.words)}")
        return word


def choice(*words: str) -> Choice:
    return Choice(words)


@dataclass(frozen=True)
class CommaList(Generic[T]):
    """Parses `a, b,c` into a tuple, each part with `item`. Empty parts are skipped."""

    item: Callable[[str], T]

    def __call__(self, text: str) -> tuple[T, ...]:
        return tuple(self.item(part) for part in text.split(",") if part.strip())


def comma_list(item: Callable[[str], Any] = parse_text) -> CommaList[Any]:
    return CommaList(item)


def parse_url(text: str) -> str:
    """An http or https URL with a host, without credentials; trailing slashes are dropped."""
    url = text.strip()
    wanted = "want a URL such as https://192.168.1.1 or http://host:8080"
    try:
        parts = split_url(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"seen a URL that is broken ({error}), {wanted}") from error
    if parts.username is not None or parts.password is not None:
        # The text is not repeated: it may contain a password.
        raise ValueError(f"seen a URL with credentials in it, {wanted}; credentials have options of their own")
    if parts.scheme not in ("http", "https"):
        hint = f"; did you mean https://{url} or http://{url}?" if re.fullmatch(r"[\w.-]+(:\d+)?", url) else ""
        raise ValueError(f"seen {url!r}, {wanted}{hint}")
    if not parts.hostname or port == 0 or not url.isprintable() or " " in url:
        raise ValueError(f"seen {url!r}, {wanted}")
    if ":" not in parts.hostname and not has_dns_lengths(parts.hostname):
        raise ValueError(
            f"seen {url!r}, whose host is too long for DNS, or has a label that is empty or too long, {wanted}"
        )
    if is_mistyped_ipv4(parts.hostname):
        raise ValueError(f"seen {url!r}, whose host is {MISTYPED_IPV4}")
    if lacks_interface(parts.hostname):
        raise ValueError(f"seen {url!r}, want the interface of a link-local address too, as in [{parts.hostname}%eth0]")
    if parts.query or parts.fragment:
        raise ValueError(f"seen {url!r} with a query or fragment, {wanted}")
    return url.rstrip("/")
