"""Fixtures of the tests with a loop of their own: none passes over a bug of the proxy."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def with_an_error() -> None:
    """For tests that cause one on purpose: it must be logged."""


@pytest.fixture(autouse=True)
def no_errors(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The loop goes on after a handler that raises, so that without this a test would, too."""
    yield
    errors = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert bool(errors) is ("with_an_error" in request.fixturenames), errors
