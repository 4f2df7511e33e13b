"""Where a full status is reported, and how often."""

from __future__ import annotations

import logging

import pytest

from tests.tunnelgw.report.test_events import Recorder
from tests.tunnelgw.sources.objects import route
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key
from tunnelgw.model.refs import ParentRef
from tunnelgw.report.fulllists import FullLists
from tunnelgw.translate.verdicts import ObjectId

WEB = Key("default", "web")
ONE, TWO = ParentRef("one", namespace="infra"), ParentRef("two", section_name="https")


def test_parents_left_out_of_a_full_status_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tunnelgw")
    recorder = Recorder()
    lists = FullLists(recorder)
    first, second = (route("web", metadata={"uid": uid}) for uid in ("1", "2"))

    for item, left_out in ((first, (ONE,)), (first, (ONE,)), (first, (ONE, TWO)), (first, ()), (first, (ONE,))):
        lists.note(ObjectId(Kind.HTTP_ROUTE, WEB), item, left_out)
    lists.note(ObjectId(Kind.HTTP_ROUTE, WEB), second, (ONE,))

    told = "status.parents is full, so it says nothing about {}; remove entries that are out of date"
    names = ["Gateway infra/one", "Gateway infra/one, Gateway two/https", "Gateway infra/one", "Gateway infra/one"]
    assert recorder.said == [(Kind.HTTP_ROUTE, WEB, "StatusFull", told.format(name)) for name in names]
    assert [record.getMessage() for record in caplog.records] == ["status has no room"] * 4


def test_an_event_that_was_not_accepted_is_tried_again_and_the_log_says_nothing_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tunnelgw")
    recorder = Recorder()
    lists = FullLists(recorder)

    said = []
    for is_full in (True, True, False, False):
        recorder.is_full = is_full
        lists.note(ObjectId(Kind.HTTP_ROUTE, WEB), route("web"), (ONE,))
        said.append(len(recorder.said))

    assert said == [0, 0, 1, 1]
    assert [record.getMessage() for record in caplog.records] == ["status has no room"]


def test_the_memory_of_reported_objects_is_bounded() -> None:
    """Objects are created and deleted for months, and deletions are not reported here."""
    recorder = Recorder()
    lists = FullLists(recorder)
    for name in ("first", *(f"preview-{number}" for number in range(10_000)), "preview-9999", "first"):
        lists.note(ObjectId(Kind.HTTP_ROUTE, Key("default", name)), route(name), (ONE,))

    assert [key.name for _, key, *_ in recorder.said][10_000:] == ["preview-9999", "first"]


def test_without_a_recorder_a_full_status_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    FullLists().note(ObjectId(Kind.BACKEND_TLS_POLICY, WEB), route("web"), (ONE,))

    assert [record.getMessage() for record in caplog.records] == ["status has no room"]
