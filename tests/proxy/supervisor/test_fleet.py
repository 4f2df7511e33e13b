"""When a document is in use, by what its workers have said."""

import json
import threading
import tracemalloc

import pytest

from proxy import document
from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, TakeDocument
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.slot import State
from tests.proxy.supervisor.playedworker import WAIT_S, PlayedWorker, fleet_of

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


def test_a_worker_that_refuses_a_document_is_not_waited_for() -> None:
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))])
    (slot,) = fleet.slots
    slot.state, slot.refused = State.RUNNING, 7
    found: list[str | None] = []

    waiting = threading.Thread(target=lambda: found.append(fleet.wait_until_taken(7, 3600.0)), daemon=True)
    waiting.start()
    waiting.join(WAIT_S)

    assert found == ["a worker could not use the document, which is a bug; its log has the stack"]


def test_what_workers_were_told_is_not_kept_beside_the_document() -> None:
    """The whole document once more, for as long as it is in use."""
    route = {"rules": [{"respond": {"statusCode": 200, "body": "b" * 60_000}}]}
    data = json.dumps({"routes": [route] * 50}).encode()
    deployment = Deployment(1, 1, document.Reader().read(data).content, {})
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        tracemalloc.start()
        try:
            fleet.deploy(deployment)
            worker.hears(TakeDocument)
            kept_bytes, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert kept_bytes < len(data) / 2 < most_bytes
