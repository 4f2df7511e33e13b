"""Groups a profile's functions into the stages that a request passes through (pure).

A function of ours, or of a library that does one job, belongs to the stage of its file. Anything else (builtins, the
standard library, msgspec) is charged to its callers, in proportion to the time it took for each of them.
"""

from collections import defaultdict
from collections.abc import Iterable
from types import CodeType
from typing import Any

_CLIENT_FILES = ("transport", "connections", "sockets", "replyreader", "retry", "client", "credentials")
_PLAN_FILES = ("plan", "difference", "wishes", "ownership", "domains", "operations", "notes")
_APPLY_FILES = ("apply", "writers", "provider", "flights")

STAGES = (
    ("HTTP server", ("daemonkit/wsgi", "/cheroot/", "/werkzeug/", "dnswebhook/app.py", "dnswebhook/mediatypes.py")),
    ("wire JSON", ("dnswebhook/wire.py",)),
    ("adjust", ("dnswebhook/adjust", "dnswebhook/fit.py")),
    ("spelling", ("dnswebhook/canonical.py", "/ipaddress.py", "/idna/")),
    ("record sets", ("dnswebhook/records.py", "dnswebhook/listings.py")),
    ("plan", tuple(f"dnswebhook/{name}.py" for name in _PLAN_FILES)),
    ("apply", (*(f"dnswebhook/{name}.py" for name in _APPLY_FILES), "/concurrent/futures/")),
    ("SQLite", ("dnswebhook/stores/embedded.py",)),
    ("HTTP client", ("/urllib3/", "/http/client.py", *(f"stores/unifi/{name}.py" for name in _CLIENT_FILES))),
    ("store rows", ("dnswebhook/stores/",)),
    ("logs, metrics", ("daemonkit/log", "/prometheus_client/", "dnswebhook/metrics.py", "/logging/")),
)
"""The first entry that matches a part of the file's path wins."""
OTHER = "other"
MAX_DEPTH = 12
"""How many calls of the standard library into itself are followed upwards."""
NAMES = (*(name for name, _ in STAGES), OTHER)

Code = CodeType | str
"""A Python function, or the text by which the profiler names a builtin."""


def stage_of(code: Code) -> str | None:
    """None for a function that is charged to its callers."""
    if isinstance(code, str):
        return None
    path = code.co_filename
    return next((name for name, parts in STAGES if any(part in path for part in parts)), None)


def seconds_by_stage(entries: Iterable[Any]) -> dict[str, float]:
    """Own time of everything in `entries` (from `cProfile.Profile.getstats`), by stage."""
    own_s: dict[Code, float] = defaultdict(float)
    callers: dict[Code, dict[Code, float]] = defaultdict(lambda: defaultdict(float))
    for entry in entries:
        own_s[entry.code] += entry.inlinetime
        for callee in entry.calls or ():
            callers[callee.code][entry.code] += callee.totaltime
    seconds = dict.fromkeys(NAMES, 0.0)
    charged = own_s
    for _ in range(MAX_DEPTH):
        charged = _moved_up(charged, callers, seconds)
    seconds[OTHER] += sum(charged.values())
    return seconds


def _moved_up(
    charged: dict[Code, float], callers: dict[Code, dict[Code, float]], seconds: dict[str, float]
) -> dict[Code, float]:
    """Book the time of functions that have a stage, and pass the rest on to the callers."""
    rest: dict[Code, float] = defaultdict(float)
    for code, time_s in charged.items():
        name = stage_of(code)
        asking = callers.get(code, {})
        total_s = sum(asking.values())
        if name is not None or not total_s:
            seconds[name or OTHER] += time_s
            continue
        for caller, share_s in asking.items():
            rest[caller] += time_s * share_s / total_s
    return rest
