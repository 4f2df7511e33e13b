"""A simulated controller per test, and stores that talk to it over real HTTP(S)."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.stores.observed import Observe
from dnswebhook.stores.unifi.settings import UnifiSettings
from dnswebhook.stores.unifi.store import UnifiStore
from tests.support.controller import Controller

PATIENCE_S = 10.0
"""For one request: a machine that is busy for a moment is no controller that hangs."""


class OpenStore(Protocol):
    """`open_store(controller, api="v2", ...)`: settings beyond the address and the API key as keywords, enums by their
    words."""

    def __call__(
        self,
        controller: Controller,
        observe: Observe | None = None,
        on_rate_limited: Callable[[], None] = ...,
        clock: Callable[[], float] = ...,
        **settings: Any,
    ) -> UnifiStore: ...


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        yield controller


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """All are closed at the end."""
    opened: list[UnifiStore] = []

    def open_one(
        controller: Controller,
        observe: Observe | None = None,
        on_rate_limited: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> UnifiStore:
        if "user" not in settings:
            settings.setdefault("api_key", Secret(controller.api_key))
        settings = {"base_url": controller.url, "request_timeout_s": PATIENCE_S, **settings}
        store = UnifiStore(UnifiSettings(**settings), observe or (lambda *_: None), on_rate_limited, clock)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture(params=["v2", "integration"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(controller: Controller, open_store: OpenStore, api: str) -> UnifiStore:
    return open_store(controller, api=api)


@pytest.fixture
def hasty_store(controller: Controller, open_store: OpenStore, api: str) -> UnifiStore:
    """Stops waiting early for an answer that never comes."""
    return open_store(controller, api=api, request_timeout_s=2.0)


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(3 * PATIENCE_S)
