"""Documents on their way to workers."""

import msgspec
import pytest

from proxy import document
from proxy.document import handover


def routes(count: int) -> list[dict[str, object]]:
    backends = [{"address": "a.example:80"}]
    return [{"name": f"r{n}", "hostnames": [f"h{n}.example"], "backends": backends} for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 50, 51, 1000])
def test_what_is_packed_is_unpacked_in_order(count: int) -> None:
    config = document.decode(msgspec.json.encode({"mergeSlashes": False, "routes": routes(count)}))

    settings, parts = handover.unpack(memoryview(handover.pack(config)))

    assert settings == document.settings_of(config)
    assert tuple(document.decode_route(raw) for part in parts for raw in part) == config.routes


def test_no_part_holds_many_routes() -> None:
    config = document.decode(msgspec.json.encode({"routes": routes(1000)}))

    _, parts = handover.unpack(memoryview(handover.pack(config)))

    assert max(map(len, parts)) <= 100


def test_documents_that_say_the_same_have_the_same_bytes() -> None:
    one = document.decode(b'{"routes": [{"backends": [{"address": "b:1"}], "name": "a"}], "mergeSlashes": true}')
    other = document.decode(b'{"routes":[{"name":"a","backends":[{"address":"b:1"}]}]}')

    assert handover.pack(one) == handover.pack(other)
