"""When a document is in use, by the reports of the workers."""

import json
import threading
import tracemalloc

import pytest

from daemonkit.lifecycle import StartFailed
from proxy import document
from proxy.accesslog import AccessLogSettings
from proxy.control import Begin, Ready, TakeDocument, Taken, ToEdge
from proxy.supervisor import fleet as fleets
from proxy.supervisor import slot as slots
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.fleet import Fleet
from proxy.supervisor.slot import FAILING_STARTS, State
from proxy.tunnel.orders import Withdraw
from tests.kube.processes import wait_until
from tests.proxy.supervisor.playedworker import WAIT_S, PlayedWorker, begun_fleet_of, fleet_of
from tests.support.descriptors import open_files

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
def test_a_document_is_in_use_when_every_live_worker_has_taken_it(first: str, second: str, missing: str | None) -> None:
    fleet = Fleet([Begin(index, "error", "json", AccessLogSettings("off", 1.0)) for index in range(2)])
    for slot, how in zip(fleet.slots, (first, second), strict=True):
        slot.state = State.WAITING if how == WAITING else State.RUNNING
        slot.taken = 7 if how == TAKEN else 6
        slot.refused = 7 if how == REFUSED else 0
        if how == WAITING:
            slot.taken = 0

    assert fleet.wait_until_taken(7, 0.0) == missing


@pytest.mark.parametrize(
    ("state", "taken", "refused", "missing"),
    [
        (State.RUNNING, 7, 0, None),
        (State.RUNNING, 8, 0, None),
        (State.RUNNING, 6, 7, "a worker could not use the document, which is a bug; its log has the stack"),
        (State.WAITING, 0, 0, "no worker runs; the log says how they ended"),
    ],
)
def test_a_worker_that_has_taken_a_document_or_never_will_is_not_waited_for(
    state: State, taken: int, refused: int, missing: str | None
) -> None:
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))])
    (slot,) = fleet.slots
    slot.state, slot.taken, slot.refused = state, taken, refused
    found: list[str | None] = []

    waiting = threading.Thread(target=lambda: found.append(fleet.wait_until_taken(7, 3600.0)), daemon=True)
    waiting.start()
    waiting.join(WAIT_S)

    assert found == [missing]


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_encoded_messages_to_workers_are_not_kept(is_ready: bool) -> None:
    """They would be a second copy of the document, for as long as it is in use."""
    route = {"rules": [{"respond": {"statusCode": 200, "body": "b" * 60_000}}]}
    data = json.dumps({"routes": [route] * 50}).encode()
    deployment = Deployment(1, 1, document.Reader().read(data).content, {})
    worker = PlayedWorker()
    with (fleet_of if is_ready else begun_fleet_of)(worker) as fleet:
        tracemalloc.start()
        try:
            fleet.deploy(deployment)
            if not is_ready:
                worker.says(Ready())
            worker.hears(TakeDocument)
            assert tracemalloc.get_traced_memory()[1] > len(data) / 2
            # The thread that has sent them holds them until its call returns.
            assert wait_until(lambda: tracemalloc.get_traced_memory()[0] < len(data) / 2, WAIT_S)
        finally:
            tracemalloc.stop()


def test_no_descriptor_of_a_token_stays_open_after_a_dial() -> None:
    """One for each attempt would also use up the limit of open files during a long outage of the edge."""
    worker = PlayedWorker()
    with fleet_of(worker) as fleet:
        (slot,) = fleet.slots

        assert slot.order(Withdraw(1), b"token") == worker.pid

        worker.hears(ToEdge)
        assert not [name for name in open_files() if "tunnelgw-proxy-edge" in name]


@pytest.mark.parametrize(
    ("taken", "failed_starts", "problem"),
    [
        ((0, 0), (0, 0), "no worker serves the configuration yet"),
        ((7, 0), (0, 0), None),
        ((7, 7), (FAILING_STARTS, 0), None),
        ((7, 0), (0, FAILING_STARTS - 1), None),
        ((7, 0), (0, FAILING_STARTS), "a worker cannot be started"),
        ((0, 0), (0, FAILING_STARTS + 1), "a worker cannot be started"),
    ],
)
def test_proxies_are_ready_while_one_worker_serves_and_none_fails_again_and_again(
    taken: tuple[int, int], failed_starts: tuple[int, int], problem: str | None
) -> None:
    fleet = Fleet([Begin(index, "error", "json", AccessLogSettings("off", 1.0)) for index in range(2)])
    for slot, generation, failures in zip(fleet.slots, taken, failed_starts, strict=True):
        slot.state, slot.taken, slot.failed_starts = State.RUNNING, generation, failures

    assert fleet.problem() == problem
    fleet.stop_is_near()
    assert fleet.problem() == "stopping"


def test_waiting_for_a_document_to_be_taken_ends_as_soon_as_the_fleet_stops() -> None:
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))])
    (slot,) = fleet.slots
    slot.state = State.RUNNING
    found: list[str | None] = []
    waiting = threading.Thread(target=lambda: found.append(fleet.wait_until_taken(7, 3600.0)), daemon=True)
    waiting.start()

    fleet.stop_is_near()
    waiting.join(WAIT_S)

    assert found == ["worker 0 has not taken the document within 3600 s"]


def test_a_document_is_in_use_while_a_worker_that_has_died_waits_for_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that cannot be started would otherwise fail every PUT, though the others serve it."""
    monkeypatch.setattr(slots, "_FIRST_WAIT_S", 3600.0)
    monkeypatch.setattr(slots, "_MAX_WAIT_S", 3600.0)
    serving, dying = PlayedWorker(), PlayedWorker()
    with fleet_of(serving, dying) as fleet:
        dying.kill()
        assert wait_until(lambda: fleet.slots[1].restarts == 1, WAIT_S)
        serving.says(Taken(1))

        assert fleet.wait_until_taken(1, WAIT_S) is None


def test_a_start_fails_without_any_worker_and_succeeds_with_one_of_two() -> None:
    fleet = Fleet([Begin(index, "error", "json", AccessLogSettings("off", 1.0)) for index in range(2)])
    for slot in fleet.slots:
        slot.failed_starts = 1

    with pytest.raises(StartFailed, match="no worker process could be started"):
        fleet.start()
    fleet.slots[1].state = State.RUNNING
    fleet.start()


def test_a_start_that_takes_too_long_is_told_from_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has ended then, so no other line of the log says why."""
    monkeypatch.setattr(fleets, "_START_S", 0.01)
    fleet = Fleet([Begin(0, "error", "json", AccessLogSettings("off", 1.0))])

    with pytest.raises(StartFailed, match=r"no worker process was ready within 0\.01 s, is this host overloaded"):
        fleet.start()
