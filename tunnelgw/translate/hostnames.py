"""Hostnames of listeners and routes: which one covers which, and what two of them have in common.

A hostname is exact (`a.example.com`), a wildcard (`*.example.com`: all names below example.com, at any depth, but not
example.com itself), or empty, which means every host. The API server admits only lower case.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

ANY = ""


def covers(pattern: str, hostname: str) -> bool:
    """Whether every host of `hostname`, which may be a wildcard too, is a host of `pattern`."""
    if pattern.startswith("*."):
        return hostname.endswith(pattern[1:])
    return pattern in (ANY, hostname)


def covering(hostname: str) -> Iterator[str]:
    """All hostnames that cover this one, itself included."""
    yield hostname
    if hostname:
        yield ANY
    rest = hostname.removeprefix("*")
    while (dot := rest.find(".", 1)) > 0:
        rest = rest[dot:]
        yield f"*{rest}"


def by_precision(hostname: str) -> Iterator[str]:
    """As `covering`, but the most precise one first: whoever has that one gets the hosts."""
    yield from (pattern for pattern in covering(hostname) if pattern)
    yield ANY


def intersection(first: str, second: str) -> str | None:
    """The hosts that two hostnames have in common: if they overlap, one contains the other. None: no host in common."""
    if covers(first, second):
        return second
    return first if covers(second, first) else None


def effective(listener: str, route: Iterable[str]) -> tuple[str, ...]:
    """The route's hosts on a listener, each once, in the route's order. Empty: the listener has none of them.

    A route without hostnames takes all of the listener's.
    """
    common = (intersection(listener, hostname) for hostname in tuple(route) or (ANY,))
    return tuple(dict.fromkeys(hostname for hostname in common if hostname is not None))


def rivals(groups: Sequence[Collection[str]]) -> tuple[int | None, ...]:
    """For each group of hostnames, the first other group that shares a host with it; None: no other group does.

    The time grows with the number of hostnames, not with that of their pairs.
    """
    owners: dict[str, tuple[int, ...]] = {}
    for place, group in enumerate(groups):
        for hostname in group:
            owners[hostname] = _first_two(owners.get(hostname, ()), place)
    covered: dict[str, tuple[int, ...]] = {}
    for place, group in enumerate(groups):
        for hostname in group:
            for pattern in covering(hostname):
                if pattern in owners:
                    covered[pattern] = _first_two(covered.get(pattern, ()), place)
    return tuple(_rival(place, group, owners, covered) for place, group in enumerate(groups))


def _rival(
    place: int, group: Collection[str], owners: dict[str, tuple[int, ...]], covered: dict[str, tuple[int, ...]]
) -> int | None:
    found = {other for hostname in group for other in covered[hostname]}
    found |= {other for hostname in group for pattern in covering(hostname) for other in owners.get(pattern, ())}
    return min(found - {place}, default=None)


def _first_two(places: tuple[int, ...], place: int) -> tuple[int, ...]:
    """Adds a place; places come in rising order. Two suffice: at least one of them differs from the group that asks."""
    return places if len(places) == 2 or place in places else (*places, place)
