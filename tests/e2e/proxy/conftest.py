"""One proxy for all tests that only push documents; tests that kill or stop one start their own."""

from collections.abc import Iterator

import pytest

from tests.support.gateway import Gateway
from tests.support.recordingbackend import RecordingBackend


@pytest.fixture(scope="session")
def shared_gateway() -> Iterator[Gateway]:
    with Gateway(workers=2) as gateway:
        yield gateway


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    """Whatever document the test before left there."""
    assert shared_gateway.is_running, f"a test before ended the proxy; its log:\n{shared_gateway.tail}"
    return shared_gateway


@pytest.fixture(scope="session")
def shared_lone_gateway() -> Iterator[Gateway]:
    with Gateway(workers=1) as gateway:
        yield gateway


@pytest.fixture
def lone_gateway(shared_lone_gateway: Gateway) -> Gateway:
    """With one worker, where a test counts what is kept by each: connections to backends, failures, memory."""
    assert shared_lone_gateway.is_running, f"a test before ended the proxy; its log:\n{shared_lone_gateway.tail}"
    return shared_lone_gateway


@pytest.fixture
def backend() -> Iterator[RecordingBackend]:
    with RecordingBackend() as backend:
        yield backend
