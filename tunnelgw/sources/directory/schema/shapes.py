"""The building blocks of shapes: checks that report every problem with its place, and fill in defaults.

    Fields({"name": Text(1, 253), "port": Number(1, 65535, default=80)}, "name", rules=[...]).check(value, (), say)

Values are JSON values. A check returns the value with its defaults, in new containers if something was added.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

Place = tuple[str | int, ...]
Say = Callable[[Place, str], None]
Rule = Callable[[Any], str | None]
"""Returns what is wrong with a value of the right type, in words; None: nothing is."""

_LONGEST_SHOWN = 80
NO_DEFAULT: Final = object()


class Shape(Protocol):
    default: Any
    """The value used if it is absent; `NO_DEFAULT`: it stays absent."""

    def check(self, value: Any, place: Place, say: Say) -> Any: ...


class Text:
    def __init__(
        self,
        shortest: int = 0,
        longest: int | None = None,
        pattern: str = "",
        form: str = "",
        words: Sequence[str] = (),
        default: Any = NO_DEFAULT,
    ) -> None:
        """`pattern`: for the whole string; `form`: its description for people; `words`: the only allowed values."""
        self.default = default
        self._shortest = shortest
        self._longest = longest
        self._pattern = re.compile(pattern) if pattern else None
        self._form = form
        self._words = frozenset(words)

    def check(self, value: Any, place: Place, say: Say) -> Any:
        if isinstance(value, str):
            if problem := self._problem(value, _shown(value)):
                say(place, problem)
        elif isinstance(value, bool | int | float):
            # In YAML `y` and `30` are not strings, but they are meant as such.
            text = json.dumps(value)
            say(place, self._problem(text, text) or f"{text} is not a string; write it in quotes")
        else:
            say(place, f"{_shown(value)} is not a string")
        return value

    def _problem(self, text: str, shown: str) -> str:
        if self._words:
            return "" if text in self._words else f"{shown} is not one of {', '.join(sorted(self._words))}"
        if len(text) < self._shortest:
            return f"is shorter than {self._shortest} characters" if text else "is empty"
        if self._longest is not None and len(text) > self._longest:
            return f"has {len(text)} characters, more than {self._longest}"
        return f"{shown} is not {self._form}" if self._pattern and not self._pattern.fullmatch(text) else ""


class Number:
    """A whole number."""

    def __init__(
        self,
        least: int | None = None,
        most: int | None = None,
        among: Sequence[int] = (),
        default: Any = NO_DEFAULT,
    ) -> None:
        self.default = default
        self._least = least
        self._most = most
        self._among = frozenset(among)

    def check(self, value: Any, place: Place, say: Say) -> Any:
        if type(value) is not int:
            say(place, f"{_shown(value)} is not a whole number")
        elif self._among and value not in self._among:
            say(place, f"{value} is not one of {', '.join(map(str, sorted(self._among)))}")
        elif self._least is not None and value < self._least:
            say(place, f"{value} is less than {self._least}")
        elif self._most is not None and value > self._most:
            say(place, f"{value} is more than {self._most}")
        return value


class Flag:
    def __init__(self) -> None:
        self.default: Any = NO_DEFAULT

    def check(self, value: Any, place: Place, say: Say) -> Any:
        if not isinstance(value, bool):
            say(place, f"{_shown(value)} is neither true nor false")
        return value


class Items:
    """A list."""

    def __init__(
        self,
        shape: Shape,
        fewest: int = 0,
        most: int | None = None,
        unique_by: str = "",
        is_set: bool = False,
        rules: Sequence[Rule] = (),
        default: Any = NO_DEFAULT,
    ) -> None:
        """`unique_by`: the field in which all items must differ. `is_set`: no item may occur twice."""
        self.default = default
        self._shape = shape
        self._fewest = fewest
        self._most = most
        self._unique_by = unique_by
        self._is_set = is_set
        self._rules = rules

    def check(self, value: Any, place: Place, say: Say) -> Any:
        if not isinstance(value, list):
            say(place, f"{_shown(value)} is not a list")
            return value
        if len(value) < self._fewest:
            say(place, f"has {len(value)} items, fewer than {self._fewest}")
        if self._most is not None and len(value) > self._most:
            say(place, f"has {len(value)} items, more than {self._most}")
            return value
        counting = _Counting(say)
        checked = [self._shape.check(item, (*place, number), counting) for number, item in enumerate(value)]
        self._check_unique(checked, place, say)
        if not counting.count:
            _apply(self._rules, checked, place, say)
        return checked

    def _check_unique(self, items: list[Any], place: Place, say: Say) -> None:
        seen: set[object] = set()
        for number, item in enumerate(items):
            told_by = item.get(self._unique_by) if self._unique_by and isinstance(item, dict) else item
            if (self._unique_by or self._is_set) and isinstance(told_by, str | int):
                if told_by in seen:
                    say((*place, number), f"{_shown(told_by)} occurs twice")
                seen.add(told_by)


class Table:
    """A map with any keys."""

    def __init__(self, shape: Shape, most: int | None = None, rules: Sequence[Rule] = ()) -> None:
        self.default: Any = NO_DEFAULT
        self._shape = shape
        self._most = most
        self._rules = rules

    def check(self, value: Any, place: Place, say: Say) -> Any:
        if not isinstance(value, dict):
            say(place, f"{_shown(value)} is not a map")
            return value
        if self._most is not None and len(value) > self._most:
            say(place, f"has {len(value)} entries, more than {self._most}")
        given = {key: item for key, item in value.items() if item is not None}
        checked = {key: self._shape.check(item, (*place, key), say) for key, item in given.items()}
        _apply(self._rules, checked, place, say)
        return checked


class Fields:
    """A map with known fields; any other is a problem, as for `kubectl`."""

    def __init__(
        self,
        fields: Mapping[str, Shape],
        *required: str,
        rules: Sequence[Rule] = (),
        default: Any = NO_DEFAULT,
        instead: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`instead`: fields of earlier releases, with what replaced them."""
        self.default = default
        self._instead = instead
        self._fields = fields
        self._required = required
        self._rules = rules
        self._defaults = {name: shape.default for name, shape in fields.items() if shape.default is not NO_DEFAULT}

    def check(self, value: Any, place: Place, say: Say) -> Any:
        if not isinstance(value, dict):
            say(place, f"{_shown(value)} is not a map")
            return value
        counting = _Counting(say)
        # The API server drops a null, so the default takes its place.
        given = {**self._defaults, **{name: item for name, item in value.items() if item is not None}}
        checked = {}
        for name, item in given.items():
            shape = self._fields.get(name)
            if shape is None:
                near = (self._instead.get(name), *difflib.get_close_matches(name, self._fields, n=1))
                meant = next(filter(None, near), None)
                hint = f", did you mean {meant}?" if meant else ""
                counting((*place, name), f"is not a known field{hint}")
            else:
                checked[name] = shape.check(item, (*place, name), counting)
        for name in self._required:
            if name not in given:
                counting(place, f"{name} is missing")
        if not counting.count:
            _apply(self._rules, checked, place, say)
        return checked


class _Counting:
    """Counts problems: rules are applied only to values whose fields all have the right types."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.count = 0

    def __call__(self, place: Place, problem: str) -> None:
        self.count += 1
        self._say(place, problem)


def _apply(rules: Sequence[Rule], value: Any, place: Place, say: Say) -> None:
    for rule in rules:
        if problem := rule(value):
            say(place, problem)


def _shown(value: object) -> str:
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
