"""Shared by all tests: property tests have no time limits of their own, since the machine may be under load."""

import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests.support import sharing

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope  # made to be overridden
    scheduler._split_scope = lambda nodeid: sharing.unit_of(file_of(nodeid))
    return scheduler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: sharing.place_of(item.nodeid.partition("::")[0]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests live until the end; traversing them per collection took a third of property tests' time, and
    while they are made an eighth of that."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests that set logging up: their stream is closed afterwards, and its number given to another file."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
