"""Counts how much is done, where a clock would give another answer on each machine."""

import sys
from collections.abc import Callable


def calls_of(action: Callable[[], object]) -> int:
    """How many function calls `action` makes, counting each resumption of a generator."""
    seen = [0]

    def count(_frame: object, event: str, _about: object) -> None:
        seen[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return seen[0]
