"""A simulated controller per test, and stores that talk to it over real HTTP(S)."""

from collections.abc import Callable, Iterator

import pytest

from daemonkit.secret import Secret
from dnswebhook.deadline import Deadline
from dnswebhook.stores.unifi import UnifiSettings, UnifiStore
from tests.support.controller import Controller

OpenStore = Callable[..., UnifiStore]


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        yield controller


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """`open_store(controller, api="v2", ...)`: settings beyond the address and the API key as keywords."""
    opened: list[UnifiStore] = []

    def open_one(controller: Controller, observe: Callable[[str, str, float], None] | None = None, **changes: object):
        if "user" not in changes:
            changes.setdefault("api_key", Secret(controller.api_key))
        changes.setdefault("base_url", controller.url)
        changes.setdefault("request_timeout_s", 2.0)
        on_rate_limited = changes.pop("on_rate_limited", lambda: None)
        settings = UnifiSettings(**changes)
        store = UnifiStore(settings, observe or (lambda *_: None), on_rate_limited)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture(params=["v2", "integration"])
def api(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def store(controller: Controller, open_store: OpenStore, api: str) -> UnifiStore:
    return open_store(controller, api=api)


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(10)
