"""Which names lead to which other names: a resolver's CNAMEs as a graph (pure).

dnsmasq follows CNAMEs when it reads its configuration. If one leads back to its own name, dnsmasq does not start, and
DHCP stops with it. To dnsmasq, as here, a wildcard is just a name: it does not match others.

Clients give up after some 16 CNAMEs, so long paths are not followed to the end: for 11,000 names in one chain, that
took 15 s.
"""

from collections import defaultdict

MAX_NAMES = 64


class Chains:
    """A name may have several targets: the current one, and those that may replace it in the course of an apply."""

    def __init__(self) -> None:
        self._targets: dict[str, set[str]] = defaultdict(set)

    def add(self, name: str, target: str) -> None:
        self._targets[name].add(target)

    def path(self, start: str, end: str) -> tuple[str, ...]:
        """The names from `start` to `end`, inclusive; empty if `start` does not lead there. After more than `MAX_NAMES`
        names, the path to the last one visited."""
        came_from = {start: ""}
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name == end or len(came_from) > MAX_NAMES:
                return _walked(came_from, name)
            for target in sorted(self._targets.get(name, ())):
                if target not in came_from:
                    came_from[target] = name
                    waiting.append(target)
        return ()


def _walked(came_from: dict[str, str], end: str) -> tuple[str, ...]:
    names = [end]
    while before := came_from[names[-1]]:
        names.append(before)
    return tuple(reversed(names))
