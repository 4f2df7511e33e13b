"""Shared by all tests: property tests have no time limits of their own, since the machine may be under load."""

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


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
