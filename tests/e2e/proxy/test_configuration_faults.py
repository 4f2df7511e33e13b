"""Documents that are garbage, too large or too old, pushed under load: no request fails."""

import json
import random

import pytest

from tests.support.asking import ask
from tests.support.gateway import Gateway, route_to
from tests.support.load import Load
from tests.support.recordingbackend import RecordingBackend

MIB = 1 << 20


def test_a_document_of_more_than_64_mib_is_refused_and_changes_nothing(
    gateway: Gateway, backend: RecordingBackend
) -> None:
    gateway.serve(route_to(backend.address))

    announced = gateway.try_put(b" " * (64 * MIB + 1))

    assert 413 == announced.status_code
    assert "67108864" in announced.text
    assert 200 == ask(gateway.clear[1]).status_code


def garbage_of(document: dict[str, object]) -> list[bytes]:
    """Damaged documents: cut, with bytes changed, with nonsense in place of values."""
    good = json.dumps(document).encode()
    chance = random.Random(7)
    cut = [good[: chance.randrange(1, len(good))] for _ in range(15)]
    nonsense = [b"", b"null", b"[]", b"{}x", b'{"routes": 1}', b'{"unknown": 1}', b"\xff\xfe", b"[" * 100_000]
    no_routes: list[object] = [None, {}, [None], [[]], [{"x": 1}]]
    values = [json.dumps({**document, "routes": value}).encode() for value in no_routes]
    return [*cut, *nonsense, *values]


def test_garbage_during_load_costs_no_request(gateway: Gateway, backend: RecordingBackend) -> None:
    gateway.serve(route_to(backend.address))
    garbage = garbage_of(gateway.document(route_to(backend.address)))

    with Load(gateway.clear[1], threads=2) as anew, Load(gateway.clear[1], threads=2, keeps_alive=True) as kept:
        answers = [gateway.try_put(document) for document in garbage]
        anew.wait_for(20)
        kept.wait_for(20)

    assert {400} == {answer.status_code for answer in answers}
    assert all(answer.json()["message"] for answer in answers)
    assert [] == anew.failures + kept.failures


def test_good_documents_during_load_cost_no_request(gateway: Gateway, backend: RecordingBackend) -> None:
    gateway.serve(route_to(backend.address))

    with Load(gateway.clear[1], threads=2) as anew, Load(gateway.clear[1], threads=2, keeps_alive=True) as kept:
        for number in range(30):
            others = [route_to(backend.address, name=f"r{n}", hostnames=[f"h{n}.example"]) for n in range(number)]
            gateway.serve(route_to(backend.address), *others)
        anew.wait_for(20)
        kept.wait_for(20)

    assert [] == anew.failures + kept.failures
    assert 0 == kept.repeated


@pytest.mark.parametrize("moved", ["older", "equal with other content"])
def test_an_old_version_is_refused_with_the_loaded_one(gateway: Gateway, backend: RecordingBackend, moved: str) -> None:
    loaded = gateway.serve(route_to(backend.address))["version"]
    version = loaded - 1 if moved == "older" else loaded

    refused = gateway.try_put(json.dumps(gateway.document(version=version)).encode())

    assert (409, loaded) == (refused.status_code, refused.json()["loaded"])
    assert 200 == ask(gateway.clear[1]).status_code
