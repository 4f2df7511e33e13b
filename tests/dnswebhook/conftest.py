"""What the tests of the webhook share."""

from collections.abc import Iterator
from typing import Any

import pytest

from dnswebhook.model import Record
from tests.dnswebhook.rig import Build, Rig
from tests.support.memory_store import MemoryStore
from tests.support.webhook_site import BuildSite, Site


@pytest.fixture
def site() -> Iterator[BuildSite]:
    """Builds sites, and closes them."""
    built: list[Site] = []

    def build(*records: Record, **more: Any) -> Site:
        built.append(Site(MemoryStore.holding(*records), **more))
        return built[-1]

    yield build
    for one in built:
        one.provider.close()


@pytest.fixture
def rig() -> Iterator[Build]:
    """Builds rigs, and closes them."""
    built: list[Rig] = []

    def build(*records: Record, **policy: Any) -> Rig:
        built.append(Rig(MemoryStore.holding(*records), **policy))
        return built[-1]

    yield build
    for one in built:
        one.provider.close()
