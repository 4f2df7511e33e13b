"""Bytes that peers have not taken yet, of many bodies and heads together.

Each has a limit of its own, but a few peers that take nothing can have thousands of them wait. Beyond a total,
those are given up whose peers have taken nothing for longest: a peer that hangs costs the others nothing. Pure.
"""

from typing import Protocol


class Waiting(Protocol):
    """Something that holds bytes for a peer."""

    def leave_behind(self) -> None:
        """Give it up."""


class Backlog:
    __slots__ = ("held_bytes", "waiting")

    def __init__(self) -> None:
        self.held_bytes = 0
        self.waiting: dict[Waiting, None] = {}
        """The one whose peer has taken nothing for longest comes first. Others only read it."""

    def weigh(self, one: Waiting, before_bytes: int, now_bytes: int) -> None:
        """`one` held `before_bytes`, and holds `now_bytes`."""
        if now_bytes < before_bytes:
            self.waiting.pop(one, None)
        if now_bytes:
            self.waiting.setdefault(one)
        self.held_bytes += now_bytes - before_bytes

    def reduce(self, max_bytes: int) -> None:
        """Give up as many as necessary. Each tells `weigh` that it holds nothing any more."""
        while self.held_bytes > max_bytes and self.waiting:
            one = next(iter(self.waiting))
            del self.waiting[one]
            one.leave_behind()
