"""The simulated provider, and a client that may do all there."""

from collections.abc import Iterator

import pytest

from daemonkit.secret import Secret
from tests.support.provider import TOKEN, Provider
from tunnelgw.provider.client import ProviderClient


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def client(provider: Provider) -> Iterator[ProviderClient]:
    made = ProviderClient(Secret(TOKEN), provider.url)
    yield made
    made.close()
