"""Settings of a proxy, from the parameters of a class or a Gateway into its document, which judges them.

What a proxy would refuse is left out, and told: a network with a slip in it must not take all Gateways off the net.
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
    """What is wrong with each value that is not among them, with its place."""


def fit(wanted: ProxySettings | None) -> Fitted:
    # Both have the same names, so what one says the other reads.
    plain = msgspec.json.decode(msgspec.json.encode(wanted or ProxySettings()))
    left_out: list[str] = []
    while True:
        try:
            decoded = document.decode(msgspec.json.encode(plain))
        except document.DocumentError as error:
            places = {_place(problem.path) for problem in error.problems}
            # Of a list the last first, so that the others stay where they are.
            for place in sorted(places, reverse=True):
                _remove(plain, place)
            left_out += [f"proxy.{problem}" for problem in error.problems]
        else:
            return Fitted(_plainest(document.settings_of(decoded)), tuple(left_out))


def _plainest(settings: document.Settings) -> document.Settings:
    """Equal ones have equal bytes: a part that says nothing is the default itself, which is not written."""
    default = document.Settings()
    parts = {name: getattr(default, name) for name in ("forwarding", "limits")}
    return msgspec.structs.replace(
        settings, **{name: part for name, part in parts.items() if getattr(settings, name) == part}
    )


Place = tuple[tuple[str, int], ...]
"""Steps down: a name, or an empty one and the place in a list."""


def _place(path: str) -> Place:
    """Of `forwarding.trustedProxies[0]`."""
    return tuple((step[1] or "", int(step[2] or 0)) for step in _STEP.finditer(path))


def _remove(plain: Any, place: Place) -> None:
    *way, (name, number) = place
    for step_name, step_number in way:
        plain = plain[step_name or step_number]
    del plain[name or number]
