"""Settings of a proxy: from the parameters of a class or a Gateway into its document, checked by the document's rules.

Values that a proxy would refuse are left out and reported: a typo in one network must not take all Gateways offline.
"""

import re
from typing import Any, NamedTuple

import msgspec

from proxy import document
from tunnelgw.model.own import ProxySettings

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Fitted(NamedTuple):
    settings: document.Settings
    """Without listeners."""
    left_out: tuple[str, ...]
    """The problem of each value that is left out, with its path."""


def fit(wanted: ProxySettings | None) -> Fitted:
    # Fields have the same names in the parameters and in the document, so one can be decoded as the other.
    plain = msgspec.json.decode(msgspec.json.encode(wanted or ProxySettings()))
    left_out: list[str] = []
    while True:
        try:
            decoded = document.decode(msgspec.json.encode(plain))
        except document.DocumentError as error:
            places = {_place(problem.path) for problem in error.problems}
            # The last entries of a list go first, so that the indices of the others stay valid.
            for place in sorted(places, reverse=True):
                _remove(plain, place)
            left_out += [f"proxy.{problem}" for problem in error.problems]
        else:
            return Fitted(_plainest(document.settings_of(decoded)), tuple(left_out))


def _plainest(settings: document.Settings) -> document.Settings:
    """Replaces parts that equal the default by the default object itself, which is not encoded: equal settings must
    have equal bytes."""
    default = document.Settings()
    parts = {name: getattr(default, name) for name in ("forwarding", "limits")}
    return msgspec.structs.replace(
        settings, **{name: part for name, part in parts.items() if getattr(settings, name) == part}
    )


Place = tuple[tuple[str, int], ...]
"""A path as steps: a name, or an empty name and a list index."""


def _place(path: str) -> Place:
    """Parses a path such as `forwarding.trustedProxies[0]`."""
    return tuple((step[1] or "", int(step[2] or 0)) for step in _STEP.finditer(path))


def _remove(plain: Any, place: Place) -> None:
    *way, (name, number) = place
    for step_name, step_number in way:
        plain = plain[step_name or step_number]
    del plain[name or number]
