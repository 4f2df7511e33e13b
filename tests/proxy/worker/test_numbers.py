"""What a worker says of its numbers when it is asked."""

from __future__ import annotations

from proxy.control import Ready, Snapshot
from tests.proxy.worker.supervisor import Supervisor
from tests.support.memoryless import no_memory_files


def test_a_worker_that_has_no_memory_for_its_numbers_still_answers_who_asks_for_them() -> None:
    """Who is not heard of for a while is killed, and an answer that never comes leaves all later ones too late."""
    supervisor = Supervisor()
    assert supervisor.hear() == Ready()

    with no_memory_files():
        supervisor.ask()
        assert isinstance(supervisor.hear(), Snapshot)

    supervisor.close()
