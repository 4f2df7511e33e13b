"""When a document is in use, by what its workers have said."""

import pytest

from proxy.accesslog import AccessLogSettings
from proxy.control import Begin
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.slot import State

TAKEN, LATE, REFUSED, WAITING = "taken", "late", "refused", "waiting"


@pytest.mark.parametrize(
    ("first", "second", "missing"),
    [
        (TAKEN, TAKEN, None),
        (TAKEN, WAITING, None),
        (TAKEN, LATE, "worker 1 has not taken the document within 0 s"),
        (LATE, WAITING, "worker 0 has not taken the document within 0 s"),
        (LATE, LATE, "worker 0, 1 has not taken the document within 0 s"),
        (TAKEN, REFUSED, "a worker could not use the document, which is a bug; its log has the stack"),
        (REFUSED, LATE, "a worker could not use the document, which is a bug; its log has the stack"),
        (WAITING, WAITING, "no worker runs; the log says how they ended"),
    ],
)
def test_a_document_is_in_use_when_every_worker_that_lives_has_taken_it(
    first: str, second: str, missing: str | None
) -> None:
    fleet = Fleet([Begin(index, "error", "json", AccessLogSettings("off", 1.0)) for index in range(2)])
    for slot, how in zip(fleet.slots, (first, second), strict=True):
        slot.state = State.WAITING if how == WAITING else State.RUNNING
        slot.taken = 7 if how == TAKEN else 6
        slot.refused = 7 if how == REFUSED else 0
        if how == WAITING:
            slot.taken = 0

    assert fleet.wait_until_taken(7, 0.0) == missing
