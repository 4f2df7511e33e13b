"""Hostnames of listeners and routes: which one covers which, and what two of them have in common.

A hostname is exact (`a.example.com`), a wildcard (`*.example.com`: every name below, at any depth, not example.com
itself), or empty: every host. The API server admits lower case only.
"""

from collections.abc import Iterable

ANY = ""


def covers(pattern: str, hostname: str) -> bool:
    """Whether every host of `hostname`, which may be a wildcard too, is a host of `pattern`."""
    if pattern.startswith("*."):
        return hostname.endswith(pattern[1:])
    return pattern in (ANY, hostname)


def intersection(first: str, second: str) -> str | None:
    """The hosts that both have; two hostnames that overlap are always one inside the other. None: no host."""
    if covers(first, second):
        return second
    return first if covers(second, first) else None


def effective(listener: str, route: Iterable[str]) -> tuple[str, ...]:
    """The hosts of a route on a listener, each once, in the order of the route. Empty: the listener has none of them.

    A route without hostnames takes all of the listener's.
    """
    common = (intersection(listener, hostname) for hostname in tuple(route) or (ANY,))
    return tuple(dict.fromkeys(hostname for hostname in common if hostname is not None))
