from collections.abc import Callable, Iterator

import pytest

from proxy import document
from tests.proxy.errors import no_errors, with_an_error
from tests.proxy.exchange.sides import World, config

__all__ = ["MakeWorld", "make_world", "no_errors", "with_an_error", "world"]

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    """Makes worlds, and lets go of their loops afterwards."""
    worlds: list[World] = []

    def make(content: document.Document | None = None, draw: float = 0.5) -> World:
        worlds.append(World(content or config(), lambda: draw))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One route, one backend, no policies."""
    return make_world()
