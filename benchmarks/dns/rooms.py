"""A profile's functions gathered into the rooms that a request walks through (pure).

A function of ours, or of a library that does one job, belongs to the room of its file. Anything else (builtins, the
standard library, msgspec) is charged to whoever called it, in proportion to the time it took for each of them.
"""

from collections import defaultdict
from collections.abc import Iterable
from types import CodeType
from typing import Any

_CLIENT_FILES = ("transport", "sockets", "retry", "client", "credentials")
_PLAN_FILES = ("plan", "difference", "wishes", "ownership", "domains")

ROOMS = (
    ("HTTP server", ("daemonkit/wsgi", "/cheroot/", "/werkzeug/", "dnswebhook/app.py", "dnswebhook/mediatypes.py")),
    ("wire JSON", ("dnswebhook/wire.py",)),
    ("adjust", ("dnswebhook/adjust", "dnswebhook/fit.py")),
    ("record sets", ("dnswebhook/records.py",)),
    ("plan", tuple(f"dnswebhook/{name}.py" for name in _PLAN_FILES)),
    ("apply", ("dnswebhook/apply.py", "dnswebhook/provider.py", "dnswebhook/flights.py", "/concurrent/futures/")),
    ("SQLite", ("dnswebhook/stores/embedded.py",)),
    ("HTTP client", ("/urllib3/", "/http/client.py", *(f"stores/unifi/{name}.py" for name in _CLIENT_FILES))),
    ("store rows", ("dnswebhook/stores/", "dnswebhook/canonical.py")),
    ("logs, metrics", ("daemonkit/log", "/prometheus_client/", "dnswebhook/metrics.py", "/logging/")),
)
"""The first that matches a part of the file's path wins."""
OTHER = "other"
NAMES = (*(name for name, _ in ROOMS), OTHER)

Code = CodeType | str
"""A Python function, or the text by which the profiler names a builtin."""


def room_of(code: Code) -> str | None:
    """None for what is charged to its callers."""
    if isinstance(code, str):
        return None
    path = code.co_filename
    return next((name for name, parts in ROOMS if any(part in path for part in parts)), None)


def seconds_by_room(entries: Iterable[Any]) -> dict[str, float]:
    """Own time of everything in `entries` (of `cProfile.Profile.getstats`), by room."""
    own_s: dict[Code, float] = defaultdict(float)
    callers: dict[Code, dict[Code, float]] = defaultdict(lambda: defaultdict(float))
    for entry in entries:
        own_s[entry.code] += entry.inlinetime
        for callee in entry.calls or ():
            callers[callee.code][entry.code] += callee.totaltime
    seconds = dict.fromkeys(NAMES, 0.0)
    known: dict[Code, dict[str, float]] = {}
    for code, own in own_s.items():
        for name, share in _shares(code, callers, known, frozenset()).items():
            seconds[name] += own * share
    return seconds


def _shares(
    code: Code, callers: dict[Code, dict[Code, float]], known: dict[Code, dict[str, float]], above: frozenset[Code]
) -> dict[str, float]:
    """How the time of `code` is divided among the rooms."""
    if code in known:
        return known[code]
    name = room_of(code)
    if name is not None:
        return {name: 1.0}
    asking = {caller: time_s for caller, time_s in callers.get(code, {}).items() if caller not in above}
    total_s = sum(asking.values())
    if not total_s:
        return {OTHER: 1.0}
    shares: dict[str, float] = defaultdict(float)
    for caller, time_s in asking.items():
        for room, share in _shares(caller, callers, known, above | {code}).items():
            shares[room] += share * time_s / total_s
    if not above:  # inside a cycle of calls the result is partial
        known[code] = dict(shares)
    return shares
