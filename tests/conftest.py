"""Shared by all tests: property tests have no time limits of their own, since the machine may be under load."""

import gc
import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


TESTS = Path(__file__).parent
LONGEST = {
    "conformance/test_core.py",
    "e2e/controller/test_apiserver_faults.py",
    "e2e/controller/test_ingress.py",
    "e2e/controller/test_provider_faults.py",
    "e2e/controller/test_releases.py",
    "e2e/test_external_dns.py",
    "e2e/test_external_dns_faults.py",
    "e2e/test_external_dns_settings.py",
    "e2e/test_histories.py",
    "e2e/test_store_faults.py",
    "e2e/tunnel/test_connections.py",
    "e2e/tunnel/test_contract.py",
    "helm/test_installed.py",
    "helm/test_secrets.py",
    "helm/test_upgrades.py",
    "helm/walk.py",
    "systemd/test_units_at_work.py",
    "test_docs.py",
    "tunnelgw/sources/directory/test_admission_like_server.py",
    "tunnelgw/sources/kubernetes/test_faults.py",
    "tunnelgw/sources/kubernetes/test_watch_answers.py",
}
"""Files that take a minute or more; missing ones cost time only."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the files, those that wait are to run beside those that compute, and none of the
    longest last."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _place(item.path))


def _place(path: Path) -> float:
    name = path.relative_to(TESTS).as_posix()
    return zlib.crc32(name.encode()) * (0.5 if name in LONGEST else 1.0)


def pytest_collection_finish() -> None:
    """Ten thousand tests live until the end; traversing them per collection took a third of property tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests that set logging up: their stream is closed afterwards, and its number given to another file."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
