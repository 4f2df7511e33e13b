"""Durations as Gateway API writes them (GEP-2257): `500ms`, `30s`, `1m30s`; no sign and no fraction."""

import re

_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9]{1,5})(ms|h|m|s)")


def seconds(text: str) -> float:
    """The length of a duration that the decoder has accepted. "0s" is 0.0, for a timeout "no timeout"."""
    return sum(int(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))
