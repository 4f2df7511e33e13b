"""Which Events are recorded, and on which objects."""

from __future__ import annotations

import msgspec

from tests.tunnelgw.sources.objects import gateway, route
from tunnelgw.deliver.receipts import Receipt
from tunnelgw.model.kinds import Kind
from tunnelgw.model.meta import Key, Object
from tunnelgw.model.snapshot import Entry
from tunnelgw.report.events import LASTING_ATTEMPTS, WarningEvents, has_lasted
from tunnelgw.sources.tables import Unreadable

GATEWAY = gateway("gw")


class Recorder:
    def __init__(self) -> None:
        self.said: list[tuple[Kind, Key, str, str]] = []
        self.is_full = False

    def warn(self, kind: Kind, item: Object, reason: str, note: str) -> bool:
        if not self.is_full:
            self.said.append((kind, item.key, reason, note))
        return not self.is_full


def test_failures_are_reported_once_they_have_lasted_and_refused_credentials_at_once() -> None:
    passing = Receipt("p", "d", error="refused", attempts=LASTING_ATTEMPTS - 1)
    lasting = Receipt("p", "d", error="refused", attempts=LASTING_ATTEMPTS)
    refused = Receipt("t", "d", error="401", is_credential_problem=True, attempts=1)

    assert [has_lasted(each) for each in (passing, lasting, refused)] == [False, True, True]
    assert not has_lasted(Receipt("p", "d", "d"))
    assert not has_lasted(msgspec.structs.replace(lasting, is_starting=True))


def test_a_gateway_gets_one_event_for_each_failed_target() -> None:
    recorder = Recorder()
    events = WarningEvents(recorder)

    events.failures(
        GATEWAY, [Receipt("p", "d", error="down"), Receipt("t", "d", error="401", is_credential_problem=True)]
    )

    key = Key("default", "gw")
    assert recorder.said == [
        (Kind.GATEWAY, key, "DeliveryFailed", "p: down"),
        (Kind.GATEWAY, key, "CredentialsRefused", "t: 401"),
    ]


def test_a_hostname_conflict_is_an_event_on_its_route() -> None:
    recorder = Recorder()

    WarningEvents(recorder).conflict(Kind.HTTP_ROUTE, route("web"), "a rule of somebody else")

    assert recorder.said == [
        (Kind.HTTP_ROUTE, Key("default", "web"), "HostnameConflict", "a rule of somebody else"),
    ]


def test_an_unreadable_object_gets_another_event_when_its_problem_changes() -> None:
    recorder = Recorder()
    events = WarningEvents(recorder)
    entry = Entry(Kind.HTTP_ROUTE, Key("shop", "web"))

    for problem in (Unreadable("spec.rules: want a list"), Unreadable("spec.rules: want a list"), Unreadable("other")):
        events.unreadable({entry: problem})
    events.unreadable({})
    events.unreadable({entry: Unreadable("other")})

    assert [said[:3] for said in recorder.said] == [(Kind.HTTP_ROUTE, Key("shop", "web"), "Unreadable")] * 3
    assert recorder.said[0][3] == "HTTPRoute shop/web cannot be read and is left out: spec.rules: want a list"


def test_an_event_that_the_recorder_did_not_take_is_recorded_later() -> None:
    recorder = Recorder()
    events = WarningEvents(recorder)
    found = {Entry(Kind.HTTP_ROUTE, Key("shop", "web")): Unreadable("spec.rules: want a list")}
    recorder.is_full = True
    events.unreadable(found)
    recorder.is_full = False

    events.unreadable(found)
    events.unreadable(found)

    assert len(recorder.said) == 1


def test_without_a_recorder_no_event_is_recorded() -> None:
    WarningEvents().failures(GATEWAY, [Receipt("p", "d", error="down")])
