"""Holds statuses back until they are true: until the documents of their turn have reached a proxy. Pure.

An object whose verdict changed in a turn waits for only those data planes whose documents changed in that turn. If it
changes again meanwhile, it keeps waiting, for the newer document. A proxy that neither takes a document nor fails to is
not waited for longer than `MAX_HOLD_BACK_S`.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tunnelgw.translate.verdicts import ObjectId

MAX_HOLD_BACK_S = 20.0


class _Batch(NamedTuple):
    turn: int
    planes: frozenset[str]
    since_s: float


class HoldBack:
    def __init__(self) -> None:
        self._batches: dict[ObjectId, _Batch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def __contains__(self, id_: ObjectId) -> bool:
        return id_ in self._batches

    def add(self, ids: Iterable[ObjectId], turn: int, planes: frozenset[str], now_s: float) -> None:
        """`planes`: data planes whose documents `turn` changed."""
        fresh = _Batch(turn, planes, now_s)
        merged: dict[_Batch, _Batch] = {}
        for id_ in ids:
            before = self._batches.get(id_)
            if before is None:
                self._batches[id_] = fresh
            else:
                if before not in merged:
                    merged[before] = _Batch(turn, before.planes | planes, before.since_s)
                self._batches[id_] = merged[before]

    def release(self, has_answered: Callable[[str, int], bool], now_s: float) -> list[ObjectId]:
        """Objects that need not wait any more. `has_answered`: whether a plane has answered about a turn's document."""
        is_over: dict[_Batch, bool] = {}
        for batch in set(self._batches.values()):
            is_late = now_s - batch.since_s > MAX_HOLD_BACK_S
            is_over[batch] = is_late or all(has_answered(plane, batch.turn) for plane in batch.planes)
        released = [id_ for id_, batch in self._batches.items() if is_over[batch]]
        for id_ in released:
            del self._batches[id_]
        return released
