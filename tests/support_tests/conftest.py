from collections.abc import Iterator

import pytest

from tests.support.controller import Controller
from tests.support_tests.callers import Caller


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        yield controller


@pytest.fixture
def caller(controller: Controller) -> Iterator[Caller]:
    with Caller(controller) as caller:
        yield caller
