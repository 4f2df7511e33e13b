"""Which statuses a new leader holds back at first, because they would take back what the former one said. Pure.

The stored statuses were written by a leader that knew more about deliveries. So the status of a Gateway or ListenerSet
waits until both ends of its way have answered, or one has failed. Nothing waits for a way that has been heard once, and
nothing waits longer than `MAX_HOLD_BACK_S` after the first call of `ripe`.
"""

import math
from collections.abc import Callable, Mapping, Set

from tunnelgw.report.deliveries import Way
from tunnelgw.report.holdback import MAX_HOLD_BACK_S, HoldBack
from tunnelgw.translate.verdicts import ObjectId


class FirstWords:
    """Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._heard: set[Way] = set()
        """Ways for which, at some time since we lead, all receipts were there, or one that reports a failure."""
        self._silent: set[Way] = set()
        """All other ways."""
        self._waiting: dict[ObjectId, Way | None] = {}
        """Gateways and ListenerSets whose ways are silent."""
        self._until_s = math.inf
        """They may wait until then; inf: `ripe` has not been called yet."""

    def __len__(self) -> int:
        """How many objects are waiting."""
        return len(self._waiting)

    def listen(self, ways: Set[Way], is_silent: Callable[[Way], bool]) -> None:
        """`ways`: all ways that exist now."""
        self._silent = {way for way in ways - self._heard if is_silent(way)}
        self._heard = set(ways - self._silent)

    def ripe(self, released: Mapping[ObjectId, Way | None], owed: HoldBack, now_s: float) -> list[ObjectId]:
        """The objects in `released`, of this call and earlier ones, that need not wait any more.

        An object that is in `owed` again is left out: it waits for its newer document, and is released again after
        that.
        """
        self._until_s = min(self._until_s, now_s + MAX_HOLD_BACK_S)
        ways = {**{id_: way for id_, way in self._waiting.items() if id_ not in owed}, **released}
        has_time = now_s < self._until_s
        self._waiting = {id_: way for id_, way in ways.items() if has_time and way in self._silent}
        return [id_ for id_ in ways if id_ not in self._waiting]
