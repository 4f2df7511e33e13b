"""A worker that is killed outright: only what it was doing is lost, and its successor has the document."""

import os
import select
import signal

from tests.support.asking import ask
from tests.support.gateway import Gateway, route_to
from tests.support.load import Load
from tests.support.recordingbackend import RecordingBackend

THREADS = 4


def test_a_worker_killed_under_load_costs_only_its_own_requests() -> None:
    with RecordingBackend() as backend, Gateway(workers=2) as gateway:
        gateway.serve(route_to(backend.address))
        first, second = gateway.worker_pids

        with Load(gateway.clear[1], threads=THREADS) as load:
            load.wait_for(50)
            os.kill(first, signal.SIGKILL)
            gateway.wait_for_log(
                lambda entry: entry.get("msg") == "worker started" and entry["pid"] not in (first, second),
                "a new worker",
            )
            load.wait_for(200)

        assert len(load.failures) <= THREADS, load.failures
        assert second in gateway.worker_pids
        assert 2 == len(gateway.worker_pids)


def test_every_worker_killed_in_turn_leaves_a_proxy_that_serves() -> None:
    with RecordingBackend() as backend, Gateway(workers=2) as gateway:
        gateway.serve(route_to(backend.address))
        victims = gateway.worker_pids

        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        # Connections wait in the queue of the socket, which outlives its worker.
        answers = [ask(gateway.clear[1]).status_code for _ in range(20)]

        assert [200] * 20 == answers
        assert not set(victims) & set(gateway.worker_pids)


def test_workers_end_when_their_supervisor_is_killed() -> None:
    gateway = Gateway(workers=2).start()
    gateway.serve()
    workers = gateway.worker_pids
    watched = [os.pidfd_open(pid) for pid in workers]

    gateway.kill()

    for descriptor in watched:
        assert select_readable(descriptor), "a worker outlived its supervisor"
        os.close(descriptor)
    gateway.doors.close()


def select_readable(descriptor: int) -> bool:
    """A pidfd becomes readable when its process ends."""
    return bool(select.select([descriptor], [], [], 20.0)[0])
