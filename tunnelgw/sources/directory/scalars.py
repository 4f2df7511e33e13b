"""Reads plain YAML scalars as the API server's parser does: by go-yaml's interpretation of YAML 1.1, not PyYAML's.

`y` is true, `08`, `1e3` and `0o17` are numbers, and `12:30` is a string. A number without a fraction is an integer, as
in the JSON that the server makes of it.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

BOOLS: Final[dict[str, bool]] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
}
_OCTAL = re.compile(r"([-+]?)0([0-7]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_MOST_DIGITS = 1_100
"""No valid number has more digits, and longer ones would take time to read."""
_PLAIN_BELOW = 1e21
"""From here on Go writes numbers with an exponent."""


def boolean(text: str) -> bool:
    """Raises KeyError."""
    return BOOLS[text]


def integer(text: str) -> int:
    """Raises ValueError."""
    plain = text.replace("_", "")
    if not plain.isascii() or len(plain) > _MOST_DIGITS:
        raise ValueError(text)
    value = int(_OCTAL.sub(r"\g<1>0o\2", plain) if _OCTAL.fullmatch(plain) else plain, 0)
    if not _LEAST <= value <= _MOST:
        raise ValueError(text)
    return value


def number(text: str) -> int | float:
    """Raises ValueError."""
    if _NO_NUMBER.fullmatch(text):
        return float(text.replace(".", ""))
    plain = text.replace("_", "")
    value = float(plain) if _FLOAT.fullmatch(plain) and len(plain) <= _MOST_DIGITS else math.inf
    if math.isinf(value):
        raise ValueError(text)
    return int(value) if value.is_integer() and abs(value) < _PLAIN_BELOW else value


class Readable:
    """Replaces PyYAML's regular expression for a kind of scalar: matches what `read` can read."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def match(self, text: str) -> bool:
        try:
            self._read(text)
        except (ValueError, LookupError):
            return False
        return True


READERS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "tag:yaml.org,2002:bool": ("yYnNtTfFoO", boolean),
    "tag:yaml.org,2002:int": ("-+0123456789", integer),
    "tag:yaml.org,2002:float": ("-+.0123456789", number),
}
"""By tag: the first characters of such scalars, and the function that reads them. The order matters: integers before
other numbers."""
