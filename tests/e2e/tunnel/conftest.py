"""An edge, the proxy as its connector, and a backend behind the tunnel."""

from collections.abc import Iterator

import pytest

from tests.e2e.tunnel.connector import Connector
from tests.support.edge.edge import Edge
from tests.support.recordingbackend import RecordingBackend


@pytest.fixture
def backend() -> Iterator[RecordingBackend]:
    with RecordingBackend() as backend:
        yield backend


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    with Edge() as edge:
        yield edge


@pytest.fixture(scope="module")
def proxy(edge: Edge) -> Iterator[Connector]:
    """Registered, with one connection; tests push the routes that they need."""
    with Connector(edge) as proxy:
        proxy.put({"listeners": [], "routes": []})
        edge.wait_for_registered(1)
        yield proxy
