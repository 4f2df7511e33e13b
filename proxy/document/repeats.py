"""Finds fields that an object of a document has more than once.

JSON parsers silently take the last one, so a second `listeners` appended to a document by hand would drop all listeners
of the first. Only people write such documents, so longer ones are spared this second parsing.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from proxy.document.problems import Findings

LONGEST_BY_HAND_BYTES: Final = 64 * 1024
"""Longer documents are generated, and programs do not repeat fields. Parsing this much takes about a millisecond."""


class _Repeating(dict[str, Any]):
    """An object with repeated fields; `times` counts each name."""

    times: Counter[str]


def find_repeated_fields(data: bytes, findings: Findings) -> None:
    """Add a problem for each repeated field in `data`, which must be valid JSON."""
    found_any = False

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found_any
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        found_any = True
        repeating = _Repeating(plain)
        repeating.times = Counter(name for name, _ in pairs)
        return repeating

    tree = json.loads(data, object_pairs_hook=to_object)
    if found_any:
        for path, times in _repeated(tree, ""):
            findings.add(path, f"this field occurs {times} times, want it once: only the last would count")


def _repeated(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, list):
        for place, piece in enumerate(value):
            yield from _repeated(piece, f"{path}[{place}]")
    elif isinstance(value, dict):
        for name, piece in value.items():
            where = f"{path}.{name}" if path else name
            if isinstance(value, _Repeating) and value.times[name] > 1:
                yield where, value.times[name]
            yield from _repeated(piece, where)
