"""Statuses wait for the documents of their turn, and for nothing else."""

from __future__ import annotations

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.report.holdback import MAX_HOLD_BACK_S, HoldBack
from tunnelgw.translate.verdicts import ObjectId

A, B = (ObjectId(Kind.HTTP_ROUTE, Key("default", name)) for name in "ab")
SHARED, OWN = frozenset({"shared"}), frozenset({"infra/own"})


class Answers:
    """Which turn's document each data plane has answered about."""

    def __init__(self, **turns: int) -> None:
        self.turns = turns

    def __call__(self, plane: str, turn: int) -> bool:
        return self.turns.get(plane, 0) >= turn


def test_an_object_that_changed_no_document_does_not_wait() -> None:
    owed = HoldBack()
    owed.add([A], 1, frozenset(), 0.0)

    assert owed.release(Answers(), 0.0) == [A]
    assert not len(owed)


def test_an_object_waits_until_each_changed_data_plane_has_answered() -> None:
    owed = HoldBack()
    owed.add([A], 3, SHARED | OWN, 0.0)

    assert owed.release(Answers(shared=3), 0.0) == []
    assert owed.release(Answers(**{"shared": 2, "infra/own": 3}), 0.0) == []
    assert owed.release(Answers(**{"shared": 3, "infra/own": 4}), 0.0) == [A]


def test_one_data_plane_delays_no_object_of_another() -> None:
    owed = HoldBack()
    owed.add([A], 1, SHARED, 0.0)
    owed.add([B], 2, OWN, 0.0)

    assert owed.release(Answers(**{"infra/own": 2}), 0.0) == [B]
    assert len(owed) == 1


def test_an_object_that_changes_again_waits_for_the_newer_document() -> None:
    owed = HoldBack()
    owed.add([A, B], 1, SHARED, 0.0)
    owed.add([A], 2, OWN, 0.0)

    assert owed.release(Answers(shared=1), 0.0) == [B]
    assert owed.release(Answers(**{"shared": 1, "infra/own": 2}), 0.0) == []
    assert owed.release(Answers(**{"shared": 2, "infra/own": 2}), 0.0) == [A]


def test_a_later_change_of_no_document_does_not_end_the_wait() -> None:
    owed = HoldBack()
    owed.add([A], 1, SHARED, 0.0)
    owed.add([A], 2, frozenset(), 0.0)

    assert owed.release(Answers(), 0.0) == []


def test_the_wait_for_a_proxy_that_never_answers_ends_at_the_limit() -> None:
    owed = HoldBack()
    owed.add([A], 1, SHARED, 100.0)
    owed.add([A], 2, SHARED, 100.0 + MAX_HOLD_BACK_S)

    assert owed.release(Answers(), 100.0 + MAX_HOLD_BACK_S) == []
    assert owed.release(Answers(), 100.1 + MAX_HOLD_BACK_S) == [A], "since it was owed first"
