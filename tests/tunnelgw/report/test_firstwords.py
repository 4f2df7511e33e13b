"""A new leader writes no status about a way before something is known of it."""

from __future__ import annotations

from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.report.deliveries import Way
from tunnelgw.report.firstwords import FirstWords
from tunnelgw.report.holdback import MAX_HOLD_BACK_S, HoldBack
from tunnelgw.translate.verdicts import ObjectId

A, B = (ObjectId(Kind.GATEWAY, Key("default", name)) for name in "ab")
ROUTE = ObjectId(Kind.HTTP_ROUTE, Key("default", "route"))
ONE, OTHER = Way("one", ""), Way("other", "tunnel")


def listening(*silent: Way) -> FirstWords:
    first = FirstWords()
    first.listen({ONE, OTHER}, silent.__contains__)
    return first


def test_only_objects_of_a_silent_way_wait() -> None:
    first = listening(ONE)

    assert first.ripe({A: ONE, B: OTHER, ROUTE: None}, HoldBack(), 0.0) == [B, ROUTE]
    assert len(first) == 1


def test_an_object_waits_until_its_way_is_heard() -> None:
    first = listening(ONE)
    first.ripe({A: ONE}, HoldBack(), 0.0)

    first.listen({ONE, OTHER}, lambda _: False)

    assert first.ripe({}, HoldBack(), 1.0) == [A]
    assert not len(first)


def test_objects_of_a_way_that_was_heard_once_do_not_wait_when_it_falls_silent() -> None:
    first = listening()
    first.listen({ONE, OTHER}, lambda _: True)

    assert first.ripe({A: ONE}, HoldBack(), 0.0) == [A]


def test_nothing_waits_after_the_hold_back_limit_since_the_beginning() -> None:
    first = listening(ONE)
    first.ripe({A: ONE}, HoldBack(), 0.0)

    assert first.ripe({B: ONE}, HoldBack(), MAX_HOLD_BACK_S) == [A, B]


def test_an_object_that_is_owed_a_newer_status_waits_for_that() -> None:
    first = listening(ONE)
    first.ripe({A: ONE}, HoldBack(), 0.0)
    owed = HoldBack()
    owed.add([A], 2, frozenset({"one"}), 1.0)
    first.listen({ONE, OTHER}, lambda _: False)

    assert first.ripe({}, owed, 1.0) == []
    assert first.ripe({A: ONE}, HoldBack(), 2.0) == [A]
