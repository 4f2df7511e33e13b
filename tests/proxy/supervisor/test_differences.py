"""A worker is sent differences; after one that it cannot use, it is sent the whole document."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import msgspec
import pytest

from proxy import document
from proxy.accesslog import AccessLogSettings
from proxy.control import Begin
from proxy.supervisor.deployment import Deployment
from proxy.supervisor.slot import Slot

DEADLINE_S = 30.0


class BrokenDifference(Deployment):
    """A deployment whose differences are nonsense, as a bug would make them."""

    def since(self, before: Deployment | None) -> bytes:
        return super().since(None) if before is None else b"\x00\x00\x00\x02{]"


class BrokenWhole(BrokenDifference):
    """A deployment whose whole document is nonsense too."""

    def since(self, before: Deployment | None) -> bytes:
        return b"\x00\x00\x00\x02{]"


def contents(count: int) -> list[document.Content]:
    reader = document.Reader()
    routes = [{"name": f"r{number}", "backends": [{"address": "a.example:80"}]} for number in range(count + 9)]
    return [reader.read(msgspec.json.encode({"routes": routes[number:]})).content for number in range(count)]


class Place:
    """A slot with a real worker."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self.slot = Slot(Begin(0, "error", "json", AccessLogSettings("off", 0.0, "json")), self._news)

    def wait_until_served(self, generation: int) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self.slot.taken == generation, DEADLINE_S)

    def wait_until_refused(self, generation: int) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self.slot.refused == generation, DEADLINE_S)


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    thread = threading.Thread(target=place.slot.run, name="worker-0")
    thread.start()
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(thread.join, DEADLINE_S)
        stack.callback(place.slot.end)
        yield place


def test_a_difference_that_cannot_be_used_is_followed_by_the_whole(place: Place) -> None:
    first, second = contents(2)
    place.slot.deploy(Deployment(1, 1, first, {}))
    assert place.wait_until_served(1)

    place.slot.deploy(BrokenDifference(2, 2, second, {}))

    assert place.wait_until_served(2)
    assert (place.slot.refused, place.slot.restarts) == (0, 0)


def test_a_difference_sent_right_after_an_unusable_one_does_no_harm(place: Place) -> None:
    first, second, third = contents(3)
    place.slot.deploy(Deployment(1, 1, first, {}))
    assert place.wait_until_served(1)

    place.slot.deploy(BrokenDifference(2, 2, second, {}))
    place.slot.deploy(Deployment(3, 3, third, {}))

    assert place.wait_until_served(3)
    assert (place.slot.refused, place.slot.restarts) == (0, 0)


def test_after_a_whole_that_cannot_be_used_the_next_document_is_served(place: Place) -> None:
    first, second, third = contents(3)
    place.slot.deploy(Deployment(1, 1, first, {}))
    assert place.wait_until_served(1)
    place.slot.deploy(BrokenWhole(2, 2, second, {}))
    assert place.wait_until_refused(2)

    place.slot.deploy(Deployment(3, 3, third, {}))

    assert place.wait_until_served(3)
