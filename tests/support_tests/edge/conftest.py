from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.support.edge.edge import Edge
from tests.support_tests.edge.connector import Connector


@pytest.fixture
def edge() -> Iterator[Edge]:
    with Edge() as edge:
        yield edge


class Connect(Protocol):
    def __call__(
        self, address: int = 0, conn_index: int = 0, *, token: str | None = None, is_polite: bool = True
    ) -> Connector: ...


@pytest.fixture
def connect(edge: Edge) -> Iterator[Connect]:
    """Makes connectors for the edge's tunnel, or for that of another token, and closes them at the end."""
    with ExitStack() as stack:

        def connect(
            address: int = 0, conn_index: int = 0, *, token: str | None = None, is_polite: bool = True
        ) -> Connector:
            connector = Connector(
                edge.addresses[address], edge.ca_file, token or edge.tunnel.token, conn_index, is_polite=is_polite
            )
            return stack.enter_context(connector)

        yield connect


@pytest.fixture
def connector(edge: Edge, connect: Connect) -> Connector:
    """A connector whose registration both sides have seen."""
    connector = connect()
    edge.wait_for_registered(1)
    connector.wait_for_event()
    return connector
