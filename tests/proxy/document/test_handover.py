"""What is sent to workers: the whole document at first, then what has changed."""

from typing import Any

import msgspec
import pytest

from proxy import document
from proxy.document import handover


def route(number: int, **changed: Any) -> dict[str, Any]:
    backends = [{"address": "a.example:80"}]
    return {"name": f"r{number}", "hostnames": [f"h{number}.example"], "backends": backends, **changed}


def contents(*documents: dict[str, Any]) -> list[document.Content]:
    reader = document.Reader()
    return [reader.read(msgspec.json.encode(content)).content for content in documents]


def told(before: document.Content | None, after: document.Content) -> tuple[handover.Leaving, list[handover.Coming]]:
    leaving, parts = handover.unpack(memoryview(handover.pack(before, after)))
    return leaving, list(parts)


@pytest.mark.parametrize("count", [0, 1, 50, 51, 1000])
def test_a_worker_without_a_document_gets_all_of_it_in_order(count: int) -> None:
    (content,) = contents({"mergeSlashes": False, "routes": [route(number) for number in range(count)]})

    leaving, parts = told(None, content)

    assert leaving.is_whole
    assert leaving.settings == content.settings
    texts = [one.text for part in parts for one in part.routes]
    assert tuple(map(document.decode_route, texts)) == content.document(document.UNSET).routes


def test_no_part_holds_more_than_a_hundred_items() -> None:
    backends = [{"name": f"b{number}", "addresses": ["a.example:80"]} for number in range(300)]
    (content,) = contents({"backends": backends, "routes": [route(number) for number in range(300)]})

    _, parts = told(None, content)

    assert sum(len(part.backends) for part in parts) == sum(len(part.routes) for part in parts) == 300
    assert max(len(part.backends) + len(part.routes) for part in parts) <= 100


def test_only_the_changed_route_is_sent() -> None:
    routes = [route(number) for number in range(100)]
    before, after = contents({"routes": routes}, {"routes": [*routes[:-1], route(99, hostnames=["new.example"])]})

    leaving, (part,) = told(before, after)

    assert leaving == handover.Leaving(False, None, (), ([*before.routes][-1],))
    assert [document.decode_route(one.text).hostnames for one in part.routes] == [("new.example",)]


def test_routes_of_a_changed_backend_are_removed_and_sent_again() -> None:
    def backend(name: str, address: str) -> dict[str, Any]:
        return {"name": name, "addresses": [address]}

    routes = [route(number, backends=[{"backend": f"b{number % 2}"}]) for number in range(2)]
    routes += [route(number) for number in range(2, 6)]
    before, after = contents(
        {"backends": [backend("b0", "a:1"), backend("b1", "a:1"), backend("gone", "a:1")], "routes": routes},
        {"backends": [backend("b0", "a:1"), backend("b1", "a:2")], "routes": routes},
    )

    leaving, parts = told(before, after)

    again = [*after.routes][1]
    assert leaving == handover.Leaving(False, None, ("gone",), (again,))
    assert [[one.name for one in part.backends] + [one.number for one in part.routes] for part in parts] == [
        ["b1"],
        [again],
    ]


def test_a_mostly_new_document_is_sent_whole() -> None:
    before, after = contents({"routes": [route(0), route(1)]}, {"routes": [route(2), route(3)]})

    leaving, _ = told(before, after)

    assert leaving.is_whole


def test_nothing_is_sent_of_a_document_with_equal_content() -> None:
    routes = [route(number) for number in range(3)]
    before, after = contents({"routes": routes, "version": 1}, {"mergeSlashes": True, "routes": routes, "version": 2})

    assert told(before, after) == (handover.Leaving(False, None, (), ()), [])


def test_white_space_key_order_and_explicit_defaults_make_no_difference() -> None:
    reader = document.Reader()
    route = b'{"backends": [{"weight": 1, "address": "b:1"}], "name": "a"}'
    one = reader.read(b'{"routes": [%b], "mergeSlashes": true}' % route).content
    other = reader.read(b'{"routes":[{"name":"a","backends":[{"address":"b:1"}]}]}').content

    assert one.says_the_same_as(other)
    assert one.encode(3) == other.encode(3) == msgspec.json.encode(other.document(3))
