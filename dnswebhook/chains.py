"""Which names lead to which other names: the CNAMEs of a resolver as a graph (pure).

dnsmasq follows them when it reads its configuration. It does not start when one of them leads back to where it began,
and DHCP goes with it. A wildcard's name is no link there, nor is it here: it is a name of its own.

Clients give up after some 16 CNAMEs, so no way is followed for long: 11,000 names in one chain, each followed to its
end, took 15 s.
"""

from collections import defaultdict

MAX_NAMES = 64


class Chains:
    """Names may have several targets: what is served now, and what comes in its place at some moment of an apply."""

    def __init__(self) -> None:
        self._targets: dict[str, set[str]] = defaultdict(set)

    def add(self, name: str, target: str) -> None:
        self._targets[name].add(target)

    def path(self, start: str, end: str) -> tuple[str, ...]:
        """The names from one to the other, both included; empty when none leads there. Where more than `MAX_NAMES`
        are met, those on the way to the one that was met last."""
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
