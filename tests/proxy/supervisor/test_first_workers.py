"""Workers that start before their supervisor, and what a start imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from proxy.supervisor.firstworkers import first_workers
from tests.proxy.supervisor.fleets import fleet_of


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_that_already_runs_becomes_the_first_worker_of_its_slot() -> None:
    with first_workers(1) as first, fleet_of(first) as fleet:
        assert fleet.slots[0].pid == first[0].pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_for_all_processes_does_not_end_one_that_still_starts(number: signal.Signals) -> None:
    with first_workers(1) as first:
        os.kill(first[0].pid, number)

        with fleet_of(first) as fleet:
            assert fleet.slots[0].pid == first[0].pid


def test_processes_that_no_fleet_takes_end_with_their_context() -> None:
    with first_workers(2) as first:
        pids = [process.pid for process in first.values()]
        assert len(pids) == 2

    assert not any(map(is_alive, pids))


def test_a_failed_start_ends_its_workers() -> None:
    with pytest.raises(RuntimeError), first_workers(1) as first:
        raise RuntimeError("cannot start")

    assert not is_alive(first[0].pid)


@pytest.mark.parametrize(
    "module", ["proxy.supervisor.main", "proxy.supervisor.tunnel", "proxy.supervisor.edgefinder", "proxy.worker.main"]
)
def test_a_start_imports_nothing_large_that_it_does_not_need(module: str) -> None:
    """Those imports would take a third of the time until the first registration."""
    assert not {"asyncio", "backoff", "dns", "cryptography", "requests", "rich"} & _imported_by(module)


def test_a_supervisor_that_checks_certificates_imports_no_code_that_serves_requests() -> None:
    modules = "proxy.supervisor.main, proxy.doors.tls, proxy.backend.tls"

    assert not {"hpack", "httptools", "proxy.h1", "proxy.h2", "proxy.exchange.exchange"} & _imported_by(modules)


def _imported_by(modules: str) -> set[str]:
    listing = f"import sys, {modules}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", listing], capture_output=True, check=True, text=True).stdout.split()
    )
