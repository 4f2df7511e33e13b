"""One proxy for all tests that only push documents; tests that kill or stop one start their own.

Tests marked by `tests.e2e.proxy.doors` meet it twice: behind its own listeners, and behind an edge and the tunnel.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.tunnel.connector import Connector
from tests.support.edge.edge import Edge
from tests.support.gateway import Gateway
from tests.support.recordingbackend import RecordingBackend


@pytest.fixture(scope="session")
def shared_gateway() -> Iterator[Gateway]:
    with Gateway(workers=2) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def shared_tunnel_gateway() -> Iterator[Connector]:
    yield from tunnelled(workers=2)


@pytest.fixture
def gateway(request: pytest.FixtureRequest) -> Gateway:
    """With whatever document the previous test left."""
    return chosen(request, listener="shared_gateway", tunnel="shared_tunnel_gateway")


@pytest.fixture(scope="session")
def shared_lone_gateway() -> Iterator[Gateway]:
    with Gateway(workers=1) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def shared_lone_tunnel_gateway() -> Iterator[Connector]:
    yield from tunnelled(workers=1)


@pytest.fixture
def lone_gateway(request: pytest.FixtureRequest) -> Gateway:
    """With one worker, where a test counts what is kept by each: connections to backends, failures, memory."""
    return chosen(request, listener="shared_lone_gateway", tunnel="shared_lone_tunnel_gateway")


def tunnelled(workers: int) -> Iterator[Connector]:
    """One connection for each worker."""
    with Edge() as edge, Connector(edge, connections=workers, workers=workers) as gateway:
        gateway.serve()
        edge.wait_for_registered(workers)
        yield gateway


def chosen(request: pytest.FixtureRequest, **names: str) -> Gateway:
    shared: Gateway = request.getfixturevalue(names[getattr(request, "param", "listener")])
    assert shared.is_running, f"a test before ended the proxy; its log:\n{shared.tail}"
    return shared


@pytest.fixture
def backend() -> Iterator[RecordingBackend]:
    with RecordingBackend() as backend:
        yield backend
